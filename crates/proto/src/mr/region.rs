//! Regions: registered memory.

use core::sync::atomic::{AtomicU32, Ordering};

use super::rights::allow;
use super::{Access, AddrRange, RightsError, Span};
use crate::ids::{Key, PdId};

/// Memory behind the addresses of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Backing {
    /// Memory that was mapped when it was registered.
    #[default]
    Mapped,
    /// Memory that may be mapped and unmapped at any time (on-demand paging).
    OnDemand,
    /// Nothing: reads give zeros, what is written is discarded (`ibv_alloc_null_mr`).
    Null,
}

/// A registered region. The key serves as `lkey` and `rkey`.
#[derive(Debug)]
pub struct Region {
    /// Protection domain.
    pub pd: PdId,
    /// First address that work requests and peers use.
    pub iova: u64,
    /// Bytes.
    length: u64,
    /// First byte in this process's memory. `addr + length` does not wrap.
    addr: u64,
    /// Operations that the region's keys allow.
    pub access: Access,
    /// Memory behind the region's addresses.
    pub backing: Backing,
    /// Windows that are bound to it.
    windows: AtomicU32,
}

impl Region {
    /// A region whose addresses are those of the memory, `length` bytes from `addr` on, or as many
    /// as there are addresses.
    #[must_use]
    pub const fn new(pd: PdId, addr: u64, length: u64, access: Access) -> Self {
        let last = u64::MAX - addr;
        Self {
            pd,
            iova: addr,
            length: if length > last { last } else { length },
            addr,
            access,
            backing: Backing::Mapped,
            windows: AtomicU32::new(0),
        }
    }

    /// The same region with another first address for work requests and peers.
    #[must_use]
    pub fn with_iova(self, iova: u64) -> Self {
        Self { iova, ..self }
    }

    /// The same region with something else behind it.
    #[must_use]
    pub fn with_backing(self, backing: Backing) -> Self {
        Self { backing, ..self }
    }

    /// Bytes.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// First byte in this process's memory.
    #[must_use]
    pub const fn addr(&self) -> u64 {
        self.addr
    }

    /// Windows that are bound to it.
    #[must_use]
    pub fn bound_windows(&self) -> u32 {
        self.windows.load(Ordering::Acquire)
    }

    pub(super) fn window_bound(&self) {
        self.windows.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn window_unbound(&self) {
        self.windows.fetch_sub(1, Ordering::AcqRel);
    }

    /// Place of the bytes `addr .. addr + len` of the region's `iova` range in the memory of its
    /// process. `None` if they are not all inside. No sum here can wrap unnoticed, whatever a peer
    /// asks for. No bytes are nowhere.
    #[inline]
    #[must_use]
    pub fn address_of(&self, addr: u64, len: u64) -> Option<u64> {
        let offset = addr.checked_sub(self.iova)?;
        if len > self.length.checked_sub(offset)? {
            return None;
        }
        // There are more bytes than that behind the first one.
        (len > 0).then(|| self.addr.wrapping_add(offset))
    }

    /// A region with the same properties, to which no windows are bound.
    pub(super) const fn like(&self) -> Self {
        Self {
            windows: AtomicU32::new(0),
            ..*self
        }
    }

    /// As [`Rights::open`](super::Rights::open), for the key of this region.
    #[inline]
    pub(super) fn open(
        &self,
        key: Key,
        pd: PdId,
        AddrRange { addr, len }: AddrRange,
        need: Access,
    ) -> Result<Span<'_>, RightsError> {
        if len == 0 {
            return Ok(Span::EMPTY);
        }
        if self.pd != pd {
            return Err(RightsError::WrongPd(key));
        }
        allow(key, self.access, need)?;
        self.place(addr, len)
            .ok_or(RightsError::OutOfBounds { key, addr, len })
    }

    /// Bytes of this process at a place of the region.
    #[inline]
    pub(super) fn place(&self, addr: u64, len: u64) -> Option<Span<'_>> {
        let start = self.address_of(addr, len)?;
        Some(Span::new(start, usize::try_from(len).ok()?, self.backing))
    }
}
