//! The `ferroce` command itself.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::contains;
use crate::system::{Catalogue, Outcome, Place, Side, Stage, USERS, User};

/// Time for the demonstration beside other tests. By itself it takes less than four seconds.
const DEMO: Duration = Duration::from_secs(20);

pub(super) fn add(all: &mut Catalogue) {
    for user in USERS {
        all.at("run.status", Place::Loopback, user, 10, statuses);
        all.at("run.signal", Place::Loopback, user, 10, signals);
        all.at("run.streams", Place::Loopback, user, 10, streams);
        all.at("run.children", Place::Loopback, user, 10, |stage| {
            contains(
                &stage.run(Side::A, &["sh", "-c", "cd /; exec ibv_devices"])?,
                "ferroce",
            )
        });
        all.at("env", Place::Loopback, user, 10, env);
        for place in [Place::Loopback, Place::OneSpace] {
            all.at("devices", place, user, 10, devices);
        }
        all.at("demo", Place::Loopback, user, 30, demo);
        all.at("demo", Place::OneSpace, user, 30, demo);
    }
    all.at("doctor", Place::Loopback, User::Ordinary, 30, doctor);
    all.at("summary", Place::OneSpace, User::Ordinary, 30, summary);
    all.at(
        "log.filter",
        Place::Loopback,
        User::Ordinary,
        10,
        log_filter,
    );
    for place in [Place::Loopback, Place::OneSpace] {
        all.at("log.port-taken", place, User::Ordinary, 30, port_taken);
    }
    all.at(
        "run.without-library",
        Place::Loopback,
        User::Root,
        10,
        without_library,
    );
    all.at("run.installed", Place::Loopback, User::Root, 10, installed);
}

/// What works is said, what does not makes the status 1, and what mends it stands below.
fn doctor(stage: &Stage) -> Outcome {
    let ferroce = stage.built("ferroce");
    let ask = |words: &[&str]| stage.bare(Side::A, words).start();
    let mut healthy = ask(&[&ferroce, "doctor", "--", "ibv_devices"])?;
    healthy.succeed()?;
    for text in [
        "libraries",
        "ferroce_lo",
        "same host",
        "UDP port 4791",
        "sees the devices",
        "a program can have",
        "can become streams",
    ] {
        contains(&healthy.output(), text)?;
    }
    let mut refused = ask(&[&ferroce, "doctor", "--", "su"])?;
    refused.end_with(1)?;
    contains(&refused.output(), "runs with more rights")?;
    contains(
        &refused.output(),
        "stay on TCP: it does not get the library",
    )?;
    // Its loopback interface is down.
    let mut bare = ask(&["unshare", "--user", "--net", &ferroce, "doctor"])?;
    bare.end_with(1)?;
    contains(&bare.output(), "mend: sudo ip link set lo up")
}

/// What went over the device is told at exit, and nothing where no device was opened.
fn summary(stage: &Stage) -> Outcome {
    let rping = |role| ["rping", role, "-a", stage.ipv4(), "-C", "10"];
    let start = |words: &[&str]| {
        let mut launch = stage.program(Side::A, words);
        launch.env("FERROCE_SUMMARY", "1").start()
    };
    let mut server = start(&rping("-s"))?;
    server.listens_on_cm(7174)?;
    let mut client = start(&rping("-c"))?;
    client.succeed()?;
    server.succeed()?;
    for process in [&server, &client] {
        let output = process.output();
        let line = output
            .lines()
            .find(|line| line.starts_with("ferroce summary: "));
        let line = line.ok_or("no summary")?;
        for text in [
            "program=rping device=ferroce_",
            " queue_pairs=1 ",
            "sent=20 received=20 ",
        ] {
            contains(line, text)?;
        }
        if line.contains("bytes=0") || line.contains("wire=") {
            return Err(format!("bytes by another way: {line}"));
        }
    }
    let mut none = start(&["sh", "-c", "ibv_devices"])?;
    none.succeed()?;
    if none.output().contains("summary") {
        return Err("a summary without a device".into());
    }
    Ok(())
}

fn statuses(stage: &Stage) -> Outcome {
    let cases: [(&[&str], i32); 5] = [
        (&["true"], 0),
        (&["sh", "-c", "exit 37"], 37),
        (&["/no/such/program"], 127),
        (&["/etc/passwd"], 126),
        (&["/"], 126),
    ];
    for (words, code) in cases {
        let mut process = stage.start(Side::A, words)?;
        process.end_with(code)?;
        let output = process.output();
        // One line about a failure of its own, and nothing else ever.
        let due = usize::from(code > 100);
        if output.lines().count() != due {
            return Err(format!("{words:?} printed {output:?}"));
        }
    }
    let mut nothing = stage
        .bare(Side::A, &[&stage.built("ferroce"), "run"])
        .start()?;
    nothing.end_with(125)
}

fn signals(stage: &Stage) -> Outcome {
    let mut process = stage.start(Side::A, &["sh", "-c", "echo up; exec sleep 60"])?;
    process.says("up")?;
    process.signal(Signal::SIGINT)?;
    process.killed_by(Signal::SIGINT)?;
    let mut pipe = shell(stage, "ferroce run -- yes | head -n 1; echo done")?;
    pipe.succeed()?;
    contains(&pipe.output(), "done")
}

fn streams(stage: &Stage) -> Outcome {
    let script = "out=$(printf 'a b' | ferroce run cat - 2>&1); test \"$out\" = 'a b'; \
                  out=$(ferroce run -- sh -c 'echo x; echo y >&2' 2>/dev/null); test \"$out\" = x; \
                  out=$(ferroce run -- sh -c 'echo x; echo y >&2' 2>&1 >/dev/null); test \"$out\" = y; \
                  out=$(ferroce run printf '%s,' --help -v -- 'a  b'); test \"$out\" = '--help,-v,--,a  b,'";
    shell(stage, script)?.succeed()
}

fn env(stage: &Stage) -> Outcome {
    let script = "before=$LD_LIBRARY_PATH; eval \"$(ferroce env)\"; ibv_devices; \
                  LD_LIBRARY_PATH=/a:/b; eval \"$(ferroce env)\"; case $LD_LIBRARY_PATH in */ferroce-lib:/a:/b) ;; *) exit 1 ;; esac";
    let mut process = shell(stage, script)?;
    process.succeed()?;
    contains(&process.output(), "ferroce")
}

fn devices(stage: &Stage) -> Outcome {
    let ferroce = stage.built("ferroce");
    let mut table = stage.bare(Side::A, &[&ferroce, "devices"]).start()?;
    table.succeed()?;
    for text in ["ACTIVE", "Ethernet", "RoCE v2", stage.ipv4()] {
        contains(&table.output(), text)?;
    }
    let mut json = stage
        .bare(Side::A, &[&ferroce, "devices", "--json"])
        .start()?;
    json.succeed()?;
    let listed: serde_json::Value =
        serde_json::from_str(&json.output()).map_err(|e| format!("devices --json: {e}"))?;
    let gids = &listed[0]["ports"][0]["gids"];
    let first = gids[0]["gid"].as_str().unwrap_or_default().to_owned();
    contains(&first, stage.ipv4())
}

/// The README's first command: right, telling, and soon done.
fn demo(stage: &Stage) -> Outcome {
    let begun = Instant::now();
    let mut demo = stage
        .bare(Side::A, &[&stage.built("ferroce"), "demo"])
        .label("demo")
        .start()?;
    demo.succeed()?;
    let took = begun.elapsed();
    for text in [
        "SEND",
        "RDMA WRITE",
        "RDMA READ",
        "immediate",
        "compare",
        "fetch",
        "µs",
        "GB/s",
    ] {
        contains(&demo.output(), text)?;
    }
    if took < DEMO {
        Ok(())
    } else {
        Err(format!("it took {took:?}"))
    }
}

/// Silent unless asked.
fn log_filter(stage: &Stage) -> Outcome {
    let quiet = stage.run(Side::A, &["ibv_devices"])?;
    let mut asked = stage
        .program(Side::A, &["ibv_devices"])
        .env("FERROCE_LOG", "debug")
        .start()?;
    asked.succeed()?;
    contains(&asked.output(), "DEBUG ferroce")?;
    if quiet.contains("ferroce::") {
        Err("it logs without being asked".into())
    } else {
        Ok(())
    }
}

/// Somebody else has the UDP port: one line says so, and connections within the host work all the
/// same.
fn port_taken(stage: &Stage) -> Outcome {
    let script = "import socket, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 4791)); \
                  print('taken', flush=True); time.sleep(60)";
    let mut owner = stage
        .bare(Side::A, &["python3", "-c", script])
        .user(User::Root)
        .start()?;
    owner.says("taken")?;
    let server = ["ibv_rc_pingpong", "-g", "0", "-c"];
    let (told, _) = super::pair(
        stage,
        super::Ready::Tcp(18515),
        &server,
        &[&server[..], &[stage.ipv4()]].concat(),
    )?;
    match told.lines().filter(|line| line.contains("4791")).count() {
        1 => Ok(()),
        n => Err(format!("{n} lines about the port, not 1")),
    }
}

fn without_library(stage: &Stage) -> Outcome {
    let alone = stage.file("alone");
    std::fs::create_dir_all(&alone).map_err(|e| e.to_string())?;
    let copy = alone.join("ferroce");
    std::fs::copy(stage.built("ferroce"), &copy).map_err(|e| e.to_string())?;
    let mut process = stage
        .bare(Side::A, &[&copy.to_string_lossy(), "run", "true"])
        .start()?;
    process.end_with(125)?;
    contains(&process.output(), "cargo build --release")
}

/// The layout of packages: the command finds its libraries in `../lib/ferroce`, when it is called
/// by a link, too.
fn installed(stage: &Stage) -> Outcome {
    let text = |e: std::io::Error| e.to_string();
    let root = stage.file("installed");
    let files = [
        ("libferroce_sysfs.so", "lib/ferroce/libferroce-sysfs.so"),
        ("ferroce", "bin/ferroce"),
        ("ferroce-lib/libibverbs.so.1", "lib/ferroce/libibverbs.so.1"),
        ("ferroce-lib/librdmacm.so.1", "lib/ferroce/librdmacm.so.1"),
    ];
    for folder in ["bin", "lib/ferroce"] {
        std::fs::create_dir_all(root.join(folder)).map_err(text)?;
    }
    for (built, place) in files {
        std::fs::copy(stage.built(built), root.join(place)).map_err(text)?;
    }
    let link = root.join("link");
    std::os::unix::fs::symlink("bin/ferroce", &link).map_err(text)?;
    let (link, share) = (link.to_string_lossy(), root.join("share"));
    let mut devices = stage
        .bare(Side::A, &[&link, "run", "ibv_devices"])
        .start()?;
    devices.succeed()?;
    contains(&devices.output(), "ferroce_")?;
    if devices.output().contains("ferroce: ") {
        return Err("something is amiss".to_owned());
    }
    let mut manual = stage
        .bare(Side::A, &[&link, "manual", &share.to_string_lossy()])
        .start()?;
    manual.succeed()?;
    let page = std::fs::read_to_string(share.join("man/man1/ferroce-run.1")).map_err(text)?;
    contains(&page, "PROGRAM")
}

/// A shell that finds `ferroce`.
fn shell(stage: &Stage, script: &str) -> Result<crate::system::Process, String> {
    let folder = stage.built("");
    let path = format!("{folder}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
    stage
        .bare(Side::A, &["sh", "-e", "-c", script])
        .env("PATH", &path)
        .start()
}
