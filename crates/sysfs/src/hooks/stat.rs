//! `stat(2)` and its kin. The names with `x` are those that programs built against a C library
//! before 2.33 call.

use std::ffi::{c_char, c_int, c_uint};

use crate::entry::Entry;
use crate::errno::fail;
use crate::next::hooks;
use crate::place::{Located, find, of_descriptor};

type Stat = *mut libc::stat;

/// Tells about something of ours.
unsafe fn tell(entry: &Entry, to: Stat) -> c_int {
    // SAFETY: the program's structure.
    unsafe { *to = entry.stat() };
    0
}

fn follows(flags: c_int) -> bool {
    flags & libc::AT_SYMLINK_NOFOLLOW == 0
}

/// What a call that names a descriptor by an empty path is about, if it is ours.
unsafe fn descriptor(folder: c_int, path: *const c_char, flags: c_int) -> Option<Entry> {
    // SAFETY: a string of the program, or null, which newer kernels take for an empty one.
    let empty = path.is_null() || unsafe { *path } == 0;
    if empty && flags & libc::AT_EMPTY_PATH != 0 {
        return of_descriptor(folder);
    }
    None
}

hooks! {
    stat, stat64: fn(path: *const c_char, to: Stat) -> c_int, |next| {
        // SAFETY: the program's string and structure; the function behind gets what it would have
        // got.
        unsafe {
            match find(libc::AT_FDCWD, path, true) {
                Located::Kernel => next()(path, to),
                Located::Moved(path) => next()(path.as_ptr(), to),
                Located::Nothing(errno) => fail(errno),
                Located::Ours(entry) => tell(&entry, to),
            }
        }
    }

    lstat, lstat64: fn(path: *const c_char, to: Stat) -> c_int, |next| {
        // SAFETY: the program's path is a string, and `to` has room for a structure. The function
        // behind gets what the program passed, or another string for the path.
        unsafe {
            match find(libc::AT_FDCWD, path, false) {
                Located::Kernel => next()(path, to),
                Located::Moved(path) => next()(path.as_ptr(), to),
                Located::Nothing(errno) => fail(errno),
                Located::Ours(entry) => tell(&entry, to),
            }
        }
    }

    fstat, fstat64: fn(fd: c_int, to: Stat) -> c_int, |next| {
        // SAFETY: `to` has room for a structure; any number may stand for a descriptor. The
        // function behind gets what the program passed.
        unsafe {
            match of_descriptor(fd) {
                Some(entry) => tell(&entry, to),
                None => next()(fd, to),
            }
        }
    }

    fstatat, fstatat64: fn(folder: c_int, path: *const c_char, to: Stat, flags: c_int) -> c_int, |next| {
        // SAFETY: the program's path is a string, or null, which `descriptor` and `find` allow, and
        // `to` has room for a structure. The function behind gets what the program passed, or
        // another string for the path.
        unsafe {
            if let Some(entry) = descriptor(folder, path, flags) {
                return tell(&entry, to);
            }
            match find(folder, path, follows(flags)) {
                Located::Kernel => next()(folder, path, to, flags),
                Located::Moved(path) => next()(folder, path.as_ptr(), to, flags),
                Located::Nothing(errno) => fail(errno),
                Located::Ours(entry) => tell(&entry, to),
            }
        }
    }

    __xstat, __xstat64: fn(version: c_int, path: *const c_char, to: Stat) -> c_int, |next| {
        // SAFETY: the program's path is a string, and `to` has room for the one structure that all
        // values of `version` mean on 64-bit platforms. The function behind gets what the program
        // passed, or another string for the path.
        unsafe {
            match find(libc::AT_FDCWD, path, true) {
                Located::Kernel => next()(version, path, to),
                Located::Moved(path) => next()(version, path.as_ptr(), to),
                Located::Nothing(errno) => fail(errno),
                Located::Ours(entry) => tell(&entry, to),
            }
        }
    }

    __lxstat, __lxstat64: fn(version: c_int, path: *const c_char, to: Stat) -> c_int, |next| {
        // SAFETY: the program's path is a string, and `to` has room for the structure, which is the
        // same for every `version`. The function behind gets what the program passed, or another
        // string for the path.
        unsafe {
            match find(libc::AT_FDCWD, path, false) {
                Located::Kernel => next()(version, path, to),
                Located::Moved(path) => next()(version, path.as_ptr(), to),
                Located::Nothing(errno) => fail(errno),
                Located::Ours(entry) => tell(&entry, to),
            }
        }
    }

    __fxstat, __fxstat64: fn(version: c_int, fd: c_int, to: Stat) -> c_int, |next| {
        // SAFETY: `to` has room for the structure, which is the same for every `version`; any
        // number may stand for a descriptor. The function behind gets what the program passed.
        unsafe {
            match of_descriptor(fd) {
                Some(entry) => tell(&entry, to),
                None => next()(version, fd, to),
            }
        }
    }

    __fxstatat, __fxstatat64: fn(version: c_int, folder: c_int, path: *const c_char, to: Stat, flags: c_int) -> c_int, |next| {
        // SAFETY: the program's path is a string, or null, which `descriptor` and `find` allow.
        // `to` has room for the structure, which is the same for every `version`. The function
        // behind gets what the program passed, or another string for the path.
        unsafe {
            if let Some(entry) = descriptor(folder, path, flags) {
                return tell(&entry, to);
            }
            match find(folder, path, follows(flags)) {
                Located::Kernel => next()(version, folder, path, to, flags),
                Located::Moved(path) => next()(version, folder, path.as_ptr(), to, flags),
                Located::Nothing(errno) => fail(errno),
                Located::Ours(entry) => tell(&entry, to),
            }
        }
    }

    statx: fn(folder: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut libc::statx) -> c_int, |next| {
        // SAFETY: the program's path is a string, or null, which `descriptor` and `find` allow, and
        // `to` has room for a `struct statx`. The function behind gets what the program passed, or
        // another string for the path.
        unsafe {
            if let Some(entry) = descriptor(folder, path, flags) {
                *to = entry.statx();
                return 0;
            }
            match find(folder, path, follows(flags)) {
                Located::Kernel => next()(folder, path, flags, mask, to),
                Located::Moved(path) => next()(folder, path.as_ptr(), flags, mask, to),
                Located::Nothing(errno) => fail(errno),
                Located::Ours(entry) => {
                    *to = entry.statx();
                    0
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tag;

    fn told(ask: impl FnOnce(Stat) -> c_int) -> (libc::mode_t, libc::dev_t) {
        // SAFETY: integers only.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        assert_eq!(ask(&raw mut stat), 0);
        (stat.st_mode & libc::S_IFMT, stat.st_rdev)
    }

    #[test]
    fn every_kind_is_told() {
        let node = c"/dev/infiniband/uverbs0".as_ptr();
        // SAFETY: strings and a structure.
        unsafe {
            assert_eq!(
                told(|to| stat(node, to)),
                (libc::S_IFCHR, libc::makedev(231, 192))
            );
            let dev = c"/sys/class/infiniband/dev".as_ptr();
            assert_eq!(told(|to| lstat(dev, to)).0, libc::S_IFLNK);
            assert_eq!(told(|to| stat(c"/".as_ptr(), to)).0, libc::S_IFDIR);
            let folder = tag::create(c"/sys/class/infiniband", None, true);
            assert_eq!(told(|to| fstat(folder, to)).0, libc::S_IFDIR);
            let empty = libc::AT_EMPTY_PATH;
            assert_eq!(
                told(|to| fstatat(folder, c"".as_ptr(), to, empty)).0,
                libc::S_IFDIR
            );
            assert_eq!(
                told(|to| fstatat(folder, c"count".as_ptr(), to, 0)).0,
                libc::S_IFREG
            );
            tag::close(folder);
        }
    }
}
