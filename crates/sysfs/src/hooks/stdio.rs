//! Streams of the C library, over the descriptors that `open(2)` gives.

use std::ffi::{CStr, c_char, c_int};

use crate::entry::Entry;
use crate::errno::fail;
use crate::hooks::open::{nothing, open_ours};
use crate::next::hooks;
use crate::place::{Located, find};
use crate::{errno, tag};

type FilePointer = *mut libc::FILE;

/// The flags of `open(2)` for a mode of `fopen(3)`.
unsafe fn flags(mode: *const c_char) -> c_int {
    // SAFETY: the program's string.
    let mode = unsafe { CStr::from_ptr(mode) }.to_bytes();
    let has = |letter| mode.contains(&letter);
    let access = match mode.first() {
        _ if has(b'+') => libc::O_RDWR,
        Some(b'r') => libc::O_RDONLY,
        _ => libc::O_WRONLY,
    };
    let creates = match mode.first() {
        Some(b'w') => libc::O_CREAT | libc::O_TRUNC,
        Some(b'a') => libc::O_CREAT | libc::O_APPEND,
        _ => 0,
    };
    let exclusive = if has(b'x') { libc::O_EXCL } else { 0 };
    let close = if has(b'e') { libc::O_CLOEXEC } else { 0 };
    access | creates | exclusive | close
}

/// A stream over something of ours.
unsafe fn stream(entry: &Entry, mode: *const c_char) -> FilePointer {
    // SAFETY: the program's string.
    let fd = open_ours(entry, unsafe { flags(mode) });
    if fd < 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: a descriptor of ours, and the program's string.
    let stream = unsafe { libc::fdopen(fd, mode) };
    if stream.is_null() {
        errno::kept(|| tag::close(fd));
    }
    stream
}

hooks! {
    fopen, fopen64: fn(path: *const c_char, mode: *const c_char) -> FilePointer, |next| {
        // SAFETY: the program's strings; the function behind gets what it would have got.
        unsafe {
            match find(libc::AT_FDCWD, path, true) {
                Located::Kernel => next()(path, mode),
                Located::Moved(path) => next()(path.as_ptr(), mode),
                Located::Nothing(errno) => {
                    nothing(errno, flags(mode));
                    std::ptr::null_mut()
                }
                Located::Ours(entry) => stream(&entry, mode),
            }
        }
    }

    freopen, freopen64: fn(path: *const c_char, mode: *const c_char, stream: FilePointer) -> FilePointer, |next| {
        // SAFETY: the program's path is a string or null, its mode is a string, and its stream is
        // open. Either the function behind or `fclose` closes it, never both.
        unsafe {
            match find(libc::AT_FDCWD, path, true) {
                Located::Kernel => next()(path, mode, stream),
                Located::Moved(path) => next()(path.as_ptr(), mode, stream),
                Located::Nothing(errno) => {
                    // The stream is closed even if the path cannot be opened.
                    libc::fclose(stream);
                    fail(errno);
                    std::ptr::null_mut()
                }
                Located::Ours(entry) => {
                    let fd = open_ours(&entry, flags(mode) | libc::O_CLOEXEC);
                    if fd < 0 {
                        errno::kept(|| libc::fclose(stream));
                        return std::ptr::null_mut();
                    }
                    let again = next()(tag::link(fd).as_ptr(), mode, stream);
                    errno::kept(|| tag::close(fd));
                    again
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_reads_and_does_not_write() {
        let path = c"/sys/class/infiniband/count".as_ptr();
        let mut digits = [0_u8; 8];
        // SAFETY: strings, and a buffer with its length.
        unsafe {
            let stream = fopen(path, c"re".as_ptr());
            assert!(!stream.is_null());
            assert!(libc::fread(digits.as_mut_ptr().cast(), 1, digits.len(), stream) > 0);
            libc::fclose(stream);
            assert!(digits[0].is_ascii_digit());
            assert!(fopen(path, c"w".as_ptr()).is_null());
            assert_eq!(errno::now(), libc::EACCES);
            assert!(fopen(path, c"r+".as_ptr()).is_null());
            let node = fopen(c"/dev/infiniband/uverbs0".as_ptr(), c"r+".as_ptr());
            assert!(!node.is_null());
            libc::fclose(node);
        }
    }
}
