//! Places for tests of memory that is unmapped.
//!
//! What a thread unmaps may be another's mapping a moment later, at the same address. The kernel
//! searches for room from the top of the address space (some machines: from a third of it), so what
//! lies far below it gives out to nobody.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use super::mapping::Mapping;

/// Far below everything the kernel places itself, above programs that are linked to a fixed
/// address, and their heaps.
const BEGIN: u64 = 1 << 40;
/// Between two places.
const APART: u64 = 1 << 30;

/// An address at which `len` bytes, at most a gibibyte, stay free until somebody maps them there;
/// another one at each call.
pub(super) fn place(len: usize) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(BEGIN);
    assert!(len as u64 <= APART);
    NEXT.fetch_add(2 * APART, Ordering::Relaxed)
}

impl Mapping {
    /// As [`Mapping::anonymous`], at addresses that nobody gets when it is dropped.
    ///
    /// # Errors
    /// ENOMEM; EEXIST if something is there.
    pub fn aside(len: usize) -> io::Result<Self> {
        Self::exactly(place(len), len)
    }
}
