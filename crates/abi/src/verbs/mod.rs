//! The functions of libibverbs.
#![allow(
    clippy::missing_safety_doc,
    reason = "the crate's documentation says it once for all C functions"
)]

pub(crate) mod acks;
mod ah;
mod buf;
mod builders;
mod channel;
mod clock;
pub(crate) mod context;
pub(crate) mod cq;
mod cq_ex;
pub(crate) mod device;
mod dm;
mod dmah;
mod domain;
pub(crate) mod engine;
mod events;
mod fork;
mod gid;
mod import;
pub mod kern;
mod mr;
mod multicast;
mod mw;
mod names;
mod neighbour;
pub(crate) mod pd;
pub(crate) mod port;
mod post;
pub mod provider;
pub(crate) mod qp;
mod qp_ex;
mod qp_open;
mod rates;
mod rereg;
mod send_op;
mod srq;
mod sysfs;
mod unbuilt;
pub(crate) mod wait;
mod wr;
mod xrcd;

pub use ah::{ibv_create_ah, ibv_create_ah_from_wc, ibv_destroy_ah, ibv_init_ah_from_wc};
pub use buf::{
    ibv_alloc_buf, ibv_buf, ibv_export_buf_dmabuf_fd, ibv_free_buf, ibv_reg_buf_mr, ibv_reg_mr_ex,
};
pub use channel::{
    ibv_ack_cq_events, ibv_create_comp_channel, ibv_destroy_comp_channel, ibv_get_cq_event,
};
pub(crate) use context::generation as context_generation;
pub use context::{ibv_close_device, ibv_open_device};
pub use cq::{ibv_create_cq, ibv_destroy_cq, ibv_resize_cq};
pub(crate) use cq::{poll_cq, req_notify_cq};
pub use device::{
    ibv_free_device_list, ibv_get_device_guid, ibv_get_device_index, ibv_get_device_list,
    ibv_get_device_name,
};
pub use dmah::{ibv_alloc_dmah, ibv_dealloc_dmah};
pub use engine::before_first_use;
pub use events::{ibv_ack_async_event, ibv_get_async_event};
pub use ferroce_nic::{SharedRange, choose_protocols};
pub use fork::{ibv_dofork_range, ibv_dontfork_range, ibv_fork_init, ibv_is_fork_initialized};
pub use gid::{_ibv_query_gid_ex, _ibv_query_gid_table, ibv_query_gid, ibv_query_gid_type};
pub use import::{
    ibv_import_device, ibv_import_dm, ibv_import_mr, ibv_import_pd, ibv_unimport_dm,
    ibv_unimport_mr, ibv_unimport_pd,
};
pub use kern::{
    ibv_copy_ah_attr_from_kern, ibv_copy_path_rec_from_kern, ibv_copy_path_rec_to_kern,
    ibv_copy_qp_attr_from_kern,
};
pub use mr::{
    ibv_dereg_mr, ibv_reg_dmabuf_mr, ibv_reg_mr, ibv_reg_mr_iova, ibv_reg_mr_iova2, share_memory,
};
pub use multicast::{ibv_attach_mcast, ibv_detach_mcast};
pub use names::{
    ibv_event_type_str, ibv_node_type_str, ibv_port_state_str, ibv_wc_status_str, ibv_wr_opcode_str,
};
pub use neighbour::ibv_resolve_eth_l2_from_gid;
pub use pd::{ibv_alloc_pd, ibv_dealloc_pd};
pub use port::{
    ibv_get_pkey_index, ibv_query_device, ibv_query_pkey, ibv_query_port, ibv_query_port_speed,
};
pub(crate) use post::{post_recv, post_send};
pub use qp::{
    ibv_create_qp, ibv_destroy_qp, ibv_modify_qp, ibv_query_ece, ibv_query_qp,
    ibv_query_qp_data_in_order, ibv_set_ece,
};
pub(crate) use qp_ex::create_qp_ex;
pub use qp_ex::ibv_qp_to_qp_ex;
pub use rates::{ibv_rate_to_mbps, ibv_rate_to_mult, mbps_to_ibv_rate, mult_to_ibv_rate};
pub use rereg::ibv_rereg_mr;
pub(crate) use srq::create_srq_ex;
pub use srq::{ibv_create_srq, ibv_destroy_srq, ibv_modify_srq, ibv_query_srq};
pub use sysfs::{ibv_get_sysfs_path, ibv_read_sysfs_file};
pub use unbuilt::*;
pub(crate) use xrcd::open_xrcd;
