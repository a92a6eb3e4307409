//! Requests: which listener they are for, and the identifier that each one makes.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::sync::Arc;

use ferroce_proto::cm::MadPath;
use ferroce_proto::ids::Gid;
use ferroce_proto::mad::{CommId, IpCmHeader, PrivateData, RejReason, Req, ServiceId};
use ferroce_proto::verbs::{Mtu, QpType};

use super::channel::{BacklogPlace, QueuedEvent};
use super::iwarp::StreamHold;
use super::routing::port_of;
use super::service::Work;
use super::state::{ConnectionAttr, IdState, Progress};
use super::{ConnParam, Event, EventKind, EventParam, Id, Route};
use crate::Device;
use crate::objects::device::Protocol;

/// A request that was found in order: its listener, and the addresses of both ends.
#[derive(Debug)]
pub(super) struct CheckedRequest {
    pub(super) listener: u64,
    pub(super) src: SocketAddr,
    pub(super) dst: SocketAddr,
    pub(super) device: Arc<Device>,
}

/// What a request came by, and what answers it.
#[derive(Clone, Copy, Debug)]
pub(super) enum IdOrigin {
    /// A conversation of MADs.
    Conversation(CommId),
    /// A TCP connection that is being set up.
    Stream(u32),
}

/// What a request gets that does not become a connection request event.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequestRefusal {
    Reject(RejReason),
    /// The request claims addresses that its sender cannot have.
    Forged(RejReason),
    /// The backlog is full: its sender asks again.
    Silent,
}

/// What the identifier that a request makes starts with.
#[derive(Debug, Default)]
pub(super) struct Newcomer {
    pub(super) route: Option<Route>,
    pub(super) connection: ConnectionAttr,
    /// For the owner of the listener.
    pub(super) param: EventParam,
}

impl Work<'_> {
    /// Somebody wants to connect.
    pub(super) fn on_request(&mut self, conversation: CommId, req: &Req, path: MadPath) {
        let made = self
            .examine_connection(req, path)
            .and_then(|(asked, newcomer)| {
                self.make_passive(IdOrigin::Conversation(conversation), asked, newcomer)
            });
        let Err(refusal) = made else {
            // The program needs its time to answer.
            if let Err(error) = self.state.agent.delay(conversation) {
                tracing::debug!(target: "ferroce::cm", %error, "request overtaken");
            }
            return;
        };
        tracing::debug!(target: "ferroce::cm", from = ?path.remote, ?refusal, "request refused");
        self.count_forged(refusal, path.remote, req.local_comm_id);
        match refusal {
            RequestRefusal::Silent => self.state.agent.discard(conversation),
            RequestRefusal::Reject(reason) | RequestRefusal::Forged(reason) => {
                let agent = &mut self.state.agent;
                if let Err(error) =
                    agent.reject(self.now, conversation, reason, PrivateData::default())
                {
                    tracing::debug!(target: "ferroce::cm", %error, "nothing left to refuse");
                }
            }
        }
    }

    fn examine_connection(
        &self,
        req: &Req,
        path: MadPath,
    ) -> Result<(CheckedRequest, Newcomer), RequestRefusal> {
        let to = req.primary.remote_gid;
        let asked = self.examine(req.service_id, &req.private_data.0, to, path.remote)?;
        // Where the queue pair will send to.
        let gid = req.primary.local_gid;
        if self.host.is_local(gid.ip()) != self.host.is_local(path.remote.ip()) {
            return Err(RequestRefusal::Forged(RejReason::INVALID_GID));
        }
        if self.qp_type_of(asked.listener) != transport_of(req) {
            return Err(RequestRefusal::Reject(RejReason::INVALID_TRANSPORT));
        }
        let newcomer = Newcomer {
            route: Some(passive_route(req, &asked.device)?),
            connection: connection_of(req),
            param: EventParam::Conn(param_of(req)),
        };
        Ok((asked, newcomer))
    }

    /// The kind of queue pair that an identifier is for.
    pub(super) fn qp_type_of(&self, key: u64) -> Option<QpType> {
        self.state.ids.get(&key).map(|id| id.qp_type)
    }

    /// Finds the listener of a request that came from `from` for our address `to`.
    pub(super) fn examine(
        &self,
        service: ServiceId,
        private_data: &[u8],
        to: Gid,
        from: Gid,
    ) -> Result<CheckedRequest, RequestRefusal> {
        let key = port_of(service).ok_or(RequestRefusal::Reject(RejReason::INVALID_SERVICE_ID))?;
        if !self.state.ports.is_claimed(key) {
            return Err(RequestRefusal::Reject(RejReason::INVALID_SERVICE_ID));
        }
        let header = IpCmHeader::parse(private_data).map_err(|error| {
            tracing::debug!(target: "ferroce::cm", %error, "request without addresses");
            RequestRefusal::Reject(RejReason::CONSUMER_DEFINED)
        })?;
        let from_outside = !self.host.is_local(from.ip());
        // The program takes this address for the peer's.
        if self.host.is_local(header.src.ip()) == from_outside {
            return Err(RequestRefusal::Forged(RejReason::CONSUMER_DEFINED));
        }
        if !is_plausible(header.src.ip(), from_outside) || !is_plausible(header.dst, from_outside) {
            return Err(RequestRefusal::Forged(RejReason::CONSUMER_DEFINED));
        }
        let listener = self.state.ports.listener(key, header.dst);
        let listener = listener.ok_or(RequestRefusal::Reject(RejReason::INVALID_SERVICE_ID))?;
        let device = self.device_speaking(Protocol::RoceV2, to.ip());
        let device = device.ok_or_else(|| {
            // An iWARP device's listener takes requests over TCP only.
            RequestRefusal::Reject(match self.device_of(to.ip()) {
                Some(_) => RejReason::INVALID_SERVICE_ID,
                None => RejReason::INVALID_GID,
            })
        })?;
        Ok(CheckedRequest {
            listener,
            src: scoped(header.src.ip(), header.src.port(), &device),
            dst: scoped(header.dst, key.port, &device),
            device,
        })
    }

    /// Makes the identifier and tells the listener's owner.
    pub(super) fn make_passive(
        &mut self,
        origin: IdOrigin,
        asked: CheckedRequest,
        newcomer: Newcomer,
    ) -> Result<(), RequestRefusal> {
        let Some(listener) = self.state.ids.get(&asked.listener) else {
            return Err(RequestRefusal::Reject(RejReason::INVALID_SERVICE_ID));
        };
        let place = BacklogPlace::take(&listener.backlog.taken, listener.backlog.limit)
            .ok_or(RequestRefusal::Silent)?;
        // Without a handle the listener is being dropped. With one, this reference goes into the
        // event: it must not be the last one to go while we hold the lock.
        let listen_id = listener
            .handle
            .upgrade()
            .ok_or(RequestRefusal::Reject(RejReason::INVALID_SERVICE_ID))?;
        let channel = Arc::clone(&listener.channel);
        let (ps, qp_type, options) = (listener.ps, listener.qp_type, listener.options);
        let key = self.state.new_key();
        let id = Id::assemble(self.service, key, ps);
        tracing::debug!(target: "ferroce::cm", id = key, from = %asked.src, to = %asked.dst, "connect request");
        let mut state = IdState {
            progress: Progress::Connecting,
            passive: true,
            takes_events: false,
            options,
            src: Some(asked.dst),
            dst: Some(asked.src),
            device: Some(asked.device),
            route: newcomer.route,
            connection: newcomer.connection,
            ..IdState::new(Arc::downgrade(&id), &channel, ps, qp_type)
        };
        match origin {
            IdOrigin::Conversation(conversation) => {
                state.conversation = Some(conversation);
                self.state.by_conversation.insert(conversation, key);
            }
            IdOrigin::Stream(number) => state.stream = StreamHold::SettingUp(number),
        }
        self.state.ids.insert(key, state);
        self.state.requests += 1;
        let event = request_event(id, listen_id, newcomer.param);
        channel.push(QueuedEvent {
            event,
            place: Some(place),
        });
        Ok(())
    }

    /// The device that an address belongs to.
    pub(super) fn device_of(&self, ip: IpAddr) -> Option<Arc<Device>> {
        self.host.devices().into_iter().find(|d| d.has_address(ip))
    }

    /// The device that an address belongs to, of those that speak one protocol.
    pub(super) fn device_speaking(&self, protocol: Protocol, ip: IpAddr) -> Option<Arc<Device>> {
        let mut devices = self.host.devices().into_iter();
        devices.find(|d| d.protocol() == protocol && d.has_address(ip))
    }
}

fn request_event(id: Arc<Id>, listener: Arc<Id>, param: EventParam) -> Event {
    Event {
        id,
        listen_id: Some(listener),
        kind: EventKind::ConnectRequest,
        status: 0,
        param,
    }
}

/// Connections come from and go to single hosts. Loopback addresses mean nothing to another host.
fn is_plausible(ip: IpAddr, from_outside: bool) -> bool {
    let ip = ip.to_canonical();
    let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    !(ip.is_unspecified() || ip.is_multicast() || broadcast || (from_outside && ip.is_loopback()))
}

/// The kind of queue pair that a request wants at this side.
fn transport_of(req: &Req) -> Option<QpType> {
    match (req.transport_service, req.extended_transport) {
        (Req::SERVICE_RC, _) => Some(QpType::Rc),
        (Req::SERVICE_UC, _) => Some(QpType::Uc),
        (Req::SERVICE_EXTENDED, Req::EXTENDED_XRC) => Some(QpType::XrcRecv),
        _ => None,
    }
}

/// The path of a request from this side. Its MTU is taken as it is: the asker's queue pair will use
/// it.
fn passive_route(req: &Req, device: &Device) -> Result<Route, RequestRefusal> {
    let path = &req.primary;
    let mtu = Mtu::from_code(u32::from(req.path_mtu))
        .ok_or(RequestRefusal::Reject(RejReason::INVALID_MTU))?;
    let (sgid, sgid_index) = source_gid(device, path.remote_gid);
    Ok(Route {
        sgid,
        dgid: path.local_gid,
        sgid_index,
        mtu,
        flow_label: path.flow_label,
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        packet_life_time: path.local_ack_timeout.saturating_sub(1),
    })
}

/// A device's GID for one of its addresses, with its index. Addresses that it has without a table
/// entry (the rest of 127.0.0.0/8) go by the first one.
pub(super) fn source_gid(device: &Device, gid: Gid) -> (Gid, u8) {
    let gids = device.gids();
    let entry = gids.iter().find(|e| e.gid == gid).or_else(|| gids.first());
    entry.map_or((gid, 0), |e| (e.gid, u8::try_from(e.index).unwrap_or(0)))
}

/// A socket address, with the device's interface as its scope if it is link-local.
fn scoped(ip: IpAddr, port: u16, device: &Device) -> SocketAddr {
    match ip {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            SocketAddrV6::new(v6, port, 0, device.ifindex()).into()
        }
        _ => SocketAddr::new(ip, port),
    }
}

fn connection_of(req: &Req) -> ConnectionAttr {
    ConnectionAttr {
        remote_qpn: req.local_qpn,
        sq_psn: req.starting_psn,
        responder_resources: req.initiator_depth,
        initiator_depth: req.responder_resources,
        retry_count: req.retry_count,
        rnr_retry: req.rnr_retry_count,
        peers_rnr_retry: 0,
        timeout: req.primary.local_ack_timeout,
        peer_known: true,
    }
}

fn param_of(req: &Req) -> ConnParam {
    ConnParam {
        private_data: req.private_data.0[IpCmHeader::LEN..].to_vec(),
        responder_resources: req.initiator_depth,
        initiator_depth: req.responder_resources,
        flow_control: req.flow_control,
        retry_count: req.retry_count,
        rnr_retry_count: req.rnr_retry_count,
        srq: req.srq,
        qp_num: req.local_qpn,
        ece: req.ece,
    }
}
