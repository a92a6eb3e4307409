//! The attributes that a connection gives its queue pair (`rdma_init_qp_attr`).

use ferroce_proto::cm::{Phase, min_rnr_timer};
use ferroce_proto::mr::Access;
use ferroce_proto::verbs::{AddressHandleAttr, AttrMask, GlobalRoute, QpAttr, QpState, QpType};

use super::Route;
use super::datagram::DEFAULT_QKEY;
use super::service::ServiceState;
use super::state::{ConnectionAttr, IdState, Progress};
use crate::Error;

/// The only port of every device.
const PORT: u8 = 1;

impl ServiceState {
    pub(super) fn qp_attr(&self, key: u64, to: QpState) -> Result<(QpAttr, AttrMask), Error> {
        let id = self.id(key)?;
        let phase = id.conversation.and_then(|c| self.agent.phase(c));
        if id.device.is_none() {
            return Err(Error::invalid("the identifier is not bound to a device"));
        }
        if id.qp_type == QpType::Ud {
            return datagrams(id, to);
        }
        if id.is_on_iwarp() {
            return over_tcp(id, to);
        }
        match to {
            QpState::Init => init(id, phase),
            QpState::Rtr => rtr(id, phase),
            QpState::Rts => rts(id, phase),
            other => Err(no_attributes(other)),
        }
    }
}

/// On iWARP the connection manager moves queue pairs by itself (`iw_cm_init_qp_attr`).
fn over_tcp(id: &IdState, to: QpState) -> Result<(QpAttr, AttrMask), Error> {
    let access = match id.progress {
        Progress::Connecting | Progress::Disconnected => Access::REMOTE_WRITE | Access::REMOTE_READ,
        _ => Access::empty(),
    };
    let attr = QpAttr {
        qp_state: to,
        qp_access_flags: access,
        port_num: PORT,
        ..QpAttr::default()
    };
    match to {
        QpState::Init | QpState::Rtr => Ok((
            attr,
            AttrMask::STATE | AttrMask::ACCESS_FLAGS | AttrMask::PORT,
        )),
        QpState::Rts => Ok((attr, AttrMask::PORT)),
        other => Err(no_attributes(other)),
    }
}

fn no_attributes(to: QpState) -> Error {
    Error::invalid(format!(
        "an identifier says nothing about queue pair state {to:?}"
    ))
}

/// Datagrams need no peer: the attributes are those of the identifier alone.
fn datagrams(id: &IdState, to: QpState) -> Result<(QpAttr, AttrMask), Error> {
    let attr = QpAttr {
        qp_state: to,
        qkey: id.qkey.unwrap_or(DEFAULT_QKEY),
        port_num: PORT,
        ..QpAttr::default()
    };
    let mask = match to {
        QpState::Init => AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::QKEY,
        QpState::Rtr => AttrMask::empty(),
        QpState::Rts => AttrMask::SQ_PSN,
        other => return Err(no_attributes(other)),
    };
    Ok((attr, mask | AttrMask::STATE))
}

fn init(id: &IdState, phase: Option<Phase>) -> Result<(QpAttr, AttrMask), Error> {
    let connecting = matches!(id.progress, Progress::Connecting | Progress::Disconnected);
    let access = match phase {
        // A queue pair that is made before its connection; the rights come before RTR.
        None if !connecting => Access::empty(),
        None | Some(Phase::DreqSent | Phase::DreqRcvd | Phase::Timewait) => {
            return Err(too_late_or_early("INIT", phase));
        }
        Some(_) if id.connection.responder_resources > 0 => {
            Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
        }
        Some(_) => Access::REMOTE_WRITE,
    };
    let attr = QpAttr {
        qp_state: QpState::Init,
        qp_access_flags: access,
        pkey_index: 0,
        port_num: PORT,
        ..QpAttr::default()
    };
    let mask = AttrMask::STATE | AttrMask::ACCESS_FLAGS | AttrMask::PKEY_INDEX | AttrMask::PORT;
    Ok((attr, mask))
}

fn rtr(id: &IdState, phase: Option<Phase>) -> Result<(QpAttr, AttrMask), Error> {
    let (connection, route) = known_peer(id, phase, "RTR")?;
    let attr = QpAttr {
        qp_state: QpState::Rtr,
        ah_attr: address(&route),
        path_mtu: route.mtu,
        dest_qp_num: connection.remote_qpn,
        rq_psn: id.rq_psn,
        max_dest_rd_atomic: connection.responder_resources,
        min_rnr_timer: min_rnr_timer(connection.peers_rnr_retry),
        port_num: PORT,
        ..QpAttr::default()
    };
    let mut mask =
        AttrMask::STATE | AttrMask::AV | AttrMask::PATH_MTU | AttrMask::DEST_QPN | AttrMask::RQ_PSN;
    if matches!(id.qp_type, QpType::Rc | QpType::XrcRecv) {
        mask |= AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER;
    }
    Ok((attr, mask))
}

fn rts(id: &IdState, phase: Option<Phase>) -> Result<(QpAttr, AttrMask), Error> {
    let (connection, _) = known_peer(id, phase, "RTS")?;
    let attr = QpAttr {
        qp_state: QpState::Rts,
        sq_psn: connection.sq_psn,
        timeout: id.options.ack_timeout.unwrap_or(connection.timeout),
        retry_cnt: connection.retry_count,
        rnr_retry: connection.rnr_retry,
        max_rd_atomic: connection.initiator_depth,
        port_num: PORT,
        ..QpAttr::default()
    };
    let mut mask = AttrMask::STATE | AttrMask::SQ_PSN;
    if matches!(id.qp_type, QpType::Rc | QpType::XrcSend) {
        mask |= AttrMask::RETRY_CNT | AttrMask::RNR_RETRY | AttrMask::MAX_QP_RD_ATOMIC;
    }
    if id.qp_type != QpType::Uc {
        mask |= AttrMask::TIMEOUT;
    }
    Ok((attr, mask))
}

/// What is known of the peer, while the connection is being made or stands.
fn known_peer(
    id: &IdState,
    phase: Option<Phase>,
    to: &str,
) -> Result<(ConnectionAttr, Route), Error> {
    let alive = matches!(
        phase,
        Some(
            Phase::ReqRcvd
                | Phase::MraReqSent
                | Phase::RepSent
                | Phase::MraRepRcvd
                | Phase::RepRcvd
                | Phase::MraRepSent
                | Phase::Established
        )
    );
    match (id.connection.peer_known, id.route) {
        (true, Some(route)) if alive => Ok((id.connection, route)),
        _ => Err(too_late_or_early(to, phase)),
    }
}

fn too_late_or_early(to: &str, phase: Option<Phase>) -> Error {
    Error::invalid(format!(
        "the conversation is in state {phase:?} and gives no attributes for {to}"
    ))
}

pub(super) fn address(route: &Route) -> AddressHandleAttr {
    AddressHandleAttr {
        grh: GlobalRoute {
            dgid: route.dgid,
            flow_label: route.flow_label,
            sgid_index: route.sgid_index,
            hop_limit: route.hop_limit,
            traffic_class: route.traffic_class,
        },
        is_global: true,
        port_num: PORT,
        ..AddressHandleAttr::default()
    }
}
