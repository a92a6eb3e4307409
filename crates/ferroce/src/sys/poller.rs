//! Waiting for many descriptors as for one.

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use crate::{Error, Result};

/// An epoll descriptor: readable while one of its members is. Level-triggered.
pub(crate) struct Poller(OwnedFd);

/// Members that one look returns at most.
const LOOK: usize = 32;

impl Poller {
    /// `epoll_create1(2)`
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: no memory is passed.
        owned("epoll_create1", unsafe {
            libc::epoll_create1(libc::EPOLL_CLOEXEC)
        })
        .map(Self)
    }

    /// A member, for as long as it is open, and what it is called when it is readable.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, name: u64) -> Result<()> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN.cast_unsigned(),
            u64: name,
        };
        // SAFETY: open descriptors, and an event that lives for the call.
        Error::check_last("epoll_ctl", unsafe {
            libc::epoll_ctl(
                self.0.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                fd.as_raw_fd(),
                &raw mut event,
            )
        })
    }

    /// The names of members that are readable now; some of them if they are many.
    pub(crate) fn readable(&self) -> Result<impl Iterator<Item = u64>> {
        let mut place = [libc::epoll_event { events: 0, u64: 0 }; LOOK];
        let room = i32::try_from(LOOK).expect("invariant: a small number");
        // SAFETY: room for that many events.
        let count = unsafe { libc::epoll_wait(self.0.as_raw_fd(), place.as_mut_ptr(), room, 0) };
        let count = match usize::try_from(count) {
            Ok(count) => count,
            Err(_) => match Error::last("epoll_wait") {
                e if e.is_interrupted() => 0,
                e => return Err(e),
            },
        };
        Ok(place.into_iter().take(count).map(|event| event.u64))
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// An eventfd: a descriptor that others make readable.
pub(crate) struct Signal(std::fs::File);

impl Signal {
    /// `eventfd(2)`
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: no memory is passed.
        owned("eventfd", unsafe {
            libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)
        })
        .map(|fd| Self(fd.into()))
    }

    /// Makes it readable.
    pub(crate) fn raise(&self) {
        // It can only fail when the counter is full, and then it is readable.
        let _ = (&self.0).write(&1_u64.to_ne_bytes());
    }

    /// Makes it unreadable.
    pub(crate) fn lower(&self) {
        // It can only fail when it is unreadable already.
        let _ = (&self.0).read(&mut [0; 8]);
    }
}

impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A timerfd: readable from the time on that it was set to.
pub(crate) struct Alarm(std::fs::File);

impl Alarm {
    /// `timerfd_create(2)`, with the monotonic clock.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: no memory is passed.
        owned("timerfd_create", unsafe {
            libc::timerfd_create(
                libc::CLOCK_MONOTONIC,
                libc::TFD_CLOEXEC | libc::TFD_NONBLOCK,
            )
        })
        .map(|fd| Self(fd.into()))
    }

    /// `timerfd_settime(2)`: goes off after that time, at the earliest at once; or never.
    pub(crate) fn set(&self, after: Option<Duration>) -> Result<()> {
        let none = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // Zero would mean never.
        let value = after.map_or(none, |after| {
            let after = after.max(Duration::from_nanos(1));
            libc::timespec {
                tv_sec: after.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: after.subsec_nanos().into(),
            }
        });
        let new = libc::itimerspec {
            it_interval: none,
            it_value: value,
        };
        // SAFETY: an open descriptor, a time that lives for the call, and no place for the old one.
        Error::check_last("timerfd_settime", unsafe {
            libc::timerfd_settime(self.0.as_raw_fd(), 0, &raw const new, ptr::null_mut())
        })
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A descriptor that a system call made.
fn owned(call: &'static str, fd: RawFd) -> Result<OwnedFd> {
    if fd < 0 {
        return Err(Error::last(call));
    }
    // SAFETY: just made, so nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
