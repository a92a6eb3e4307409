//! Whether pages allow an access where neither `/proc` nor `MADV_POPULATE_*` (Linux 5.14) tells:
//! the kernel makes an access that changes nothing, by operations of futex(2) that every sandbox
//! must allow. The pages become present, as by any access.

use std::sync::atomic::AtomicU32;

use super::pages::page_size;
use crate::sys::{check, errno};

/// What the operations need a second address for; nobody waits at it.
static NOBODY: AtomicU32 = AtomicU32::new(0);

/// Adds 0, and would wake a waiter if the word had been 2047 (`FUTEX_OP`).
const ADD_NOTHING: u32 = 1 << 28 | 2047;

/// Whether all pages of a range allow the access. `addr` is that of a page.
pub(super) fn allowed(addr: u64, len: u64, writable: bool) -> bool {
    let step = usize::try_from(page_size()).expect("invariant: pages are small");
    let access = if writable { may_write } else { may_read };
    (addr..addr + len).step_by(step).all(access)
}

/// The kernel compares the word with 0, and moves no waiter.
fn may_read(page: u64) -> bool {
    let operation = libc::FUTEX_CMP_REQUEUE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel reads the word, if it may.
    let done =
        check(unsafe { libc::syscall(libc::SYS_futex, page, operation, 0, 0, NOBODY.as_ptr(), 0) });
    done.map_or_else(|e| errno(&e) == libc::EAGAIN, |_| true)
}

/// The kernel adds 0 to the word by one instruction.
fn may_write(page: u64) -> bool {
    let operation = libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word has the value that it had, also if others write it meanwhile.
    let done = check(unsafe {
        libc::syscall(
            libc::SYS_futex,
            NOBODY.as_ptr(),
            operation,
            0,
            0,
            page,
            ADD_NOTHING,
        )
    });
    done.is_ok()
}
