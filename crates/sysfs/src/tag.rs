//! Descriptors that stand for our files and folders.
//!
//! Each is anonymous memory whose name is `ferroce` and the path. The kernel shows that name as the
//! target of `/proc/self/fd/<n>`, so what a descriptor stands for is known as long as it lives, in
//! whichever way it was copied.

use std::ffi::{CStr, CString, c_int};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::errno;
use crate::source::{self, Lookup};

/// In front of the path in the memory's name.
const MARK: &[u8] = b"/memfd:ferroce/";
/// Behind it, in what the kernel shows.
const GONE: &[u8] = b" (deleted)";
/// Descriptors whose content is kept fresh; programs have few.
const WATCHED: usize = 4096;

/// Set with the first descriptor, so that programs that never look pay nothing.
static ANY: AtomicBool = AtomicBool::new(false);
/// Descriptors that were ours when they were handed out: a bit each.
static FILES: [AtomicU64; WATCHED / 64] = [const { AtomicU64::new(0) }; WATCHED / 64];

fn bit(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((FILES.get(fd / 64)?, 1 << (fd % 64)))
}

/// Whether a descriptor may be one of our files. Cheap: it is asked before every read.
pub(crate) fn may_be_file(fd: c_int) -> bool {
    bit(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// Makes a descriptor for a path; -1 and errno if that fails.
pub(crate) fn create(path: &CStr, content: Option<&[u8]>, close_on_exec: bool) -> c_int {
    let name = [b"ferroce", path.to_bytes(), b"\0"].concat();
    // SAFETY: a string, ended above.
    let writable = unsafe { libc::memfd_create(name.as_ptr().cast(), libc::MFD_CLOEXEC) };
    if writable < 0 {
        return -1;
    }
    fill(writable, content.unwrap_or_default());
    let flags = libc::O_RDONLY | if close_on_exec { libc::O_CLOEXEC } else { 0 };
    let fd = reopen(writable, flags);
    errno::kept(|| close(writable));
    if fd >= 0 {
        ANY.store(true, Ordering::Relaxed);
        // The number may have been a file's before.
        match bit(fd) {
            Some((word, bit)) if content.is_some() => word.fetch_or(bit, Ordering::Relaxed),
            Some((word, bit)) => word.fetch_and(!bit, Ordering::Relaxed),
            None => 0,
        };
    }
    fd
}

/// The path that a descriptor stands for, if it is one of ours.
pub(crate) fn path_of(fd: c_int) -> Option<CString> {
    if fd < 0 || !ANY.load(Ordering::Relaxed) {
        return None;
    }
    errno::kept(|| {
        let mut target = [0_u8; libc::PATH_MAX as usize];
        // SAFETY: a string, and a buffer with its length.
        let length = unsafe {
            libc::syscall(
                libc::SYS_readlinkat,
                libc::AT_FDCWD,
                link(fd).as_ptr(),
                target.as_mut_ptr(),
                target.len(),
            )
        };
        let target = target.get(..usize::try_from(length).ok()?)?;
        // The slash at the mark's end is the path's.
        let path = target.strip_prefix(MARK)?.strip_suffix(GONE)?;
        CString::new([b"/", path].concat()).ok()
    })
}

/// Before a read at an offset (`None`: the descriptor's own): makes the content anew if it is read
/// from the beginning.
pub(crate) fn refresh(fd: c_int, offset: Option<i64>) {
    errno::kept(|| {
        let Some(path) = path_of(fd) else {
            // The number has become another descriptor's.
            if let Some((word, bit)) = bit(fd) {
                word.fetch_and(!bit, Ordering::Relaxed);
            }
            return;
        };
        // SAFETY: asks for a number.
        let at = offset.unwrap_or_else(|| unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) });
        if at != 0 {
            return;
        }
        let Some(Lookup::Ours(entry)) = source::look(&path, true) else {
            return;
        };
        let crate::entry::Kind::File(content) = entry.kind else {
            return;
        };
        let writable = reopen(fd, libc::O_RDWR | libc::O_CLOEXEC);
        if writable >= 0 {
            fill(writable, &content);
            close(writable);
        }
    });
}

/// Puts a content into a descriptor's memory. A failure leaves it shorter, as a read that is cut
/// off.
fn fill(fd: c_int, content: &[u8]) {
    // SAFETY: a buffer with its length; no pointers.
    unsafe {
        libc::syscall(libc::SYS_pwrite64, fd, content.as_ptr(), content.len(), 0);
        libc::syscall(libc::SYS_ftruncate, fd, content.len());
    }
}

/// Another descriptor of the same memory, with an offset of its own.
fn reopen(fd: c_int, flags: c_int) -> c_int {
    // SAFETY: a string and no pointers else.
    let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, link(fd).as_ptr(), flags) };
    c_int::try_from(fd).unwrap_or(-1)
}

/// Where the kernel shows a descriptor.
pub(crate) fn link(fd: c_int) -> CString {
    CString::new(format!("/proc/self/fd/{fd}")).expect("invariant: digits")
}

pub(crate) fn close(fd: c_int) {
    // SAFETY: a descriptor of ours.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn foreign() -> c_int {
        // SAFETY: a string.
        unsafe { libc::memfd_create(c"other".as_ptr(), libc::MFD_CLOEXEC) }
    }

    #[test]
    fn a_descriptor_and_its_copies_know_their_path() {
        let fd = create(c"/sys/class/infiniband/x", Some(b"12\n"), true);
        // SAFETY: a live descriptor.
        let copy = unsafe { libc::dup(fd) };
        for fd in [fd, copy] {
            assert_eq!(path_of(fd).as_deref(), Some(c"/sys/class/infiniband/x"));
        }
        assert!(may_be_file(fd));
        let mut buffer = [0_u8; 8];
        // SAFETY: a live descriptor, and a buffer with its length.
        let n = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) };
        assert_eq!((n, &buffer[..3]), (3, &b"12\n"[..]));
        // SAFETY: a live descriptor, and a buffer of more than a byte. It is open for reading only.
        assert_eq!(unsafe { libc::write(fd, buffer.as_ptr().cast(), 1) }, -1);
        close(copy);
        // A number that was closed may be anybody's in the next moment, so it becomes a foreign
        // one's without being closed between.
        let foreign = foreign();
        // SAFETY: live descriptors.
        assert_eq!(unsafe { libc::dup2(foreign, fd) }, fd);
        assert_eq!(path_of(fd), None);
        assert!(may_be_file(fd), "nobody has looked yet");
        refresh(fd, None);
        assert!(!may_be_file(fd));
        close(fd);
        close(foreign);
    }

    #[test]
    fn foreign_descriptors_are_not_ours() {
        let ours = create(c"/sys/class/infiniband", None, true);
        assert!(!may_be_file(ours), "a folder");
        let foreign = foreign();
        for fd in [0, foreign, -1, 100_000] {
            assert_eq!(path_of(fd), None);
        }
        close(ours);
        close(foreign);
    }
}
