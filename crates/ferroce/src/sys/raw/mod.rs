//! Raw handles of the objects, and objects of raw handles.

mod adopt;

use std::ptr::NonNull;

use crate::cm::{EventChannel, Id};
use crate::cq::CompletionQueue;
use crate::device::{Context, Device};
use crate::mem::{MemoryRegion, MemoryWindow, ProtectionDomain};
use crate::qp::QueuePair;
use crate::raw::{
    ibv_ah, ibv_context, ibv_cq, ibv_device, ibv_mr, ibv_mw, ibv_pd, ibv_qp, ibv_srq, ibv_xrcd,
    rdma_cm_id, rdma_event_channel,
};
use crate::srq::{SharedReceiveQueue, XrcDomain};
use crate::transport::Transport;
use crate::ud::AddressHandle;

use super::Region;

macro_rules! as_raw {
    ($($name:ident: $raw:ident, $this:ident => $at:expr;)*) => {
        $(impl $name {
            /// The C object: see [`raw`](crate::raw).
            #[must_use]
            pub fn as_raw(&self) -> *mut $raw {
                let $this = self;
                $at
            }
        })*
    };
}

as_raw! {
    Device: ibv_device, this => this.0.raw;
    Context: ibv_context, this => this.0.raw.as_ptr();
    ProtectionDomain: ibv_pd, this => this.0.raw.as_ptr();
    MemoryRegion: ibv_mr, this => this.region().raw().as_ptr();
    MemoryWindow: ibv_mw, this => this.0.raw();
    CompletionQueue: ibv_cq, this => this.0.raw.as_ptr();
    SharedReceiveQueue: ibv_srq, this => this.0.raw.as_ptr();
    XrcDomain: ibv_xrcd, this => this.0.raw.as_ptr();
    AddressHandle: ibv_ah, this => this.0.raw();
    Id: rdma_cm_id, this => this.0.raw.as_ptr();
    EventChannel: rdma_event_channel, this => this.0.raw.as_ptr();
}

impl<T: Transport> QueuePair<T> {
    /// The C object: see [`raw`](crate::raw).
    #[must_use]
    pub fn as_raw(&self) -> *mut ibv_qp {
        self.handle.raw.as_ptr()
    }
}

impl MemoryRegion {
    /// A region that C has registered. It is deregistered when the last clone is gone, and all work
    /// on it has completed.
    ///
    /// `iova` is the address by which work names its first byte, where that is not `ibv_mr.addr`:
    /// what `ibv_reg_mr_iova` and `ibv_reg_dmabuf_mr` were told, 0 with `IBV_ACCESS_ZERO_BASED`
    /// and for device memory.
    ///
    /// Where `ibv_mr.addr` is NULL (device memory, an on-demand region of everything), the region
    /// is for work only: to read or write its bytes here is
    /// [`Error::Misuse`](crate::Error::Misuse). Of a dma-buf it is the offset in rdma-core, and no
    /// address: use [`of_dma_buf`](Self::of_dma_buf).
    ///
    /// # Safety
    /// It is of the domain, and nothing else deregisters it. Unless `ibv_mr.addr` is NULL, it is
    /// the address of bytes that are as for [`of_raw`](Self::of_raw).
    #[must_use]
    pub unsafe fn from_raw(
        domain: &ProtectionDomain,
        raw: NonNull<ibv_mr>,
        iova: Option<u64>,
    ) -> Self {
        // SAFETY: the caller's promise.
        let (region, length) = unsafe { Region::adopt(&domain.0, raw, iova, true) };
        Self::of_parts(region, length)
    }

    /// A region that stays the caller's.
    ///
    /// # Safety
    /// As [`from_raw`](Self::from_raw), but that the caller deregisters it, when the last clone is
    /// gone and all work on it has completed.
    #[must_use]
    pub unsafe fn borrow_raw(
        domain: &ProtectionDomain,
        raw: NonNull<ibv_mr>,
        iova: Option<u64>,
    ) -> Self {
        // SAFETY: the caller's promise.
        let (region, length) = unsafe { Region::adopt(&domain.0, raw, iova, false) };
        Self::of_parts(region, length)
    }
}
