//! `open(2)` and its kin.

use std::ffi::{c_char, c_int};

use crate::entry::{Entry, Kind};
use crate::errno::fail;
use crate::next::hooks;
use crate::place::{Located, find};
use crate::tag;

/// Opens something of ours; -1 and errno if that cannot be.
pub(super) fn open_ours(entry: &Entry, flags: c_int) -> c_int {
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    let creates = flags & libc::O_CREAT != 0;
    let close_on_exec = flags & libc::O_CLOEXEC != 0;
    if creates && flags & libc::O_EXCL != 0 {
        return fail(libc::EEXIST);
    }
    match &entry.kind {
        Kind::Directory(_) if writes || creates => fail(libc::EISDIR),
        Kind::Directory(_) => tag::create(&entry.path, None, close_on_exec),
        _ if flags & libc::O_DIRECTORY != 0 => fail(libc::ENOTDIR),
        Kind::File(_) if writes || flags & libc::O_TRUNC != 0 => fail(libc::EACCES),
        Kind::File(content) => tag::create(&entry.path, Some(content), close_on_exec),
        // Only without following it.
        Kind::Link(_) => fail(libc::ELOOP),
        Kind::Device(..) => open_device(flags),
    }
}

/// A device's node: a descriptor that takes no commands. Programs only want to see whether they
/// may.
fn open_device(flags: c_int) -> c_int {
    let flags = flags & (libc::O_ACCMODE | libc::O_CLOEXEC | libc::O_NONBLOCK);
    // SAFETY: a string and no other pointers.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_openat,
            libc::AT_FDCWD,
            c"/dev/null".as_ptr(),
            flags,
        )
    };
    c_int::try_from(fd).unwrap_or(-1)
}

/// The errno of opening what is not there.
pub(super) fn nothing(errno: c_int, flags: c_int) -> c_int {
    // Nobody makes files in sysfs.
    if errno == libc::ENOENT && flags & libc::O_CREAT != 0 {
        return fail(libc::EACCES);
    }
    fail(errno)
}

fn follows(flags: c_int) -> bool {
    flags & libc::O_NOFOLLOW == 0
}

hooks! {
    open, open64: fn(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int, |next| {
        // SAFETY: the program's string; the function behind gets what it would have got.
        unsafe {
            match find(libc::AT_FDCWD, path, follows(flags)) {
                Located::Kernel => next()(path, flags, mode),
                Located::Moved(path) => next()(path.as_ptr(), flags, mode),
                Located::Nothing(errno) => nothing(errno, flags),
                Located::Ours(entry) => open_ours(&entry, flags),
            }
        }
    }

    openat, openat64: fn(folder: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int, |next| {
        // SAFETY: the program's path is a string; any number may stand for a folder. The function
        // behind gets what the program passed, or another string for the path.
        unsafe {
            match find(folder, path, follows(flags)) {
                Located::Kernel => next()(folder, path, flags, mode),
                Located::Moved(path) => next()(folder, path.as_ptr(), flags, mode),
                Located::Nothing(errno) => nothing(errno, flags),
                Located::Ours(entry) => open_ours(&entry, flags),
            }
        }
    }

    __open_2, __open64_2: fn(path: *const c_char, flags: c_int) -> c_int, |next| {
        // SAFETY: the program's path is a string. The function behind has no mode either: it aborts
        // if the flags need one.
        unsafe {
            match find(libc::AT_FDCWD, path, follows(flags)) {
                Located::Kernel => next()(path, flags),
                Located::Moved(path) => next()(path.as_ptr(), flags),
                Located::Nothing(errno) => nothing(errno, flags),
                Located::Ours(entry) => open_ours(&entry, flags),
            }
        }
    }

    __openat_2, __openat64_2: fn(folder: c_int, path: *const c_char, flags: c_int) -> c_int, |next| {
        // SAFETY: the program's path is a string; any number may stand for a folder. The function
        // behind has no mode either: it aborts if the flags need one.
        unsafe {
            match find(folder, path, follows(flags)) {
                Located::Kernel => next()(folder, path, flags),
                Located::Moved(path) => next()(folder, path.as_ptr(), flags),
                Located::Nothing(errno) => nothing(errno, flags),
                Located::Ours(entry) => open_ours(&entry, flags),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::now;
    use crate::hooks::read::{pread, read};

    fn opened(path: &std::ffi::CStr, flags: c_int) -> Result<c_int, c_int> {
        // SAFETY: a string.
        match unsafe { open(path.as_ptr(), flags, 0) } {
            -1 => Err(now()),
            fd => Ok(fd),
        }
    }

    #[test]
    fn what_cannot_be_opened_says_why() {
        let count = c"/sys/class/infiniband/count";
        for (path, flags, errno) in [
            (c"/sys/class/infiniband/none", 0, libc::ENOENT),
            (
                c"/sys/class/infiniband/none",
                libc::O_CREAT | libc::O_WRONLY,
                libc::EACCES,
            ),
            (count, libc::O_RDWR, libc::EACCES),
            (count, libc::O_DIRECTORY, libc::ENOTDIR),
            (count, libc::O_CREAT | libc::O_EXCL, libc::EEXIST),
            (c"/sys/class/infiniband", libc::O_WRONLY, libc::EISDIR),
            (c"/sys/class/infiniband/dev", libc::O_NOFOLLOW, libc::ELOOP),
        ] {
            assert_eq!(opened(path, flags), Err(errno), "{path:?} {flags:#x}");
        }
    }

    #[test]
    fn a_file_is_made_anew_when_it_is_read_from_the_beginning() {
        let fd = opened(c"/sys/class/infiniband/count", libc::O_RDONLY).expect("a file");
        let mut seen = Vec::new();
        let mut buffer = [0_u8; 16];
        for offset in [None, Some(0), Some(0)] {
            // SAFETY: a live descriptor, and a buffer with its length.
            let n = unsafe {
                match offset {
                    None => read(fd, buffer.as_mut_ptr().cast(), buffer.len()),
                    Some(offset) => pread(fd, buffer.as_mut_ptr().cast(), buffer.len(), offset),
                }
            };
            let text = &buffer[..usize::try_from(n).expect("read")];
            let text = std::str::from_utf8(text).expect("digits");
            seen.push(text.parse::<u32>().expect("a number"));
        }
        // SAFETY: a live descriptor, and a buffer with its length. The descriptor's own offset is
        // behind the content.
        let n = unsafe { read(fd, buffer.as_mut_ptr().cast(), buffer.len()) };
        assert_eq!(n, 0);
        tag::close(fd);
        assert!(seen[0] < seen[1] && seen[1] < seen[2], "{seen:?}");
    }

    #[test]
    fn a_device_opens_for_reading_and_writing() {
        let fd = opened(c"/dev/infiniband/uverbs0", libc::O_RDWR).expect("a device");
        // SAFETY: a live descriptor; no data.
        assert_eq!(unsafe { libc::write(fd, [0].as_ptr().cast(), 1) }, 1);
        tag::close(fd);
    }
}
