//! The working folder, when it is one of ours: the kernel cannot be there, so it is kept here.

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

static SET: AtomicBool = AtomicBool::new(false);
static PATH: Mutex<Option<CString>> = Mutex::new(None);

/// The folder, if it is one of ours.
pub(crate) fn path() -> Option<CString> {
    if !SET.load(Ordering::Acquire) {
        return None;
    }
    PATH.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Goes there, or (`None`) back to where the kernel is.
pub(crate) fn set(path: Option<CString>) {
    SET.store(path.is_some(), Ordering::Release);
    *PATH.lock().unwrap_or_else(PoisonError::into_inner) = path;
}
