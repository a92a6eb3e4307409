//! The names that most programs use, none of which the standard library has:
//! `use ferroce::prelude::*`.

pub use crate::Provider;
pub use crate::cq::CompletionQueue;
pub use crate::endpoint::{Connection, Endpoint, Listener};
pub use crate::mem::{Access, Buffer, BufferPool, MemoryRegion, ProtectionDomain, RemoteRegion};
pub use crate::qp::{Operation, QueuePair, QueuePairBuilder};
