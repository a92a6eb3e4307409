//! Asynchronous events.

use crate::ids::Qpn;

/// Events that a queue pair's state machine raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpEvent {
    /// `IBV_EVENT_QP_FATAL`: completions cannot be reported any more.
    Fatal,
    /// `IBV_EVENT_QP_REQ_ERR`: invalid request from the peer.
    RequestError,
    /// `IBV_EVENT_QP_ACCESS_ERR`: the peer violated the access rights.
    AccessError,
    /// `IBV_EVENT_COMM_EST`: first packet while in RTR.
    CommEstablished,
    /// `IBV_EVENT_SQ_DRAINED`
    SqDrained,
    /// `IBV_EVENT_PATH_MIG`: the alternate path is the path now.
    PathMigrated,
    /// `IBV_EVENT_PATH_MIG_ERR`: the alternate path is as dead as the path.
    MigrationFailed,
    /// `IBV_EVENT_QP_LAST_WQE_REACHED`
    LastWqeReached,
}

/// `enum ibv_event_type`, for every object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names are those of ibv_get_async_event(3)")]
pub enum AsyncEvent {
    CqErr = 0,
    QpFatal = 1,
    QpReqErr = 2,
    QpAccessErr = 3,
    CommEst = 4,
    SqDrained = 5,
    PathMig = 6,
    PathMigErr = 7,
    DeviceFatal = 8,
    PortActive = 9,
    PortErr = 10,
    LidChange = 11,
    PkeyChange = 12,
    SmChange = 13,
    SrqErr = 14,
    SrqLimitReached = 15,
    QpLastWqeReached = 16,
    ClientReregister = 17,
    GidChange = 18,
    WqFatal = 19,
}

impl AsyncEvent {
    /// Events that are about a queue pair.
    pub const OF_QPS: [Self; 8] = [
        Self::QpFatal,
        Self::QpReqErr,
        Self::QpAccessErr,
        Self::CommEst,
        Self::SqDrained,
        Self::PathMig,
        Self::PathMigErr,
        Self::QpLastWqeReached,
    ];
}

impl From<QpEvent> for AsyncEvent {
    fn from(e: QpEvent) -> Self {
        match e {
            QpEvent::Fatal => Self::QpFatal,
            QpEvent::RequestError => Self::QpReqErr,
            QpEvent::AccessError => Self::QpAccessErr,
            QpEvent::CommEstablished => Self::CommEst,
            QpEvent::SqDrained => Self::SqDrained,
            QpEvent::PathMigrated => Self::PathMig,
            QpEvent::MigrationFailed => Self::PathMigErr,
            QpEvent::LastWqeReached => Self::QpLastWqeReached,
        }
    }
}

/// An event together with the queue pair that it is about.
pub type QpEventOf = (Qpn, QpEvent);
