//! `RoCEv2` packets: opcodes, headers, ICRC.
//!
//! A [`Packet`] is one InfiniBand transport packet without its IP/UDP encapsulation and without
//! ICRC: base transport header, extension headers, payload. [`icrc`] computes and checks the
//! invariant CRC over the encapsulated form.

mod aeth;
mod brief;
mod bth;
mod drain;
mod feth;
pub mod headers;
pub mod icrc;
pub mod opcode;
pub mod packet;
mod timers;
mod word;

pub use aeth::{Aeth, NakCode, Syndrome};
pub use brief::{Brief, BriefKind, BriefSend};
pub use bth::Bth;
pub use drain::Drain;
pub use feth::{Feth, Placement, Selectivity};
pub use headers::{AtomicEth, Deth, ExtHeaders, Reth};
pub use opcode::{HeaderSet, OpInfo, Opcode, Operation, Position, Service};
pub(crate) use packet::pad_count;
pub use packet::{Packet, WireError, padded_len};
pub use timers::{ack_timeout, rnr_timer};

/// UDP destination port of every `RoCEv2` packet.
pub const ROCE_UDP_PORT: u16 = 4791;
