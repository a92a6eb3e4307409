//! Copies that the kernel makes: memory that is not mapped, or does not allow the access, is an
//! error value whatever signal handlers the program has. Own memory is always allowed as a target
//! of these calls.

use ferroce_proto::mr::Unmapped;

use super::guarded;
use crate::sys::{check_retry, errno};

/// Copies `len` bytes.
///
/// # Safety
/// Of `to` and `from` one is registered memory, the other `len` bytes of the library's own; they do
/// not overlap.
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> Result<(), Unmapped> {
    if len == 0 {
        return Ok(());
    }
    let piece = |base: *const u8| libc::iovec {
        iov_base: base.cast_mut().cast(),
        iov_len: len,
    };
    let (local, remote) = (piece(to), piece(from));
    // As a read of the own process: a fault on either side ends the copy. By this thread's number:
    // the first thread may have ended. SAFETY: takes nothing.
    let own = unsafe { libc::syscall(libc::SYS_gettid) };
    // SAFETY: the kernel checks both ranges; what is written is `to`, as the caller promises.
    let copied = check_retry(|| unsafe {
        libc::syscall(
            libc::SYS_process_vm_readv,
            own,
            &raw const local,
            1_usize,
            &raw const remote,
            1_usize,
            0_usize,
        )
    });
    match copied {
        Ok(copied) if copied == len => Ok(()),
        // Not allowed by a filter of system calls.
        Err(e) if matches!(errno(&e), libc::ENOSYS | libc::EPERM) => {
            // SAFETY: the caller's promise.
            unsafe { guarded::copy(to, from, len) }
        }
        _ => Err(Unmapped),
    }
}
