//! Registered memory of a connection.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr;
use std::sync::atomic::{Ordering, fence};

use ferroce_proto::rsocket::{ByteOrder, IomapEntry, Target};
use libc::c_int;

use super::errno::{Errno, Result};
use crate::types::{ibv_mr, ibv_pd};
use crate::verbs::{ibv_dereg_mr, ibv_reg_mr};

/// Of the list of targets. Not more: memory of a larger alignment is filled with zeros at once.
const ALIGN: usize = Target::LEN;

/// Bytes that the device, and as its keys allow the peer, read and write at any time.
///
/// No reference to them is ever made; they are copied through the raw pointer.
#[derive(Debug)]
pub(super) struct Memory {
    start: *mut u8,
    layout: Layout,
    mr: *mut ibv_mr,
}

// SAFETY: plain bytes, and a region that any thread may deregister.
unsafe impl Send for Memory {}
// SAFETY: the methods of `&self` copy through the raw pointer and bound every access; copies race
// with nothing but the device.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: registered in `new` and deregistered only here; after that no peer writes there.
        unsafe {
            ibv_dereg_mr(self.mr);
            dealloc(self.start, self.layout);
        }
    }
}

impl Memory {
    /// Memory of `len` zero bytes.
    ///
    /// # Safety
    /// `pd` is live and outlives the memory.
    pub(super) unsafe fn new(pd: *mut ibv_pd, len: usize, access: u32) -> Result<Self> {
        let layout = Layout::from_size_align(len.max(1), ALIGN).map_err(|_| Errno(libc::ENOMEM))?;
        // SAFETY: the size is not 0.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            return Err(Errno(libc::ENOMEM));
        }
        let access = c_int::try_from(access).map_err(|_| Errno(libc::EINVAL))?;
        // SAFETY: the caller's domain, and memory that lives until the region is gone.
        let mr = unsafe { ibv_reg_mr(pd, start.cast(), layout.size(), access) };
        if mr.is_null() {
            let error = Errno::last();
            // SAFETY: allocated above.
            unsafe { dealloc(start, layout) };
            return Err(error);
        }
        Ok(Self { start, layout, mr })
    }

    /// Key for this side.
    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: live as long as `self`.
        unsafe { (*self.mr).lkey }
    }

    /// Key for the peer.
    pub(super) fn remote_key(&self) -> u32 {
        // SAFETY: live as long as `self`.
        unsafe { (*self.mr).rkey }
    }

    /// Address of a byte, as keys' users name it.
    pub(super) fn address(&self, at: usize) -> u64 {
        (self.start.expose_provenance() + at) as u64
    }

    fn at(&self, at: usize, len: usize) -> *mut u8 {
        let inside = at
            .checked_add(len)
            .is_some_and(|end| end <= self.layout.size());
        assert!(inside, "invariant: {len} bytes at {at} lie in the memory");
        // SAFETY: just checked.
        unsafe { self.start.add(at) }
    }

    /// Copies bytes in.
    ///
    /// # Safety
    /// `from` can be read for `len` bytes, which lie elsewhere.
    pub(super) unsafe fn put(&self, at: usize, from: *const u8, len: usize) {
        // SAFETY: `at` checks this side, the caller promises the other.
        unsafe { ptr::copy_nonoverlapping(from, self.at(at, len), len) };
    }

    /// Copies bytes out.
    ///
    /// # Safety
    /// `to` can be written for `len` bytes, which lie elsewhere.
    pub(super) unsafe fn get(&self, at: usize, to: *mut u8, len: usize) {
        // SAFETY: `at` checks this side, the caller promises the other.
        unsafe { ptr::copy_nonoverlapping(self.at(at, len), to, len) };
    }

    /// Takes the target that the peer may have written at `at`: its place is empty then. The length
    /// is read first, since it became visible last.
    pub(super) fn take_target(&self, at: usize) -> Target {
        let length = self.at(at + Target::LENGTH_AT, 4).cast::<u32>();
        // SAFETY: four bytes of the memory, aligned as the list is.
        if unsafe { length.read_volatile() } == 0 {
            return Target::default();
        }
        fence(Ordering::Acquire);
        let mut bytes = [0; Target::LEN];
        // SAFETY: the buffer is as long as a target.
        unsafe { self.get(at, bytes.as_mut_ptr(), Target::LEN) };
        // SAFETY: four bytes of the memory.
        unsafe { length.write_volatile(0) };
        Target::from_bytes(&bytes, ByteOrder::NATIVE)
    }

    /// The iomap entry that the peer may have written at `at`.
    pub(super) fn iomap_entry(&self, at: usize) -> IomapEntry {
        let mut bytes = [0; IomapEntry::LEN];
        // SAFETY: the buffer is as long as an entry.
        unsafe { self.get(at, bytes.as_mut_ptr(), IomapEntry::LEN) };
        IomapEntry::from_bytes(&bytes, ByteOrder::NATIVE)
    }
}
