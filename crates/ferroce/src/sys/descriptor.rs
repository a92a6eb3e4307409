//! File descriptors: their flags, and waiting for them.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use crate::{Error, Result};

/// `fcntl(F_SETFL)`: whether reading waits.
pub(super) fn set_nonblocking(fd: RawFd, nonblocking: bool) -> Result<()> {
    // SAFETY: no memory is passed; a number that is not a descriptor is an error.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 {
        return Err(Error::last("fcntl(F_GETFL)"));
    }
    let flags = if nonblocking {
        flags | libc::O_NONBLOCK
    } else {
        flags & !libc::O_NONBLOCK
    };
    // SAFETY: no memory is passed; a number that is not a descriptor is an error.
    Error::check_last("fcntl(F_SETFL)", unsafe {
        libc::fcntl(fd, libc::F_SETFL, flags)
    })
}

/// `poll(2)`: sleeps until it is readable, the time is over, or a signal comes. Whether anything is
/// there, the caller finds out.
pub(crate) fn wait_one(fd: BorrowedFd<'_>, limit: Duration) -> Result<()> {
    poll(&mut [entry(fd)], limit)
}

/// `poll(2)`: sleeps until one of two is readable, the time is over, or a signal comes. Returns
/// whether the second is readable.
pub(crate) fn wait_either(
    one: BorrowedFd<'_>,
    other: BorrowedFd<'_>,
    limit: Duration,
) -> Result<bool> {
    let mut entries = [entry(one), entry(other)];
    poll(&mut entries, limit)?;
    Ok(entries[1].revents != 0)
}

fn entry(fd: BorrowedFd<'_>) -> libc::pollfd {
    libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    }
}

fn poll(entries: &mut [libc::pollfd], limit: Duration) -> Result<()> {
    // Rounded up, so that a short limit does not spin.
    let milliseconds = limit.as_nanos().div_ceil(1_000_000);
    let milliseconds = i32::try_from(milliseconds).unwrap_or(i32::MAX);
    let count = entries.len() as libc::nfds_t;
    // SAFETY: that many entries.
    let ready = unsafe { libc::poll(entries.as_mut_ptr(), count, milliseconds) };
    match Error::last("poll") {
        _ if ready >= 0 => Ok(()),
        e if e.is_interrupted() => Ok(()),
        e => Err(e),
    }
}

/// A duplicate of a descriptor, registered with the tokio runtime for reading. It is an error
/// outside of a runtime, and in one without I/O.
#[cfg(feature = "tokio")]
pub(crate) fn watch(
    fd: BorrowedFd<'_>,
) -> std::io::Result<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>> {
    use std::io::{Error, ErrorKind};

    use tokio::io::{Interest, unix::AsyncFd};

    let fd = fd.try_clone_to_owned()?;
    let register = std::panic::AssertUnwindSafe(|| {
        // SAFETY: an owned descriptor is open, and the same one, for as long as it is registered.
        let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        watched.map_err(Error::from)
    });
    // Tokio cannot be asked: where it has no I/O it panics, having done nothing.
    std::panic::catch_unwind(register).unwrap_or_else(|_| {
        let reason = "not polled in a tokio runtime with I/O (`enable_io` or `enable_all`)";
        Err(Error::new(ErrorKind::Unsupported, reason))
    })
}
