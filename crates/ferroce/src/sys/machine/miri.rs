//! The accesses of Miri, which runs no instructions: as the language has them. It reports programs
//! that race words with bytes.

use std::sync::atomic::{AtomicU64, Ordering};

/// Reads a word; what is read behind it is read later.
///
/// # Safety
/// It is aligned and valid for reads.
pub(in crate::sys) unsafe fn load(from: *const u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { AtomicU64::from_ptr(from.cast_mut()) }.load(Ordering::Acquire)
}

/// Writes a word; what was written before it is there earlier.
///
/// # Safety
/// It is aligned and valid for writes.
pub(in crate::sys) unsafe fn store(to: *mut u64, value: u64) {
    // SAFETY: the caller's promise.
    unsafe { AtomicU64::from_ptr(to) }.store(value, Ordering::Release);
}

/// Adds to a word, and gives what was there before.
///
/// # Safety
/// It is aligned and valid for reads and writes.
pub(in crate::sys) unsafe fn fetch_add(word: *mut u64, add: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { AtomicU64::from_ptr(word) }.fetch_add(add, Ordering::SeqCst)
}

/// Sets a word to `new` if it is `current`, and gives what was there before.
///
/// # Safety
/// It is aligned and valid for reads and writes.
pub(in crate::sys) unsafe fn compare_swap(word: *mut u64, current: u64, new: u64) -> u64 {
    // SAFETY: the caller's promise.
    let swapped = unsafe { AtomicU64::from_ptr(word) }.compare_exchange(
        current,
        new,
        Ordering::SeqCst,
        Ordering::SeqCst,
    );
    swapped.unwrap_or_else(|found| found)
}
