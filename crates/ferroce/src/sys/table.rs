//! The table of C functions: what any provider of verbs must supply.

use std::ffi::{c_char, c_int, c_void};

use ferroce_abi::rdmacm;
use ferroce_abi::rdmacm::types::{rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel};
use ferroce_abi::types::{
    ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_gid_entry, ibv_mr,
    ibv_pd, ibv_port_attr, ibv_qp_init_attr,
};
use ferroce_abi::verbs;
use libc::{sockaddr, ssize_t};

/// Functions under their C names. Work is posted and polled through the
/// operations of the context, as C's header does it.
#[allow(missing_docs, reason = "the manual pages document them")]
pub(crate) struct Verbs {
    pub(crate) ibv_get_device_list: unsafe extern "C" fn(*mut c_int) -> *mut *mut ibv_device,
    pub(crate) ibv_free_device_list: unsafe extern "C" fn(*mut *mut ibv_device),
    pub(crate) ibv_get_device_name: unsafe extern "C" fn(*mut ibv_device) -> *const c_char,
    pub(crate) ibv_open_device: unsafe extern "C" fn(*mut ibv_device) -> *mut ibv_context,
    pub(crate) ibv_close_device: unsafe extern "C" fn(*mut ibv_context) -> c_int,
    pub(crate) ibv_query_device:
        unsafe extern "C" fn(*mut ibv_context, *mut ibv_device_attr) -> c_int,
    pub(crate) ibv_query_port:
        unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int,
    pub(crate) ibv_query_gid_table:
        unsafe extern "C" fn(*mut ibv_context, *mut ibv_gid_entry, usize, u32, usize) -> ssize_t,
    pub(crate) ibv_alloc_pd: unsafe extern "C" fn(*mut ibv_context) -> *mut ibv_pd,
    pub(crate) ibv_dealloc_pd: unsafe extern "C" fn(*mut ibv_pd) -> c_int,
    pub(crate) ibv_reg_mr:
        unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr,
    pub(crate) ibv_dereg_mr: unsafe extern "C" fn(*mut ibv_mr) -> c_int,
    pub(crate) ibv_create_comp_channel:
        unsafe extern "C" fn(*mut ibv_context) -> *mut ibv_comp_channel,
    pub(crate) ibv_destroy_comp_channel: unsafe extern "C" fn(*mut ibv_comp_channel) -> c_int,
    pub(crate) ibv_create_cq: unsafe extern "C" fn(
        *mut ibv_context,
        c_int,
        *mut c_void,
        *mut ibv_comp_channel,
        c_int,
    ) -> *mut ibv_cq,
    pub(crate) ibv_destroy_cq: unsafe extern "C" fn(*mut ibv_cq) -> c_int,
    pub(crate) ibv_get_cq_event:
        unsafe extern "C" fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int,
    pub(crate) ibv_ack_cq_events: unsafe extern "C" fn(*mut ibv_cq, u32),
    pub(crate) rdma_create_event_channel: unsafe extern "C" fn() -> *mut rdma_event_channel,
    pub(crate) rdma_destroy_event_channel: unsafe extern "C" fn(*mut rdma_event_channel),
    pub(crate) rdma_get_cm_event:
        unsafe extern "C" fn(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int,
    pub(crate) rdma_ack_cm_event: unsafe extern "C" fn(*mut rdma_cm_event) -> c_int,
    pub(crate) rdma_create_id: unsafe extern "C" fn(
        *mut rdma_event_channel,
        *mut *mut rdma_cm_id,
        *mut c_void,
        u32,
    ) -> c_int,
    pub(crate) rdma_destroy_id: unsafe extern "C" fn(*mut rdma_cm_id) -> c_int,
    pub(crate) rdma_bind_addr: unsafe extern "C" fn(*mut rdma_cm_id, *mut sockaddr) -> c_int,
    pub(crate) rdma_get_src_port: unsafe extern "C" fn(*mut rdma_cm_id) -> u16,
    pub(crate) rdma_listen: unsafe extern "C" fn(*mut rdma_cm_id, c_int) -> c_int,
    pub(crate) rdma_resolve_addr:
        unsafe extern "C" fn(*mut rdma_cm_id, *mut sockaddr, *mut sockaddr, c_int) -> c_int,
    pub(crate) rdma_resolve_route: unsafe extern "C" fn(*mut rdma_cm_id, c_int) -> c_int,
    pub(crate) rdma_create_qp:
        unsafe extern "C" fn(*mut rdma_cm_id, *mut ibv_pd, *mut ibv_qp_init_attr) -> c_int,
    pub(crate) rdma_destroy_qp: unsafe extern "C" fn(*mut rdma_cm_id),
    pub(crate) rdma_connect: unsafe extern "C" fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int,
    pub(crate) rdma_accept: unsafe extern "C" fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int,
    pub(crate) rdma_reject: unsafe extern "C" fn(*mut rdma_cm_id, *const c_void, u8) -> c_int,
    pub(crate) rdma_disconnect: unsafe extern "C" fn(*mut rdma_cm_id) -> c_int,
}

/// The software device that is linked in.
pub(crate) static SOFTWARE: Verbs = Verbs {
    ibv_get_device_list: verbs::ibv_get_device_list,
    ibv_free_device_list: verbs::ibv_free_device_list,
    ibv_get_device_name: verbs::ibv_get_device_name,
    ibv_open_device: verbs::ibv_open_device,
    ibv_close_device: verbs::ibv_close_device,
    ibv_query_device: verbs::ibv_query_device,
    ibv_query_port: verbs::ibv_query_port,
    ibv_query_gid_table: verbs::_ibv_query_gid_table,
    ibv_alloc_pd: verbs::ibv_alloc_pd,
    ibv_dealloc_pd: verbs::ibv_dealloc_pd,
    ibv_reg_mr: verbs::ibv_reg_mr,
    ibv_dereg_mr: verbs::ibv_dereg_mr,
    ibv_create_comp_channel: verbs::ibv_create_comp_channel,
    ibv_destroy_comp_channel: verbs::ibv_destroy_comp_channel,
    ibv_create_cq: verbs::ibv_create_cq,
    ibv_destroy_cq: verbs::ibv_destroy_cq,
    ibv_get_cq_event: verbs::ibv_get_cq_event,
    ibv_ack_cq_events: verbs::ibv_ack_cq_events,
    rdma_create_event_channel: rdmacm::rdma_create_event_channel,
    rdma_destroy_event_channel: rdmacm::rdma_destroy_event_channel,
    rdma_get_cm_event: rdmacm::rdma_get_cm_event,
    rdma_ack_cm_event: rdmacm::rdma_ack_cm_event,
    rdma_create_id: rdmacm::rdma_create_id,
    rdma_destroy_id: rdmacm::rdma_destroy_id,
    rdma_bind_addr: rdmacm::rdma_bind_addr,
    rdma_get_src_port: rdmacm::rdma_get_src_port,
    rdma_listen: rdmacm::rdma_listen,
    rdma_resolve_addr: rdmacm::rdma_resolve_addr,
    rdma_resolve_route: rdmacm::rdma_resolve_route,
    rdma_create_qp: rdmacm::rdma_create_qp,
    rdma_destroy_qp: rdmacm::rdma_destroy_qp,
    rdma_connect: rdmacm::rdma_connect,
    rdma_accept: rdmacm::rdma_accept,
    rdma_reject: rdmacm::rdma_reject,
    rdma_disconnect: rdmacm::rdma_disconnect,
};
