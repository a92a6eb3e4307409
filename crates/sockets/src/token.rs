//! What decides between stream and TCP: a counter that both ends have, and that one of them takes.
//!
//! The client makes it full. The server takes it in `accept`, and uses the stream from then on. The
//! client takes it when it has waited long enough, and uses TCP from then on. A read of an eventfd
//! empties it, so one of both finds it full, and nobody waits for a process that is stopped.

use std::ffi::c_void;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use crate::sys;

/// The highest count: an eventfd with it is not writable, and becomes so when it is taken.
const FULL: u64 = u64::MAX - 1;
const LENGTH: usize = size_of::<u64>();

/// A full token; none if no descriptor is left.
pub(crate) fn make() -> Option<RawFd> {
    let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::syscall(libc::SYS_eventfd2, 0, flags) };
    let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    let count = FULL;
    let at: *const c_void = (&raw const count).cast();
    // SAFETY: a count of this function.
    let written = unsafe { libc::syscall(libc::SYS_write, fd, at, LENGTH) };
    if written < 0 {
        sys::close(fd);
        return None;
    }
    Some(fd)
}

/// Takes the token. False if the other end has it.
pub(crate) fn take(token: RawFd) -> bool {
    let mut count = 0_u64;
    let at: *mut c_void = (&raw mut count).cast();
    // SAFETY: room for a count.
    let read = unsafe { libc::syscall(libc::SYS_read, token, at, LENGTH) };
    usize::try_from(read) == Ok(LENGTH)
}

/// Waits until the server takes the token, ends the stream, or has had its time: false then.
/// Signals are blocked, so nothing else ends the wait.
pub(crate) fn wait(token: RawFd, stream: RawFd, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    let mut polls = [(token, libc::POLLOUT), (stream, 0)].map(|(fd, events)| libc::pollfd {
        fd,
        events,
        revents: 0,
    });
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let time = libc::timespec {
            tv_sec: left.as_secs().cast_signed() as _,
            tv_nsec: left.subsec_nanos() as _,
        };
        let none = std::ptr::null::<c_void>();
        let (at, count) = (polls.as_mut_ptr(), polls.len());
        // SAFETY: structures of this function.
        let ready = unsafe { libc::syscall(libc::SYS_ppoll, at, count, &raw const time, none, 0) };
        if ready != -1 || left.is_zero() {
            return ready > 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_both_takes_it() {
        let token = make().expect("an eventfd");
        let threads = [(); 2].map(|()| std::thread::spawn(move || take(token)));
        let taken = threads.map(|thread| thread.join().expect("a thread"));
        assert!(taken[0] != taken[1], "{taken:?}");
        sys::close(token);
    }

    #[test]
    fn taking_it_ends_a_wait() {
        let token = make().expect("an eventfd");
        let other = std::thread::spawn(move || assert!(take(token)));
        let begin = Instant::now();
        assert!(wait(token, -1, Duration::from_secs(60)));
        assert!(begin.elapsed() < Duration::from_secs(50));
        other.join().expect("a thread");
        assert!(!take(token));
        sys::close(token);
    }

    #[test]
    fn a_wait_ends_by_itself() {
        let token = make().expect("an eventfd");
        assert!(!wait(token, -1, Duration::from_millis(2)));
        assert!(take(token), "nobody took it");
        sys::close(token);
    }
}
