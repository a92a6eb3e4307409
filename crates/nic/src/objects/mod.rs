//! What programs create: queue pairs, completion queues, memory regions, shared receive queues, XRC
//! domains, address handles, and the devices on which they are made.

pub mod ah;
pub(crate) mod choose;
pub mod cq;
pub mod device;
pub(crate) mod drain;
pub(crate) mod early_completions;
pub(crate) mod groups;
pub(crate) mod handshake;
pub mod mr;
pub(crate) mod partings;
pub mod qp;
pub(crate) mod services;
pub mod srq;
pub mod xrc;
