//! `rpoll` and `rselect`: rsockets and plain descriptors mixed.

use std::time::{Duration, Instant};

use libc::{c_int, fd_set, pollfd, timeval};

use super::errno::{Errno, Result};
use super::handle::Rsocket;
use super::table;
use super::wait::{self, Awaited, Signals, until};

/// Descriptors that a call asks for: which of them are rsockets.
struct Asked<'a> {
    fds: &'a mut [pollfd],
    sockets: Vec<Option<Rsocket>>,
    /// The plain ones, and where they are in `fds`.
    plain: Vec<pollfd>,
    places: Vec<usize>,
}

impl<'a> Asked<'a> {
    fn new(fds: &'a mut [pollfd]) -> Self {
        let sockets: Vec<_> = fds.iter().map(|fd| table::find(fd.fd)).collect();
        let places: Vec<usize> = (0..fds.len()).filter(|at| sockets[*at].is_none()).collect();
        let plain = places.iter().map(|at| fds[*at]).collect();
        Self {
            fds,
            sockets,
            plain,
            places,
        }
    }

    /// Looks at all. Returns how many are ready, if any are.
    fn look(&mut self) -> Option<Result<usize>> {
        for (fd, socket) in self.fds.iter_mut().zip(&self.sockets) {
            fd.revents = socket
                .as_ref()
                .map_or(0, |socket| socket.revents(fd.events));
        }
        if !self.plain.is_empty() {
            if let Err(error) = wait::poll(&mut self.plain, Some(Duration::ZERO)) {
                return Some(Err(error));
            }
            for (plain, at) in self.plain.iter().zip(&self.places) {
                self.fds[*at].revents = plain.revents;
            }
        }
        let ready = self.fds.iter().filter(|fd| fd.revents != 0).count();
        (ready > 0).then_some(Ok(ready))
    }
}

/// `rpoll`: `None` waits without end.
pub(super) fn poll(fds: &mut [pollfd], timeout: Option<Duration>) -> Result<usize> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut asked = Asked::new(fds);
    if asked.plain.len() == asked.fds.len() {
        let ready = wait::poll(&mut asked.plain, timeout)?;
        for (fd, plain) in asked.fds.iter_mut().zip(&asked.plain) {
            fd.revents = plain.revents;
        }
        return Ok(ready);
    }
    look_until(asked, deadline, &[], || false)
}

/// As [`poll`] until `deadline`; woken by `also`, it ends with 0 if `stop` says so.
pub(super) fn poll_beside(
    fds: &mut [pollfd],
    deadline: Option<Instant>,
    also: &dyn Awaited,
    stop: impl FnMut() -> bool,
) -> Result<usize> {
    look_until(Asked::new(fds), deadline, &[also], stop)
}

fn look_until(
    mut asked: Asked<'_>,
    deadline: Option<Instant>,
    also: &[&dyn Awaited],
    mut stop: impl FnMut() -> bool,
) -> Result<usize> {
    let held = asked.sockets.clone();
    let sockets = held.iter().flatten();
    let mut awaited: Vec<&dyn Awaited> = sockets.map(Rsocket::awaited).collect();
    awaited.extend_from_slice(also);
    let others = asked.plain.clone();
    let looked = until(&awaited, &others, deadline, Signals::AsPoll, || {
        asked.look().or_else(|| stop().then_some(Ok(0)))
    })?;
    looked.unwrap_or(Ok(0))
}

/// Sets of `select(2)`: readable, writable, exceptional.
pub(super) type Sets = [*mut fd_set; 3];

const ASKED: [i16; 3] = [
    libc::POLLIN | libc::POLLRDNORM,
    libc::POLLOUT | libc::POLLWRNORM,
    libc::POLLPRI,
];

/// What makes a descriptor readable and writable for `select(2)`.
const COUNTS: [i16; 3] = [
    ASKED[0] | libc::POLLHUP | libc::POLLERR,
    ASKED[1] | libc::POLLERR,
    libc::POLLPRI,
];

/// `rselect`.
///
/// # Safety
/// Each set is NULL or live.
pub(super) unsafe fn select(count: c_int, sets: Sets, timeout: Option<Duration>) -> Result<usize> {
    let limit = c_int::try_from(libc::FD_SETSIZE).unwrap_or(c_int::MAX);
    if !(0..=limit).contains(&count) {
        return Err(Errno(libc::EINVAL));
    }
    let has = |set: *mut fd_set, fd| {
        // SAFETY: the caller's set, and a number within it.
        !set.is_null() && unsafe { libc::FD_ISSET(fd, set) }
    };
    let mut fds = Vec::new();
    for fd in 0..count {
        let wanted = sets.iter().zip(ASKED).filter(|(set, _)| has(**set, fd));
        let events = wanted.fold(0, |events, (_, bits)| events | bits);
        if events != 0 {
            let revents = 0;
            fds.push(pollfd {
                fd,
                events,
                revents,
            });
        }
    }
    poll(&mut fds, timeout)?;
    if fds.iter().any(|fd| fd.revents & libc::POLLNVAL != 0) {
        return Err(Errno(libc::EBADF));
    }
    let mut ready = 0;
    for fd in &fds {
        for (set, counts) in sets.iter().zip(COUNTS) {
            if has(*set, fd.fd) {
                if fd.revents & counts != 0 {
                    ready += 1;
                } else {
                    // SAFETY: the caller's set, and a number within it.
                    unsafe { libc::FD_CLR(fd.fd, *set) };
                }
            }
        }
    }
    Ok(ready)
}

/// The time that a `struct timeval` gives; without one there is none.
///
/// # Errors
/// EINVAL if it is negative.
///
/// # Safety
/// It is NULL or live.
pub(super) unsafe fn duration(time: *const timeval) -> Result<Option<Duration>> {
    if time.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let timeval { tv_sec, tv_usec } = unsafe { time.read() };
    let seconds = u64::try_from(tv_sec).map_err(|_| Errno(libc::EINVAL))?;
    let micros = u64::try_from(tv_usec).map_err(|_| Errno(libc::EINVAL))?;
    Ok(Some(
        Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros)),
    ))
}
