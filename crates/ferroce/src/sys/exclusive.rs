//! Memory that the device and the program use in turn.

use std::slice;
use std::sync::Arc;

use ferroce_abi::types::IBV_ACCESS_LOCAL_WRITE;

use super::{Domain, Region, Shelf};
use crate::Result;

/// A region that no peer can reach and that has one owner: the program, or the work request that it
/// was given to. So while the program has it, nobody else touches the bytes, and they can be
/// borrowed.
pub(crate) struct Exclusive {
    region: Arc<Region>,
    /// Where it goes when it is let go of.
    shelf: Option<Arc<Shelf>>,
}

impl Exclusive {
    /// Zeroed bytes.
    pub(crate) fn new(domain: &Arc<Domain>, length: usize) -> Result<Self> {
        let region = Region::new(domain, length, IBV_ACCESS_LOCAL_WRITE.cast_signed())?;
        Ok(Self {
            region,
            shelf: None,
        })
    }

    /// Memory of a pool. Nobody else has it.
    pub(super) fn of_shelf(region: Arc<Region>, shelf: &Arc<Shelf>) -> Self {
        let shelf = Some(Arc::clone(shelf));
        Self { region, shelf }
    }

    /// For work requests, which take the whole of `self`.
    #[inline(always)]
    pub(super) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Its first bytes; `length` is at most what it was made with.
    #[inline]
    pub(crate) fn bytes(&self, length: usize) -> &[u8] {
        let start = self.region.start(length);
        // SAFETY: that many bytes of a live region. It was registered without access for peers, so
        // only work requests of this process write there, and those own it while they are posted.
        unsafe { slice::from_raw_parts(start.as_ptr(), length) }
    }

    /// As [`bytes`](Self::bytes).
    #[inline]
    pub(crate) fn bytes_mut(&mut self, length: usize) -> &mut [u8] {
        let start = self.region.start(length);
        // SAFETY: that many bytes of a live region, in which peers cannot write. `self` is borrowed
        // mutably, so no work request has it and no reader borrows from it.
        unsafe { slice::from_raw_parts_mut(start.as_ptr(), length) }
    }
}

impl Drop for Exclusive {
    #[inline]
    fn drop(&mut self) {
        if let Some(shelf) = &self.shelf {
            shelf.put_back(Arc::clone(&self.region));
        }
    }
}
