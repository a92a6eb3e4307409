//! Identifiers.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use ferroce_abi::cm_types::{
    RDMA_MC_JOIN_FLAG_FULLMEMBER, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, RDMA_PS_TCP, RDMA_PS_UDP,
    RDMA_UDP_QKEY,
};

use super::{ConnectionParameters, EventChannel, IdKey};
use crate::device::Context;
use crate::endpoint::addresses::{self, Source};
use crate::qp::QueuePair;
use crate::sys::{IdOption, Identifier};
use crate::transport::Ud;
use crate::{Error, Result};

/// An identifier of the connection manager: what a socket is to TCP.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use ferroce::cm::{ConnectionParameters, EventChannel, EventKind, Id};
/// use ferroce::cq::CompletionQueue;
/// use ferroce::mem::ProtectionDomain;
/// use ferroce::qp::{QueuePair, QueuePairCapacities};
/// let limit = Duration::from_secs(2);
/// let server = EventChannel::new()?;
/// let listener = Id::new(&server)?;
/// listener.bind("127.0.0.1:0")?;
/// listener.listen(8)?;
/// let client = EventChannel::new()?;
/// let id = Id::new(&client)?;
/// id.resolve_address(("127.0.0.1", listener.port()), limit)?;
/// client.expect(EventKind::AddressResolved)?;
/// id.resolve_route(limit)?;
/// client.expect(EventKind::RouteResolved)?;
///
/// let queue_pair = |id: &Id| -> ferroce::Result<_> {
///     let context = id.context().ok_or(ferroce::Error::Misuse("not bound to a device"))?;
///     let domain = ProtectionDomain::new(&context)?;
///     let queue = CompletionQueue::new(&context, 16)?;
///     QueuePair::new(id, &domain, &queue, &queue, QueuePairCapacities::new(8, 8))
/// };
/// let _ours = queue_pair(&id)?;
/// id.connect(&ConnectionParameters::default().private_data(*b"hello"))?;
/// let request = server.expect(EventKind::ConnectRequest)?;
/// assert!(request.parameters.private_data.starts_with(b"hello"));
/// let (_, accepted) = request.request.ok_or("a request has its identifier")?;
/// let _theirs = queue_pair(&accepted)?;
/// accepted.accept(&ConnectionParameters::default())?;
/// client.expect(EventKind::Established)?;
/// server.expect(EventKind::Established)?;
/// id.disconnect()?;
/// server.expect(EventKind::Disconnected)?;
/// # Ok(())
/// # }
/// ```
pub struct Id(pub(crate) Arc<Identifier>);

impl Id {
    /// Makes one for a reliable connection, or a listener for such (`rdma_create_id(3)` in
    /// `RDMA_PS_TCP`).
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(channel: &EventChannel) -> Result<Self> {
        Identifier::new(&channel.0, RDMA_PS_TCP).map(Self)
    }

    /// Makes one for datagrams (`RDMA_PS_UDP`): for a service that others find by its address and
    /// port, for finding one, or for joining multicast groups. Its ports are others than those of
    /// connections.
    ///
    /// A client of a service resolves address and route as for a connection, makes the [`Ud`] queue
    /// pair and [connects](Self::connect): the event
    /// [`Established`](crate::cm::EventKind::Established) then tells [where to
    /// send](super::Event::datagrams). Nothing stays connected. The service finds a
    /// [`ConnectRequest`](crate::cm::EventKind::ConnectRequest) and
    /// [accepts](Self::accept_datagrams) or rejects.
    ///
    /// # Errors
    /// Out of memory.
    pub fn for_datagrams(channel: &EventChannel) -> Result<Self> {
        Identifier::new(&channel.0, RDMA_PS_UDP).map(Self)
    }

    /// Whether it is [for datagrams](Self::for_datagrams).
    #[must_use]
    pub fn is_for_datagrams(&self) -> bool {
        self.0.for_datagrams()
    }

    /// Has its events arrive at another channel of the same provider from now on
    /// (`rdma_migrate_id(3)`), those too that are waiting. A server with several threads so hands a
    /// connection to one of them. Waits for calls of [`EventChannel::next_event`] that have just
    /// found one of its events.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a channel of another provider, and for a [borrowed](Self::borrow_raw)
    /// identifier.
    pub fn migrate(&self, to: &EventChannel) -> Result<()> {
        self.0.migrate(&to.0)
    }

    pub(crate) fn identifier(&self) -> &Arc<Identifier> {
        &self.0
    }

    /// What its events carry.
    #[must_use]
    pub fn key(&self) -> IdKey {
        IdKey(self.0.key())
    }

    /// The device that it is on. Known from the event
    /// [`AddressResolved`](crate::cm::EventKind::AddressResolved) or
    /// [`ConnectRequest`](crate::cm::EventKind::ConnectRequest) on, or once it is
    /// [bound](Self::bind) to an address that is not unspecified.
    #[must_use]
    pub fn context(&self) -> Option<Context> {
        self.0.device().cloned().map(Context)
    }

    /// Its own address (`rdma_get_local_addr(3)`), once it is bound or an event has told.
    ///
    /// # Errors
    /// It is not known yet.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        addresses::local(self.0.local())
    }

    /// The peer's address (`rdma_get_peer_addr(3)`), once an event has told.
    ///
    /// # Errors
    /// It is not known yet.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        addresses::peer(self.0.peer())
    }

    /// Takes a local address (`rdma_bind_addr(3)`). Port 0 means any free one, which
    /// [`port`](Self::port) tells. A link-local address of IPv6 needs its scope. A name may stand
    /// for several addresses, of which it takes the first that it can: it is looked up here, as
    /// [`std::net`] does, in this thread.
    ///
    /// # Errors
    /// EADDRINUSE if the port is taken, EADDRNOTAVAIL if the address is not of this host.
    pub fn bind(&self, address: impl ToSocketAddrs) -> Result<()> {
        addresses::first_of(address, |address| self.0.bind(address))
    }

    /// Its local port; 0 before it has one.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// Waits for connect requests, of which up to `backlog` may be unanswered (`rdma_listen(3)`).
    /// They come as events.
    ///
    /// # Errors
    /// EINVAL if it is not bound, EADDRINUSE if another listens there.
    pub fn listen(&self, backlog: u16) -> Result<()> {
        self.0.listen(backlog)
    }

    /// Finds the device for an address of a peer (`rdma_resolve_addr(3)`), within that time, of
    /// which whole milliseconds count. [`AddressResolved`](crate::cm::EventKind::AddressResolved)
    /// or [`AddressError`](crate::cm::EventKind::AddressError) follows. A name may stand for
    /// several addresses, of which it takes the first for which the call succeeds, as
    /// [`bind`](Self::bind) does. An event of failure tries no other one.
    ///
    /// # Errors
    /// EINVAL in the wrong state.
    pub fn resolve_address(&self, to: impl ToSocketAddrs, timeout: Duration) -> Result<()> {
        let timeout = milliseconds(timeout)?;
        addresses::first_of(to, |to| self.0.resolve_address(None, to, timeout))
    }

    /// [`resolve_address`](Self::resolve_address), from a local address, which says which device to
    /// use: of several the first of the peer's family. Port 0 means any free one.
    ///
    /// # Errors
    /// As that, and as [`bind`](Self::bind).
    pub fn resolve_address_from(
        &self,
        from: impl ToSocketAddrs,
        to: impl ToSocketAddrs,
        timeout: Duration,
    ) -> Result<()> {
        let timeout = milliseconds(timeout)?;
        let source = Source::of(from);
        addresses::first_of(to, |to| {
            let from = source.towards(to)?;
            self.0.resolve_address(from, to, timeout)
        })
    }

    /// Finds the way to the peer (`rdma_resolve_route(3)`), within that time, of which whole
    /// milliseconds count. [`RouteResolved`](crate::cm::EventKind::RouteResolved) or
    /// [`RouteError`](crate::cm::EventKind::RouteError) follows.
    ///
    /// # Errors
    /// EINVAL in the wrong state.
    pub fn resolve_route(&self, timeout: Duration) -> Result<()> {
        self.0.resolve_route(milliseconds(timeout)?)
    }

    /// Asks the peer for a connection, or for where its datagrams go (`rdma_connect(3)`).
    /// [`Established`](crate::cm::EventKind::Established),
    /// [`Rejected`](crate::cm::EventKind::Rejected) or
    /// [`Unreachable`](crate::cm::EventKind::Unreachable) follows.
    ///
    /// # Errors
    /// EINVAL in the wrong state, or for parameters that are too large.
    pub fn connect(&self, parameters: &ConnectionParameters) -> Result<()> {
        self.0.connect(parameters)
    }

    /// Agrees to a connect request (`rdma_accept(3)`).
    /// [`Established`](crate::cm::EventKind::Established) follows.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn accept(&self, parameters: &ConnectionParameters) -> Result<()> {
        self.0.accept(parameters, 0)
    }

    /// Tells a client of a datagram service to send to this queue pair, with at most
    /// 136 bytes for the other program. One queue pair may serve all; it is of an identifier, or
    /// [activated](QueuePair::activate) with [`QKEY`](Self::QKEY). No event follows.
    ///
    /// # Errors
    /// As [`accept`](Self::accept); [`Error::Misuse`] if the request was for a connection.
    pub fn accept_datagrams(&self, queue_pair: &QueuePair<Ud>, private_data: &[u8]) -> Result<()> {
        if !self.is_for_datagrams() {
            return Err(Error::Misuse("the request is for a connection"));
        }
        let parameters = ConnectionParameters {
            private_data: private_data.to_vec(),
            ..ConnectionParameters::default()
        };
        self.0.accept(&parameters, queue_pair.number())
    }

    /// The `Q_Key` of queue pairs of identifiers, and of what they send to (`RDMA_UDP_QKEY`).
    pub const QKEY: u32 = RDMA_UDP_QKEY.cast_unsigned();

    /// Turns a connect request down, with at most 148 bytes for the other program, 136 of datagrams
    /// (`rdma_reject(3)`). It hears [`Rejected`](crate::cm::EventKind::Rejected), of datagrams
    /// [`Unreachable`](crate::cm::EventKind::Unreachable), with the bytes as [private
    /// data](ConnectionParameters::private_data) and a reason as status: 28 if the program rejected
    /// a connection.
    ///
    /// # Errors
    /// EINVAL in the wrong state.
    pub fn reject(&self, private_data: &[u8]) -> Result<()> {
        self.0.reject(private_data)
    }

    /// Ends the connection (`rdma_disconnect(3)`): work of its queue pair is flushed.
    /// [`Disconnected`](crate::cm::EventKind::Disconnected) follows at the peer, and here when the
    /// peer has answered, which its program does by the same call.
    ///
    /// # Errors
    /// EINVAL if there is no connection.
    pub fn disconnect(&self) -> Result<()> {
        self.0.disconnect()
    }

    /// Says that the peer's last word, which makes the connection, must have been lost, since
    /// something has come on the connection (`rdma_notify(3)`). To be called at
    /// [`Established`](crate::device::DeviceEventKind::CommunicationEstablished) of the device.
    ///
    /// # Errors
    /// EINVAL if there is no connection that waits for it.
    pub fn notify_established(&self) -> Result<()> {
        self.0.notify_established()
    }
}

/// Options (`rdma_set_option(3)`).
impl Id {
    /// Traffic class of what the connection sends (`RDMA_OPTION_ID_TOS`, `rdma_set_option(3)`): the
    /// upper six bits are what IP calls differentiated services.
    ///
    /// # Errors
    /// EINVAL once the route is resolved.
    pub fn set_type_of_service(&self, class: u8) -> Result<()> {
        self.0.set_option(IdOption::TypeOfService(class))
    }

    /// Whether others that allow it too may be bound to the same port (`RDMA_OPTION_ID_REUSEADDR`);
    /// before [`bind`](Self::bind).
    ///
    /// # Errors
    /// EINVAL once it is bound.
    pub fn set_reuse_address(&self, allowed: bool) -> Result<()> {
        self.0.set_option(IdOption::ReuseAddress(allowed))
    }

    /// Whether the unspecified address of IPv6 means that family alone (`RDMA_OPTION_ID_AFONLY`);
    /// before [`bind`](Self::bind).
    ///
    /// # Errors
    /// EINVAL once it is bound.
    pub fn set_ipv6_only(&self, only: bool) -> Result<()> {
        self.0.set_option(IdOption::Ipv6Only(only))
    }

    /// How long the queue pair waits for an acknowledgement (`RDMA_OPTION_ID_ACK_TIMEOUT`): 4.096
    /// µs times 2 to this power, at most 31.
    ///
    /// # Errors
    /// [`Error::Misuse`] for more than 31.
    pub fn set_ack_timeout(&self, exponent: u8) -> Result<()> {
        if exponent > 31 {
            return Err(Error::Misuse(
                "the exponent of an ACK timeout is at most 31",
            ));
        }
        self.0.set_option(IdOption::AckTimeout(exponent))
    }
}

/// How a queue pair takes part in a multicast group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Membership {
    /// It sends and receives.
    Full,
    /// The member sends to the group and receives nothing.
    SendOnly,
}

/// Multicast groups, of identifiers [for datagrams](Self::for_datagrams).
impl Id {
    /// Joins a group (`rdma_join_multicast_ex(3)`). It is bound or has resolved an address before,
    /// so its device is known. [`MulticastJoin`](crate::cm::EventKind::MulticastJoin), with [where
    /// to send](super::Event::datagrams), or
    /// [`MulticastError`](crate::cm::EventKind::MulticastError) follows. When the event was
    /// fetched, its queue pair, if it has one, receives what is sent to the group.
    ///
    /// # Errors
    /// EINVAL for an address that is no group's, or without a device.
    pub fn join_multicast(&self, group: IpAddr, membership: Membership) -> Result<()> {
        let flags = match membership {
            Membership::Full => RDMA_MC_JOIN_FLAG_FULLMEMBER,
            Membership::SendOnly => RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
        };
        self.0.join(group, flags.cast_unsigned())
    }

    /// Leaves a group (`rdma_leave_multicast(3)`). So does dropping its queue pair, or it.
    ///
    /// # Errors
    /// EADDRNOTAVAIL if it did not join.
    pub fn leave_multicast(&self, group: IpAddr) -> Result<()> {
        self.0.leave_group(group)
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
