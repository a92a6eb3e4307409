//! What the service knows of each identifier.

use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};

use ferroce_proto::ids::{Psn, Qpn};
use ferroce_proto::mad::{CommId, ServiceId};
use ferroce_proto::verbs::QpType;

use super::iwarp::StreamHold;
use super::network::Footing;
use super::{EventChannel, Id, PortSpace, Route};
use crate::{Device, Error};

/// How far an identifier is, from its owner's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Idle,
    Bound,
    /// The link address of the destination is being asked for.
    Resolving,
    AddrResolved,
    RouteResolved,
    Listening,
    /// A connection is being made, or stands.
    Connecting,
    /// Disconnected was reported.
    Disconnected,
}

/// A port that an identifier holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortHold {
    /// Claimed for itself; requests can come to it.
    Claimed(u16),
    /// From a block, only the source of a connection.
    Source(u16),
}

/// Options, unset ones with their default.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    pub(super) tos: u8,
    pub(super) reuse_addr: bool,
    pub(super) af_only: bool,
    pub(super) ack_timeout: Option<u8>,
}

/// What the conversation said about the connection, for the attributes of its queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ConnectionAttr {
    pub(super) remote_qpn: Qpn,
    /// First PSN of our requests, chosen by the peer.
    pub(super) sq_psn: Psn,
    /// Inbound READs and atomics, `None` before the conversation said so.
    pub(super) responder_resources: u8,
    /// Outbound READs and atomics.
    pub(super) initiator_depth: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry: u8,
    /// What the peer was told for its own queue pair; 0 before that.
    pub(super) peers_rnr_retry: u8,
    /// Local ACK timeout code.
    pub(super) timeout: u8,
    /// The peer's queue pair is known.
    pub(super) peer_known: bool,
}

/// A listener's backlog.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    pub(super) limit: usize,
    /// Requests that wait in the event channel.
    pub(super) taken: Arc<AtomicUsize>,
}

/// An identifier.
#[derive(Debug)]
pub(super) struct IdState {
    pub(super) handle: Weak<Id>,
    pub(super) channel: Arc<EventChannel>,
    pub(super) ps: PortSpace,
    pub(super) qp_type: QpType,
    pub(super) progress: Progress,
    /// Made by a connect request.
    pub(super) passive: bool,
    /// The owner takes events. A passive identifier has none before it is accepted or migrated.
    pub(super) takes_events: bool,
    pub(super) options: Options,
    pub(super) src: Option<SocketAddr>,
    pub(super) dst: Option<SocketAddr>,
    pub(super) device: Option<Arc<Device>>,
    /// Whether device and address are still there.
    pub(super) footing: Footing,
    pub(super) route: Option<Route>,
    pub(super) port: Option<PortHold>,
    pub(super) conversation: Option<CommId>,
    /// First PSN of the peer's requests, chosen by us.
    pub(super) rq_psn: Psn,
    pub(super) connection: ConnectionAttr,
    /// The identifier's part of a TCP connection, on iWARP.
    pub(super) stream: StreamHold,
    /// Q_Key of a datagram identifier, once settled.
    pub(super) qkey: Option<u32>,
    pub(super) backlog: Backlog,
}

impl IdState {
    pub(super) fn new(
        handle: Weak<Id>,
        channel: &Arc<EventChannel>,
        ps: PortSpace,
        qp_type: QpType,
    ) -> Self {
        Self {
            handle,
            channel: Arc::clone(channel),
            ps,
            qp_type,
            progress: Progress::Idle,
            passive: false,
            takes_events: true,
            options: Options::default(),
            src: None,
            dst: None,
            device: None,
            footing: Footing::Firm,
            route: None,
            port: None,
            conversation: None,
            rq_psn: Psn::new(ferroce_os::random::u32()),
            connection: ConnectionAttr::default(),
            stream: StreamHold::None,
            qkey: None,
            backlog: Backlog::default(),
        }
    }

    /// The service at an address, in this identifier's port space.
    pub(super) fn service(&self, at: SocketAddr) -> ServiceId {
        ServiceId::new(self.ps as u16, at.port())
    }

    /// EINVAL unless the identifier is in one of the states that a call is made for.
    pub(super) fn expect(&self, call: &str, allowed: &[Progress]) -> Result<(), Error> {
        if allowed.contains(&self.progress) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{call} in state {:?}; it is for {allowed:?}",
            self.progress
        )))
    }
}
