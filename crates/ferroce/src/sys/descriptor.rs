//! File descriptors: their flags, and waiting for them.

use std::os::fd::RawFd;
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
    // SAFETY: as above.
    Error::check_last("fcntl(F_SETFL)", unsafe {
        libc::fcntl(fd, libc::F_SETFL, flags)
    })
}

/// `poll(2)`, for that long at most. Whether anything is there, the caller finds out.
pub(super) fn wait_readable(fd: RawFd, limit: Duration) -> Result<()> {
    // Rounded up, so that a short limit does not spin.
    let limit = limit.as_nanos().div_ceil(1_000_000);
    let limit = i32::try_from(limit).unwrap_or(i32::MAX);
    let mut place = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one place.
    let ready = unsafe { libc::poll(&raw mut place, 1, limit) };
    if ready < 0 {
        return Err(Error::last("poll"));
    }
    Ok(())
}

/// A duplicate of a descriptor, registered with the tokio runtime for reading.
#[cfg(feature = "tokio")]
pub(crate) fn watch(
    fd: std::os::fd::BorrowedFd<'_>,
) -> std::io::Result<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>> {
    let fd = fd.try_clone_to_owned()?;
    // SAFETY: an owned descriptor is open, and the same one, for as long as it is registered.
    let watched = unsafe {
        tokio::io::unix::AsyncFd::register_with_interest(fd, tokio::io::Interest::READABLE)
    };
    watched.map_err(std::io::Error::from)
}
