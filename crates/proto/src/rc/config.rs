//! Fixed properties and settings that requester and responder share.

use alloc::string::String;

use crate::ids::{PdId, Psn, Qpn};
use crate::mr::Accessor;
use crate::qp::migration;
use crate::verbs::{Mtu, QpAttr, QpCap, QpType};
use crate::wire::{Bth, Opcode, Service};

/// Largest number of READs and atomics that a queue pair has outstanding as requester, or serves as
/// responder.
pub const MAX_RD_ATOMIC: u8 = 128;

/// Longest message in bytes.
pub const MAX_MESSAGE: u32 = 1 << 31;

/// Kind of link that the path runs over; set by the device before the move to RTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTraits {
    /// The link delivers everything in order or tells
    /// ([`RcQp::on_dropped`](super::RcQp::on_dropped),
    /// [`RcQp::on_peer_dead`](super::RcQp::on_peer_dead)). The local ACK timer then runs only after
    /// such a word, so a peer that is stopped or slow never costs a retry.
    pub lossless: bool,
    /// Most bytes that may be unacknowledged at once (as requester), or asked for by READs. Each
    /// packet counts [`PACKET_COST`] bytes besides its payload, since that is what it costs the
    /// receiver's socket buffer at least.
    pub max_in_flight: u32,
}

/// Cost of a packet without payload in [`LinkTraits::max_in_flight`], in bytes.
pub const PACKET_COST: u32 = 256;

/// Fixed properties of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct RcConfig {
    /// Own number.
    pub qpn: Qpn,
    /// RC; or XRC, of which a queue pair has one half: `XrcSend` the requester, `XrcRecv` the
    /// responder.
    pub qp_type: QpType,
    /// Protection domain.
    pub pd: PdId,
    /// Capacities, already rounded to what is true.
    pub cap: QpCap,
    /// Every send work request is signalled.
    pub sq_sig_all: bool,
    /// RC: receives come from [`Sink::take_shared_recv`](super::Sink::take_shared_recv).
    pub shared_recv: bool,
}

impl RcConfig {
    /// The service whose packets it sends and takes.
    pub(crate) const fn service(&self) -> Service {
        match self.qp_type {
            QpType::XrcSend | QpType::XrcRecv => Service::Xrc,
            QpType::Uc => Service::Uc,
            _ => Service::Rc,
        }
    }

    /// The opcode of its service that does what an RC opcode does.
    pub(crate) const fn of_service(&self, opcode: Opcode) -> Opcode {
        match self.service() {
            Service::Xrc => opcode.xrc(),
            Service::Uc => opcode.in_uc(),
            _ => opcode,
        }
    }

    /// Whether its receives come from shared receive queues.
    pub(super) const fn takes_shared(&self) -> bool {
        self.shared_recv || matches!(self.qp_type, QpType::XrcRecv)
    }
}

/// Why `ibv_modify_qp` refused: each text names the attribute and the state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct ModifyError {
    /// Reason for the refusal, for a person.
    pub reason: String,
}

/// State that requester and responder look at but do not change.
#[derive(Debug)]
pub(crate) struct QpShared {
    pub(crate) config: RcConfig,
    /// Current attributes. The state in it is the queue pair's state.
    pub(crate) attr: QpAttr,
    pub(crate) link: LinkTraits,
    /// The peer is one of our kind: see
    /// [`RcQp::meet_ferroce_peer`](super::RcQp::meet_ferroce_peer).
    pub(crate) is_ferroce_peer: bool,
}

impl QpShared {
    pub(crate) fn new(config: RcConfig) -> Self {
        Self {
            config,
            attr: QpAttr {
                cap: config.cap,
                ..QpAttr::default()
            },
            link: LinkTraits {
                lossless: false,
                max_in_flight: 64 << 10,
            },
            is_ferroce_peer: false,
        }
    }

    /// Whether both ends keep what overtakes a loss, so that only what was lost is sent again.
    pub(super) const fn selective_repeat(&self) -> bool {
        self.is_ferroce_peer && !self.link.lossless
    }

    /// The accessor that asks the rights table, for itself or for the peer.
    pub(super) const fn accessor(&self) -> Accessor {
        Accessor {
            pd: self.config.pd,
            qpn: self.config.qpn,
        }
    }

    /// Payload bytes of a full packet.
    pub(crate) fn mtu(&self) -> u32 {
        self.attr.path_mtu.bytes()
    }

    /// The header of a packet to the peer; `opcode` is that of RC.
    pub(crate) const fn bth(&self, opcode: Opcode, psn: Psn) -> Bth {
        let opcode = self.config.of_service(opcode);
        Bth {
            migreq: migration::request_bit(&self.attr),
            ..Bth::new(opcode, self.attr.dest_qp_num, psn)
        }
    }

    /// Goes back to what a new queue pair has; the link stays.
    pub(crate) fn reset(&mut self) {
        self.is_ferroce_peer = false;
        self.attr = QpAttr {
            cap: self.config.cap,
            ..QpAttr::default()
        };
    }
}

/// PSNs that a message of `length` bytes takes: every message takes at least one.
pub(super) const fn packets_of(length: u32, mtu: Mtu) -> u32 {
    let packets = length.div_ceil(mtu.bytes());
    if packets == 0 { 1 } else { packets }
}
