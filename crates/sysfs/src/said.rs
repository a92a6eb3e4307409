//! What this process has said to its user, so that nothing is said twice.
//!
//! A shell forks before each program that it starts, and it is the child that finds out what does
//! not work for the program. So the memory of what was said is shared with children.

use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// The memory of a process that could not get any to share.
static OWN: AtomicU8 = AtomicU8::new(0);
/// A bit for each kind of line.
static SAID: AtomicPtr<AtomicU8> = AtomicPtr::new((&raw const OWN).cast_mut());

/// What the loader calls when it has loaded this library, before the program can fork.
#[used]
// SAFETY: the loader calls the functions of this section without arguments that matter.
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

extern "C" fn loaded() {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    let length = size_of::<AtomicU8>();
    // SAFETY: new memory at a place that the kernel chooses. It is never unmapped.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
    if page != libc::MAP_FAILED {
        SAID.store(page.cast(), Ordering::Relaxed);
    }
}

/// Whether the line of that number, below 8, is said for the first time in this process, its
/// parents up to the last `exec`, and their other children.
pub(crate) fn is_first(line: u8) -> bool {
    // SAFETY: a byte that lives as long as the process, and that is only used so.
    let said = unsafe { &*SAID.load(Ordering::Relaxed) };
    said.fetch_or(1 << line, Ordering::Relaxed) & (1 << line) == 0
}
