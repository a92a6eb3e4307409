//! Between C structures and the device's types.

use ferroce_os::Error;
use ferroce_proto::ids::{Gid, Psn, Qpn};
use ferroce_proto::mr::Access;
use ferroce_proto::verbs::{
    AddressHandleAttr, AttrMask, GlobalRoute, Mtu, PathMigState, QpAttr, QpCap, QpState, QpType,
};

use crate::types::{ibv_ah_attr, ibv_gid, ibv_global_route, ibv_qp_attr, ibv_qp_cap};

/// `enum ibv_qp_state`.
///
/// # Errors
/// EINVAL out of range.
pub(crate) fn qp_state(code: u32) -> Result<QpState, Error> {
    QpState::from_code(code).ok_or_else(|| Error::invalid(format!("{code} is no queue pair state")))
}

/// `enum ibv_qp_type`.
///
/// # Errors
/// EINVAL out of range.
pub(crate) fn qp_type(code: u32) -> Result<QpType, Error> {
    Ok(match code {
        2 => QpType::Rc,
        3 => QpType::Uc,
        4 => QpType::Ud,
        8 => QpType::RawPacket,
        9 => QpType::XrcSend,
        10 => QpType::XrcRecv,
        _ => return Err(Error::invalid(format!("{code} is no queue pair type"))),
    })
}

/// `enum ibv_access_flags`, all bits known.
///
/// # Errors
/// EINVAL for an unknown bit.
pub(crate) fn access(bits: u32) -> Result<Access, Error> {
    Access::from_bits(bits)
        .ok_or_else(|| Error::invalid(format!("access flags {bits:#x} contain unknown bits")))
}

/// `enum ibv_mtu`.
fn mtu(code: u32) -> Result<Mtu, Error> {
    Mtu::from_code(code).ok_or_else(|| {
        Error::invalid(format!(
            "path_mtu {code} is none of IBV_MTU_256 (1) to IBV_MTU_4096 (5)"
        ))
    })
}

/// `enum ibv_mig_state`.
fn mig_state(code: u32) -> Result<PathMigState, Error> {
    PathMigState::from_code(code)
        .ok_or_else(|| Error::invalid(format!("{code} is no path migration state")))
}

/// `union ibv_gid`.
pub(crate) const fn gid_to_c(gid: Gid) -> ibv_gid {
    ibv_gid { raw: gid.0 }
}

/// `union ibv_gid`.
pub(crate) const fn gid_from_c(gid: ibv_gid) -> Gid {
    Gid(gid.raw)
}

/// `struct ibv_ah_attr`.
pub(crate) fn ah_attr_to_c(attr: &AddressHandleAttr) -> ibv_ah_attr {
    let AddressHandleAttr {
        grh,
        is_global,
        dlid,
        sl,
        src_path_bits,
        static_rate,
        port_num,
    } = *attr;
    let GlobalRoute {
        dgid,
        flow_label,
        sgid_index,
        hop_limit,
        traffic_class,
    } = grh;
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: gid_to_c(dgid),
            flow_label,
            sgid_index,
            hop_limit,
            traffic_class,
        },
        dlid,
        sl,
        src_path_bits,
        static_rate,
        is_global: is_global.into(),
        port_num,
    }
}

/// `struct ibv_ah_attr`.
pub(crate) fn ah_attr_from_c(attr: &ibv_ah_attr) -> AddressHandleAttr {
    let ibv_global_route {
        dgid,
        flow_label,
        sgid_index,
        hop_limit,
        traffic_class,
    } = attr.grh;
    AddressHandleAttr {
        grh: GlobalRoute {
            dgid: Gid(dgid.raw),
            flow_label,
            sgid_index,
            hop_limit,
            traffic_class,
        },
        is_global: attr.is_global != 0,
        dlid: attr.dlid,
        sl: attr.sl,
        src_path_bits: attr.src_path_bits,
        static_rate: attr.static_rate,
        port_num: attr.port_num,
    }
}

/// `struct ibv_qp_cap`.
pub(crate) const fn cap_to_c(cap: &QpCap) -> ibv_qp_cap {
    let QpCap {
        max_send_wr,
        max_recv_wr,
        max_send_sge,
        max_recv_sge,
        max_inline_data,
    } = *cap;
    ibv_qp_cap {
        max_send_wr,
        max_recv_wr,
        max_send_sge,
        max_recv_sge,
        max_inline_data,
    }
}

/// `struct ibv_qp_cap`.
pub(crate) const fn cap_from_c(cap: &ibv_qp_cap) -> QpCap {
    let ibv_qp_cap {
        max_send_wr,
        max_recv_wr,
        max_send_sge,
        max_recv_sge,
        max_inline_data,
    } = *cap;
    QpCap {
        max_send_wr,
        max_recv_wr,
        max_send_sge,
        max_recv_sge,
        max_inline_data,
    }
}

/// `struct ibv_qp_attr`, every field.
pub(crate) fn qp_attr_to_c(attr: &QpAttr) -> ibv_qp_attr {
    ibv_qp_attr {
        qp_state: attr.qp_state as u32,
        cur_qp_state: attr.cur_qp_state as u32,
        path_mtu: attr.path_mtu as u32,
        path_mig_state: attr.path_mig_state as u32,
        qkey: attr.qkey,
        rq_psn: attr.rq_psn.get(),
        sq_psn: attr.sq_psn.get(),
        dest_qp_num: attr.dest_qp_num.get(),
        qp_access_flags: attr.qp_access_flags.bits(),
        cap: cap_to_c(&attr.cap),
        ah_attr: ah_attr_to_c(&attr.ah_attr),
        alt_ah_attr: ah_attr_to_c(&attr.alt_ah_attr),
        pkey_index: attr.pkey_index,
        alt_pkey_index: attr.alt_pkey_index,
        en_sqd_async_notify: attr.en_sqd_async_notify.into(),
        sq_draining: attr.sq_draining.into(),
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        port_num: attr.port_num,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        alt_port_num: attr.alt_port_num,
        alt_timeout: attr.alt_timeout,
        rate_limit: attr.rate_limit,
    }
}

/// The fields of `struct ibv_qp_attr` that the mask names; the others may hold anything and get a
/// neutral value.
///
/// # Errors
/// EINVAL for an unknown bit in the mask or an enumerator out of range in a named field.
pub(crate) fn qp_attr_from_c(c: &ibv_qp_attr, mask: u32) -> Result<(QpAttr, AttrMask), Error> {
    let mask = AttrMask::from_bits(mask)
        .ok_or_else(|| Error::invalid(format!("attribute mask {mask:#x} contains unknown bits")))?;
    let mut attr = QpAttr {
        qkey: c.qkey,
        rq_psn: Psn::new(c.rq_psn),
        sq_psn: Psn::new(c.sq_psn),
        dest_qp_num: Qpn::new(c.dest_qp_num),
        cap: cap_from_c(&c.cap),
        ah_attr: ah_attr_from_c(&c.ah_attr),
        alt_ah_attr: ah_attr_from_c(&c.alt_ah_attr),
        pkey_index: c.pkey_index,
        alt_pkey_index: c.alt_pkey_index,
        en_sqd_async_notify: c.en_sqd_async_notify != 0,
        max_rd_atomic: c.max_rd_atomic,
        max_dest_rd_atomic: c.max_dest_rd_atomic,
        min_rnr_timer: c.min_rnr_timer,
        port_num: c.port_num,
        timeout: c.timeout,
        retry_cnt: c.retry_cnt,
        rnr_retry: c.rnr_retry,
        alt_port_num: c.alt_port_num,
        alt_timeout: c.alt_timeout,
        rate_limit: c.rate_limit,
        ..QpAttr::default()
    };
    if mask.contains(AttrMask::STATE) {
        attr.qp_state = qp_state(c.qp_state)?;
    }
    if mask.contains(AttrMask::CUR_STATE) {
        attr.cur_qp_state = qp_state(c.cur_qp_state)?;
    }
    if mask.contains(AttrMask::PATH_MTU) {
        attr.path_mtu = mtu(c.path_mtu)?;
    }
    if mask.contains(AttrMask::PATH_MIG_STATE) {
        attr.path_mig_state = mig_state(c.path_mig_state)?;
    }
    if mask.contains(AttrMask::ACCESS_FLAGS) {
        attr.qp_access_flags = access(c.qp_access_flags)?;
    }
    Ok((attr, mask))
}
