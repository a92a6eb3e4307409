//! The protocol of librdmacm's rsockets: a byte stream over RDMA WRITEs, and datagrams.
//!
//! Facts of the protocol are those of rdma-core's `librdmacm/rsocket.c`, releases 44 to 64, as seen
//! on the wire. There is only version 1.
//!
//! ```text
//! sender                                     receiver
//!   Outgoing ── WRITE with immediate: data ──► Incoming: two halves of one ring
//!            ◄── WRITE with immediate: next half, credits ──
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`connection`] | the private data of connect request and reply |
//! | [`message`] | the 32-bit messages |
//! | [`target`] | places in the peer's memory, as they are written there |
//! | [`outgoing`], [`incoming`] | the two directions of a stream |
//! | [`stream`] | both, with what ends them |
//! | [`datagram`] | headers of datagrams |

pub mod connection;
pub mod datagram;
pub mod incoming;
pub mod message;
pub mod outgoing;
pub mod stream;
pub mod target;

#[cfg(test)]
mod tests;

pub use connection::{ConnectionData, IomapSize};
pub use message::{Control, Message};
pub use stream::{Shutdown, Stream, StreamViolation};
pub use target::{ByteOrder, IomapEntry, Target};
