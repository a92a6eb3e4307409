//! The program that `ferroce run` is given: where its file is, and what cannot be done for it.

use std::env;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ferroce_os::program;
pub(crate) use ferroce_os::program::PreloadObstacle;

/// What keeps a program from what is preloaded, if anything does.
pub(crate) fn obstacle(program: &OsStr) -> Option<PreloadObstacle> {
    let path = CString::new(find(program)?.as_os_str().as_bytes()).ok()?;
    program::obstacle(&path)
}

/// Whether a program makes its system calls itself, as those of Go do.
pub(crate) fn is_of_go(program: &OsStr) -> bool {
    let path = find(program).and_then(|file| CString::new(file.as_os_str().as_bytes()).ok());
    path.is_some_and(|path| program::is_of_go(&path))
}

/// The file of a program, found as execvp(3) does.
pub(crate) fn find(program: &OsStr) -> Option<PathBuf> {
    let program = Path::new(program);
    if program.components().count() > 1 || program.is_absolute() {
        return Some(program.to_owned());
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| {
            file.metadata()
                .is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_the_path() {
        assert!(find(OsStr::new("sh")).is_some_and(|file| file.ends_with("sh")));
        assert_eq!(find(OsStr::new("./x")), Some(PathBuf::from("./x")));
        assert_eq!(find(OsStr::new("no such program")), None);
        assert_eq!(obstacle(OsStr::new("sh")), None);
        assert!(!is_of_go(OsStr::new("sh")) && !is_of_go(OsStr::new("no such program")));
    }
}
