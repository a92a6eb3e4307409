//! Copies of a few bytes.

use std::ptr;

/// Copies a few bytes without a call, in the steps in which registered memory is copied. What was
/// written a moment ago is still on its way to memory, and can be read from there only if it was
/// written in one piece.
///
/// # Safety
/// As `ptr::copy_nonoverlapping`.
#[expect(clippy::inline_always, reason = "it is for few bytes")]
#[inline(always)]
pub unsafe fn copy_short(to: *mut u8, from: *const u8, len: usize) {
    let mut at = 0;
    // SAFETY: the caller's promise; each piece lies inside the `len` bytes.
    let mut step = |bytes: usize| unsafe {
        ptr::copy_nonoverlapping(from.add(at), to.add(at), bytes);
        at += bytes;
    };
    for _ in 0..len / 16 {
        step(16);
    }
    if len & 8 != 0 {
        step(8);
    }
    if len & 4 != 0 {
        step(4);
    }
    for _ in 0..len % 4 {
        step(1);
    }
}
