//! Extended attributes: `ls -l` asks for them, and our files have none.

use std::ffi::{c_char, c_void};

use crate::errno::fail;
use crate::next::hooks;
use crate::place::{Located, find};

/// What a file system without extended attributes says.
fn unsupported() -> isize {
    fail(libc::ENOTSUP) as isize
}

hooks! {
    getxattr: fn(path: *const c_char, name: *const c_char, value: *mut c_void, size: usize) -> isize, |next| {
        // SAFETY: the program's strings and buffer; the function behind gets what it would have
        // got.
        unsafe {
            match find(libc::AT_FDCWD, path, true) {
                Located::Kernel => next()(path, name, value, size),
                Located::Moved(path) => next()(path.as_ptr(), name, value, size),
                Located::Nothing(errno) => fail(errno) as isize,
                Located::Ours(_) => unsupported(),
            }
        }
    }

    lgetxattr: fn(path: *const c_char, name: *const c_char, value: *mut c_void, size: usize) -> isize, |next| {
        // SAFETY: the program's path and name are strings, and `value` has `size` bytes, which only
        // the function behind fills.
        unsafe {
            match find(libc::AT_FDCWD, path, false) {
                Located::Kernel => next()(path, name, value, size),
                Located::Moved(path) => next()(path.as_ptr(), name, value, size),
                Located::Nothing(errno) => fail(errno) as isize,
                Located::Ours(_) => unsupported(),
            }
        }
    }

    listxattr: fn(path: *const c_char, list: *mut c_char, size: usize) -> isize, |next| {
        // SAFETY: the program's path is a string, and `list` has `size` bytes, which only the
        // function behind fills.
        unsafe {
            match find(libc::AT_FDCWD, path, true) {
                Located::Kernel => next()(path, list, size),
                Located::Moved(path) => next()(path.as_ptr(), list, size),
                Located::Nothing(errno) => fail(errno) as isize,
                Located::Ours(_) => unsupported(),
            }
        }
    }

    llistxattr: fn(path: *const c_char, list: *mut c_char, size: usize) -> isize, |next| {
        // SAFETY: the program's path is a string, whose last link is not followed; only the
        // function behind fills the `size` bytes of `list`.
        unsafe {
            match find(libc::AT_FDCWD, path, false) {
                Located::Kernel => next()(path, list, size),
                Located::Moved(path) => next()(path.as_ptr(), list, size),
                Located::Nothing(errno) => fail(errno) as isize,
                Located::Ours(_) => unsupported(),
            }
        }
    }
}
