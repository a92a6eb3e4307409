//! Attributes in C. The device has such conversions too; these are others on purpose: a mistake
//! there must not hide itself here.

use ferroce_abi::types::*;
use ferroce_proto::ids::{Gid, Psn, Qpn};
use ferroce_proto::mr::Access;
use ferroce_proto::verbs::{
    AddressHandleAttr, GlobalRoute, Mtu, PathMigState, QpAttr, QpCap, QpState,
};

use crate::bench::Spec;

/// What `ibv_create_qp` is asked for.
pub(super) fn init(spec: &Spec, cq: *mut ibv_cq) -> ibv_qp_init_attr {
    let mut init = ibv_qp_init_attr::zeroed();
    (init.send_cq, init.recv_cq) = (cq, cq);
    init.cap = cap_to_c(&spec.cap);
    init.qp_type = spec.qp_type as u32;
    init.sq_sig_all = spec.sq_sig_all.into();
    init
}

/// The same for a queue pair with all builders of a reliable connection.
pub(super) fn extended(init: &ibv_qp_init_attr, pd: *mut ibv_pd) -> ibv_qp_init_attr_ex {
    let mut extended = ibv_qp_init_attr_ex::zeroed();
    (extended.send_cq, extended.recv_cq, extended.srq) = (init.send_cq, init.recv_cq, init.srq);
    (extended.cap, extended.qp_type) = (init.cap, init.qp_type);
    extended.sq_sig_all = init.sq_sig_all;
    extended.pd = pd;
    extended.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    extended.send_ops_flags = 0x3ff | u64::from(IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH);
    extended
}

fn cap_to_c(cap: &QpCap) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

pub(super) fn ah_to_c(ah: &AddressHandleAttr) -> ibv_ah_attr {
    let mut c = ibv_ah_attr::zeroed();
    c.grh.dgid = ibv_gid { raw: ah.grh.dgid.0 };
    c.grh.flow_label = ah.grh.flow_label;
    c.grh.sgid_index = ah.grh.sgid_index;
    c.grh.hop_limit = ah.grh.hop_limit;
    c.grh.traffic_class = ah.grh.traffic_class;
    c.is_global = ah.is_global.into();
    c.dlid = ah.dlid;
    c.sl = ah.sl;
    c.src_path_bits = ah.src_path_bits;
    c.static_rate = ah.static_rate;
    c.port_num = ah.port_num;
    c
}

fn ah_from_c(c: &ibv_ah_attr) -> AddressHandleAttr {
    AddressHandleAttr {
        grh: GlobalRoute {
            dgid: Gid(c.grh.dgid.raw),
            flow_label: c.grh.flow_label,
            sgid_index: c.grh.sgid_index,
            hop_limit: c.grh.hop_limit,
            traffic_class: c.grh.traffic_class,
        },
        is_global: c.is_global != 0,
        dlid: c.dlid,
        sl: c.sl,
        src_path_bits: c.src_path_bits,
        static_rate: c.static_rate,
        port_num: c.port_num,
    }
}

/// Attributes for `ibv_modify_qp`.
pub(super) fn to_c(attr: &QpAttr) -> ibv_qp_attr {
    let mut c = ibv_qp_attr::zeroed();
    c.qp_state = attr.qp_state as u32;
    c.cur_qp_state = attr.cur_qp_state as u32;
    c.path_mtu = attr.path_mtu as u32;
    c.path_mig_state = attr.path_mig_state as u32;
    c.qkey = attr.qkey;
    c.rq_psn = attr.rq_psn.get();
    c.sq_psn = attr.sq_psn.get();
    c.dest_qp_num = attr.dest_qp_num.get();
    c.qp_access_flags = attr.qp_access_flags.bits();
    c.cap = cap_to_c(&attr.cap);
    c.ah_attr = ah_to_c(&attr.ah_attr);
    c.alt_ah_attr = ah_to_c(&attr.alt_ah_attr);
    c.pkey_index = attr.pkey_index;
    c.alt_pkey_index = attr.alt_pkey_index;
    c.en_sqd_async_notify = attr.en_sqd_async_notify.into();
    c.max_rd_atomic = attr.max_rd_atomic;
    c.max_dest_rd_atomic = attr.max_dest_rd_atomic;
    c.min_rnr_timer = attr.min_rnr_timer;
    c.port_num = attr.port_num;
    c.timeout = attr.timeout;
    c.retry_cnt = attr.retry_cnt;
    c.rnr_retry = attr.rnr_retry;
    c.alt_port_num = attr.alt_port_num;
    c.alt_timeout = attr.alt_timeout;
    c.rate_limit = attr.rate_limit;
    c
}

/// What `ibv_query_qp` answered.
pub(super) fn from_c(c: &ibv_qp_attr) -> QpAttr {
    QpAttr {
        qp_state: state(c.qp_state),
        cur_qp_state: state(c.cur_qp_state),
        path_mtu: Mtu::from_code(c.path_mtu).expect("an MTU"),
        path_mig_state: match c.path_mig_state {
            0 => PathMigState::Migrated,
            1 => PathMigState::Rearm,
            2 => PathMigState::Armed,
            n => panic!("{n} is no migration state"),
        },
        qkey: c.qkey,
        rq_psn: Psn::new(c.rq_psn),
        sq_psn: Psn::new(c.sq_psn),
        dest_qp_num: Qpn::new(c.dest_qp_num),
        qp_access_flags: Access::from_bits(c.qp_access_flags).expect("known flags"),
        cap: QpCap {
            max_send_wr: c.cap.max_send_wr,
            max_recv_wr: c.cap.max_recv_wr,
            max_send_sge: c.cap.max_send_sge,
            max_recv_sge: c.cap.max_recv_sge,
            max_inline_data: c.cap.max_inline_data,
        },
        ah_attr: ah_from_c(&c.ah_attr),
        alt_ah_attr: ah_from_c(&c.alt_ah_attr),
        pkey_index: c.pkey_index,
        alt_pkey_index: c.alt_pkey_index,
        en_sqd_async_notify: c.en_sqd_async_notify != 0,
        sq_draining: c.sq_draining != 0,
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
    }
}

/// A state of a queue pair.
fn state(code: u32) -> QpState {
    *crate::cases::states::STATES
        .iter()
        .find(|&&s| s as u32 == code)
        .unwrap_or_else(|| panic!("{code} is no state"))
}
