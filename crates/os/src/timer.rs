//! A timer that wakes the threads that wait for its descriptor.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use crate::fd::Fd;
use crate::sys::{check, check_retry, raw_fd};

/// A `timerfd(2)`: readable from the time that it was set to until it is set again.
#[derive(Debug)]
pub struct TimerFd {
    fd: Fd,
}

impl TimerFd {
    /// A timer that is not set.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn new() -> io::Result<Self> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: takes no pointers.
        let raw = check(unsafe {
            libc::syscall(libc::SYS_timerfd_create, libc::CLOCK_MONOTONIC, flags)
        })?;
        Ok(Self {
            fd: Fd::internal(raw_fd(raw)),
        })
    }

    /// Sets it to go off `after` from now, at once if that is zero; `None`: never. Replaces what
    /// was set before.
    ///
    /// # Errors
    /// None is expected.
    pub fn set(&self, after: Option<Duration>) -> io::Result<()> {
        // All zero would mean never.
        let after = after.map_or(Duration::ZERO, |d| d.max(Duration::from_nanos(1)));
        let value = libc::itimerspec {
            it_interval: libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: libc::timespec {
                tv_sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: after.subsec_nanos().into(),
            },
        };
        // SAFETY: the pointer is to a live value; the old one is not asked for.
        check_retry(|| unsafe {
            libc::syscall(
                libc::SYS_timerfd_settime,
                self.fd.as_raw_fd(),
                0,
                &raw const value,
                std::ptr::null_mut::<libc::itimerspec>(),
            )
        })
        .map(drop)
    }
}

impl AsRawFd for TimerFd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for TimerFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::{Interest, Poller};

    #[test]
    fn it_wakes_when_set_and_is_quiet_when_set_again() {
        let timer = TimerFd::new().expect("timerfd");
        let (poller, mut events) = (Poller::new().expect("epoll"), Vec::new());
        poller
            .add(timer.as_raw_fd(), 9, Interest::READ)
            .expect("add");
        let mut fired = |limit| {
            poller.wait(&mut events, Some(limit)).expect("wait");
            !events.is_empty()
        };
        assert!(!fired(Duration::ZERO), "not set");
        for after in [Duration::ZERO, Duration::from_millis(2)] {
            timer.set(Some(after)).expect("set");
            assert!(fired(Duration::from_secs(10)));
            timer.set(None).expect("clear");
            assert!(!fired(Duration::ZERO), "cleared");
        }
        timer.set(Some(Duration::from_secs(3600))).expect("set");
        assert!(!fired(Duration::ZERO), "not yet");
    }
}
