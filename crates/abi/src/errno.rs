//! How a refusal reaches a C program: the errno in the form the manual page names, the reason in
//! the log.

use std::ffi::c_int;

use ferroce_nic::Error;

/// Sets this thread's `errno`.
pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: `__errno_location` returns this thread's valid errno slot.
    unsafe { *libc::__errno_location() = errno };
}

/// This thread's `errno`.
pub(crate) fn errno() -> c_int {
    // SAFETY: `__errno_location` returns this thread's valid errno slot.
    unsafe { *libc::__errno_location() }
}

/// Logs why `call` refuses.
fn log(call: &'static str, error: &Error) {
    tracing::warn!(target: "ferroce::abi", "{call}: {error}");
}

/// The positive errno of a refused call; for functions that return 0 or an errno. Sets `errno` too,
/// as libibverbs does.
pub(crate) fn as_errno(call: &'static str, error: &Error) -> c_int {
    log(call, error);
    set_errno(error.errno);
    error.errno
}

/// Sets `errno` and gives -1.
pub(crate) fn as_minus_one(call: &'static str, error: &Error) -> c_int {
    as_errno(call, error);
    -1
}

/// Sets `errno` and gives NULL.
pub(crate) fn as_null<T>(call: &'static str, error: &Error) -> *mut T {
    as_errno(call, error);
    std::ptr::null_mut()
}

/// 0, or the positive errno.
pub(crate) fn result_as_errno(call: &'static str, result: Result<(), Error>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(e) => as_errno(call, &e),
    }
}

/// 0, or -1 with `errno` set.
pub(crate) fn result_as_minus_one(call: &'static str, result: Result<(), Error>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(e) => as_minus_one(call, &e),
    }
}

/// The pointer, or NULL with `errno` set.
pub(crate) fn result_as_null<T>(call: &'static str, result: Result<*mut T, Error>) -> *mut T {
    result.unwrap_or_else(|e| as_null(call, &e))
}

/// The refusal of something that is not built.
pub(crate) fn unbuilt(what: &str) -> Error {
    Error::new(
        libc::EOPNOTSUPP,
        format!("{what} is not supported by this device"),
    )
}

/// The refusal of a bad argument.
pub(crate) fn invalid(reason: impl Into<String>) -> Error {
    Error::new(libc::EINVAL, reason)
}
