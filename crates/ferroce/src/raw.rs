//! Raw handles: the C objects behind the safe ones, for functions that this crate does not have,
//! such as an adapter's direct verbs.
//!
//! Each object has `as_raw`: the pointer is valid as long as the object, or a clone of it, is
//! there. What is done with it is `unsafe`, and must leave the object as this crate knows it: not
//! destroyed, in the state in which it is, and without work whose `wr_id` this crate did not give,
//! unless nothing polls its completion queue by this crate.
//!
//! [`Context`](crate::device::Context), [`ProtectionDomain`](crate::mem::ProtectionDomain) and
//! [`MemoryRegion`](crate::mem::MemoryRegion) are made of raw ones, too: `from_raw` owns the C
//! object and destroys it, `borrow_raw` leaves that to the caller. So a region of device memory, or
//! of an adapter's own kind, is registered by C's function, and used here. C does not say by which
//! address work names such a region: see
//! [`from_raw`](crate::mem::MemoryRegion::from_raw).

pub use ferroce_abi::cm_types::{rdma_cm_id, rdma_event_channel};
pub use ferroce_abi::types::{
    ibv_ah, ibv_context, ibv_cq, ibv_mr, ibv_mw, ibv_pd, ibv_qp, ibv_srq, ibv_xrcd,
};
