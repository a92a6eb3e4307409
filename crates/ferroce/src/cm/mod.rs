//! The connection manager (`rdma_cm(7)`).

mod channel;
mod event;
mod id;
mod parameters;
mod reject_reason;

pub use channel::EventChannel;
pub use event::{Event, EventKind, IdKey};
pub use id::{Id, Membership};
pub use parameters::{ConnectionParameters, DatagramService};
pub use reject_reason::RejectReason;
