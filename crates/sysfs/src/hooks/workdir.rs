//! The working folder. Shell scripts go into `/sys/class/infiniband` and look at what is there.

use std::ffi::{CStr, CString, c_char, c_int};

use crate::entry::{Entry, Kind};
use crate::errno::{self, fail};
use crate::next::hooks;
use crate::place::{Located, find, of_descriptor};
use crate::workdir;

/// Goes to a folder of ours. The kernel goes to the nearest folder above it that there is, and so
/// do children of the process.
fn enter(entry: &Entry) -> c_int {
    let Kind::Directory(_) = entry.kind else {
        return fail(libc::ENOTDIR);
    };
    errno::kept(|| {
        let mut above = entry.path.to_bytes();
        while let Some(slash) = above.iter().rposition(|byte| *byte == b'/') {
            above = &above[..slash];
            let folder = if above.is_empty() { b"/" } else { above };
            let folder = CString::new(folder).expect("invariant: part of a string");
            // SAFETY: a string.
            if unsafe { change(folder.as_ptr()) } == 0 {
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

/// `chdir(2)` as a system call. Programs change the folder between `fork` and `exec`, where looking
/// for the function behind may wait for the loader's lock for ever: a thread of the parent had it.
unsafe fn change(path: *const c_char) -> c_int {
    // SAFETY: a string.
    let result = unsafe { libc::syscall(libc::SYS_chdir, path) };
    if result == 0 { 0 } else { -1 }
}

hooks! {
    chdir: fn(path: *const c_char) -> c_int, |next| {
        // SAFETY: the program's string.
        unsafe {
            match find(libc::AT_FDCWD, path, true) {
                Located::Kernel => left(change(path)),
                Located::Moved(path) => left(change(path.as_ptr())),
                Located::Nothing(errno) => fail(errno),
                Located::Ours(entry) => enter(&entry),
            }
        }
    }

    fchdir: fn(fd: c_int) -> c_int, |next| {
        match of_descriptor(fd) {
            Some(entry) => enter(&entry),
            None => {
                // SAFETY: takes no pointers. As a system call for the reason that `change` has.
                let result = unsafe { libc::syscall(libc::SYS_fchdir, fd) };
                left(if result == 0 { 0 } else { -1 })
            }
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
