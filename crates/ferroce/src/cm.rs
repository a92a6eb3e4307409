//! The connection manager.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::sys::{Channel, FetchedEvent, Identifier, SOFTWARE, Verbs};
use crate::{Context, Error, Result};

/// Where the events of identifiers arrive. Clones are the same one.
#[derive(Clone)]
pub struct EventChannel(pub(crate) Arc<Channel>);

impl EventChannel {
    /// Makes one of the software device; [`Provider::event_channel`](crate::Provider::event_channel) makes one of any provider.
    ///
    /// # Errors
    /// ENODEV if there is no device, or out of descriptors.
    pub fn new() -> Result<Self> {
        Self::of(&SOFTWARE)
    }

    pub(crate) fn of(verbs: &'static Verbs) -> Result<Self> {
        Channel::new(verbs).map(Self)
    }

    /// The oldest event; sleeps until there is one.
    ///
    /// # Errors
    /// EAGAIN if the descriptor was made non-blocking and there is none.
    pub fn next_event(&self) -> Result<Event> {
        loop {
            match self.0.next_event(|_| ()) {
                Ok((fetched, ())) => return Ok(Event::new(fetched)),
                Err(e) if e.is_interrupted() => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Whether [`next_event`](Self::next_event) waits; it does unless this is called. Event loops that watch the descriptor do not want
    /// it to.
    ///
    /// # Errors
    /// None that a channel should give (`fcntl(2)`).
    pub fn set_nonblocking(&self, nonblocking: bool) -> Result<()> {
        self.0.set_nonblocking(nonblocking)
    }

    /// The oldest event of a [non-blocking](Self::set_nonblocking) channel, if there is one.
    ///
    /// # Errors
    /// Those of `rdma_get_cm_event(3)`.
    pub fn try_next_event(&self) -> Result<Option<Event>> {
        match self.next_event() {
            Ok(event) => Ok(Some(event)),
            Err(e) if e.would_block() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The next event, which must be of this kind.
    ///
    /// # Errors
    /// [`Error::Unexpected`] for any other.
    pub fn expect(&self, expected: EventKind) -> Result<Event> {
        let event = self.next_event()?;
        if event.kind == expected && event.status == 0 {
            return Ok(event);
        }
        Err(Error::Unexpected {
            expected,
            event: event.kind,
            status: event.status,
        })
    }
}

impl AsFd for EventChannel {
    /// Readable while there are events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl fmt::Debug for EventChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventChannel")
    }
}

/// What happened to an identifier.
#[derive(Debug)]
pub struct Event {
    /// What.
    pub kind: EventKind,
    /// 0, a negative errno, or the peer's reason for rejecting.
    pub status: i32,
    /// The identifier.
    pub id: IdKey,
    /// For a connect request: the listener, and the new identifier, to be accepted or rejected. Dropping it rejects.
    pub request: Option<(IdKey, Id)>,
    /// For a connect request: the peer's address.
    pub peer: Option<SocketAddr>,
    /// What the peer said, from this side's point of view. Private data may have zeros behind it.
    pub parameters: ConnectionParameters,
}

impl Event {
    pub(crate) fn new(fetched: FetchedEvent) -> Self {
        Self {
            kind: EventKind::from_c(fetched.kind),
            status: fetched.status,
            id: IdKey(fetched.id),
            request: fetched
                .request
                .map(|(listener, id)| (IdKey(listener), Id(id))),
            peer: fetched.peer,
            parameters: fetched.parameters,
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
    TimewaitExit,
    Other(u32),
}

impl EventKind {
    fn from_c(number: u32) -> Self {
        use ferroce_abi::rdmacm::types as c;
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
            c::RDMA_CM_EVENT_TIMEWAIT_EXIT => Self::TimewaitExit,
            other => Self::Other(other),
        }
    }
}

/// Tells identifiers apart, in events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IdKey(pub(crate) usize);

/// What the two sides of a connection tell each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionParameters {
    /// For the other program: at most 56 bytes with a connect request, 196 with the answer.
    pub private_data: Vec<u8>,
    /// READs and atomics of the peer that this side serves at once.
    pub responder_resources: u8,
    /// READs and atomics that this side has outstanding at once.
    pub initiator_depth: u8,
    /// Attempts after a loss; 0 to 7.
    pub retry_count: u8,
    /// Attempts while the peer has no receive posted; 0 to 7, 7 means for ever.
    pub rnr_retry_count: u8,
}

impl Default for ConnectionParameters {
    fn default() -> Self {
        Self {
            private_data: Vec::new(),
            responder_resources: 16,
            initiator_depth: 16,
            retry_count: 7,
            rnr_retry_count: 7,
        }
    }
}

/// An identifier of the connection manager: what a socket is to TCP.
pub struct Id(pub(crate) Arc<Identifier>);

impl Id {
    /// Makes one for reliable connections.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(channel: &EventChannel) -> Result<Self> {
        Identifier::new(&channel.0).map(Self)
    }

    pub(crate) fn identifier(&self) -> &Arc<Identifier> {
        &self.0
    }

    /// What its events carry.
    #[must_use]
    pub fn key(&self) -> IdKey {
        IdKey(self.0.key())
    }

    /// The device that it is on. Known from the event [`AddressResolved`](EventKind::AddressResolved) or
    /// [`ConnectRequest`](EventKind::ConnectRequest) on.
    #[must_use]
    pub fn context(&self) -> Option<Context> {
        self.0.device().cloned().map(Context)
    }

    /// Takes a local address. Port 0 means any free one.
    ///
    /// # Errors
    /// EADDRINUSE if the port is taken, EADDRNOTAVAIL if the address is not of this host.
    pub fn bind(&self, address: SocketAddr) -> Result<()> {
        self.0.bind(address)
    }

    /// Its local port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// Waits for connect requests, of which up to `backlog` may be unanswered. They come as events.
    ///
    /// # Errors
    /// EINVAL if it is not bound, EADDRINUSE if another listens there.
    pub fn listen(&self, backlog: u16) -> Result<()> {
        self.0.listen(backlog)
    }

    /// Finds the device for an address of a peer. [`AddressResolved`](EventKind::AddressResolved) or
    /// [`AddressError`](EventKind::AddressError) follows.
    ///
    /// # Errors
    /// EINVAL in the wrong state.
    pub fn resolve_address(&self, to: SocketAddr, timeout: Duration) -> Result<()> {
        self.0.resolve_address(None, to, milliseconds(timeout)?)
    }

    /// [`resolve_address`](Self::resolve_address), from a local address, which says which device to use. Port 0 means any free one.
    ///
    /// # Errors
    /// As that, and as [`bind`](Self::bind).
    pub fn resolve_address_from(
        &self,
        from: SocketAddr,
        to: SocketAddr,
        timeout: Duration,
    ) -> Result<()> {
        self.0
            .resolve_address(Some(from), to, milliseconds(timeout)?)
    }

    /// Finds the way to the peer. [`RouteResolved`](EventKind::RouteResolved) or [`RouteError`](EventKind::RouteError) follows.
    ///
    /// # Errors
    /// EINVAL in the wrong state.
    pub fn resolve_route(&self, timeout: Duration) -> Result<()> {
        self.0.resolve_route(milliseconds(timeout)?)
    }

    /// Asks the peer for a connection. [`Established`](EventKind::Established), [`Rejected`](EventKind::Rejected) or
    /// [`Unreachable`](EventKind::Unreachable) follows.
    ///
    /// # Errors
    /// EINVAL in the wrong state, or for parameters that are too large.
    pub fn connect(&self, parameters: &ConnectionParameters) -> Result<()> {
        self.0.connect(parameters)
    }

    /// Agrees to a connect request. [`Established`](EventKind::Established) follows.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn accept(&self, parameters: &ConnectionParameters) -> Result<()> {
        self.0.accept(parameters)
    }

    /// Turns a connect request down, with at most 148 bytes for the other program.
    ///
    /// # Errors
    /// EINVAL in the wrong state.
    pub fn reject(&self, private_data: &[u8]) -> Result<()> {
        self.0.reject(private_data)
    }

    /// Ends the connection. [`Disconnected`](EventKind::Disconnected) follows, here and at the peer.
    ///
    /// # Errors
    /// EINVAL if there is no connection.
    pub fn disconnect(&self) -> Result<()> {
        self.0.disconnect()
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Id").field(&self.key()).finish()
    }
}

fn milliseconds(time: Duration) -> Result<i32> {
    i32::try_from(time.as_millis()).map_err(|_| Error::Misuse("a timeout of more than 24 days"))
}
