//! State of a conversation: what both ends know of each other, and how far they are.

use alloc::boxed::Box;
use core::time::Duration;

use super::{MadPath, Recipient};
use crate::ids::{Guid, Qpn};
use crate::mad::{
    Answered, CmMad, CommId, Drep, Dreq, Message, Mra, Rej, RejReason, Rtu, ServiceId,
};
use crate::time::Time;

/// A message that is sent again until it is answered.
#[derive(Clone, Debug)]
pub(super) struct Resend {
    pub(super) mad: Box<CmMad>,
    pub(super) to: Recipient,
    /// When it goes out again, or is given up.
    pub(super) at: Time,
    pub(super) interval: Duration,
    /// Times that it will still go out.
    pub(super) left: u8,
}

impl Resend {
    /// First transmission at `now`, then `retries` more.
    pub(super) fn new(
        now: Time,
        mad: CmMad,
        to: Recipient,
        interval: Duration,
        retries: u8,
    ) -> Self {
        Self {
            mad: Box::new(mad),
            to,
            at: now + interval,
            interval,
            left: retries,
        }
    }
}

/// State with the data of that state.
#[derive(Clone, Debug)]
pub(super) enum ConversationState {
    ReqSent(Resend),
    MraReqRcvd(Resend),
    ReqRcvd,
    MraReqSent,
    RepSent(Resend),
    MraRepRcvd(Resend),
    RepRcvd,
    MraRepSent,
    Established,
    DreqSent(Resend),
    /// With the DREQ's transaction id, which the DREP repeats.
    DreqRcvd(u64),
    Timewait(Time),
    SidrReqSent(Resend),
    SidrReqRcvd,
    /// With the answer, and until when it is repeated on request.
    SidrRepSent(Box<CmMad>, Time),
}

/// Name of a conversation's state, as in `enum ib_cm_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(
    missing_docs,
    reason = "the diagrams of the module and of `sidr` explain them"
)]
pub enum Phase {
    ReqSent,
    MraReqRcvd,
    ReqRcvd,
    MraReqSent,
    RepSent,
    MraRepRcvd,
    RepRcvd,
    MraRepSent,
    Established,
    DreqSent,
    DreqRcvd,
    Timewait,
    SidrReqSent,
    SidrReqRcvd,
    SidrRepSent,
}

impl ConversationState {
    pub(super) const fn phase(&self) -> Phase {
        match self {
            Self::ReqSent(_) => Phase::ReqSent,
            Self::MraReqRcvd(_) => Phase::MraReqRcvd,
            Self::ReqRcvd => Phase::ReqRcvd,
            Self::MraReqSent => Phase::MraReqSent,
            Self::RepSent(_) => Phase::RepSent,
            Self::MraRepRcvd(_) => Phase::MraRepRcvd,
            Self::RepRcvd => Phase::RepRcvd,
            Self::MraRepSent => Phase::MraRepSent,
            Self::Established => Phase::Established,
            Self::DreqSent(_) => Phase::DreqSent,
            Self::DreqRcvd(_) => Phase::DreqRcvd,
            Self::Timewait(_) => Phase::Timewait,
            Self::SidrReqSent(_) => Phase::SidrReqSent,
            Self::SidrReqRcvd => Phase::SidrReqRcvd,
            Self::SidrRepSent(..) => Phase::SidrRepSent,
        }
    }

    pub(super) const fn deadline(&self) -> Option<Time> {
        match self {
            Self::ReqSent(r)
            | Self::MraReqRcvd(r)
            | Self::RepSent(r)
            | Self::MraRepRcvd(r)
            | Self::DreqSent(r)
            | Self::SidrReqSent(r) => Some(r.at),
            Self::Timewait(until) | Self::SidrRepSent(_, until) => Some(*until),
            Self::ReqRcvd
            | Self::MraReqSent
            | Self::RepRcvd
            | Self::MraRepSent
            | Self::Established
            | Self::DreqRcvd(_)
            | Self::SidrReqRcvd => None,
        }
    }
}

/// A conversation.
#[derive(Clone, Debug)]
pub(super) struct Conversation {
    pub(super) local_id: CommId,
    /// 0 until the peer told it. Of a resolution request: its id.
    pub(super) remote_id: CommId,
    pub(super) local_guid: Guid,
    /// Known with the remote id.
    pub(super) remote_guid: Guid,
    pub(super) local_qpn: Qpn,
    pub(super) remote_qpn: Qpn,
    pub(super) path: MadPath,
    /// The REQ's service.
    pub(super) service: ServiceId,
    /// The REQ's transaction id.
    pub(super) tid: u64,
    /// Interval at which our REQ or REP is sent again; the DREQ uses the same.
    pub(super) interval: Duration,
    pub(super) max_cm_retries: u8,
    /// Code of the path; the passive side does not need it.
    pub(super) packet_life_time: u8,
    /// Local ACK timeout code of the queue pairs. Timewait lasts as long.
    pub(super) ack_timeout: u8,
    /// In the index of (GUID, remote id).
    pub(super) id_indexed: bool,
    /// In the index of (GUID, remote queue pair).
    pub(super) qpn_indexed: bool,
    /// The owner destroyed it; it only finishes what the peer needs. No events.
    pub(super) orphan: bool,
    /// The peer was asked whether it still knows the connection: when, and the transaction id.
    pub(super) asked_after: Option<(Time, u64)>,
    pub(super) state: ConversationState,
}

impl Conversation {
    /// A conversation of which nothing else is known.
    pub(super) fn new(local_id: CommId, path: MadPath, tid: u64, state: ConversationState) -> Self {
        Self {
            local_id,
            remote_id: CommId::default(),
            local_guid: Guid::default(),
            remote_guid: Guid::default(),
            local_qpn: Qpn::default(),
            remote_qpn: Qpn::default(),
            path,
            service: ServiceId::default(),
            tid,
            interval: Duration::ZERO,
            max_cm_retries: 0,
            packet_life_time: 0,
            ack_timeout: 0,
            id_indexed: false,
            qpn_indexed: false,
            orphan: false,
            asked_after: None,
            state,
        }
    }

    pub(super) const fn peer(&self) -> Recipient {
        Recipient::Conversation(self.remote_id)
    }

    fn mad(&self, message: Message) -> CmMad {
        CmMad {
            tid: self.tid,
            message,
        }
    }

    pub(super) fn mra(&self, answered: Answered, service_timeout: u8) -> CmMad {
        self.mad(Message::Mra(Mra {
            local_comm_id: self.local_id,
            remote_comm_id: self.remote_id,
            answered,
            service_timeout,
            ..Mra::default()
        }))
    }

    pub(super) fn rtu(&self) -> CmMad {
        self.mad(Message::Rtu(Rtu {
            local_comm_id: self.local_id,
            remote_comm_id: self.remote_id,
            ..Rtu::default()
        }))
    }

    pub(super) fn dreq(&self, tid: u64) -> CmMad {
        let dreq = Dreq {
            local_comm_id: self.local_id,
            remote_comm_id: self.remote_id,
            remote_qpn: self.remote_qpn,
            ..Dreq::default()
        };
        CmMad {
            tid,
            message: Message::Dreq(dreq),
        }
    }

    /// Asks the peer whether it still knows the connection: a DREQ that names a queue pair that no
    /// connection has. A peer that knows the ids drops it (IBTA volume 1, 12.9.8; Linux 6.1
    /// `cm_dreq_handler`), and one that does not answers with a DREP.
    pub(super) fn question(&self, tid: u64) -> CmMad {
        let dreq = Dreq {
            local_comm_id: self.local_id,
            remote_comm_id: self.remote_id,
            remote_qpn: Qpn::GSI,
            ..Dreq::default()
        };
        CmMad {
            tid,
            message: Message::Dreq(dreq),
        }
    }

    pub(super) fn drep(&self, tid: u64) -> CmMad {
        let drep = Drep {
            local_comm_id: self.local_id,
            remote_comm_id: self.remote_id,
            ..Drep::default()
        };
        CmMad {
            tid,
            message: Message::Drep(drep),
        }
    }

    /// A rejection of what was received last. A REQ that nobody has looked at is rejected without
    /// an own id.
    pub(super) fn rej(&self, reason: RejReason) -> Rej {
        let (local_comm_id, answered) = match self.state {
            ConversationState::ReqRcvd => (CommId::default(), Answered::Req),
            ConversationState::MraReqSent => (self.local_id, Answered::Req),
            ConversationState::RepRcvd | ConversationState::MraRepSent => {
                (self.local_id, Answered::Rep)
            }
            _ => (self.local_id, Answered::Other),
        };
        Rej {
            local_comm_id,
            remote_comm_id: self.remote_id,
            answered,
            ..Rej::new(reason)
        }
    }

    /// A REJ that says "I do not wait any longer". The peer may not know its end of the
    /// conversation under any id that we know. So it finds it by our GUID and id.
    pub(super) fn rej_timeout(&self) -> CmMad {
        let mut rej = Rej {
            local_comm_id: self.local_id,
            answered: Answered::Other,
            info_length: 8,
            ..Rej::new(RejReason::TIMEOUT)
        };
        rej.info[..8].copy_from_slice(&self.local_guid.0.to_be_bytes());
        self.mad(Message::Rej(rej))
    }
}
