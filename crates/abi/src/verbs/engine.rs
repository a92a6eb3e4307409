//! The door to the device: what runs before its first use, then the process's [`Nic`].

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Once, OnceLock};

use ferroce_nic::{Error, Nic};

static BEFORE_FIRST_USE: OnceLock<fn()> = OnceLock::new();

/// Has the library around this crate do something before a program first uses the device. The
/// drop-in library starts its log here and not when it is loaded: a program may set `FERROCE_LOG`
/// itself. Only the first call counts.
pub fn before_first_use(start: fn()) {
    let _ = BEFORE_FIRST_USE.set(start);
}

/// Runs what [`before_first_use`] was given, once.
pub(crate) fn first_use() {
    static FIRST: Once = Once::new();
    FIRST.call_once(|| {
        if let Some(start) = BEFORE_FIRST_USE.get() {
            start();
        }
    });
}

/// The process's software device.
///
/// # Errors
/// As [`Nic::get`].
pub(crate) fn nic() -> Result<Arc<Nic>, Error> {
    first_use();
    Nic::get()
}

/// A number for the `handle` field of an object. The kernel's handles are per device and small;
/// programs only print them.
pub(crate) fn next_handle() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
