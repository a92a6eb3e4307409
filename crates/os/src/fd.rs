//! Owned descriptors.
//!
//! Two things set [`Fd`] apart from the standard library's `OwnedFd`: closing it is not a
//! cancellation point, and it knows whether a child of `fork` may keep it (see [`crate::fork`]).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use crate::fork;
use crate::sys::check;

/// How many descriptors this process may have now (`RLIMIT_NOFILE`). Where the kernel does not say,
/// the usual number.
#[must_use]
pub fn limit() -> u64 {
    const USUAL: u64 = 1024;
    let mut limit = libc::rlimit {
        rlim_cur: USUAL,
        rlim_max: USUAL,
    };
    // SAFETY: the pointer is to a live structure of integers, which is unchanged if the call fails.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur
}

/// Has reading a descriptor not wait (`O_NONBLOCK`).
///
/// # Errors
/// EBADF.
pub fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: takes no pointers.
    check(unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_SETFL, libc::O_NONBLOCK) }).map(drop)
}

/// Whether reading a descriptor does not wait (`O_NONBLOCK`). One that is not open does not.
#[must_use]
pub fn is_nonblocking(fd: RawFd) -> bool {
    // SAFETY: takes no pointers.
    let flags = unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFL) };
    flags < 0 || flags & i64::from(libc::O_NONBLOCK) != 0
}

/// An open descriptor, closed on drop.
#[derive(Debug)]
pub struct Fd {
    raw: RawFd,
    internal: bool,
}

impl Fd {
    /// Takes over a descriptor that no program sees. A child of `fork` loses what is behind it, so
    /// that the parent's death can be seen by its peers even while the child lives.
    pub(crate) fn internal(raw: RawFd) -> Self {
        fork::track(raw);
        Self {
            raw,
            internal: true,
        }
    }

    /// Takes over a descriptor that is handed out to the program: a child of `fork` keeps it.
    pub(crate) const fn shared(raw: RawFd) -> Self {
        Self {
            raw,
            internal: false,
        }
    }
}

impl AsRawFd for Fd {
    fn as_raw_fd(&self) -> RawFd {
        self.raw
    }
}

impl AsFd for Fd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open until drop, which the borrow of `self` rules out; a child
        // of `fork` finds another open file under the number, never a closed one.
        unsafe { BorrowedFd::borrow_raw(self.raw) }
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        if self.internal {
            fork::untrack(self.raw);
        }
        // SAFETY: this is the only owner, and the number is not used after. Linux frees the number
        // whatever close returns.
        unsafe { libc::syscall(libc::SYS_close, self.raw) };
    }
}
