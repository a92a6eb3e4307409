//! Connect, accept, reject, establish, disconnect, and the end of an identifier.

use std::sync::Arc;

use ferroce_proto::cm::{
    CM_RESPONSE_TIMEOUT, MAX_CM_RETRIES, MadPath, Phase, WrongState, ack_timeout,
};
use ferroce_proto::ids::DEFAULT_PKEY;
use ferroce_proto::mad::{
    CommId, IpCmHeader, PathSpec, PrivateData, RejReason, Rep, Req, ServiceId,
};

use super::ports::{Change, PortKey};
use super::service::Work;
use super::state::{IdState, PortHold, Progress};
use super::{ConnParam, EventChannel, Id, PortSpace, Route};
use crate::{Device, Error};

/// Retry counts have three bits.
const RETRY_MAX: u8 = 7;
/// LID in requests whose path leaves the subnet, as every `RoCEv2` path may.
const PERMISSIVE_LID: u16 = 0xffff;

impl Work<'_> {
    pub(super) fn connect(&mut self, key: u64, param: &ConnParam) -> Result<(), Error> {
        let id = self.state.id(key)?;
        id.expect("rdma_connect", &[Progress::RouteResolved])?;
        expect_connected_type(id.ps)?;
        let req = request(id, param)?;
        let route = id
            .route
            .ok_or_else(|| Error::invalid("the route is not resolved"))?;
        let path = MadPath {
            local: route.sgid,
            remote: route.dgid,
            hop_limit: route.hop_limit,
            traffic_class: route.traffic_class,
        };
        let conversation = self
            .state
            .agent
            .connect(self.now, path, req, route.packet_life_time)
            .ok_or_else(|| Error::no_memory("this process has too many connections"))?;
        self.state.by_conversation.insert(conversation, key);
        let id = self.state.id_mut(key)?;
        id.conversation = Some(conversation);
        id.connection.retry_count = req.retry_count;
        id.connection.responder_resources = req.responder_resources;
        id.connection.initiator_depth = req.initiator_depth;
        id.progress = Progress::Connecting;
        Ok(())
    }

    pub(super) fn accept(&mut self, key: u64, param: &ConnParam) -> Result<(), Error> {
        let id = self.state.id(key)?;
        id.expect("rdma_accept", &[Progress::Connecting])?;
        let conversation = id.conversation.filter(|_| id.passive);
        let conversation =
            conversation.ok_or_else(|| Error::invalid("rdma_accept without a request"))?;
        let device = id
            .device
            .as_ref()
            .ok_or_else(|| Error::invalid("the identifier has no device"))?;
        let rep = Rep {
            local_qpn: param.qp_num,
            starting_psn: id.rq_psn,
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            target_ack_delay: device.limits().local_ca_ack_delay,
            flow_control: param.flow_control,
            rnr_retry_count: param.rnr_retry_count.min(RETRY_MAX),
            srq: param.srq,
            local_ca_guid: device.guid(),
            private_data: private_data("rdma_accept", &param.private_data)?,
            ..Rep::default()
        };
        self.state
            .agent
            .accept(self.now, conversation, rep)
            .map_err(|e| wrong_state(&e))?;
        let id = self.state.id_mut(key)?;
        id.connection.responder_resources = rep.responder_resources;
        id.connection.initiator_depth = rep.initiator_depth;
        id.takes_events = true;
        Ok(())
    }

    pub(super) fn reject(&mut self, key: u64, data: &[u8]) -> Result<(), Error> {
        let conversation = self.conversation(key, "rdma_reject")?;
        let data = private_data("rdma_reject", data)?;
        let reason = RejReason::CONSUMER_DEFINED;
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

    /// Once a connection was asked for, disconnecting is never an error: there may just be nothing left to do.
    pub(super) fn disconnect(&mut self, key: u64) -> Result<(), Error> {
        let id = self.state.id(key)?;
        id.expect(
            "rdma_disconnect",
            &[Progress::Connecting, Progress::Disconnected],
        )?;
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
        let Some(state) = self.state.ids.remove(&key) else {
            return;
        };
        match state.port {
            Some(PortHold::Claimed(port)) => self.release(PortKey { ps: state.ps, port }, key),
            Some(PortHold::Source(port)) => self
                .state
                .ports
                .release_source(PortKey { ps: state.ps, port }),
            None => {}
        }
        if let Some(conversation) = state.conversation {
            self.state.by_conversation.remove(&conversation);
            self.state.agent.destroy(self.now, conversation);
        }
        self.trash.extend(state.channel.extract(id));
    }

    fn release(&mut self, port: PortKey, key: u64) {
        if let Change::Gone(fd) = self.state.ports.release(port, key) {
            self.host.unwatch(fd);
            self.state.ports.drop_claim(port);
        }
    }
}

fn request(id: &IdState, param: &ConnParam) -> Result<Req, Error> {
    let resolved = id.device.as_ref().zip(id.route).zip(id.src.zip(id.dst));
    let ((device, route), (src, dst)) =
        resolved.ok_or_else(|| Error::invalid("the route is not resolved"))?;
    let mut data = IpCmHeader { src, dst: dst.ip() }.emit().to_vec();
    data.extend_from_slice(&param.private_data);
    let room = Req::PRIVATE - IpCmHeader::LEN;
    let private_data = PrivateData::new(&data)
        .ok_or_else(|| too_long("rdma_connect", &param.private_data, room))?;
    Ok(Req {
        service_id: ServiceId::new(id.ps as u16, dst.port()),
        local_ca_guid: device.guid(),
        local_qpn: param.qp_num,
        responder_resources: param.responder_resources,
        initiator_depth: param.initiator_depth,
        remote_cm_response_timeout: CM_RESPONSE_TIMEOUT,
        transport_service: Req::SERVICE_RC,
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
        ..Req::default()
    })
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

fn expect_connected_type(ps: PortSpace) -> Result<(), Error> {
    match ps {
        PortSpace::Tcp | PortSpace::Ib => Ok(()),
        PortSpace::Udp | PortSpace::Ipoib => Err(Error::unsupported(
            "datagram services (service id resolution) are not built yet",
        )),
    }
}

fn private_data<const N: usize>(call: &str, data: &[u8]) -> Result<PrivateData<N>, Error> {
    PrivateData::new(data).ok_or_else(|| too_long(call, data, N))
}

fn too_long(call: &str, data: &[u8], room: usize) -> Error {
    Error::invalid(format!(
        "{} bytes of private data; {call} has room for {room}",
        data.len()
    ))
}

fn wrong_state(error: &WrongState) -> Error {
    Error::invalid(error.to_string())
}
