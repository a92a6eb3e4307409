//! The parameters of events, as programs see them.

use std::ffi::c_void;
use std::ptr;

use ferroce_nic::cm::{ConnParam, UdParam};

use super::types::{rdma_conn_param, rdma_ud_param};
use crate::convert::ah_attr_to_c;

/// Longest private data that an event carries: `rdma_conn_param.private_data_len` is a byte.
const MAX_PRIVATE_DATA: usize = 255;

/// The program's view of connection parameters; it points into them.
pub(super) fn conn_param(conn: &ConnParam) -> rdma_conn_param {
    let (private_data, private_data_len) = view(&conn.private_data);
    rdma_conn_param {
        private_data,
        private_data_len,
        responder_resources: conn.responder_resources,
        initiator_depth: conn.initiator_depth,
        flow_control: conn.flow_control.into(),
        retry_count: conn.retry_count,
        rnr_retry_count: conn.rnr_retry_count,
        srq: conn.srq.into(),
        qp_num: conn.qp_num.get(),
    }
}

/// The program's view of datagram parameters; it points into them.
pub(super) fn ud_param(ud: &UdParam) -> rdma_ud_param {
    let (private_data, private_data_len) = view(&ud.private_data);
    rdma_ud_param {
        private_data,
        private_data_len,
        ah_attr: ah_attr_to_c(&ud.ah_attr),
        qp_num: ud.qp_num.get(),
        qkey: ud.qkey,
    }
}

/// Private data as events show it: NULL if there is none.
fn view(private_data: &[u8]) -> (*const c_void, u8) {
    match u8::try_from(private_data.len().min(MAX_PRIVATE_DATA)) {
        Ok(0) | Err(_) => (ptr::null(), 0),
        Ok(length) => (private_data.as_ptr().cast(), length),
    }
}
