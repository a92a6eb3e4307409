//! Finding the drop-in library.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What the loader must find in the folder.
const LIBRARIES: [&str; 2] = ["libibverbs.so.1", "librdmacm.so.1"];
/// The library that shows the devices in `/sys` and `/dev`, in the same folder.
const SYSFS: &str = "libferroce-sysfs.so";
/// The library that puts streams in the place of TCP within the host, in the same folder.
const SOCKETS: &str = "libferroce-sockets.so";

/// The folder with the drop-in library, from where this executable is: beside it (a build), or
/// `../lib/ferroce` (an installation).
///
/// # Errors
/// A message for the user that says where it was looked for and what to do.
pub(crate) fn folder() -> Result<PathBuf, String> {
    let executable = executable()?;
    let beside = executable.parent().unwrap_or_else(|| Path::new("/"));
    let candidates = [beside.join("ferroce-lib"), beside.join("../lib/ferroce")];
    let found = candidates
        .iter()
        .find(|folder| LIBRARIES.iter().all(|name| folder.join(name).exists()));
    let Some(folder) = found else {
        let [build, installed] = candidates.map(|folder| folder.display().to_string());
        return Err(format!(
            "the drop-in library is missing: neither {build} nor {installed} has libibverbs.so.1 and librdmacm.so.1; \
             run `cargo build --release` in Ferroce's source folder, which makes it beside the ferroce command"
        ));
    };
    let folder = folder
        .canonicalize()
        .map_err(|e| format!("{}: {e}", folder.display()))?;
    // ld.so splits LD_LIBRARY_PATH at both, and knows no escape.
    if folder
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| matches!(byte, b':' | b';'))
    {
        return Err(format!(
            "the loader cannot be told of {}: LD_LIBRARY_PATH has no way to write ':' or ';' in a name; move Ferroce elsewhere",
            folder.display()
        ));
    }
    Ok(folder)
}

/// This program's file. Without `/proc`, whose `/proc/self/exe` is exact, it is found by its name,
/// as the shell has found it.
fn executable() -> Result<PathBuf, String> {
    let by_name = || {
        let name = std::env::args_os().next()?;
        crate::target::find(&name)?.canonicalize().ok()
    };
    std::env::current_exe()
        .or_else(|e| by_name().ok_or(e))
        .map_err(|e| format!("cannot tell where ferroce itself is: {e}"))
}

/// List of what the loader is to load into every program. The drop-in library is there so that
/// copies of it under other names are not used. The one for sockets is there if it is asked for.
/// The last one shows the devices in `/sys` and `/dev`.
///
/// # Errors
/// A message for the user.
pub(crate) fn preloaded(folder: &Path, sockets: bool) -> Result<OsString, String> {
    let devices = existing(folder, SYSFS)?;
    // The other one is the same file.
    let verbs = folder.join(LIBRARIES[0]);
    let sockets = sockets.then(|| existing(folder, SOCKETS)).transpose()?;
    // Functions for `exec` of the sockets' library go on to those of the other one.
    let list: Vec<OsString> = [Some(verbs), sockets, Some(devices)]
        .into_iter()
        .flatten()
        .map(PathBuf::into_os_string)
        .collect();
    Ok(list.join(OsStr::new(":")))
}

/// A library in the folder, whose path the loader can be told.
fn existing(folder: &Path, name: &str) -> Result<PathBuf, String> {
    let library = folder.join(name);
    if !library.exists() {
        return Err(format!(
            "{} is missing; run `cargo build --release` in Ferroce's source folder, which makes it",
            library.display()
        ));
    }
    // ld.so splits LD_PRELOAD at both, and knows no escape.
    let separates = |byte: &u8| *byte == b':' || byte.is_ascii_whitespace();
    if library.as_os_str().as_bytes().iter().any(separates) {
        return Err(format!(
            "the loader cannot be told of {}: LD_PRELOAD has no way to write ':' or a space in a name; move Ferroce \
             elsewhere",
            library.display()
        ));
    }
    Ok(library)
}
