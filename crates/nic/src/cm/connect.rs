//! Connect, accept, reject, establish, disconnect, and the end of an identifier.

use std::net::SocketAddr;
use std::sync::Arc;

use ferroce_proto::cm::{
    CM_RESPONSE_TIMEOUT, MAX_CM_RETRIES, MadPath, Phase, WrongState, ack_timeout,
};
use ferroce_proto::ids::{DEFAULT_PKEY, Qpn};
use ferroce_proto::mad::{CommId, IpCmHeader, PathSpec, PrivateData, RejReason, Rep, Req};
use ferroce_proto::verbs::QpType;

use super::ports::{PortChange, PortKey};
use super::service::Work;
use super::state::{IdState, PortHold, Progress};
use super::{ConnParam, EventChannel, Id, Route};
use crate::{Device, Error};

/// Retry counts have three bits.
const RETRY_MAX: u8 = 7;
/// LID in requests whose path leaves the subnet, as every `RoCEv2` path may.
const PERMISSIVE_LID: u16 = 0xffff;

impl Work<'_> {
    pub(super) fn connect(&mut self, key: u64, param: &ConnParam) -> Result<(), Error> {
        let id = self.state.id(key)?;
        id.expect("rdma_connect", &[Progress::RouteResolved])?;
        if let Some(dst) = id.dst {
            // The listener may have come after the address was resolved.
            self.check_port_owner(id.ps, dst)?;
        }
        if id.is_on_iwarp() {
            return self.connect_over_tcp(key, param);
        }
        if id.qp_type == QpType::Ud {
            return self.resolve_service(key, &param.private_data);
        }
        let req = request(id, param)?;
        let (route, path) = mad_path(id)?;
        let conversation = self
            .state
            .agent
            .connect(self.now, path, req, route.packet_life_time)
            .ok_or_else(|| Error::no_memory("this process has too many connections"))?;
        self.state.by_conversation.insert(conversation, key);
        let id = self.state.id_mut(key)?;
        id.conversation = Some(conversation);
        id.connection.retry_count = req.retry_count;
        id.connection.peers_rnr_retry = req.rnr_retry_count;
        id.connection.responder_resources = req.responder_resources;
        id.connection.initiator_depth = req.initiator_depth;
        id.progress = Progress::Connecting;
        Ok(())
    }

    pub(super) fn accept(&mut self, key: u64, param: &ConnParam) -> Result<(), Error> {
        let id = self.state.id(key)?;
        id.expect("rdma_accept", &[Progress::Connecting])?;
        if id.is_on_iwarp() {
            return self.accept_over_tcp(key, param);
        }
        let conversation = id.conversation.filter(|_| id.passive);
        let conversation =
            conversation.ok_or_else(|| Error::invalid("rdma_accept without a request"))?;
        if id.qp_type == QpType::Ud {
            return self.accept_datagrams(key, conversation, param);
        }
        let device = id
            .device
            .as_ref()
            .ok_or_else(|| Error::invalid("the identifier has no device"))?;
        let xrc = id.qp_type == QpType::XrcRecv;
        let rep = Rep {
            local_qpn: if xrc { Qpn::default() } else { param.qp_num },
            local_eecn: if xrc { param.qp_num.get() } else { 0 },
            starting_psn: id.rq_psn,
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            target_ack_delay: device.limits().local_ca_ack_delay,
            flow_control: param.flow_control,
            rnr_retry_count: param.rnr_retry_count.min(RETRY_MAX),
            srq: param.srq || xrc,
            local_ca_guid: device.guid(),
            private_data: private_data("rdma_accept", &param.private_data)?,
            ece: param.ece,
            ..Rep::default()
        };
        self.state
            .agent
            .accept(self.now, conversation, rep)
            .map_err(|e| wrong_state(&e))?;
        let id = self.state.id_mut(key)?;
        id.connection.peers_rnr_retry = rep.rnr_retry_count;
        id.connection.responder_resources = rep.responder_resources;
        id.connection.initiator_depth = rep.initiator_depth;
        id.takes_events = true;
        Ok(())
    }

    pub(super) fn reject(&mut self, key: u64, reason: RejReason, data: &[u8]) -> Result<(), Error> {
        if self.state.id(key)?.is_on_iwarp() {
            return self.reject_over_tcp(key, data);
        }
        let conversation = self.conversation(key, "rdma_reject")?;
        if self.state.id(key)?.qp_type == QpType::Ud {
            return self.reject_datagrams(key, conversation, data);
        }
        let data = private_data("rdma_reject", data)?;
        self.state
            .agent
            .reject(self.now, conversation, reason, data)
            .map_err(|e| wrong_state(&e))?;
        self.part_from_ended(conversation);
        Ok(())
    }

    pub(super) fn establish(&mut self, key: u64) -> Result<(), Error> {
        let conversation = self.conversation(key, "rdma_establish")?;
        self.state
            .agent
            .establish(conversation)
            .map_err(|e| wrong_state(&e))
    }

    pub(super) fn notify_established(&mut self, key: u64) -> Result<(), Error> {
        let conversation = self.conversation(key, "rdma_notify")?;
        if self.state.agent.phase(conversation) == Some(Phase::Established) {
            return Err(Error::new(
                libc::EISCONN,
                "the connection is established already",
            ));
        }
        self.state
            .agent
            .notify_established(conversation)
            .map_err(|e| wrong_state(&e))
    }

    /// Once a connection was asked for, disconnecting is never an error: there may just be nothing
    /// left to do.
    pub(super) fn disconnect(&mut self, key: u64) -> Result<(), Error> {
        let id = self.state.id(key)?;
        id.expect(
            "rdma_disconnect",
            &[Progress::Connecting, Progress::Disconnected],
        )?;
        if id.is_on_iwarp() {
            return self.disconnect_over_tcp(key);
        }
        if let Some(conversation) = id.conversation
            && let Err(error) = self.state.agent.disconnect(self.now, conversation)
        {
            tracing::debug!(target: "ferroce::cm", id = key, %error, "nothing to disconnect");
        }
        Ok(())
    }

    fn conversation(&self, key: u64, call: &str) -> Result<CommId, Error> {
        let conversation = self.state.id(key)?.conversation;
        conversation
            .ok_or_else(|| Error::invalid(format!("{call} on an identifier without a connection")))
    }

    pub(super) fn migrate(&mut self, id: &Id, channel: &Arc<EventChannel>) {
        let Some(state) = self.state.ids.get_mut(&id.key()) else {
            return;
        };
        let old = std::mem::replace(&mut state.channel, Arc::clone(channel));
        state.takes_events = true;
        for queued in old.extract(id) {
            // Requests that were not fetched yet move with their listener.
            if queued.event.listen_id.is_some()
                && let Some(child) = self.state.ids.get_mut(&queued.event.id.key())
            {
                child.channel = Arc::clone(channel);
            }
            channel.push(queued);
        }
    }

    /// Ends an identifier. Requests in its undelivered events end with them, outside of the lock.
    pub(super) fn destroy(&mut self, id: &Id) {
        let key = id.key();
        let Some(mut state) = self.state.ids.remove(&key) else {
            return;
        };
        self.state.resolving.forget(key);
        self.end_hold(std::mem::take(&mut state.stream));
        match state.port {
            Some(PortHold::Claimed(port)) => self.release(PortKey { ps: state.ps, port }, key),
            Some(PortHold::Source(port)) => self
                .state
                .ports
                .sources
                .release(PortKey { ps: state.ps, port }),
            None => {}
        }
        if let Some(conversation) = state.conversation {
            self.state.by_conversation.remove(&conversation);
            self.state.agent.destroy(self.now, conversation);
        }
        self.trash.extend(state.channel.extract(id));
    }

    fn release(&mut self, port: PortKey, key: u64) {
        if let PortChange::Gone(fds) = self.state.ports.release(port, key) {
            for fd in fds {
                self.host.unwatch(fd);
            }
            self.state.ports.drop_claim(port);
        }
    }
}

fn request(id: &IdState, param: &ConnParam) -> Result<Req, Error> {
    let resolved = id.device.as_ref().zip(id.route).zip(id.src.zip(id.dst));
    let ((device, route), (src, dst)) =
        resolved.ok_or_else(|| Error::invalid("the route is not resolved"))?;
    let (transport_service, extended_transport) = transport(id.qp_type)?;
    let private_data = addressed(src, dst, &param.private_data)?;
    Ok(Req {
        service_id: id.service(dst),
        local_ca_guid: device.guid(),
        local_qpn: param.qp_num,
        responder_resources: param.responder_resources,
        initiator_depth: param.initiator_depth,
        remote_cm_response_timeout: CM_RESPONSE_TIMEOUT,
        transport_service,
        extended_transport,
        flow_control: param.flow_control,
        starting_psn: id.rq_psn,
        local_cm_response_timeout: CM_RESPONSE_TIMEOUT,
        retry_count: param.retry_count.min(RETRY_MAX),
        pkey: DEFAULT_PKEY,
        path_mtu: route.mtu as u8,
        rnr_retry_count: param.rnr_retry_count.min(RETRY_MAX),
        max_cm_retries: MAX_CM_RETRIES,
        srq: param.srq,
        primary: primary_path(&route, device),
        private_data,
        ece: param.ece,
        ..Req::default()
    })
}

/// How a request names the kind of the queue pairs: service, extended service.
fn transport(qp_type: QpType) -> Result<(u8, u8), Error> {
    match qp_type {
        QpType::Rc => Ok((Req::SERVICE_RC, 0)),
        QpType::Uc => Ok((Req::SERVICE_UC, 0)),
        QpType::XrcSend => Ok((Req::SERVICE_EXTENDED, Req::EXTENDED_XRC)),
        other => Err(Error::invalid(format!(
            "a queue pair of type {other} does not ask for connections"
        ))),
    }
}

fn primary_path(route: &Route, device: &Device) -> PathSpec {
    PathSpec {
        local_lid: PERMISSIVE_LID,
        remote_lid: PERMISSIVE_LID,
        local_gid: route.sgid,
        remote_gid: route.dgid,
        flow_label: route.flow_label,
        packet_rate: 0,
        traffic_class: route.traffic_class,
        hop_limit: route.hop_limit,
        sl: 0,
        subnet_local: false,
        local_ack_timeout: ack_timeout(device.limits().local_ca_ack_delay, route.packet_life_time),
    }
}

/// The private data of a request: the addresses, then the program's.
pub(super) fn addressed<const N: usize>(
    src: SocketAddr,
    dst: SocketAddr,
    private_data: &[u8],
) -> Result<PrivateData<N>, Error> {
    let mut data = IpCmHeader { src, dst: dst.ip() }.emit().to_vec();
    data.extend_from_slice(private_data);
    let room = N - IpCmHeader::LEN;
    PrivateData::new(&data).ok_or_else(|| too_long("rdma_connect", private_data, room))
}

/// The route of an identifier, and the way of its MADs.
pub(super) fn mad_path(id: &IdState) -> Result<(Route, MadPath), Error> {
    let route = id
        .route
        .ok_or_else(|| Error::invalid("the route is not resolved"))?;
    let path = MadPath {
        local: route.sgid,
        remote: route.dgid,
        hop_limit: route.hop_limit,
        traffic_class: route.traffic_class,
    };
    Ok((route, path))
}

pub(super) fn private_data<const N: usize>(
    call: &str,
    data: &[u8],
) -> Result<PrivateData<N>, Error> {
    PrivateData::new(data).ok_or_else(|| too_long(call, data, N))
}

fn too_long(call: &str, data: &[u8], room: usize) -> Error {
    Error::invalid(format!(
        "{} bytes of private data; {call} has room for {room}",
        data.len()
    ))
}

pub(super) fn wrong_state(error: &WrongState) -> Error {
    Error::invalid(error.to_string())
}
