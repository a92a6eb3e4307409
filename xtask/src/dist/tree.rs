//! The files of a release as they lie below `/usr`, a folder of a user, or a Python package.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::system::{SYSTEMS, System};
use super::{Part, at, copy, licences, sbom, write};
use crate::sh;

/// The command.
pub(super) const COMMAND: &str = "bin/ferroce";
/// The folder, seen from that of the command, in which the command looks for its libraries.
pub(super) const LIBRARIES: &str = "lib/ferroce";
/// What is linked in.
pub(super) const BILL: &str = "share/doc/ferroce/ferroce.cdx.json";
/// Documents of the repository that a user without it wants.
const DOCUMENTS: [&str; 6] = [
    "README.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "docs/environment.md",
];
/// What is built, by its name there and in the tree.
const BUILT: [(&str, &str); 4] = [
    ("ferroce", COMMAND),
    ("libferroce_dropin.so", "lib/ferroce/libibverbs.so.1"),
    ("libferroce_sockets.so", "lib/ferroce/libferroce-sockets.so"),
    ("libferroce_sysfs.so", "lib/ferroce/libferroce-sysfs.so"),
];

/// Makes the tree `TREE`, and `TREE-debug` with the debug symbols beside it, which
/// debuggers find when both are unpacked in one place. What was built, stripped.
pub(super) fn stage(part: &Part<'_>, built: &Path) -> Result<Vec<PathBuf>, String> {
    let tree = &part.tree;
    let debug = PathBuf::from(format!("{}-debug", tree.display()));
    let mut files = Vec::new();
    for (source, place) in BUILT {
        let file = tree.join(place);
        copy(&built.join(source), &file)?;
        strip(part.system, &file, &debug.join(place))?;
        let mode = if place == COMMAND { 0o755 } else { 0o644 };
        fs::set_permissions(&file, Permissions::from_mode(mode)).map_err(|e| at(&file, &e))?;
        files.push(file);
    }
    // One file serves both libraries, and the loader sees that it is one.
    let second = tree.join(LIBRARIES).join("librdmacm.so.1");
    symlink("libibverbs.so.1", &second).map_err(|e| at(&second, &e))?;
    sh::step(manual(part, &tree.join("share")))?;
    let documents = tree.join("share/doc/ferroce");
    for document in DOCUMENTS {
        copy(
            &part.workspace.root.join(document),
            &documents.join(document),
        )?;
    }
    write(
        &documents.join("THIRD-PARTY"),
        licences::of_libraries(part)?,
    )?;
    write(&tree.join(BILL), sbom::document(part)?)?;
    Ok(files)
}

/// Writes the manual by the command that runs on this machine: it is that of all.
fn manual(part: &Part<'_>, to: &Path) -> Command {
    let native = part.workspace.target.join(SYSTEMS[0].triple());
    let mut manual = Command::new(native.join("release/ferroce"));
    manual.arg("manual").arg(to);
    manual
}

/// Takes the debug symbols out of a file, into `.debug` beside the same place of another tree.
fn strip(system: System, file: &Path, place: &Path) -> Result<(), String> {
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    let debug = place.with_file_name(format!(".debug/{name}.debug"));
    write(&debug, "")?;
    let (file, debug) = (file.to_string_lossy(), debug.to_string_lossy());
    let link = format!("--add-gnu-debuglink={debug}");
    for words in [
        &["objcopy", "--only-keep-debug", &file, &debug][..],
        &["strip", "--strip-unneeded", &file],
        &["objcopy", &link, &file],
    ] {
        sh::output(&system.tool(words[0]), &words[1..])?;
    }
    Ok(())
}
