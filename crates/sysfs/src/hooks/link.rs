//! Reading links and paths without links.

use std::ffi::{CStr, c_char, c_int};

use crate::entry::{Entry, Kind};
use crate::errno::fail;
use crate::next::hooks;
use crate::place::{Located, find};

/// The target of a link of ours.
unsafe fn target(entry: &Entry, buffer: *mut c_char, room: usize) -> isize {
    let Kind::Link(to) = &entry.kind else {
        return fail(libc::EINVAL) as isize;
    };
    let length = to.len().min(room);
    // SAFETY: the program's buffer has that room.
    unsafe { buffer.copy_from_nonoverlapping(to.as_ptr().cast(), length) };
    length.cast_signed()
}

/// Gives a path to a program that has a buffer of `PATH_MAX` bytes, or wants one of `malloc`.
unsafe fn give(path: &CStr, buffer: *mut c_char) -> *mut c_char {
    if buffer.is_null() {
        // SAFETY: a string.
        return unsafe { libc::strdup(path.as_ptr()) };
    }
    // SAFETY: our paths are far shorter than the program's buffer must be.
    unsafe { buffer.copy_from_nonoverlapping(path.as_ptr(), path.count_bytes() + 1) };
    buffer
}

fn no_path(errno: c_int) -> *mut c_char {
    fail(errno);
    std::ptr::null_mut()
}

hooks! {
    readlink: fn(path: *const c_char, buffer: *mut c_char, room: usize) -> isize, |next| {
        // SAFETY: the program's string and buffer; the function behind gets what it would have got.
        unsafe {
            match find(libc::AT_FDCWD, path, false) {
                Located::Kernel => next()(path, buffer, room),
                Located::Moved(path) => next()(path.as_ptr(), buffer, room),
                Located::Nothing(errno) => fail(errno) as isize,
                Located::Ours(entry) => target(&entry, buffer, room),
            }
        }
    }

    readlinkat: fn(folder: c_int, path: *const c_char, buffer: *mut c_char, room: usize) -> isize, |next| {
        // SAFETY: the program's path is a string, and its buffer has `room` bytes, of which
        // `target` fills no more. The function behind gets what the program passed, or another
        // string for the path.
        unsafe {
            match find(folder, path, false) {
                Located::Kernel => next()(folder, path, buffer, room),
                Located::Moved(path) => next()(folder, path.as_ptr(), buffer, room),
                Located::Nothing(errno) => fail(errno) as isize,
                Located::Ours(entry) => target(&entry, buffer, room),
            }
        }
    }

    __readlink_chk: fn(path: *const c_char, buffer: *mut c_char, room: usize, size: usize) -> isize, |next| {
        // SAFETY: the program's path is a string, and its buffer has `room` bytes. The function
        // behind compares them with `size`; `target` trusts `room`, as `readlink(2)` does.
        unsafe {
            match find(libc::AT_FDCWD, path, false) {
                Located::Kernel => next()(path, buffer, room, size),
                Located::Moved(path) => next()(path.as_ptr(), buffer, room, size),
                Located::Nothing(errno) => fail(errno) as isize,
                Located::Ours(entry) => target(&entry, buffer, room),
            }
        }
    }

    realpath: fn(path: *const c_char, buffer: *mut c_char) -> *mut c_char, |next| {
        // SAFETY: the program's path is a string, and its buffer is null or has `PATH_MAX` bytes,
        // as `give` needs. The function behind gets what the program passed, or another string for
        // the path.
        unsafe {
            match find(libc::AT_FDCWD, path, true) {
                Located::Kernel => next()(path, buffer),
                Located::Moved(path) => next()(path.as_ptr(), buffer),
                Located::Nothing(errno) => no_path(errno),
                Located::Ours(entry) => give(&entry.path, buffer),
            }
        }
    }

    __realpath_chk: fn(path: *const c_char, buffer: *mut c_char, size: usize) -> *mut c_char, |next| {
        // SAFETY: the program's path is a string, and its buffer is null or has `PATH_MAX` bytes:
        // the compiler calls this function where it knows `size`, which the function behind checks.
        unsafe {
            match find(libc::AT_FDCWD, path, true) {
                Located::Kernel => next()(path, buffer, size),
                Located::Moved(path) => next()(path.as_ptr(), buffer, size),
                Located::Nothing(errno) => no_path(errno),
                Located::Ours(entry) => give(&entry.path, buffer),
            }
        }
    }

    canonicalize_file_name: fn(path: *const c_char) -> *mut c_char, |next| {
        // SAFETY: the program's path is a string; with a null buffer `give` allocates the result.
        // The function behind gets what the program passed, or another string for the path.
        unsafe {
            match find(libc::AT_FDCWD, path, true) {
                Located::Kernel => next()(path),
                Located::Moved(path) => next()(path.as_ptr()),
                Located::Nothing(errno) => no_path(errno),
                Located::Ours(entry) => give(&entry.path, std::ptr::null_mut()),
            }
        }
    }
}
