//! `access(2)` and its kin: everybody may read, nobody may write but to a device.

use std::ffi::{c_char, c_int};

use crate::entry::Entry;
use crate::errno::fail;
use crate::next::hooks;
use crate::place::{Located, find};

/// Whether something of ours may be used in a way.
fn allowed(entry: &Entry, how: c_int) -> c_int {
    // Permissions of others: what everybody may.
    let may = entry.kind.mode() & 0o7;
    if how & !c_int::try_from(may).unwrap_or(0) & 0o7 == 0 {
        0
    } else {
        fail(libc::EACCES)
    }
}

hooks! {
    access, eaccess, euidaccess: fn(path: *const c_char, how: c_int) -> c_int, |next| {
        // SAFETY: the program's string; the function behind gets what it would have got.
        unsafe {
            match find(libc::AT_FDCWD, path, true) {
                Located::Kernel => next()(path, how),
                Located::Moved(path) => next()(path.as_ptr(), how),
                Located::Nothing(errno) => fail(errno),
                Located::Ours(entry) => allowed(&entry, how),
            }
        }
    }

    faccessat: fn(folder: c_int, path: *const c_char, how: c_int, flags: c_int) -> c_int, |next| {
        // SAFETY: the program's path is a string; any number may stand for a folder. The function
        // behind gets what the program passed, or another string for the path.
        unsafe {
            match find(folder, path, flags & libc::AT_SYMLINK_NOFOLLOW == 0) {
                Located::Kernel => next()(folder, path, how, flags),
                Located::Moved(path) => next()(folder, path.as_ptr(), how, flags),
                Located::Nothing(errno) => fail(errno),
                Located::Ours(entry) => allowed(&entry, how),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_reads_and_only_devices_are_written() {
        let ask = |path: &std::ffi::CStr, how| {
            // SAFETY: a string.
            unsafe { access(path.as_ptr(), how) }
        };
        let file = c"/sys/class/infiniband/count";
        assert_eq!(ask(file, libc::F_OK), 0);
        assert_eq!(ask(file, libc::R_OK), 0);
        assert_eq!(ask(file, libc::W_OK), -1);
        assert_eq!(ask(file, libc::X_OK), -1);
        assert_eq!(ask(c"/sys/class/infiniband", libc::R_OK | libc::X_OK), 0);
        assert_eq!(ask(c"/dev/infiniband/uverbs0", libc::R_OK | libc::W_OK), 0);
        assert_eq!(ask(c"/sys/class/infiniband/none", libc::F_OK), -1);
    }
}
