//! What hardware providers' libraries import from libibverbs. Programs such as perftest are linked
//! with some of them, so the symbols must be there; none is ever called on a device of ours,
//! because no provider recognises one.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::errno::set_errno;

/// Stands for every private function that gives an errno.
pub unsafe extern "C" fn refuse_with_errno() -> c_int {
    set_errno(libc::EOPNOTSUPP);
    libc::EOPNOTSUPP
}

/// Stands for every private function that gives a pointer.
pub unsafe extern "C" fn refuse_with_null() -> *mut c_void {
    set_errno(libc::EOPNOTSUPP);
    ptr::null_mut()
}

/// Stands for every private function that gives nothing: `verbs_register_driver_34`, which
/// providers call when they are loaded, and `__verbs_log`, which has any number of arguments.
pub unsafe extern "C" fn ignore() {}
