//! Which programs look for devices under `/sys` and `/dev`, as far as that can be told before they
//! run.
//!
//! UCX skips a device whose node it does not see, and programs reach it through other libraries
//! (MPI). So the loader is asked, as ldd(1) does, which libraries the program would get: that is
//! all of them but those which it opens by itself later.

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Libraries whose users look for devices: all of UCX load this one.
const LOOKERS: [&str; 1] = ["libucs.so"];

/// Makes the loader list the libraries of a program in place of running it.
const TRACE: &str = "LD_TRACE_LOADED_OBJECTS";

/// Bytes at the beginning of a program, with its header and the table of its segments.
const HEAD: u64 = 4096;
/// A segment that names the loader (`PT_INTERP`).
const INTERPRETER: u32 = 3;

/// Whether a program looks for devices.
pub(crate) fn sysfs(program: &OsStr) -> bool {
    let Some(path) = find(program) else {
        return false;
    };
    // Anything else would not be listed but run.
    if !has_loader(&path) {
        return false;
    }
    let listed = Command::new(&path)
        .env(TRACE, "1")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    listed.is_ok_and(|listed| names_a_looker(&String::from_utf8_lossy(&listed.stdout)))
}

/// Whether the loader's list has a library whose users look for devices.
fn names_a_looker(list: &str) -> bool {
    let mut names = list
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    names.any(|name| LOOKERS.iter().any(|looker| name.starts_with(looker)))
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

/// Whether a file is a program of this machine's kind (64 bits, little-endian) that a loader
/// starts.
fn has_loader(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    read.is_ok() && names_a_loader(&head)
}

/// The same of the file's first bytes: see elf(5).
fn names_a_loader(head: &[u8]) -> bool {
    let number = |at: usize, len: usize| {
        let bytes = head.get(at..at.checked_add(len)?)?;
        let value = bytes
            .iter()
            .rev()
            .fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
        usize::try_from(value).ok()
    };
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return false;
    }
    let (Some(table), Some(size), Some(count)) = (number(32, 8), number(54, 2), number(56, 2))
    else {
        return false;
    };
    (0..count).any(|i| {
        let at = i.checked_mul(size).and_then(|at| at.checked_add(table));
        at.and_then(|at| number(at, 4)) == Some(INTERPRETER as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_a_loader_is_told_from_all_else() {
        // Opened like this it is there even if a build has replaced it meanwhile.
        let this = Path::new("/proc/self/exe");
        assert!(has_loader(this));
        assert!(!names_a_loader(b"#!/bin/sh\necho run me not\n"));
        assert!(!names_a_loader(b""));
        let mut head = std::fs::read(this).unwrap();
        head.truncate(4096);
        assert!(names_a_loader(&head));
        assert!(!names_a_loader(&head[..40]));
        // No segments: a static program.
        head[56..58].fill(0);
        assert!(!names_a_loader(&head));
        // A table at the end of the numbers.
        head[32..40].fill(0xff);
        head[56..58].fill(0xff);
        assert!(!names_a_loader(&head));
    }

    #[test]
    fn the_loaders_list_is_read() {
        let list = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibucs.so.0 => /lib/libucs.so.0 (0x7f)\n";
        assert!(names_a_looker(list));
        assert!(!names_a_looker("\tlibc.so.6 => /lib/libucs.so.0 (0x7f)\n"));
    }

    #[test]
    fn programs_are_found_in_the_path() {
        assert!(find(OsStr::new("sh")).is_some_and(|file| file.ends_with("sh")));
        assert_eq!(find(OsStr::new("./x")), Some(PathBuf::from("./x")));
        assert_eq!(find(OsStr::new("no such program")), None);
        assert!(!sysfs(OsStr::new("sh")));
    }
}
