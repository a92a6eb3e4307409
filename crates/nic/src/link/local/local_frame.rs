//! What other processes send over their links, as it is handed on.

use std::sync::Arc;

use ferroce_os::fd::Fd;
use ferroce_os::ring::SharedArea;
use ferroce_os::unix::LocalUser;
use ferroce_proto::ids::{Gid, Qpn};

use super::frame::ShortRingNotice;
use super::{Lending, Sharing};
use crate::base::addressing::Addressing;
use crate::base::numbers::LinkId;
use crate::link::Inbound;
use crate::link::Origin;

/// What another process sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LocalFrame<'a> {
    /// A packet from one of its queue pairs.
    Packet {
        /// The queue pair, of the sender's slot.
        origin: Origin,
        /// What would be in the IP header.
        addressing: &'a Addressing,
        /// BTH through pad; not checked.
        bytes: &'a [u8],
    },
    /// A packet that it received over the wire (and whose ICRC was right there, it says) and that
    /// is for this process.
    Forwarded {
        /// Its slot.
        from_slot: u16,
        /// The process's user.
        by: LocalUser,
        /// The packet; not checked.
        inbound: Inbound<'a>,
    },
    /// A management datagram for QP1.
    Mad {
        /// Its slot.
        from_slot: u16,
        /// The process's user.
        by: LocalUser,
        /// Source GID.
        src: Gid,
        /// Destination GID.
        dst: Gid,
        /// The MAD; not checked.
        mad: &'a [u8; 256],
    },
    /// The process offers its board (`crate::services::direct`).
    Board {
        /// Its slot.
        from_slot: u16,
        /// The process, of our own user.
        pid: i32,
        /// The link, which tells when it is gone.
        link: LinkId,
        /// The board; not checked.
        board: &'a Fd,
    },
    /// About a short ring of its ring.
    ShortRing {
        /// The queue pair that speaks, of the sender's slot.
        origin: Origin,
        /// The ring's memory.
        area: &'a Arc<SharedArea>,
        /// What it says.
        notice: ShortRingNotice,
    },
    /// The process has dropped a packet of ours.
    Dropped {
        /// Our queue pair that sent the packet, as the peer says.
        qpn: Qpn,
        /// The queue pair that it was for, of the sender's slot.
        by: Origin,
    },
    /// A process of our own user did not want [`RETURNED`](super::RETURNED) packets that were
    /// passed on to it.
    Returned,
    /// Somebody of our own user, or root, wants to know which paths this process has:
    /// [`Incoming::tell`](super::Incoming::tell) answers.
    Question(LinkId),
    /// About receives that one process lends to another.
    Lending {
        /// Its slot.
        from_slot: u16,
        /// What it says.
        lending: Lending<'a>,
    },
    /// Memory of that process is shared no more.
    Unshared {
        /// Its slot.
        from_slot: u16,
        /// The memory's number.
        number: u64,
    },
    /// About a target that one process has opened of another.
    Sharing {
        /// Its slot.
        from_slot: u16,
        /// What it says.
        sharing: Sharing<'a>,
    },
}
