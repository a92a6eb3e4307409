//! Whether descriptors that completion channels have are readable.

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
