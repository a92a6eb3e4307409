//! Why work failed: what the completion says and what the peer is told.

use crate::ids::Psn;
use crate::verbs::{QpEvent, WcStatus};
use crate::wire::NakCode;

/// Ferroce's own code in `vendor_err` of a failed completion: what exactly went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Cause {
    /// The queue pair went to ERR before the work was done.
    Flushed = 1,
    /// A local key of the scatter/gather list does not open the bytes.
    LocalKey = 2,
    /// The peer answered with a NAK "invalid request".
    NakInvalidRequest = 3,
    /// The peer answered with a NAK "remote access error".
    NakRemoteAccess = 4,
    /// The peer answered with a NAK "remote operational error".
    NakRemoteOperational = 5,
    /// No answer within `retry_cnt` + 1 runs of the local ACK timer.
    NoAnswer = 6,
    /// The peer had no receive posted, `rnr_retry` + 1 times.
    NotReady = 7,
    /// The peer's process is gone.
    PeerGone = 8,
    /// A response that does not fit the request.
    BadResponse = 9,
    /// A response with more bytes than were asked for.
    ResponseTooLong = 10,
    /// The key of a local invalidate is not that of a type 2 window that this queue pair has bound.
    InvalidateFailed = 11,
    /// The message was longer than the receive's buffers.
    MessageTooLong = 12,
    /// The key that a SEND with invalidate named is not that of a type 2 window that the queue pair
    /// has bound.
    RemoteInvalidateFailed = 13,
    /// A window could not be bound: it, the region or the range does not fit, or the region does
    /// not allow it.
    BindFailed = 14,
}

/// How a work request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) status: WcStatus,
    pub(crate) cause: Cause,
}

impl Fault {
    pub(crate) const fn new(status: WcStatus, cause: Cause) -> Self {
        Self { status, cause }
    }

    pub(crate) const LOCAL_KEY: Self = Self::new(WcStatus::LocProtErr, Cause::LocalKey);
    pub(crate) const FLUSHED: Self = Self::new(WcStatus::WrFlushErr, Cause::Flushed);
    pub(super) const BAD_RESPONSE: Self = Self::new(WcStatus::BadRespErr, Cause::BadResponse);
    pub(crate) const MESSAGE_TOO_LONG: Self = Self::new(WcStatus::LocLenErr, Cause::MessageTooLong);
    pub(super) const REMOTE_INVALIDATE: Self =
        Self::new(WcStatus::RemInvReqErr, Cause::RemoteInvalidateFailed);
    pub(super) const PEER_GONE: Self = Self::new(WcStatus::RetryExcErr, Cause::PeerGone);
}

/// Why the requester cannot go on; the queue pair goes to ERR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendFault {
    /// The oldest work request failed.
    Oldest(Fault),
    /// The send queue's CQ overflowed.
    CqOverflow,
}

impl From<Fault> for SendFault {
    fn from(fault: Fault) -> Self {
        Self::Oldest(fault)
    }
}

/// Why the responder cannot go on; the queue pair goes to ERR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reject {
    /// NAK that the peer is told, and about which packet; nothing if the cause is local (CQ
    /// overflow).
    pub(crate) nak: Option<(NakCode, Psn)>,
    /// Event that the program gets if no receive work request can tell it.
    pub(crate) event: Option<QpEvent>,
    /// How the receive work request in hand fails; without this it is flushed.
    pub(crate) recv: Option<Fault>,
}

impl Reject {
    /// The request breaks the protocol or asks for what the queue pair does not allow. (IBTA: an
    /// error of class C.)
    pub(super) const fn invalid(psn: Psn) -> Self {
        Self {
            nak: Some((NakCode::InvalidRequest, psn)),
            event: Some(QpEvent::RequestError),
            recv: None,
        }
    }

    /// A key does not open what the peer asked for. (IBTA: an error of class C.)
    pub(super) const fn access(psn: Psn) -> Self {
        Self {
            nak: Some((NakCode::RemoteAccess, psn)),
            event: Some(QpEvent::AccessError),
            recv: None,
        }
    }

    /// The key opens what the peer asked for, but the program has unmapped the memory.
    pub(super) const fn operational(psn: Psn) -> Self {
        Self {
            nak: Some((NakCode::RemoteOperational, psn)),
            event: Some(QpEvent::Fatal),
            recv: None,
        }
    }

    /// The receive work request in hand cannot take the message.
    pub(super) const fn recv(code: NakCode, psn: Psn, fault: Fault) -> Self {
        Self {
            nak: Some((code, psn)),
            event: None,
            recv: Some(fault),
        }
    }

    /// The receive queue's CQ overflowed: the peer hears nothing, the program that no completion
    /// will tell it any more. (IBTA: an error of class G.)
    pub(crate) const CQ_OVERFLOW: Self = Self {
        nak: None,
        event: Some(QpEvent::Fatal),
        recv: None,
    };
}
