//! Connection manager conversations.
//!
//! [`Agent`] holds every conversation of one process as a pure state machine. Its rules are IBTA
//! volume 1, chapter 12, with the choices of the Linux `ib_cm` where the specification leaves one.
//! Like the rest of this crate it does no IO:
//!
//! | family | methods |
//! |---|---|
//! | input | [`Agent::on_mad`], [`Agent::on_deadline`], [`Agent::on_process_gone`] |
//! | commands | [`Agent::connect`], [`accept`](Agent::accept), [`reject`](Agent::reject), [`establish`](Agent::establish), [`disconnect`](Agent::disconnect), [`destroy`](Agent::destroy) …, for datagram services [`resolve`](Agent::resolve) and [`answer`](Agent::answer) |
//! | output | [`Agent::poll`] until `None` after each call of the others, then [`Agent::deadline`] |
//!
//! ```text
//! active     connect ─► ReqSent ─(MRA)─► MraReqRcvd
//!                          └──────(REP)─────┴─► RepRcvd ─delay─► MraRepSent
//!                                                  └──establish─────┴─► Established
//! passive    (REQ) ─► ReqRcvd ─delay─► MraReqSent
//!                        └────accept──────┴─► RepSent ─(MRA)─► MraRepRcvd
//!                                                └─────(RTU)──────┴─► Established
//! both       Established ─disconnect─► DreqSent ─(DREP)─► Timewait ─► gone
//!            Established ─(DREQ)─► DreqRcvd ─disconnect─► Timewait
//! ```
//!
//! The owner names a conversation by its local communication id. A conversation that ended
//! (rejected, unreachable, or out of timewait) is gone when its last event is taken; commands on it
//! answer [`WrongState`].

mod agent;
mod answer;
mod commands;
mod conversation;
mod ids;
mod receive;
mod sidr;
mod tables;
mod teardown;
mod timing;

#[cfg(test)]
mod tests;

pub use agent::{Agent, Config};
pub use answer::{answer_unknown, answer_unoffered};
pub use conversation::Phase;
pub use ids::Random;
pub use receive::Ignored;
pub use timing::{
    CM_RESPONSE_TIMEOUT, MAX_CM_RETRIES, MRA_SERVICE_TIMEOUT, PACKET_LIFETIME, ack_timeout,
    cm_time, min_rnr_timer,
};

use alloc::boxed::Box;

use crate::ids::Gid;
use crate::mad::{CmMad, CommId, Rej, RejReason, Rep, Req, ServiceId, SidrRep, SidrReq};

/// How MADs of a conversation reach the peer's QP1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadPath {
    /// Own GID.
    pub local: Gid,
    /// The peer's GID.
    pub remote: Gid,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// TOS or traffic class.
    pub traffic_class: u8,
}

impl MadPath {
    /// The way back for a MAD that came from `from` to `to`.
    #[must_use]
    pub const fn reply(from: Gid, to: Gid) -> Self {
        Self {
            local: to,
            remote: from,
            hop_limit: 255,
            traffic_class: 0,
        }
    }
}

/// The recipient of a MAD, where several processes share the peer's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// The process that offers the service.
    Service(ServiceId),
    /// The owner of a communication id.
    Conversation(CommId),
}

/// A MAD to send.
#[derive(Clone, Debug)]
pub struct OutgoingMad {
    /// Addresses.
    pub path: MadPath,
    /// Recipient of the MAD.
    pub to: Recipient,
    /// The MAD.
    pub mad: CmMad,
}

/// An event of a conversation.
#[derive(Clone, Debug)]
pub struct ConversationEvent {
    /// The conversation: its local communication id.
    pub conversation: CommId,
    /// Kind of the event.
    pub kind: ConversationEventKind,
}

/// Kind of a conversation's event, with what belongs to it.
#[derive(Clone, Debug)]
pub enum ConversationEventKind {
    /// Somebody wants to connect. The owner answers with accept, reject or discard.
    Request {
        /// The peer's REQ.
        req: Box<Req>,
        /// Way back to the asker.
        path: MadPath,
    },
    /// Somebody asks for the queue pair of a datagram service. The owner gives an answer or
    /// discards.
    Resolution {
        /// The peer's SIDR REQ.
        req: Box<SidrReq>,
        /// Way back to the asker.
        path: MadPath,
    },
    /// The answer to a resolution: the service's queue pair, or why there is none. The conversation
    /// is over.
    Resolved(Box<SidrRep>),
    /// The peer accepted; the owner establishes or rejects.
    Reply(Box<Rep>),
    /// The passive side may use the connection: the RTU came, or the owner said that data did.
    Established,
    /// The peer, or its connection manager, said no.
    Rejected {
        /// Reason that the REJ gives.
        reason: RejReason,
        /// Private data of the REJ.
        private_data: Box<[u8; Rej::PRIVATE]>,
    },
    /// No answer within the conversation's retries, or the peer's process ended during set-up.
    Unreachable,
    /// The connection is over.
    Disconnected {
        /// The peer never answered the DREQ.
        timed_out: bool,
    },
    /// The time after which packets of the connection are gone has passed.
    TimewaitExit,
}

/// Output of [`Agent::poll`].
#[derive(Clone, Debug)]
pub enum Output {
    /// Send this.
    Send(Box<OutgoingMad>),
    /// Note this.
    Event(ConversationEvent),
}

/// A command came in a state that it is not made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the conversation is in state {state:?}, which does not allow to {command}")]
pub struct WrongState {
    /// Name of the refused command.
    pub command: &'static str,
    /// State that the conversation is in, `None` if it has ended.
    pub state: Option<Phase>,
}
