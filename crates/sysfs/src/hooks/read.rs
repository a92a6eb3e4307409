//! Reading: the content of our files is made when it is read from the beginning.

use std::ffi::{c_int, c_void};

use crate::next::hooks;
use crate::tag::{may_be_file, refresh};

hooks! {
    read: fn(fd: c_int, buffer: *mut c_void, length: usize) -> isize, |next| {
        if may_be_file(fd) {
            refresh(fd, None);
        }
        // SAFETY: the program's call, as it came.
        unsafe { next()(fd, buffer, length) }
    }

    pread, pread64: fn(fd: c_int, buffer: *mut c_void, length: usize, offset: libc::off_t) -> isize, |next| {
        if may_be_file(fd) {
            refresh(fd, Some(offset));
        }
        // SAFETY: the program's call, as it came.
        unsafe { next()(fd, buffer, length, offset) }
    }

    __read_chk: fn(fd: c_int, buffer: *mut c_void, length: usize, room: usize) -> isize, |next| {
        if may_be_file(fd) {
            refresh(fd, None);
        }
        // SAFETY: the program's call, as it came.
        unsafe { next()(fd, buffer, length, room) }
    }

    __pread_chk, __pread64_chk: fn(fd: c_int, buffer: *mut c_void, length: usize, offset: libc::off_t, room: usize) -> isize, |next| {
        if may_be_file(fd) {
            refresh(fd, Some(offset));
        }
        // SAFETY: the program's call, as it came.
        unsafe { next()(fd, buffer, length, offset, room) }
    }
}
