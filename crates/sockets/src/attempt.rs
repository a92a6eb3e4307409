//! Calls of the program's, made so that they do not sleep: what a look makes.

use std::ffi::{c_int, c_long, c_void};
use std::os::fd::RawFd;

use crate::errno;
use crate::signals::Set;

/// What a call returned; an error is an errno.
pub(crate) type Outcome = Result<c_int, c_int>;

fn outcome(value: c_long) -> Outcome {
    if value < 0 {
        return Err(errno::now());
    }
    // Lengths are below 2 GiB.
    Ok(c_int::try_from(value).unwrap_or(c_int::MAX))
}

/// What a receive found; `None` if there is nothing.
pub(crate) fn some_bytes(outcome: Outcome) -> Option<Outcome> {
    (outcome != Err(libc::EAGAIN)).then_some(outcome)
}

/// What a wait found; `None` if nothing is ready.
pub(crate) fn some_events(outcome: Outcome) -> Option<Outcome> {
    (outcome != Ok(0)).then_some(outcome)
}

const NONE: *const c_void = std::ptr::null();
const NOW: libc::timespec = libc::timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Where a receive puts what it finds, as the program has passed it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) bytes: *mut c_void,
    pub(crate) length: usize,
    pub(crate) address: *mut libc::sockaddr,
    pub(crate) address_length: *mut libc::socklen_t,
}

impl Room {
    /// Room for bytes, and for no address.
    pub(crate) const fn new(bytes: *mut c_void, length: usize) -> Self {
        Self {
            bytes,
            length,
            address: std::ptr::null_mut(),
            address_length: std::ptr::null_mut(),
        }
    }
}

/// Receives as `recvfrom(2)`.
///
/// # Safety
/// The kernel does not trust the pointers, but writes where the program can.
pub(crate) unsafe fn receive(fd: RawFd, room: Room, flags: c_int) -> Outcome {
    // SAFETY: as the caller says.
    unsafe { sleep_for_bytes(fd, room, flags | libc::MSG_DONTWAIT) }
}

/// Receives as `recvfrom(2)`, and sleeps unless the flags say otherwise.
///
/// # Safety
/// As for [`receive`].
pub(crate) unsafe fn sleep_for_bytes(fd: RawFd, room: Room, flags: c_int) -> Outcome {
    // SAFETY: as the caller says.
    outcome(unsafe {
        libc::syscall(
            libc::SYS_recvfrom,
            fd,
            room.bytes,
            room.length,
            flags,
            room.address,
            room.address_length,
        )
    })
}

/// Receives as `recvmsg(2)`.
///
/// # Safety
/// As for [`receive`].
pub(crate) unsafe fn receive_message(
    fd: RawFd,
    message: *mut libc::msghdr,
    flags: c_int,
) -> Outcome {
    let flags = flags | libc::MSG_DONTWAIT;
    // SAFETY: as the caller says.
    outcome(unsafe { libc::syscall(libc::SYS_recvmsg, fd, message, flags) })
}

/// Takes what is ready, as `epoll_wait(2)`.
///
/// # Safety
/// As for [`receive`].
pub(crate) unsafe fn events(set: RawFd, to: *mut libc::epoll_event, room: c_int) -> Outcome {
    // SAFETY: as the caller says.
    outcome(unsafe { libc::syscall(libc::SYS_epoll_pwait, set, to, room, 0, NONE, 0) })
}

/// `epoll_pwait2(2)`, which sleeps, where the C library lacks it.
///
/// # Safety
/// As for [`receive`].
pub(crate) unsafe fn sleep_for_events(
    set: RawFd,
    to: *mut libc::epoll_event,
    room: c_int,
    timeout: *const libc::timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    let (number, length) = (libc::SYS_epoll_pwait2, size_of::<Set>());
    // SAFETY: as the caller says.
    let result = unsafe { libc::syscall(number, set, to, room, timeout, mask, length) };
    c_int::try_from(result).unwrap_or(-1)
}

/// Looks at descriptors, as `poll(2)`.
///
/// # Safety
/// As for [`receive`].
pub(crate) unsafe fn poll(fds: *mut libc::pollfd, count: libc::nfds_t) -> Outcome {
    let mut now = NOW;
    // SAFETY: as the caller says; the kernel may write the time.
    outcome(unsafe { libc::syscall(libc::SYS_ppoll, fds, count, &raw mut now, NONE, 0) })
}
