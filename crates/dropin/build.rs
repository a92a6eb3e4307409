//! Gives the library its version nodes and its name, and puts the names that programs look for
//! beside it.
//!
//! The compiler passes a version script of its own that makes everything local but `#[no_mangle]`
//! functions, so the nodes come in a second script and stay empty there: the symbols are put into
//! them by `.symver` (see `src/lib.rs`). A linker that heeds the last script only (zig's, which
//! links releases) needs `local: *` in it, too.

use std::fmt::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// Version nodes of libibverbs, each inheriting from the one before it.
const IBVERBS: &[&str] = &[
    "1.0", "1.1", "1.5", "1.6", "1.7", "1.8", "1.9", "1.10", "1.11", "1.12", "1.13", "1.14",
    "1.15", "1.16", "1.17", "1.18",
];
/// The node of the interface between libibverbs and its providers; it inherits from none.
const IBVERBS_PRIVATE: &str = "IBVERBS_PRIVATE_34";
/// Version nodes of librdmacm.
const RDMACM: &[&str] = &["1.0", "1.1", "1.2", "1.3", "1.4", "1.5"];
/// The node of what only Ferroce's own preloaded library calls.
const PRIVATE: &str = "FERROCE_PRIVATE";
/// Names under which loaders and linkers look for the two libraries, and the one of the library
/// that `ferroce run --sysfs` preloads, with what they stand for.
const NAMES: &[(&str, &str)] = &[
    ("libibverbs.so.1", LIBRARY),
    ("libibverbs.so", LIBRARY),
    ("librdmacm.so.1", LIBRARY),
    ("librdmacm.so", LIBRARY),
    ("libferroce-sysfs.so", "../libferroce_sysfs.so"),
];
/// Folder with those names, beside the library.
const FOLDER: &str = "ferroce-lib";
/// The library, as seen from that folder.
const LIBRARY: &str = "../libferroce_dropin.so";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let script = out.join("nodes.map");
    fs::write(&script, version_script())?;
    let mut arguments = vec![
        format!("-Wl,--version-script={}", script.display()),
        // One file serves both libraries; loaders recognise that by the file, whatever its name.
        "-Wl,-soname,libibverbs.so.1".to_owned(),
        // A thread of the library runs for as long as the process: its code must not go away on
        // dlclose.
        "-Wl,-z,nodelete".to_owned(),
    ];
    arguments.extend(linker());
    for argument in arguments {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    link_names(&profile_folder(&out))
}

/// Asks gcc for the linker that comes with the compiler, which is the default on some platforms
/// only. GNU ld refuses two version scripts. Without one (a compiler of a distribution) the default
/// has to do.
fn linker() -> Vec<String> {
    let variable = |name| env::var(name).expect("cargo sets it");
    let output = Command::new(variable("RUSTC"))
        .args(["--print", "sysroot"])
        .output();
    let Ok(output) = output else {
        return Vec::new();
    };
    let sysroot = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let folder = format!("{sysroot}/lib/rustlib/{}/bin/gcc-ld", variable("HOST"));
    if !Path::new(&folder).join("ld.lld").exists() {
        return Vec::new();
    }
    vec![format!("-B{folder}"), "-fuse-ld=lld".to_owned()]
}

/// All nodes, empty, and everything else local.
fn version_script() -> String {
    let mut script = String::new();
    for (prefix, versions) in [("IBVERBS", IBVERBS), ("RDMACM", RDMACM)] {
        let mut parent = String::new();
        for version in versions {
            let node = format!("{prefix}_{version}");
            writeln!(script, "{node} {{ }}{parent};").expect("writing to a string");
            parent = format!(" {node}");
        }
    }
    for (node, content) in [(IBVERBS_PRIVATE, ""), (PRIVATE, "local: *;")] {
        writeln!(script, "{node} {{ {content} }};").expect("writing to a string");
    }
    script
}

/// The folder where cargo puts the library: `<profile>/build/<package>/out` is where the script
/// writes.
fn profile_folder(out: &Path) -> PathBuf {
    out.ancestors()
        .nth(3)
        .expect("OUT_DIR lies three folders below the profile's")
        .to_owned()
}

/// Makes the folder with links to the libraries, or corrects it.
fn link_names(profile: &Path) -> io::Result<()> {
    let folder = profile.join(FOLDER);
    fs::create_dir_all(&folder)?;
    for (name, target) in NAMES {
        let link = folder.join(name);
        if fs::read_link(&link).is_ok_and(|to| to == Path::new(target)) {
            continue;
        }
        match fs::remove_file(&link) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => symlink(target, &link)?,
        }
    }
    Ok(())
}
