//! Words of memory that one process writes and others read.
//!
//! The owner makes an anonymous file, maps it, and seals it: nobody can make it smaller (a reader
//! would be killed by SIGBUS) or map it for writing any more. The descriptor is then given to
//! processes that may read. A part that nobody has touched takes no memory.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::file::{self, add_seals, cannot_shrink};
use super::{Mapping, file_size};
use crate::fd::Fd;

const WORD: usize = size_of::<u64>();

/// Words of this process, which others can be shown.
#[derive(Debug)]
pub struct OwnWords {
    fd: Fd,
    words: MappedWords,
}

impl OwnWords {
    /// `count` words, all 0. `name` is what lists of mappings show.
    ///
    /// # Errors
    /// EFBIG: larger than the process's files may be (`RLIMIT_FSIZE`); EMFILE, ENOMEM; EINVAL,
    /// ENOSYS or EPERM where the kernel (before 5.1) or a filter does not allow such files.
    pub fn new(name: &std::ffi::CStr, count: usize) -> io::Result<Self> {
        let len = count * WORD;
        let fd = file::create(name, len, libc::F_SEAL_SHRINK)?;
        let words = MappedWords::of(&fd, len, true)?;
        // What is mapped for writing by now stays so.
        add_seals(
            &fd,
            libc::F_SEAL_GROW | libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL,
        )?;
        Ok(Self { fd, words })
    }

    /// A word.
    ///
    /// # Panics
    /// There is no such word.
    #[must_use]
    #[inline]
    pub fn word(&self, index: usize) -> &AtomicU64 {
        self.words.word(index)
    }

    /// Where the words are in this process's memory.
    #[must_use]
    pub const fn addr(&self) -> u64 {
        self.words.mapping.addr()
    }
}

impl AsFd for OwnWords {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Words of another process (or, seen from outside, of this one). They change at any time.
#[derive(Debug)]
pub struct PeerWords(MappedWords);

impl PeerWords {
    /// Maps the first `count` words of what a descriptor stands for.
    ///
    /// # Errors
    /// EINVAL: not such a file, or its owner could make it smaller; ENOMEM.
    pub fn open(fd: &Fd, count: usize) -> io::Result<Self> {
        let len = count * WORD;
        let long_enough = file_size(fd.as_raw_fd()).is_some_and(|size| size >= len as u64);
        if !long_enough || !cannot_shrink(fd.as_raw_fd()) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        MappedWords::of(fd, len, false).map(Self)
    }

    /// This process's own words, as others have them.
    ///
    /// # Errors
    /// ENOMEM.
    #[cfg(feature = "fuzzing")]
    pub fn of(own: &OwnWords) -> io::Result<Self> {
        MappedWords::of(&own.fd, own.words.mapping.len(), false).map(Self)
    }

    /// Reads a word.
    ///
    /// # Panics
    /// There is no such word.
    #[must_use]
    #[inline]
    pub fn load(&self, index: usize, order: Ordering) -> u64 {
        self.0.word(index).load(order)
    }
}

#[derive(Debug)]
struct MappedWords {
    mapping: Mapping,
}

impl MappedWords {
    fn of(fd: &Fd, len: usize, writable: bool) -> io::Result<Self> {
        let mapping = Mapping::of(fd.as_raw_fd(), 0, len, writable)?;
        Ok(Self { mapping })
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.mapping.len() / WORD, "no such word");
        let first: *mut u64 = ptr::with_exposed_provenance_mut(
            usize::try_from(self.mapping.addr()).expect("invariant: addresses have 64 bits"),
        );
        // SAFETY: inside the mapping, which lives as long as `self`, cannot be cut short by anybody
        // (sealed), and is aligned to pages. Other processes access it atomically too. `PeerWords`
        // only loads, which needs no write permission.
        unsafe { AtomicU64::from_ptr(first.add(index)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{check, raw_fd};

    fn dup(fd: BorrowedFd<'_>) -> Fd {
        // SAFETY: takes no pointers.
        let raw =
            unsafe { libc::syscall(libc::SYS_fcntl, fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) };
        Fd::internal(raw_fd(check(raw).unwrap()))
    }

    #[test]
    fn readers_see_what_the_owner_writes() {
        let own = OwnWords::new(c"test", 1024).unwrap();
        let peer = PeerWords::open(&dup(own.as_fd()), 1024).unwrap();
        own.word(1023).store(7, Ordering::Relaxed);
        assert_eq!(peer.load(1023, Ordering::Relaxed), 7);
    }

    #[test]
    fn nobody_else_can_write_or_cut_them() {
        let own = OwnWords::new(c"test", 1024).unwrap();
        let fd = dup(own.as_fd());
        assert!(Mapping::of(fd.as_raw_fd(), 0, 4096, true).is_err());
        // SAFETY: takes no pointers.
        let cut = unsafe { libc::syscall(libc::SYS_ftruncate, fd.as_raw_fd(), 0) };
        assert!(check(cut).is_err());
    }

    #[test]
    fn files_that_can_be_cut_are_refused() {
        let fd = file::create(c"open", 8192, 0).unwrap();
        assert!(PeerWords::open(&fd, 1024).is_err());
        add_seals(&fd, libc::F_SEAL_SHRINK).unwrap();
        assert!(PeerWords::open(&fd, 1024).is_ok());
    }
}
