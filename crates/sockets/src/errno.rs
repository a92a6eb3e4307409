//! `errno`.

use std::ffi::c_int;

/// Sets `errno`.
pub(crate) fn set(errno: c_int) {
    // SAFETY: the address of this thread's errno.
    unsafe { *libc::__errno_location() = errno };
}

/// `errno` as it is.
pub(crate) fn now() -> c_int {
    // SAFETY: the address of this thread's errno.
    unsafe { *libc::__errno_location() }
}

/// Sets `errno` and gives -1.
pub(crate) fn fail<T: From<i8>>(errno: c_int) -> T {
    set(errno);
    T::from(-1)
}

/// Runs something that the caller must not notice by its `errno`.
pub(crate) fn kept<R>(f: impl FnOnce() -> R) -> R {
    let before = now();
    let result = f();
    set(before);
    result
}
