//! Counts of descriptors that completion channels have.

use std::os::fd::RawFd;

/// Whether a descriptor is readable now.
pub(super) fn is_readable(fd: RawFd) -> bool {
    let mut wait = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one descriptor; the call does not wait.
    unsafe { libc::poll(&raw mut wait, 1, 0) == 1 }
}

/// Takes one count, as a program does before it takes the event. Returns false if there is none.
/// Nobody else takes counts of this descriptor.
pub(super) fn take(fd: RawFd) -> bool {
    let mut count = 0_u64;
    // SAFETY: room for the eight bytes that a read of an eventfd gives.
    is_readable(fd) && unsafe { libc::read(fd, (&raw mut count).cast(), size_of::<u64>()) } == 8
}
