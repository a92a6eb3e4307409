//! Waiting for many descriptors at once.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::clock;
use crate::fd::Fd;
use crate::sys::{check, errno, raw_fd};

/// Most events of one [`Poller::wait`]. More come with the next.
const BATCH: usize = 64;

/// What to wake up for. Hang-up and error are always reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Something can be read or accepted, or the peer closed its side.
    pub readable: bool,
    /// Something can be written.
    pub writable: bool,
}

impl Interest {
    /// Readable only.
    pub const READ: Self = Self {
        readable: true,
        writable: false,
    };
    /// Hang-up and error only.
    pub const HANGUP: Self = Self {
        readable: false,
        writable: false,
    };
    /// Writable only.
    pub const WRITE: Self = Self {
        readable: false,
        writable: true,
    };

    fn bits(self) -> u32 {
        let mut bits = libc::EPOLLRDHUP;
        if self.readable {
            bits |= libc::EPOLLIN;
        }
        if self.writable {
            bits |= libc::EPOLLOUT;
        }
        bits.cast_unsigned()
    }
}

/// A descriptor that is ready.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Readiness(libc::epoll_event);

impl Readiness {
    /// The token that the descriptor was added with.
    #[must_use]
    pub const fn token(&self) -> u64 {
        self.0.u64
    }

    /// Reading will not block (it may say end of file).
    #[must_use]
    pub const fn readable(&self) -> bool {
        self.has(libc::EPOLLIN)
    }

    /// Writing will not block.
    #[must_use]
    pub const fn writable(&self) -> bool {
        self.has(libc::EPOLLOUT)
    }

    /// The peer is gone, or the descriptor has an error.
    #[must_use]
    pub const fn hangup(&self) -> bool {
        self.has(libc::EPOLLHUP | libc::EPOLLRDHUP | libc::EPOLLERR)
    }

    const fn has(&self, bits: i32) -> bool {
        self.0.events & bits.cast_unsigned() != 0
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readiness")
            .field("token", &self.token())
            .field("readable", &self.readable())
            .field("writable", &self.writable())
            .field("hangup", &self.hangup())
            .finish()
    }
}

/// An `epoll(7)` instance, level-triggered.
#[derive(Debug)]
pub struct Poller {
    fd: Fd,
    /// `epoll_pwait2` (Linux 5.11) was refused: timeouts are in milliseconds.
    coarse: AtomicBool,
}

impl Poller {
    /// Makes one.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn new() -> io::Result<Self> {
        Self::create(Fd::internal)
    }

    /// Makes one whose descriptor a program gets, to wait for what this one watches.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn handed_out() -> io::Result<Self> {
        Self::create(Fd::shared)
    }

    fn create(hold: fn(RawFd) -> Fd) -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let raw = check(unsafe { libc::syscall(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) })?;
        Ok(Self {
            fd: hold(raw_fd(raw)),
            coarse: AtomicBool::new(false),
        })
    }

    /// Watches a descriptor. Closing the descriptor ends the watch.
    ///
    /// # Errors
    /// EEXIST if it is watched already; ENOSPC, ENOMEM; EPERM for a file that has no readiness.
    pub fn add(&self, fd: RawFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, interest)
    }

    /// Changes what a descriptor is watched for, and its token.
    ///
    /// # Errors
    /// ENOENT if it is not watched.
    pub fn modify(&self, fd: RawFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, interest)
    }

    /// Stops watching a descriptor.
    ///
    /// # Errors
    /// ENOENT if it is not watched.
    pub fn remove(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, Interest::HANGUP)
    }

    fn control(&self, op: i32, fd: RawFd, token: u64, interest: Interest) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: interest.bits(),
            u64: token,
        };
        // SAFETY: the pointer is to a live event.
        let returned = unsafe {
            libc::syscall(
                libc::SYS_epoll_ctl,
                self.fd.as_raw_fd(),
                op,
                fd,
                &raw mut event,
            )
        };
        check(returned).map(drop)
    }

    /// Replaces the content of `events` by descriptors that are ready, and waits for one for at
    /// most `timeout` (`None`: without end). Empty afterwards: the time is over.
    ///
    /// # Errors
    /// Those of `epoll_wait(2)`; none is expected.
    pub fn wait(&self, events: &mut Vec<Readiness>, timeout: Option<Duration>) -> io::Result<()> {
        events.clear();
        events.reserve(BATCH);
        let deadline = timeout
            .filter(|t| !t.is_zero())
            .map(|t| clock::monotonic() + t);
        let mut left = timeout;
        loop {
            match self.wait_once(events, left) {
                // A stop and continue, or a debugger: signals proper are blocked in the device's
                // thread.
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {
                    left = deadline.map_or(timeout, |d| Some(d.since(clock::monotonic())));
                }
                other => return other,
            }
        }
    }

    fn wait_once(&self, events: &mut Vec<Readiness>, timeout: Option<Duration>) -> io::Result<()> {
        let room = events
            .spare_capacity_mut()
            .as_mut_ptr()
            .cast::<libc::epoll_event>();
        let fine = !self.coarse.load(Ordering::Relaxed);
        // A timeout of zero or none needs no precision, and the older call is a little cheaper.
        let ready = match timeout.filter(|t| fine && !t.is_zero()) {
            Some(timeout) => {
                let timeout = libc::timespec {
                    tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
                    tv_nsec: timeout.subsec_nanos().into(),
                };
                // SAFETY: `room` has space for BATCH events, of which `Readiness` is a transparent
                // wrapper; the timespec is live; there is no signal mask.
                check(unsafe {
                    libc::syscall(
                        libc::SYS_epoll_pwait2,
                        self.fd.as_raw_fd(),
                        room,
                        BATCH,
                        &raw const timeout,
                        std::ptr::null::<u8>(),
                        0_usize,
                    )
                })
            }
            // SAFETY: `room` has space for BATCH events, of which `Readiness` is a transparent
            // wrapper; the timespec is live; there is no signal mask.
            None => check(unsafe {
                libc::syscall(
                    libc::SYS_epoll_pwait,
                    self.fd.as_raw_fd(),
                    room,
                    BATCH,
                    milliseconds(timeout),
                    std::ptr::null::<u8>(),
                    0_usize,
                )
            }),
        };
        match ready {
            Ok(n) => {
                // SAFETY: the kernel initialised the first `n` elements, at most BATCH, which fit.
                unsafe { events.set_len(n) };
                Ok(())
            }
            // Older kernels do not have the call, older sandboxes refuse what they do not know.
            Err(e) if fine && [libc::ENOSYS, libc::EPERM].contains(&errno(&e)) => {
                self.coarse.store(true, Ordering::Relaxed);
                self.wait_once(events, timeout)
            }
            Err(e) => Err(e),
        }
    }
}

impl AsRawFd for Poller {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Rounded up: waking early would make the caller spin until its deadline.
fn milliseconds(timeout: Option<Duration>) -> i32 {
    timeout.map_or(-1, |t| {
        i32::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventfd::EventFd;

    fn tokens(events: &[Readiness]) -> Vec<u64> {
        let mut tokens: Vec<u64> = events.iter().map(Readiness::token).collect();
        tokens.sort_unstable();
        tokens
    }

    #[test]
    fn readiness_is_reported_under_the_token() {
        let (poller, a, b) = (
            Poller::new().expect("epoll"),
            EventFd::semaphore(),
            EventFd::semaphore(),
        );
        let (a, b) = (a.expect("eventfd"), b.expect("eventfd"));
        poller
            .add(a.as_raw_fd(), u64::MAX, Interest::READ)
            .expect("add");
        poller.add(b.as_raw_fd(), 7, Interest::READ).expect("add");
        let mut events = Vec::new();
        poller
            .wait(&mut events, Some(Duration::ZERO))
            .expect("wait");
        assert!(events.is_empty());
        a.add(1).expect("add");
        poller.wait(&mut events, None).expect("wait");
        assert_eq!(tokens(&events), [u64::MAX]);
        assert!(events[0].readable() && !events[0].writable() && !events[0].hangup());
        b.add(1).expect("add");
        poller
            .wait(&mut events, Some(Duration::from_secs(10)))
            .expect("wait");
        assert_eq!(tokens(&events), [7, u64::MAX]);
        poller
            .modify(
                a.as_raw_fd(),
                9,
                Interest {
                    readable: false,
                    writable: true,
                },
            )
            .expect("modify");
        poller.remove(b.as_raw_fd()).expect("remove");
        poller
            .wait(&mut events, Some(Duration::ZERO))
            .expect("wait");
        assert_eq!(tokens(&events), [9]);
        assert!(events[0].writable() && !events[0].readable());
    }

    #[test]
    fn mistakes_are_errors() {
        let (poller, a) = (
            Poller::new().expect("epoll"),
            EventFd::counter().expect("eventfd"),
        );
        poller.add(a.as_raw_fd(), 1, Interest::READ).expect("add");
        let twice = poller
            .add(a.as_raw_fd(), 1, Interest::READ)
            .expect_err("twice");
        assert_eq!(twice.raw_os_error(), Some(libc::EEXIST));
        assert_eq!(
            poller
                .modify(-1, 1, Interest::READ)
                .expect_err("bad")
                .raw_os_error(),
            Some(libc::EBADF)
        );
    }

    #[test]
    fn timeouts_are_neither_short_nor_rounded_to_milliseconds() {
        let (poller, mut events) = (Poller::new().expect("epoll"), Vec::new());
        let waits: Vec<Duration> = (0..20)
            .map(|_| {
                let start = clock::monotonic();
                poller
                    .wait(&mut events, Some(Duration::from_micros(100)))
                    .expect("wait");
                clock::monotonic() - start
            })
            .collect();
        assert!(waits.iter().all(|w| *w >= Duration::from_micros(100)));
        poller.coarse.store(true, Ordering::Relaxed);
        let start = clock::monotonic();
        poller
            .wait(&mut events, Some(Duration::from_micros(100)))
            .expect("wait");
        assert!(clock::monotonic() - start >= Duration::from_micros(100));
    }

    #[test]
    fn milliseconds_round_up() {
        assert_eq!(milliseconds(None), -1);
        assert_eq!(milliseconds(Some(Duration::ZERO)), 0);
        assert_eq!(milliseconds(Some(Duration::from_nanos(1))), 1);
        assert_eq!(milliseconds(Some(Duration::from_micros(1001))), 2);
        assert_eq!(milliseconds(Some(Duration::MAX)), i32::MAX);
    }
}
