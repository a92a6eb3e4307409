//! Programs that bring a libibverbs of their own, and those that cannot be preloaded into.

use std::fs;
use std::path::{Path, PathBuf};

use super::contains;
use crate::sh;
use crate::system::{Catalogue, Outcome, Place, Process, Side, Stage, User};

/// What a packager of Python wheels makes of the names of the two libraries.
const RENAMED: [(&str, &str); 2] = [
    ("libibverbs.so.1", "libibverbs-1234abcd.so.1.99.0"),
    ("librdmacm.so.1", "librdmacm-5678cdef.so.1.9.0"),
];

pub(super) fn add(all: &mut Catalogue) {
    let user = User::Ordinary;
    all.at("preload.bundled", Place::OneSpace, user, 40, bundled);
    all.at("preload.opened", Place::Loopback, user, 30, opened);
    all.at("preload.wrapped", Place::Loopback, user, 20, wrapped);
    all.at("preload.sanitizer", Place::Loopback, user, 40, sanitizer);
    all.at("preload.narrow", Place::Loopback, user, 20, narrow);
    all.at("preload.refused", Place::Loopback, user, 20, refused);
}

/// A folder with renamed copies of Debian's libraries, as a wheel has it.
struct Bundle(PathBuf);

impl Bundle {
    fn new(stage: &Stage, name: &str) -> Result<Self, String> {
        let folder = PathBuf::from(stage.built(&format!("bundle-{name}")));
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let bundle = Self(folder);
        for (library, renamed) in RENAMED {
            let found = sh::output("gcc", &[&format!("-print-file-name={library}")])?;
            bundle.take(found.trim(), renamed)?;
            sh::output(
                "patchelf",
                &["--set-soname", renamed, &bundle.file(renamed)],
            )?;
        }
        Ok(bundle)
    }

    /// Copies a program or library of the system, and makes it use the renamed ones.
    fn take(&self, from: &str, name: &str) -> Outcome {
        let to = self.file(name);
        fs::copy(from, &to).map_err(|e| format!("{from}: {e}"))?;
        for (library, renamed) in RENAMED {
            sh::output("patchelf", &["--replace-needed", library, renamed, &to])?;
        }
        // In a call of its own: with the others, Debian 12's patchelf writes a wrong path.
        sh::output("patchelf", &["--set-rpath", "$ORIGIN", &to]).map(drop)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }
}

/// Compiles a source of `tests/c/preload`.
fn compile(name: &str, to: &str, options: &[&str]) -> Outcome {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/c/preload");
    let source = source.join(name).to_string_lossy().into_owned();
    let words = [&["-Wall", "-Wextra", "-Werror", "-o", to, &source], options].concat();
    sh::output("gcc", &words).map(drop)
}

/// A program linked to renamed copies of both libraries uses ours, with everything that it does.
fn bundled(stage: &Stage) -> Outcome {
    let bundle = Bundle::new(stage, "rping")?;
    bundle.take("/usr/bin/rping", "rping")?;
    let program = bundle.file("rping");
    let words = |role| [&*program, role, "-a", stage.ipv4(), "-C", "20", "-V"];
    // Its own libraries know no device.
    let mut alone = stage
        .with_option(Side::A, "--no-preload", &words("-s"))
        .start()?;
    alone.refuse()?;
    let server = words("-s");
    let client = words("-c");
    // Started by a shell, as most programs are.
    let shell = |words: &[&str]| -> Result<Process, String> {
        stage.start(
            Side::A,
            &[&["sh", "-c", "\"$@\"; exit $?", "sh"], words].concat(),
        )
    };
    let mut server = shell(&server)?;
    server.listens_on_cm(7174)?;
    let mut client = shell(&client)?;
    client.succeed()?;
    server.succeed()
}

/// A copy that is opened by its file, and a plugin that is linked to one.
fn opened(stage: &Stage) -> Outcome {
    let bundle = Bundle::new(stage, "opened")?;
    compile(
        "plugin.c",
        &bundle.file("libplugin.so"),
        &["-shared", "-fPIC", "-libverbs"],
    )?;
    bundle.take(&bundle.file("libplugin.so"), "plugin")?;
    fs::rename(bundle.file("plugin"), bundle.file("libplugin.so")).map_err(|e| e.to_string())?;
    let program = bundle.file("opens");
    compile("opens.c", &program, &["-Wl,-rpath,$ORIGIN", "-ldl"])?;
    let copy = bundle.file(RENAMED[0].1);
    let numbers = |output: &str| {
        let number = |line: &str| line.split(' ').nth(1)?.parse::<u32>().ok();
        let lines: Vec<_> = output.lines().filter_map(number).collect();
        (lines.len() == 2)
            .then_some(lines)
            .ok_or_else(|| format!("two numbers wanted: {output}"))
    };
    let output = stage.run(Side::A, &[&program, &copy])?;
    contains(&output, "unknown version refused")?;
    if numbers(&output)?.contains(&0) {
        return Err(format!("no devices: {output}"));
    }
    let mut alone = stage
        .with_option(Side::A, "--no-preload", &[&program, &copy])
        .start()?;
    alone.succeed()?;
    if numbers(&alone.output())? != [0, 0] {
        return Err("the copies have devices of their own: the test shows nothing".into());
    }
    let script = format!(
        "import ctypes\nlibrary = ctypes.CDLL('{copy}')\nn = ctypes.c_int()\n\
         library.ibv_get_device_list(ctypes.byref(n))\nassert n.value > 0"
    );
    stage
        .run(Side::A, &["/usr/bin/python3", "-c", &script])
        .map(drop)
}

/// A library that the user preloads stands in front of ours, and finds ours behind itself.
fn wrapped(stage: &Stage) -> Outcome {
    let bundle = Bundle::new(stage, "wrapped")?;
    let wrapper = bundle.file("wrapper.so");
    compile("wrapper.c", &wrapper, &["-shared", "-fPIC", "-ldl"])?;
    let mut launch = stage.program(Side::A, &["ibv_devices"]);
    let mut process = launch.env("LD_PRELOAD", &wrapper).start()?;
    process.succeed()?;
    contains(&process.output(), "wrapped, 1 devices")?;
    contains(&process.output(), "ferroce_lo")
}

/// A program with AddressSanitizer refuses to start with another library in front.
fn sanitizer(stage: &Stage) -> Outcome {
    let bundle = Bundle::new(stage, "sanitizer")?;
    let program = bundle.file("devices");
    compile("devices.c", &program, &["-fsanitize=address", "-libverbs"])?;
    left_out(
        stage,
        &program,
        "wants its sanitizer loaded first",
        "nothing in /sys",
    )
}

/// The loader of a 32-bit program complains of 64-bit libraries.
fn narrow(stage: &Stage) -> Outcome {
    let bundle = Bundle::new(stage, "narrow")?;
    let program = bundle.file("narrow");
    // Gcc needs no package for 32 bits without headers and libraries.
    let options = [
        "-m32",
        "-static",
        "-nostdlib",
        "-ffreestanding",
        "-no-pie",
        "-fno-pie",
    ];
    compile("narrow.c", &program, &options)?;
    left_out(stage, &program, "is no 64-bit program of this machine", "")
}

/// Nothing is preloaded into a program, which is said, and it runs: by itself, where it prints
/// `alone`, and started by shells, which keep the libraries for what they start next.
fn left_out(stage: &Stage, program: &str, reason: &str, alone: &str) -> Outcome {
    let quoted = format!("'{program}' && '{program}' && ls /sys/class/infiniband");
    for (words, shown) in [
        (&[program][..], alone),
        (&["sh", "-c", &quoted], "ferroce_lo"),
        (&["bash", "-c", &quoted], "ferroce_lo"),
    ] {
        let mut launch = stage.program(Side::A, words);
        // What the list of devices is made of lives as long as the library.
        let mut process = launch.env("ASAN_OPTIONS", "detect_leaks=0").start()?;
        process.succeed()?;
        let output = process.output();
        contains(&output, shown)?;
        // A shell starts the program twice, each time from a child.
        wants_once(&output, reason)?;
    }
    Ok(())
}

/// Programs that the loader gives nothing are named, and run.
fn refused(stage: &Stage) -> Outcome {
    let bundle = Bundle::new(stage, "refused")?;
    let program = bundle.file("static");
    compile("static.c", &program, &["-static"])?;
    for (words, reason) in [
        (&[&*program][..], "is static"),
        (&["su", "--version"], "runs with more rights"),
        (&["sh", "-c", "su --version; :"], "runs with more rights"),
    ] {
        wants_once(&stage.run(Side::A, words)?, reason)?;
    }
    Ok(())
}

fn wants_once(output: &str, reason: &str) -> Outcome {
    match output.matches(reason).count() {
        1 => Ok(()),
        n => Err(format!("{reason:?} is said {n} times, not once: {output}")),
    }
}
