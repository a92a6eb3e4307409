//! Events.

use std::net::SocketAddr;

use super::{ConnectionParameters, DatagramService, Id};
use crate::sys::FetchedEvent;

/// What happened to an identifier (`struct rdma_cm_event`; `rdma_get_cm_event(3)`).
#[derive(Debug)]
#[non_exhaustive]
pub struct Event {
    /// Kind of the event.
    pub kind: EventKind,
    /// 0, a negative errno, or the peer's reason for rejecting, as `rdma_get_cm_event(3)` says of
    /// each kind.
    pub status: i32,
    /// The identifier.
    pub id: IdKey,
    /// For a connect request: the listener, and the new identifier, to be accepted or rejected.
    /// Dropping it rejects.
    pub request: Option<(IdKey, Id)>,
    /// For a connect request: the peer's address.
    pub peer: Option<SocketAddr>,
    /// What the peer said, from this side's point of view. Private data may have zeros behind it.
    /// Of an [`Id`] for datagrams only the private data is meant.
    pub parameters: ConnectionParameters,
    /// Of an [`Id`] for datagrams, with [`Established`](EventKind::Established) and
    /// [`MulticastJoin`](EventKind::MulticastJoin): where to send.
    pub datagrams: Option<DatagramService>,
    /// Of a [`User`](EventKind::User) event: the argument that the program gave it.
    pub argument: Option<u64>,
}

impl Event {
    pub(crate) fn new(fetched: FetchedEvent) -> Self {
        let request = fetched.request;
        Self {
            kind: EventKind::from_c(fetched.kind),
            status: fetched.status,
            id: IdKey(fetched.id),
            peer: request.as_ref().and_then(|(_, id)| id.peer()),
            request: request.map(|(listener, id)| (IdKey(listener), Id(id))),
            parameters: fetched.parameters,
            datagrams: fetched.datagrams.map(DatagramService::new),
            argument: fetched.argument,
        }
    }
}

/// Kinds of events (`rdma_get_cm_event(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names are those of rdma_get_cm_event(3)")]
pub enum EventKind {
    AddressResolved,
    AddressError,
    RouteResolved,
    RouteError,
    ConnectRequest,
    ConnectResponse,
    ConnectError,
    Unreachable,
    Rejected,
    Established,
    Disconnected,
    DeviceRemoval,
    MulticastJoin,
    MulticastError,
    AddressChange,
    TimewaitExit,
    /// `rdma_resolve_addrinfo(3)` has an answer.
    AddressInfoResolved,
    /// `rdma_resolve_addrinfo(3)` found nothing.
    AddressInfoError,
    /// The program's own event, of `rdma_write_cm_event(3)`.
    User,
    /// One that this crate does not know, by its number in C.
    Other(u32),
}

impl EventKind {
    fn from_c(number: u32) -> Self {
        use ferroce_abi::cm_types as c;
        match number {
            c::RDMA_CM_EVENT_ADDR_RESOLVED => Self::AddressResolved,
            c::RDMA_CM_EVENT_ADDR_ERROR => Self::AddressError,
            c::RDMA_CM_EVENT_ROUTE_RESOLVED => Self::RouteResolved,
            c::RDMA_CM_EVENT_ROUTE_ERROR => Self::RouteError,
            c::RDMA_CM_EVENT_CONNECT_REQUEST => Self::ConnectRequest,
            c::RDMA_CM_EVENT_CONNECT_RESPONSE => Self::ConnectResponse,
            c::RDMA_CM_EVENT_CONNECT_ERROR => Self::ConnectError,
            c::RDMA_CM_EVENT_UNREACHABLE => Self::Unreachable,
            c::RDMA_CM_EVENT_REJECTED => Self::Rejected,
            c::RDMA_CM_EVENT_ESTABLISHED => Self::Established,
            c::RDMA_CM_EVENT_DISCONNECTED => Self::Disconnected,
            c::RDMA_CM_EVENT_DEVICE_REMOVAL => Self::DeviceRemoval,
            c::RDMA_CM_EVENT_MULTICAST_JOIN => Self::MulticastJoin,
            c::RDMA_CM_EVENT_MULTICAST_ERROR => Self::MulticastError,
            c::RDMA_CM_EVENT_ADDR_CHANGE => Self::AddressChange,
            c::RDMA_CM_EVENT_TIMEWAIT_EXIT => Self::TimewaitExit,
            c::RDMA_CM_EVENT_ADDRINFO_RESOLVED => Self::AddressInfoResolved,
            c::RDMA_CM_EVENT_ADDRINFO_ERROR => Self::AddressInfoError,
            c::RDMA_CM_EVENT_USER => Self::User,
            other => Self::Other(other),
        }
    }
}

/// Tells identifiers apart, in events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IdKey(pub(crate) usize);

crate::display::shown_in_words!(EventKind);
