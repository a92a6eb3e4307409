//! One descriptor that is readable when any of several is.

use std::os::fd::RawFd;
use std::ptr;

use libc::{c_int, epoll_event};

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

    /// Adds a descriptor: readable is what counts.
    pub(super) fn add(&self, fd: RawFd) -> Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN)
    }

    /// Has these events of a descriptor count. Errors count always (epoll_ctl(2)).
    pub(super) fn set(&self, fd: RawFd, events: c_int) -> Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, events)
    }

    /// Takes a descriptor out. To close it is not enough: a child of `fork` may have it, too.
    pub(super) fn remove(&self, fd: RawFd) -> Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0)
    }

    fn control(&self, operation: c_int, fd: RawFd, events: c_int) -> Result<()> {
        let mut event = epoll_event {
            events: events.cast_unsigned(),
            u64: 0,
        };
        let event: *mut epoll_event = ptr::from_mut(&mut event);
        // SAFETY: a live event.
        let done = unsafe { libc::syscall(libc::SYS_epoll_ctl, self.fd, operation, fd, event) };
        if done < 0 {
            return Err(Errno::last());
        }
        Ok(())
    }
}
