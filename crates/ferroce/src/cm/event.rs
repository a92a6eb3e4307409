//! Events.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use super::{ConnectionParameters, DatagramService, Id, RejectReason};
use crate::sys::FetchedEvent;

/// What happened to an identifier (`struct rdma_cm_event`; `rdma_get_cm_event(3)`).
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::time::Duration;
/// use ferroce::cm::{ConnectionParameters, EventChannel, EventKind, Id};
/// # let limit = Duration::from_secs(2);
/// # let channel = EventChannel::new()?;
/// # let listener = Id::for_datagrams(&channel)?;
/// # listener.bind("127.0.0.1:0")?;
/// # listener.listen(8)?;
/// # let client = EventChannel::new()?;
/// # let asking = Id::for_datagrams(&client)?;
/// # asking.resolve_address(listener.local_addr()?, limit)?;
/// # client.expect(EventKind::AddressResolved)?;
/// # asking.resolve_route(limit)?;
/// # client.expect(EventKind::RouteResolved)?;
/// # asking.connect(&ConnectionParameters::default().private_data(*b"let me in"))?;
/// let event = channel.next_event()?;
/// println!("{event}"); // connect request from 127.0.0.1:40123
/// match event.kind {
///     EventKind::ConnectRequest => {
///         // Which listener it came to, and the identifier of the new connection.
///         let (to, new) = event.request.ok_or("a request has an identifier")?;
///         assert_eq!(to, listener.key());
///         assert!(event.parameters.private_data.starts_with(b"let me in"));
///         new.reject(b"not today")?;
///     }
///     // Of an identifier that the program made itself: `event.id` is its `Id::key`.
///     other => panic!("{other}"),
/// }
/// # let refused = client.next_event()?;
/// # assert_eq!(refused.id, asking.key());
/// # Ok(())
/// # }
/// ```
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

/// The kind, with the peer of a connect request and the reason of a failure.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if let Some(peer) = self.peer {
            write!(f, " from {peer}")?;
        }
        match self.status {
            0 => Ok(()),
            reason if self.kind == EventKind::Rejected => {
                write!(f, ", reason {}", RejectReason(reason))
            }
            errno if errno < 0 => {
                let error = io::Error::from_raw_os_error(errno.saturating_neg());
                write!(f, ": {error}")
            }
            status => write!(f, ", status {status}"),
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

#[cfg(test)]
mod tests {
    use super::{ConnectionParameters, Event, EventKind, IdKey};

    fn shown(kind: EventKind, status: i32) -> String {
        let event = Event {
            kind,
            status,
            id: IdKey(1),
            request: None,
            peer: (kind == EventKind::ConnectRequest).then(|| ([127, 0, 0, 1], 7).into()),
            parameters: ConnectionParameters::default(),
            datagrams: None,
            argument: None,
        };
        event.to_string()
    }

    #[test]
    fn an_event_says_what_happened() {
        let asked = shown(EventKind::ConnectRequest, 0);
        assert_eq!(asked, "connect request from 127.0.0.1:7");
        assert_eq!(shown(EventKind::Established, 0), "established");
        let rejected = shown(EventKind::Rejected, 28);
        assert_eq!(rejected, "rejected, reason 28 (by its program)");
        let unknown = shown(EventKind::AddressError, -libc::ENODEV);
        assert!(unknown.starts_with("address error: "), "{unknown}");
        assert!(unknown.ends_with("(os error 19)"), "{unknown}");
        assert_eq!(shown(EventKind::Unreachable, 5), "unreachable, status 5");
        shown(EventKind::RouteError, i32::MIN);
    }
}
