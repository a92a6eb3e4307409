//! The accesses of aarch64.

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
        asm!("ldar {}, [{}]", out(reg) value, in(reg) from,
            options(nostack, preserves_flags));
    }
    value
}

/// Writes a word; what was written before it is there earlier.
///
/// # Safety
/// It is aligned and valid for writes.
#[inline(always)]
pub(in crate::sys) unsafe fn store(to: *mut u64, value: u64) {
    // SAFETY: the caller's promise; it writes one word.
    unsafe {
        asm!("stlr {}, [{}]", in(reg) value, in(reg) to, options(nostack, preserves_flags));
    }
}

/// Adds to a word, and gives what was there before.
///
/// # Safety
/// It is aligned and valid for reads and writes.
pub(in crate::sys) unsafe fn fetch_add(word: *mut u64, add: u64) -> u64 {
    let value;
    // SAFETY: the caller's promise; it changes one word.
    unsafe {
        asm!(
            "2: ldaxr {value}, [{word}]",
            "add {sum}, {value}, {add}",
            "stlxr {failed:w}, {sum}, [{word}]",
            "cbnz {failed:w}, 2b",
            value = out(reg) value, word = in(reg) word, add = in(reg) add,
            sum = out(reg) _, failed = out(reg) _,
            options(nostack, preserves_flags)
        );
    }
    value
}

/// Sets a word to `new` if it is `current`, and gives what was there before.
///
/// # Safety
/// It is aligned and valid for reads and writes.
pub(in crate::sys) unsafe fn compare_swap(word: *mut u64, current: u64, new: u64) -> u64 {
    let value;
    // SAFETY: the caller's promise; it changes one word at most.
    unsafe {
        asm!(
            "2: ldaxr {value}, [{word}]",
            "cmp {value}, {current}",
            "b.ne 3f",
            "stlxr {failed:w}, {new}, [{word}]",
            "cbnz {failed:w}, 2b",
            "3: clrex",
            value = out(reg) value, word = in(reg) word, current = in(reg) current,
            new = in(reg) new, failed = out(reg) _,
            options(nostack)
        );
    }
    value
}
