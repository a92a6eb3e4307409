//! The table of C functions: what any provider of verbs must supply.

use std::ffi::{c_char, c_int, c_void};

use ferroce_abi::cm_types::{
    rdma_cm_event, rdma_cm_id, rdma_cm_join_mc_attr_ex, rdma_conn_param, rdma_event_channel,
};
#[cfg(feature = "software")]
use ferroce_abi::rdmacm;
use ferroce_abi::types::{
    ibv_ah, ibv_ah_attr, ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device,
    ibv_device_attr, ibv_gid, ibv_gid_entry, ibv_grh, ibv_mr, ibv_pd, ibv_port_attr, ibv_qp,
    ibv_qp_attr, ibv_qp_ex, ibv_qp_init_attr, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_wc,
};
#[cfg(feature = "software")]
use ferroce_abi::verbs;
use libc::{sockaddr, ssize_t};

use super::system::{Libraries, MissingSymbol};

/// Makes the table's type, the table of the software device, and the function that fills one from
/// the system's libraries, of one list. An entry's module says which library has it: `verbs` stands
/// for libibverbs, `rdmacm` for librdmacm.
macro_rules! table {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)? = $library:ident::$symbol:ident;)*) => {
        /// Functions under their C names. Work is posted and polled through the operations of the
        /// context, as C's header does it.
        pub(crate) struct Verbs {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        /// The software device that is linked in.
        #[cfg(feature = "software")]
        pub(crate) static SOFTWARE: Verbs = Verbs {
            $($name: $library::$symbol,)*
        };

        impl Verbs {
            /// The table of the system's libraries.
            pub(super) fn of(libraries: &Libraries) -> Result<Self, MissingSymbol> {
                Ok(Self {
                    // SAFETY: the symbol's type is the one that the C headers declare.
                    $($name: unsafe { libraries.$library.symbol(stringify!($symbol))? },)*
                })
            }
        }
    };
}

table! {
    ibv_get_device_list(*mut c_int) -> *mut *mut ibv_device = verbs::ibv_get_device_list;
    ibv_free_device_list(*mut *mut ibv_device) = verbs::ibv_free_device_list;
    ibv_get_device_name(*mut ibv_device) -> *const c_char = verbs::ibv_get_device_name;
    ibv_open_device(*mut ibv_device) -> *mut ibv_context = verbs::ibv_open_device;
    ibv_close_device(*mut ibv_context) -> c_int = verbs::ibv_close_device;
    ibv_query_device(*mut ibv_context, *mut ibv_device_attr) -> c_int = verbs::ibv_query_device;
    ibv_query_port(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int = verbs::ibv_query_port;
    ibv_query_gid_table(*mut ibv_context, *mut ibv_gid_entry, usize, u32, usize) -> ssize_t = verbs::_ibv_query_gid_table;
    ibv_alloc_pd(*mut ibv_context) -> *mut ibv_pd = verbs::ibv_alloc_pd;
    ibv_dealloc_pd(*mut ibv_pd) -> c_int = verbs::ibv_dealloc_pd;
    ibv_reg_mr(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr = verbs::ibv_reg_mr;
    ibv_reg_dmabuf_mr(*mut ibv_pd, u64, usize, u64, c_int, c_int) -> *mut ibv_mr = verbs::ibv_reg_dmabuf_mr;
    ibv_dereg_mr(*mut ibv_mr) -> c_int = verbs::ibv_dereg_mr;
    ibv_create_comp_channel(*mut ibv_context) -> *mut ibv_comp_channel = verbs::ibv_create_comp_channel;
    ibv_destroy_comp_channel(*mut ibv_comp_channel) -> c_int = verbs::ibv_destroy_comp_channel;
    ibv_create_cq(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq = verbs::ibv_create_cq;
    ibv_destroy_cq(*mut ibv_cq) -> c_int = verbs::ibv_destroy_cq;
    ibv_get_cq_event(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int = verbs::ibv_get_cq_event;
    ibv_ack_cq_events(*mut ibv_cq, u32) = verbs::ibv_ack_cq_events;
    ibv_create_qp(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp = verbs::ibv_create_qp;
    ibv_modify_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int = verbs::ibv_modify_qp;
    ibv_query_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int = verbs::ibv_query_qp;
    ibv_destroy_qp(*mut ibv_qp) -> c_int = verbs::ibv_destroy_qp;
    ibv_qp_to_qp_ex(*mut ibv_qp) -> *mut ibv_qp_ex = verbs::ibv_qp_to_qp_ex;
    ibv_attach_mcast(*mut ibv_qp, *const ibv_gid, u16) -> c_int = verbs::ibv_attach_mcast;
    ibv_detach_mcast(*mut ibv_qp, *const ibv_gid, u16) -> c_int = verbs::ibv_detach_mcast;
    ibv_create_ah(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah = verbs::ibv_create_ah;
    ibv_create_ah_from_wc(*mut ibv_pd, *mut ibv_wc, *mut ibv_grh, u8) -> *mut ibv_ah = verbs::ibv_create_ah_from_wc;
    ibv_destroy_ah(*mut ibv_ah) -> c_int = verbs::ibv_destroy_ah;
    ibv_create_srq(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq = verbs::ibv_create_srq;
    ibv_modify_srq(*mut ibv_srq, *mut ibv_srq_attr, c_int) -> c_int = verbs::ibv_modify_srq;
    ibv_query_srq(*mut ibv_srq, *mut ibv_srq_attr) -> c_int = verbs::ibv_query_srq;
    ibv_destroy_srq(*mut ibv_srq) -> c_int = verbs::ibv_destroy_srq;
    ibv_get_async_event(*mut ibv_context, *mut ibv_async_event) -> c_int = verbs::ibv_get_async_event;
    ibv_ack_async_event(*mut ibv_async_event) = verbs::ibv_ack_async_event;
    rdma_create_event_channel() -> *mut rdma_event_channel = rdmacm::rdma_create_event_channel;
    rdma_destroy_event_channel(*mut rdma_event_channel) = rdmacm::rdma_destroy_event_channel;
    rdma_get_cm_event(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int = rdmacm::rdma_get_cm_event;
    rdma_ack_cm_event(*mut rdma_cm_event) -> c_int = rdmacm::rdma_ack_cm_event;
    rdma_create_id(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, u32) -> c_int = rdmacm::rdma_create_id;
    rdma_destroy_id(*mut rdma_cm_id) -> c_int = rdmacm::rdma_destroy_id;
    rdma_bind_addr(*mut rdma_cm_id, *mut sockaddr) -> c_int = rdmacm::rdma_bind_addr;
    rdma_get_src_port(*mut rdma_cm_id) -> u16 = rdmacm::rdma_get_src_port;
    rdma_listen(*mut rdma_cm_id, c_int) -> c_int = rdmacm::rdma_listen;
    rdma_resolve_addr(*mut rdma_cm_id, *mut sockaddr, *mut sockaddr, c_int) -> c_int = rdmacm::rdma_resolve_addr;
    rdma_resolve_route(*mut rdma_cm_id, c_int) -> c_int = rdmacm::rdma_resolve_route;
    rdma_create_qp(*mut rdma_cm_id, *mut ibv_pd, *mut ibv_qp_init_attr) -> c_int = rdmacm::rdma_create_qp;
    rdma_connect(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int = rdmacm::rdma_connect;
    rdma_accept(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int = rdmacm::rdma_accept;
    rdma_reject(*mut rdma_cm_id, *const c_void, u8) -> c_int = rdmacm::rdma_reject;
    rdma_migrate_id(*mut rdma_cm_id, *mut rdma_event_channel) -> c_int = rdmacm::rdma_migrate_id;
    rdma_set_option(*mut rdma_cm_id, c_int, c_int, *mut c_void, usize) -> c_int = rdmacm::rdma_set_option;
    rdma_notify(*mut rdma_cm_id, u32) -> c_int = rdmacm::rdma_notify;
    rdma_join_multicast_ex(*mut rdma_cm_id, *mut rdma_cm_join_mc_attr_ex, *mut c_void) -> c_int = rdmacm::rdma_join_multicast_ex;
    rdma_leave_multicast(*mut rdma_cm_id, *mut sockaddr) -> c_int = rdmacm::rdma_leave_multicast;
    rdma_disconnect(*mut rdma_cm_id) -> c_int = rdmacm::rdma_disconnect;
}
