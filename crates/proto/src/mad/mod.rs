//! Management datagrams of the connection manager (class 7) and the RDMA IP CM header.
//!
//! A connection manager message is one 256-byte MAD: a common header of 24 bytes, then fields at
//! fixed offsets, then private data to the end. [`CmMad`] is the whole datagram as a value:
//! [`CmMad::parse`] accepts any 256 bytes without panicking, [`CmMad::emit`] writes them with every
//! reserved bit zero. The messages are plain structs with the specification's field names (IBTA
//! volume 1, chapter 12); what they mean is [`crate::cm`]'s business. The offsets in `parse` and
//! `emit` are bytes behind the common header. Tests hold REQ and REP against what tshark 4.0
//! decodes, and the others against the layout of Linux's `ib_cm`.
//!
//! | module | holds |
//! |---|---|
//! | [`header`] | common header, [`CmMad`], [`Message`] |
//! | [`req`], [`rep`] | the two that set a connection up |
//! | [`control`] | MRA, REJ, RTU, DREQ, DREP |
//! | [`sidr`] | service id resolution for datagrams |
//! | [`reason`] | reject reasons |
//! | [`ip`] | service ids and the RDMA IP CM header |

mod bytes;
pub mod control;
pub mod header;
pub mod ip;
pub mod reason;
pub mod rep;
pub mod req;
pub mod sidr;

#[cfg(test)]
mod tests;

pub use bytes::PrivateData;
pub use control::{Answered, Drep, Dreq, Mra, Rej, Rtu};
pub use header::{CmMad, Mad, MadError, Message};
pub use ip::{IpCmHeader, IpCmHeaderError, ServiceId};
pub use reason::RejReason;
pub use rep::Rep;
pub use req::{PathSpec, Req};
pub use sidr::{SidrRep, SidrReq, SidrStatus};

/// Communication id: names one end of a conversation. Each end chooses its own; 0 on the wire means
/// "not known yet".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct CommId(pub u32);

impl CommId {
    /// Whether it stands for "not known yet".
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// Enhanced connection establishment: what vendors tell each other about options. All zero means
/// "not supported".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Ece {
    /// Vendor, 24 bits.
    pub vendor: u32,
    /// The vendor's options.
    pub options: u32,
}
