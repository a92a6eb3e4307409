//! Waiting on a descriptor that an event queue gave out.

use std::ffi::c_int;

use libc::c_void;

/// Takes one count from a semaphore eventfd; sleeps in `read(2)` until there is one.
///
/// `read` is a cancellation point: `pthread_cancel` may end the thread inside it and unwinds this
/// frame and its callers, so none of them may own anything that needs dropping, or hold a lock,
/// while they call this.
///
/// # Errors
/// `errno` as `read` left it: EAGAIN on a non-blocking descriptor, EINTR after a signal.
pub(crate) fn take_one(fd: c_int) -> Result<(), ()> {
    let mut count = 0u64;
    // SAFETY: the buffer has the 8 bytes that are asked for.
    let read = unsafe { libc::read(fd, (&raw mut count).cast::<c_void>(), size_of::<u64>()) };
    if read == 8 { Ok(()) } else { Err(()) }
}
