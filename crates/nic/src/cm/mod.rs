//! The connection manager's service: identifiers, event channels, ports, routing of MADs.
//!
//! It mirrors what the kernel's `ucma`/`cma` give librdmacm: the events and statuses of `rdma_get_cm_event(3)`, before
//! librdmacm's own work on them. Queue pair transitions are the caller's (`abi::rdmacm`, as in librdmacm).

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use ferroce_proto::ids::{Gid, Qpn};
use ferroce_proto::verbs::{AttrMask, Mtu, QpAttr, QpState, QpType};

use crate::{Device, Error};

/// `enum rdma_port_space`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
#[expect(missing_docs, reason = "the names are those of rdma_create_id(3)")]
pub enum PortSpace {
    Ipoib = 0x0002,
    Tcp = 0x0106,
    Udp = 0x0111,
    Ib = 0x013f,
}

/// `enum rdma_cm_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names are those of rdma_get_cm_event(3)")]
pub enum EventKind {
    AddrResolved = 0,
    AddrError = 1,
    RouteResolved = 2,
    RouteError = 3,
    ConnectRequest = 4,
    ConnectResponse = 5,
    ConnectError = 6,
    Unreachable = 7,
    Rejected = 8,
    Established = 9,
    Disconnected = 10,
    DeviceRemoval = 11,
    MulticastJoin = 12,
    MulticastError = 13,
    AddrChange = 14,
    TimewaitExit = 15,
}

/// `struct rdma_conn_param`, with the private data owned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of rdma_connect(3)")]
pub struct ConnParam {
    pub private_data: Vec<u8>,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: bool,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: bool,
    pub qp_num: Qpn,
}

/// What an event channel delivers. `param` is as seen by the receiver (responder resources and initiator depth swapped).
#[derive(Debug)]
pub struct Event {
    /// The identifier that the event is about; for a connect request, the new one.
    pub id: Arc<Id>,
    /// For a connect request, the listener.
    pub listen_id: Option<Arc<Id>>,
    /// What happened.
    pub kind: EventKind,
    /// 0, a negative errno, or the peer's reject reason (positive).
    pub status: i32,
    /// Connection parameters, where the event has them.
    pub conn: Option<ConnParam>,
}

/// An event channel.
#[derive(Debug)]
pub struct EventChannel {
    // cm helper: fill
}

impl EventChannel {
    /// Makes a channel.
    ///
    /// # Errors
    /// ENODEV without a device; out of descriptors.
    pub fn new() -> Result<Arc<Self>, Error> {
        todo!()
    }
    /// Semaphore eventfd: its count is the number of queued events. Read one count (8 bytes), then [`pop`](Self::pop).
    #[must_use]
    pub fn fd(&self) -> RawFd {
        todo!()
    }
    /// Takes the oldest event.
    pub fn pop(&self) -> Option<Event> {
        todo!()
    }
}

/// The path that route resolution found, as `struct ibv_sa_path_rec` wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of struct ibv_sa_path_rec")]
pub struct Route {
    pub sgid: Gid,
    pub dgid: Gid,
    pub sgid_index: u8,
    pub mtu: Mtu,
    pub flow_label: u32,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub packet_life_time: u8,
}

/// `rdma_set_option` at level `RDMA_OPTION_ID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of rdma_set_option(3)")]
pub enum IdOption {
    Tos(u8),
    ReuseAddr(bool),
    AfOnly(bool),
    AckTimeout(u8),
}

/// A communication identifier: the conversation behind a `struct rdma_cm_id`.
#[derive(Debug)]
pub struct Id {
    // cm helper: fill
}

impl Id {
    /// Makes an identifier that reports to `channel`.
    ///
    /// # Errors
    /// The device cannot start.
    pub fn create(_channel: &Arc<EventChannel>, _ps: PortSpace, _qp_type: QpType) -> Result<Arc<Self>, Error> {
        todo!()
    }
    /// The owner's tag (its `struct rdma_cm_id`), 0 at first. Events of a new passive identifier come with cookie 0: the owner
    /// makes its structure when it fetches the connect request.
    pub fn set_cookie(&self, _cookie: usize) {
        todo!()
    }
    /// The owner's tag.
    #[must_use]
    pub fn cookie(&self) -> usize {
        todo!()
    }
    /// Port space.
    #[must_use]
    pub fn port_space(&self) -> PortSpace {
        todo!()
    }
    /// `rdma_bind_addr`. Binding to an address of a device binds to the device; the real port shows at once.
    ///
    /// # Errors
    /// EADDRINUSE, EADDRNOTAVAIL, ENODEV, EINVAL.
    pub fn bind(&self, _addr: SocketAddr) -> Result<(), Error> {
        todo!()
    }
    /// `rdma_listen`; an unbound identifier is bound to any address and an ephemeral port.
    ///
    /// # Errors
    /// EINVAL in the wrong state, EADDRINUSE.
    pub fn listen(&self, _backlog: u32) -> Result<(), Error> {
        todo!()
    }
    /// `rdma_resolve_addr`: the outcome comes as an event.
    ///
    /// # Errors
    /// EINVAL in the wrong state; errors of the source address.
    pub fn resolve_addr(&self, _src: Option<SocketAddr>, _dst: SocketAddr, _timeout: Duration) -> Result<(), Error> {
        todo!()
    }
    /// `rdma_resolve_route`: the outcome comes as an event.
    ///
    /// # Errors
    /// EINVAL in the wrong state.
    pub fn resolve_route(&self, _timeout: Duration) -> Result<(), Error> {
        todo!()
    }
    /// `rdma_connect`: sends the REQ.
    ///
    /// # Errors
    /// EINVAL in the wrong state or for more private data than fits (56 bytes over TCP port space).
    pub fn connect(&self, _param: &ConnParam) -> Result<(), Error> {
        todo!()
    }
    /// `rdma_accept` of a connect request: sends the REP. The caller has moved its queue pair to RTR and RTS.
    ///
    /// # Errors
    /// EINVAL in the wrong state or for too much private data (196).
    pub fn accept(&self, _param: &ConnParam) -> Result<(), Error> {
        todo!()
    }
    /// `rdma_reject` (reason 28).
    ///
    /// # Errors
    /// EINVAL in the wrong state or for too much private data (148).
    pub fn reject(&self, _private_data: &[u8]) -> Result<(), Error> {
        todo!()
    }
    /// After a connect response: sends the RTU. No further event comes.
    ///
    /// # Errors
    /// EINVAL in the wrong state.
    pub fn establish(&self) -> Result<(), Error> {
        todo!()
    }
    /// `rdma_notify(IBV_EVENT_COMM_EST)`: data came before the RTU; Established is reported at once.
    ///
    /// # Errors
    /// EINVAL in the wrong state.
    pub fn notify_established(&self) -> Result<(), Error> {
        todo!()
    }
    /// `rdma_disconnect`: DREQ, or DREP if the peer asked first. The caller has moved its queue pair to ERR.
    ///
    /// # Errors
    /// EINVAL without a connection.
    pub fn disconnect(&self) -> Result<(), Error> {
        todo!()
    }
    /// `rdma_migrate_id`: further events, and those not yet fetched, go to the other channel.
    pub fn migrate(&self, _channel: &Arc<EventChannel>) {
        todo!()
    }
    /// `rdma_set_option`.
    ///
    /// # Errors
    /// EINVAL in the wrong state or out of range.
    pub fn set_option(&self, _option: IdOption) -> Result<(), Error> {
        todo!()
    }
    /// `rdma_init_qp_attr` for INIT, RTR or RTS.
    ///
    /// # Errors
    /// EINVAL if the conversation has not come that far.
    pub fn qp_attr(&self, _state: QpState) -> Result<(QpAttr, AttrMask), Error> {
        todo!()
    }
    /// The device that it is bound to.
    #[must_use]
    pub fn device(&self) -> Option<Arc<Device>> {
        todo!()
    }
    /// Own address, with the real port once bound.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        todo!()
    }
    /// The peer's address, once known.
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        todo!()
    }
    /// The path, once the route is resolved or a request came.
    #[must_use]
    pub fn route(&self) -> Option<Route> {
        todo!()
    }
    /// Ends the identifier: undelivered events vanish, the peer is told (`wire-cm`: what destroying sends), the port is free.
    pub fn destroy(&self) {
        todo!()
    }
}
