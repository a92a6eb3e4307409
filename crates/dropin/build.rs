//! Gives the library its version nodes and its name, and puts the names that programs look for
//! beside it.
//!
//! The compiler passes a version script of its own that makes everything local but `#[no_mangle]`
//! functions, so the nodes come in a second script and stay empty there: the symbols are put into
//! them by `.symver` (see `src/lib.rs`). A linker that heeds the last script only (zig's, which
//! links releases) needs `local: *` in it, too.
//!
//! The nodes, and which private ones a symbol is in, come from `symbols.txt`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// What rdma-core's libraries export. See its head.
const SYMBOLS: &str = "symbols.txt";
/// What the name of a node of the interface between libibverbs and its providers begins with. Such
/// a node inherits from none.
const IBVERBS_PRIVATE: &str = "IBVERBS_PRIVATE_";
/// The private node whose symbols linkers take where several nodes have one of that name: it is in
/// most releases that distributions have.
const USUAL_PRIVATE: &str = "IBVERBS_PRIVATE_34";
/// The node of what only Ferroce's own preloaded library calls.
const PRIVATE: &str = "FERROCE_PRIVATE";
/// Names under which loaders and linkers look for the two libraries, and those of the libraries
/// that `ferroce run` preloads besides, with what they stand for.
const NAMES: &[(&str, &str)] = &[
    ("libibverbs.so.1", LIBRARY),
    ("libibverbs.so", LIBRARY),
    ("librdmacm.so.1", LIBRARY),
    ("librdmacm.so", LIBRARY),
    ("libferroce-sysfs.so", "../libferroce_sysfs.so"),
    ("libferroce-sockets.so", "../libferroce_sockets.so"),
];
/// Folder with those names, beside the library.
const FOLDER: &str = "ferroce-lib";
/// The library, as seen from that folder.
const LIBRARY: &str = "../libferroce_dropin.so";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={SYMBOLS}");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let text = fs::read_to_string(SYMBOLS)?;
    let symbols: Vec<_> = text.lines().filter_map(symbol).collect();
    let script = out.join("nodes.map");
    fs::write(&script, version_script(&symbols))?;
    fs::write(out.join("private.rs"), private_versions(&symbols))?;
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

/// Node and name, if this line of the file is a symbol's.
fn symbol(line: &str) -> Option<(&str, &str)> {
    match line.split_whitespace().collect::<Vec<_>>()[..] {
        [node, name, _since] if !node.starts_with('#') => Some((node, name)),
        _ => None,
    }
}

/// All nodes, empty, and everything else local. Each public one inherits from the one before it of
/// its library.
fn version_script(symbols: &[(&str, &str)]) -> String {
    let mut nodes: Vec<_> = symbols.iter().map(|(node, _)| *node).collect();
    nodes.dedup();
    // The loader gives the first node's symbols to libraries that ask for no version, even if a
    // newer node has them. So the first one is no node of programs.
    let mut script = format!("{PRIVATE} {{ local: *; }};\n");
    let mut before = "";
    for node in nodes {
        if node.starts_with(IBVERBS_PRIVATE) {
            writeln!(script, "{node} {{ }};").expect("writing to a string");
            continue;
        }
        let library = |node: &str| node.split('_').next().map(str::to_owned);
        let parent = if library(before) == library(node) {
            before
        } else {
            ""
        };
        writeln!(script, "{node} {{ }} {parent};").expect("writing to a string");
        before = node;
    }
    script
}

/// A macro that gives a private symbol's directives of the assembler, one for each of its nodes.
fn private_versions(symbols: &[(&str, &str)]) -> String {
    let mut nodes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (node, name) in symbols {
        if node.starts_with(IBVERBS_PRIVATE) {
            nodes.entry(name).or_default().push(node);
        }
    }
    let mut arms = String::new();
    for (name, nodes) in nodes {
        let newest = nodes.last().expect("invariant: a symbol is in a node");
        let default = nodes
            .iter()
            .find(|n| **n == USUAL_PRIVATE)
            .unwrap_or(newest);
        let mut versions = String::new();
        for node in &nodes {
            let at = if node == default { "@@" } else { "@" };
            write!(versions, ".symver ferroce_{name}, {name}{at}{node}\\n")
                .expect("writing to a string");
        }
        writeln!(arms, "    ({name}) => {{ \"{versions}\" }};").expect("writing to a string");
    }
    format!("macro_rules! private_versions {{\n{arms}}}\n")
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
