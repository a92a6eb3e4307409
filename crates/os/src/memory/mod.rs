//! The bytes of registered regions.
//!
//! Programs read and write registered memory at any time, from any thread and process, without
//! telling. So no Rust reference to it is ever made: all access is by raw pointer. Programs also
//! unmap what they have registered, by mistake or, with on-demand paging, by right: no access from
//! here may end the process.
//!
//! | memory | accessed by |
//! |---|---|
//! | mapped when it was registered | `guarded`: instructions whose faults are caught; costs nothing while there is none |
//! | on-demand | `foreign`: the kernel copies, whatever handlers the program has |
//! | none (null regions) | nothing |
//! | another process's | `remote`: the kernel copies between address spaces |
//! | a little of it | `short_copies`: the kernel copies to and from the file of that process's memory |
//! | another process's that is pages of a file | `peer_pages`: mapped here, too, and `guarded` |
//!
//! Another process's memory is told from that of a program that it executes, or that has got its
//! number, by `proof`.
//!
//! `shared` has words of memory that one process writes and others read, `file` the files behind
//! shared memory; `copy_short` copies a few bytes of the library's own.

#[cfg(any(test, feature = "testkit"))]
mod aside;
mod copy_short;
pub(crate) mod file;
mod foreign;
mod guarded;
mod mapping;
mod pages;
mod peer_pages;
mod proof;
mod read_list;
mod remote;
mod shared;
mod short_copies;
mod touch;

use std::ptr;
use std::sync::atomic::{Ordering, fence};

use ferroce_proto::mr::{Backing, Memory, Span, Unmapped};

pub use copy_short::copy_short;
pub use file::{FileId, SharedFile};
pub use mapping::{Mapping, file_size};
pub(crate) use pages::{bring_in, give_back};
pub use pages::{page_size, prefetch, probe_range};
pub use peer_pages::{PeerFile, PeerPages};
pub use proof::{Proof, ProofPage};
pub(crate) use remote::iovec;
pub use remote::{MAX_PIECES, OtherProcess, Task, is_refusal};
pub use shared::{OwnWords, PeerWords};
pub use short_copies::MemoryFile;

/// This process's memory.
///
/// The rights table vouches for every span: it was mapped with the right protection when it was
/// registered. A program that unmaps memory and leaves it registered gets [`Unmapped`].
#[derive(Clone, Copy, Debug, Default)]
pub struct RawMemory;

pub(crate) fn address<T>(addr: u64) -> *mut T {
    ptr::with_exposed_provenance_mut(
        usize::try_from(addr).expect("invariant: addresses have 64 bits"),
    )
}

/// Makes sure that accesses to memory that was unmapped are caught. Call it before memory is
/// registered.
pub fn prepare() {
    guarded::install();
}

/// Copies between registered memory and the library's own.
///
/// # Safety
/// Of `to` and `from` one is registered memory, the other `len` bytes of the library's own; they do
/// not overlap.
#[inline]
unsafe fn copy(backing: Backing, to: *mut u8, from: *const u8, len: usize) -> Result<(), Unmapped> {
    match backing {
        // SAFETY: the caller's promise; a fault is caught.
        Backing::Mapped => unsafe { guarded::copy(to, from, len) },
        // SAFETY: the caller's promise.
        Backing::OnDemand => unsafe { foreign::copy(to, from, len) },
        Backing::Null => Ok(()),
    }
}

/// As [`copy`], in any order.
///
/// # Safety
/// As there.
#[inline]
unsafe fn copy_unordered(
    backing: Backing,
    to: *mut u8,
    from: *const u8,
    len: usize,
) -> Result<(), Unmapped> {
    match backing {
        // SAFETY: the caller's promise; a fault is caught.
        Backing::Mapped => unsafe { guarded::copy_unordered(to, from, len) },
        // SAFETY: the caller's promise.
        Backing::OnDemand | Backing::Null => unsafe { copy(backing, to, from, len) },
    }
}

/// How many of `len` bytes, at least 1, that end at an address become visible last: those of the
/// last aligned word, if they end with one.
const fn last_bytes(end: u64, len: usize) -> usize {
    if len >= 8 && end.is_multiple_of(8) {
        8
    } else if len > 0 {
        1
    } else {
        0
    }
}

/// Copies into a span, see [`Memory::write`].
///
/// # Safety
/// `from` is followed by as many bytes as the span has, in memory of the library's own.
#[inline]
unsafe fn write_from(span: Span<'_>, from: *const u8) -> Result<(), Unmapped> {
    let len = span.len();
    let Some(end) = span.addr().checked_add(len as u64).filter(|_| len > 0) else {
        return Ok(());
    };
    let tail = last_bytes(end, len);
    let head = len - tail;
    // SAFETY: the span is registered memory of this process for as long as it is borrowed, and the
    // caller's promise for the other side. The program may look meanwhile, as it may with a device.
    // An aligned word is copied as one, and a byte always is.
    unsafe {
        if head > 0 {
            copy(span.backing(), address(span.addr()), from, head)?;
        }
        fence(Ordering::Release);
        let to = address(end - tail as u64);
        copy(span.backing(), to, from.add(head), tail)
    }
}

/// As [`write_from`], for bytes that a completion speaks for: which of them become visible last
/// does not matter.
///
/// # Safety
/// As there.
#[inline]
pub(crate) unsafe fn fill_from(span: Span<'_>, from: *const u8) -> Result<(), Unmapped> {
    // SAFETY: the span is registered memory of this process for as long as it is borrowed, and the
    // caller's promise for the other side.
    unsafe { copy_unordered(span.backing(), address(span.addr()), from, span.len()) }
}

/// Copies the bytes of a span.
///
/// # Safety
/// `to` has room for as many bytes as the span has, in memory of the library's own.
pub(crate) unsafe fn read_to(span: Span<'_>, to: *mut u8) -> Result<(), Unmapped> {
    let len = span.len();
    // SAFETY: the span is registered memory of this process for as long as it is borrowed, and the
    // caller has as much room. The program may write meanwhile, as it may with a device.
    unsafe {
        if span.backing() == Backing::Null {
            to.write_bytes(0, len);
            return Ok(());
        }
        copy_unordered(span.backing(), to, address(span.addr()), len)
    }
}

impl Memory for RawMemory {
    #[inline]
    fn read(&self, span: Span<'_>, to: &mut [u8]) -> Result<(), Unmapped> {
        debug_assert_eq!(span.len(), to.len());
        if span.backing() == Backing::Null {
            to.fill(0);
            return Ok(());
        }
        let len = to.len().min(span.len());
        // SAFETY: the span is registered memory of this process for as long as it is borrowed, and
        // `to` is as long as the copy. The program may write meanwhile; it then gets a mix of old
        // and new bytes, as from a device.
        unsafe { copy(span.backing(), to.as_mut_ptr(), address(span.addr()), len) }
    }

    fn append(&self, span: Span<'_>, to: &mut Vec<u8>) -> Result<(), Unmapped> {
        let (old, len) = (to.len(), span.len());
        if span.backing() == Backing::Null {
            to.resize(old + len, 0);
            return Ok(());
        }
        to.reserve(len);
        let place = to.spare_capacity_mut().as_mut_ptr().cast::<u8>();
        // SAFETY: the span as in `read`; `place` has room for `len` bytes and is no registered
        // memory, and the bytes count as part of the vector only when they are there.
        unsafe {
            copy(span.backing(), place, address(span.addr()), len)?;
            to.set_len(old + len);
        }
        Ok(())
    }

    /// The last bytes (up to eight: those of the last aligned word, if the span ends with one)
    /// become visible last: programs poll the end of a buffer to learn that a WRITE has arrived.
    /// Devices are not bound to this order, but they keep it.
    #[inline]
    fn write(&self, span: Span<'_>, from: &[u8]) -> Result<(), Unmapped> {
        assert!(from.len() >= span.len(), "invariant: as long as the span");
        // SAFETY: there are so many bytes, which are not registered memory.
        unsafe { write_from(span, from.as_ptr()) }
    }

    fn compare_swap(&self, span: Span<'_>, compare: u64, swap: u64) -> Result<u64, Unmapped> {
        assert_eq!(span.len(), 8, "invariant: atomics are on 8 bytes");
        if span.backing() == Backing::Null {
            return Ok(0);
        }
        // SAFETY: eight registered bytes, valid for as long as the span is borrowed; a fault is
        // caught.
        unsafe { guarded::compare_swap(address(span.addr()), compare, swap) }
    }

    fn fetch_add(&self, span: Span<'_>, add: u64) -> Result<u64, Unmapped> {
        assert_eq!(span.len(), 8, "invariant: atomics are on 8 bytes");
        if span.backing() == Backing::Null {
            return Ok(0);
        }
        // SAFETY: eight registered bytes, valid for as long as the span is borrowed; a fault is
        // caught.
        unsafe { guarded::fetch_add(address(span.addr()), add) }
    }
}

#[cfg(test)]
mod tests;
