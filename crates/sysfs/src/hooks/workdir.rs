//! The working folder. Shell scripts go into `/sys/class/infiniband` and look at what is there.

use std::ffi::{CStr, CString, c_char, c_int};

use crate::entry::{Entry, Kind};
use crate::errno::{self, fail};
use crate::next::hooks;
use crate::place::{Place, find, of_descriptor};
use crate::workdir;

/// Goes to a folder of ours. The kernel goes to the nearest folder above it that there is, and so
/// do children of the process.
fn enter(entry: &Entry, go: impl Fn(&CStr) -> c_int) -> c_int {
    let Kind::Directory(_) = entry.kind else {
        return fail(libc::ENOTDIR);
    };
    errno::kept(|| {
        let mut above = entry.path.to_bytes();
        while let Some(slash) = above.iter().rposition(|byte| *byte == b'/') {
            above = &above[..slash];
            let folder = if above.is_empty() { b"/" } else { above };
            let folder = CString::new(folder).expect("invariant: part of a string");
            if go(&folder) == 0 {
                break;
            }
        }
    });
    workdir::set(Some(entry.path.clone()));
    0
}

/// Notes that the kernel went somewhere.
fn left(result: c_int) -> c_int {
    if result == 0 {
        workdir::set(None);
    }
    result
}

/// Gives the folder's path as `getcwd(3)` does.
unsafe fn give(path: &CStr, buffer: *mut c_char, room: usize) -> *mut c_char {
    let length = path.count_bytes() + 1;
    if buffer.is_null() && room == 0 {
        // SAFETY: a string.
        return unsafe { libc::strdup(path.as_ptr()) };
    }
    if room < length {
        fail(if room == 0 {
            libc::EINVAL
        } else {
            libc::ERANGE
        });
        return std::ptr::null_mut();
    }
    let to = if buffer.is_null() {
        // SAFETY: plain allocation of what the program asked for.
        unsafe { libc::malloc(room) }.cast()
    } else {
        buffer
    };
    if !to.is_null() {
        // SAFETY: there is room, as was seen.
        unsafe { to.copy_from_nonoverlapping(path.as_ptr(), length) };
    }
    to
}

hooks! {
    chdir: fn(path: *const c_char) -> c_int, |next| {
        // SAFETY: the program's string; the function behind gets what it would have got.
        unsafe {
            match find(libc::AT_FDCWD, path, true) {
                Place::Kernel => left(next()(path)),
                Place::Moved(path) => left(next()(path.as_ptr())),
                Place::Nothing(errno) => fail(errno),
                Place::Ours(entry) => enter(&entry, |folder| next()(folder.as_ptr())),
            }
        }
    }

    fchdir: fn(fd: c_int) -> c_int, |next| {
        match of_descriptor(fd) {
            Some(entry) => enter(&entry, |folder| {
                // SAFETY: a string.
                let result = unsafe { libc::syscall(libc::SYS_chdir, folder.as_ptr()) };
                c_int::from(result != 0)
            }),
            // SAFETY: the program's call, as it came.
            None => left(unsafe { next()(fd) }),
        }
    }

    getcwd: fn(buffer: *mut c_char, room: usize) -> *mut c_char, |next| {
        // SAFETY: the program's buffer.
        unsafe {
            match workdir::path() {
                Some(path) => give(&path, buffer, room),
                None => next()(buffer, room),
            }
        }
    }

    __getcwd_chk: fn(buffer: *mut c_char, room: usize, size: usize) -> *mut c_char, |next| {
        // SAFETY: the program's buffer.
        unsafe {
            match workdir::path() {
                Some(path) => give(&path, buffer, room),
                None => next()(buffer, room, size),
            }
        }
    }

    get_current_dir_name: fn() -> *mut c_char, |next| {
        // SAFETY: nothing of the program's.
        unsafe {
            match workdir::path() {
                Some(path) => give(&path, std::ptr::null_mut(), 0),
                None => next()(),
            }
        }
    }
}
