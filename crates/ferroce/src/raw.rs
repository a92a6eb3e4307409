//! Raw handles: the C objects behind the safe ones, for functions that this crate does not have,
//! such as an adapter's direct verbs.
//!
//! Each object has `as_raw`: the pointer is valid as long as the object, or a clone of it, is
//! there. What is done with it is `unsafe`, and must leave the object as this crate knows it: not
//! destroyed, in the state in which it is, and without work whose `wr_id` this crate did not give,
//! unless nothing polls its completion queue by this crate.
//!
//! Each object but a [`Device`](crate::device::Device) is made of a raw one, too: `from_raw` owns
//! the C object and destroys it, `borrow_raw` leaves that to the caller. So a region of device
//! memory is made by C's function, and used here. So is a queue pair of an adapter's own kind, such
//! as EFA's SRD, by [`from_raw_driver`](crate::qp::QueuePair::from_raw_driver). What is passed
//! beside the pointer (context, domain, the parts of a [queue
//! pair](crate::qp::QueuePair::from_raw)) is kept as long as the object. Shared receive queues and
//! targets of XRC have functions of their own:
//! [`from_raw_xrc`](crate::srq::SharedReceiveQueue::from_raw_xrc) and
//! [`from_raw_target`](crate::qp::QueuePair::from_raw_target). For queues and queue pairs it is
//! held against what C says of them, as far as the provider says it. C does not say by which
//! address work names a region: see
//! [`MemoryRegion::from_raw`](crate::mem::MemoryRegion::from_raw).
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let pair = pair()?;
//! # let builder = ferroce::qp::QueuePairBuilder::new(&pair.domain, &pair.completions);
//! # let made: ferroce::qp::QueuePair = builder.build()?;
//! # let mlx5dv_create_qp = |_: *mut _| made.as_raw();
//! use std::ptr::NonNull;
//! use ferroce::qp::{QueuePair, QueuePairBuilder};
//! use ferroce::transport::Rc;
//! // A function that this crate does not have makes a queue pair of the domain and the queue.
//! let raw = mlx5dv_create_qp(pair.domain.as_raw());
//! let parts = QueuePairBuilder::<Rc>::new(&pair.domain, &pair.completions);
//! let raw = NonNull::new(raw).ok_or("no memory")?;
//! // SAFETY: it was made just now of these parts, and is destroyed after `queue_pair` has gone.
//! let queue_pair = unsafe { QueuePair::borrow_raw(&parts, raw) }?;
//! assert_eq!(queue_pair.capacities().send, 16);
//! # Ok(())
//! # }
//! ```

pub use ferroce_abi::cm_types::{rdma_cm_id, rdma_event_channel};
pub use ferroce_abi::types::{
    ibv_ah, ibv_context, ibv_cq, ibv_device, ibv_mr, ibv_mw, ibv_pd, ibv_qp, ibv_srq, ibv_xrcd,
};
