//! The door to the device: starts the log, then the process's [`Nic`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_nic::{Error, Nic};

/// The process's software device.
///
/// # Errors
/// As [`Nic::get`].
pub(crate) fn nic() -> Result<Arc<Nic>, Error> {
    crate::log::init();
    Nic::get()
}

/// A number for the `handle` field of an object. The kernel's handles are per device and small;
/// programs only print them.
pub(crate) fn next_handle() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
