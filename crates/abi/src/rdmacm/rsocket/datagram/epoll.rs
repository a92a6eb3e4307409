//! One descriptor that is readable when any of several is.

use std::os::fd::RawFd;
use std::ptr;

use libc::epoll_event;

use super::super::errno::{Errno, Result};

/// An `epoll(7)` instance by bare system calls, closed on drop.
#[derive(Debug)]
pub(super) struct Epoll {
    fd: RawFd,
}

impl Drop for Epoll {
    fn drop(&mut self) {
        // SAFETY: takes no pointers; the descriptor is this value's.
        unsafe { libc::syscall(libc::SYS_close, self.fd) };
    }
}

impl Epoll {
    pub(super) fn new() -> Result<Self> {
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::syscall(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) };
        let fd = RawFd::try_from(fd).map_err(|_| Errno(libc::EMFILE))?;
        if fd < 0 {
            return Err(Errno::last());
        }
        Ok(Self { fd })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.fd
    }

    /// Adds a descriptor.
    pub(super) fn add(&self, fd: RawFd) -> Result<()> {
        let mut event = epoll_event {
            events: libc::EPOLLIN.cast_unsigned(),
            u64: 0,
        };
        let event: *mut epoll_event = ptr::from_mut(&mut event);
        // SAFETY: a live event.
        let added =
            unsafe { libc::syscall(libc::SYS_epoll_ctl, self.fd, libc::EPOLL_CTL_ADD, fd, event) };
        if added < 0 {
            return Err(Errno::last());
        }
        Ok(())
    }
}
