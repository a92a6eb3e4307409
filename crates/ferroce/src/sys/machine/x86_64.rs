//! The accesses of x86-64, where each load acquires and each store releases.

use std::arch::asm;

/// Reads a word; what is read behind it is read later.
///
/// # Safety
/// It is aligned and valid for reads.
#[inline(always)]
pub(in crate::sys) unsafe fn load(from: *const u64) -> u64 {
    let value;
    // Not `readonly`: the compiler may move reads of memory across what does not write any.
    // SAFETY: the caller's promise; it reads one word.
    unsafe {
        asm!("mov {}, [{}]", out(reg) value, in(reg) from,
            options(nostack, preserves_flags));
    }
    value
}

/// Writes a word.
///
/// # Safety
/// It is aligned and valid for writes.
#[inline(always)]
pub(in crate::sys) unsafe fn store(to: *mut u64, value: u64) {
    // SAFETY: the caller's promise; it writes one word.
    unsafe {
        asm!("mov [{}], {}", in(reg) to, in(reg) value, options(nostack, preserves_flags));
    }
}

/// Adds to a word, and gives what was there before.
///
/// # Safety
/// It is aligned and valid for reads and writes.
pub(in crate::sys) unsafe fn fetch_add(word: *mut u64, add: u64) -> u64 {
    let mut value = add;
    // SAFETY: the caller's promise; it changes one word.
    unsafe {
        asm!("lock xadd [{}], {}", in(reg) word, inout(reg) value, options(nostack));
    }
    value
}

/// Sets a word to `new` if it is `current`, and gives what was there before.
///
/// # Safety
/// It is aligned and valid for reads and writes.
pub(in crate::sys) unsafe fn compare_swap(word: *mut u64, current: u64, new: u64) -> u64 {
    let mut value = current;
    // SAFETY: the caller's promise; it changes one word at most.
    unsafe {
        asm!("lock cmpxchg [{}], {}", in(reg) word, in(reg) new, inout("rax") value,
            options(nostack));
    }
    value
}
