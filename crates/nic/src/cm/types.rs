//! What identifiers and events are made of.

use std::sync::Arc;

use ferroce_proto::ids::{Gid, Qpn};
use ferroce_proto::mad::Ece;
use ferroce_proto::verbs::{AddressHandleAttr, Mtu};

use super::Id;

/// `enum rdma_port_space`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
#[expect(missing_docs, reason = "the names are those of rdma_create_id(3)")]
pub enum PortSpace {
    Ipoib = 0x0002,
    Tcp = 0x0106,
    Udp = 0x0111,
    Ib = 0x013f,
}

impl PortSpace {
    /// Returns the port space that a service ID's number stands for.
    pub(super) const fn from_code(code: u16) -> Option<Self> {
        Some(match code {
            0x0002 => Self::Ipoib,
            0x0106 => Self::Tcp,
            0x0111 => Self::Udp,
            0x013f => Self::Ib,
            _ => return None,
        })
    }

    /// Name of the port space in the names of port claims.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ipoib => "ipoib",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Ib => "ib",
        }
    }
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
    AddrinfoResolved = 16,
    User = 18,
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
    /// Enhanced connection establishment, of the sender's queue pair.
    pub ece: Ece,
}

/// `struct rdma_ud_param`, with the private data owned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of rdma_get_cm_event(3)")]
pub struct UdParam {
    pub private_data: Vec<u8>,
    pub ah_attr: AddressHandleAttr,
    pub qp_num: Qpn,
    pub qkey: u32,
}

/// The parameters that come with an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EventParam {
    /// The event has none.
    #[default]
    None,
    /// Parameters of connections: of connect request and connect response, and with only the
    /// private data a rejection by the peer.
    Conn(ConnParam),
    /// Parameters of datagrams: a connect request with only the private data, Established, and an
    /// answer that says no.
    Ud(UdParam),
    /// What the program has put into an event of its own.
    Argument(u64),
    /// Parameters of a multicast group.
    Group {
        /// Which [`join`](Id::join_multicast) it was.
        join: u64,
        /// How the group is reached.
        ud: UdParam,
    },
}

/// What an event channel delivers. `param` is as seen by the receiver (responder resources and
/// initiator depth swapped).
#[derive(Debug)]
pub struct Event {
    /// The identifier that the event is about; for a connect request, the new one.
    pub id: Arc<Id>,
    /// For a connect request, the listener.
    pub listen_id: Option<Arc<Id>>,
    /// Kind of the event.
    pub kind: EventKind,
    /// 0, a negative errno, or the peer's reject reason (positive).
    pub status: i32,
    /// Parameters that came with the event.
    pub param: EventParam,
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
