//! `glob(3)`, which can be told to look through other functions: ours.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::hooks::directory::{closedir, opendir, readdir};
use crate::hooks::stat::{lstat, stat};
use crate::next::hooks;
use crate::workdir;

/// `GLOB_ALTDIRFUNC`: the structure names the functions.
const ALTDIRFUNC: c_int = 1 << 9;

/// `glob_t` of the C library, whole.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Glob {
    path_count: usize,
    paths: *mut *mut c_char,
    offset: usize,
    flags: c_int,
    closedir: *const c_void,
    readdir: *const c_void,
    opendir: *const c_void,
    lstat: *const c_void,
    stat: *const c_void,
}

type OnError = Option<unsafe extern "C" fn(*const c_char, c_int) -> c_int>;

/// Whether a pattern may match names of ours.
unsafe fn concerns_us(pattern: *const c_char) -> bool {
    if pattern.is_null() {
        return false;
    }
    // SAFETY: the program's string.
    let pattern = unsafe { CStr::from_ptr(pattern) }.to_bytes();
    let ours = [&b"/sys/"[..], b"/dev/infiniband"];
    ours.iter().any(|start| pattern.starts_with(start)) || workdir::path().is_some()
}

hooks! {
    glob, glob64: fn(pattern: *const c_char, flags: c_int, on_error: OnError, to: *mut Glob) -> c_int, |next| {
        // SAFETY: the program's string, function and structure; the functions have the types that
        // the manual page names.
        unsafe {
            if flags & ALTDIRFUNC != 0 || !concerns_us(pattern) {
                return next()(pattern, flags, on_error, to);
            }
            (*to).closedir = closedir as *const c_void;
            (*to).readdir = readdir as *const c_void;
            (*to).opendir = opendir as *const c_void;
            (*to).lstat = lstat as *const c_void;
            (*to).stat = stat as *const c_void;
            let result = next()(pattern, flags | ALTDIRFUNC, on_error, to);
            (*to).flags &= !ALTDIRFUNC;
            result
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_names_of_ours() {
        // SAFETY: the structure is integers and null pointers.
        let mut found: Glob = unsafe { std::mem::zeroed() };
        let pattern = c"/sys/class/infiniband/c*".as_ptr();
        // SAFETY: a string and a structure, freed once.
        unsafe {
            assert_eq!(glob(pattern, 0, None, &raw mut found), 0);
            assert_eq!(found.path_count, 1);
            assert_eq!(CStr::from_ptr(*found.paths), c"/sys/class/infiniband/count");
            assert_eq!(found.flags & ALTDIRFUNC, 0);
            libc::globfree((&raw mut found).cast());
        }
    }
}
