//! What hardware providers' libraries import from libibverbs, and what programs of before 2008 do.
//! Programs such as perftest are linked with some of the former, so the symbols must be there; none
//! is ever called on a device of ours, because no provider recognises one.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::errno::{as_null, set_errno, unbuilt};
use crate::types::ibv_device;

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

/// Stands for every private function that gives nothing: `verbs_register_driver_34` and its like,
/// which providers call when they are loaded, and `__verbs_log`, which has any number of arguments.
pub unsafe extern "C" fn ignore() {}

/// Stands for `ibv_get_device_list` of version 1.0. Its structures have another layout, so a
/// program that asks for it finds no device.
///
/// # Safety
/// `num_devices` can be written or is NULL.
pub unsafe extern "C" fn no_devices_of_version_1_0(
    num_devices: *mut c_int,
) -> *mut *mut ibv_device {
    if !num_devices.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *num_devices = 0 };
    }
    let refusal = unbuilt("the interface of libibverbs 1.0, which this program was built for,");
    as_null("ibv_get_device_list", &refusal)
}
