//! Queue pairs.

use libc::{c_int, c_void, pthread_cond_t, pthread_mutex_t};

use super::{
    ibv_ah, ibv_ah_attr, ibv_context, ibv_cq, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_pd,
    ibv_sge, ibv_srq, ibv_xrcd,
};
use crate::layout::c_structs;

c_structs! { QP_LAYOUTS;
    /// A queue pair.
    struct ibv_qp {
        context: *mut ibv_context,
        qp_context: *mut c_void,
        pd: *mut ibv_pd,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        handle: u32,
        qp_num: u32,
        state: u32,
        qp_type: u32,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        events_completed: u32,
    }

    /// Queue sizes.
    struct ibv_qp_cap {
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
    }

    /// What `ibv_create_qp` asks for.
    struct ibv_qp_init_attr {
        qp_context: *mut c_void,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        cap: ibv_qp_cap,
        qp_type: u32,
        sq_sig_all: c_int,
    }

    /// Receive hashing.
    struct ibv_rx_hash_conf {
        rx_hash_function: u8,
        rx_hash_key_len: u8,
        rx_hash_key: *mut u8,
        rx_hash_fields_mask: u64,
    }

    /// What `ibv_create_qp_ex` asks for.
    struct ibv_qp_init_attr_ex {
        qp_context: *mut c_void,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        cap: ibv_qp_cap,
        qp_type: u32,
        sq_sig_all: c_int,
        comp_mask: u32,
        pd: *mut ibv_pd,
        xrcd: *mut ibv_xrcd,
        create_flags: u32,
        max_tso_header: u16,
        rwq_ind_tbl: *mut c_void,
        rx_hash_conf: ibv_rx_hash_conf,
        source_qpn: u32,
        send_ops_flags: u64,
    }

    /// What `ibv_open_qp` asks for.
    struct ibv_qp_open_attr {
        comp_mask: u32,
        qp_num: u32,
        xrcd: *mut ibv_xrcd,
        qp_context: *mut c_void,
        qp_type: u32,
    }

    /// Attributes of a queue pair.
    struct ibv_qp_attr {
        qp_state: u32,
        cur_qp_state: u32,
        path_mtu: u32,
        path_mig_state: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        cap: ibv_qp_cap,
        ah_attr: ibv_ah_attr,
        alt_ah_attr: ibv_ah_attr,
        pkey_index: u16,
        alt_pkey_index: u16,
        en_sqd_async_notify: u8,
        sq_draining: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        rate_limit: u32,
    }

    /// A queue pair with the functions of the extended posting interface.
    struct ibv_qp_ex {
        qp_base: ibv_qp,
        comp_mask: u64,
        wr_id: u64,
        wr_flags: u32,
        wr_atomic_cmp_swp: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u64, u64)>,
        wr_atomic_fetch_add: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u64)>,
        wr_bind_mw: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut ibv_mw, u32, *const ibv_mw_bind_info)>,
        wr_local_inv: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
        wr_rdma_read: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64)>,
        wr_rdma_write: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64)>,
        wr_rdma_write_imm: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32)>,
        wr_send: Option<unsafe extern "C" fn(*mut ibv_qp_ex)>,
        wr_send_imm: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
        wr_send_inv: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
        wr_send_tso: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut c_void, u16, u16)>,
        wr_set_ud_addr: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut ibv_ah, u32, u32)>,
        wr_set_xrc_srqn: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
        wr_set_inline_data: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut c_void, usize)>,
        wr_set_inline_data_list: Option<unsafe extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_data_buf)>,
        wr_set_sge: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32)>,
        wr_set_sge_list: Option<unsafe extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_sge)>,
        wr_start: Option<unsafe extern "C" fn(*mut ibv_qp_ex)>,
        wr_complete: Option<unsafe extern "C" fn(*mut ibv_qp_ex) -> c_int>,
        wr_abort: Option<unsafe extern "C" fn(*mut ibv_qp_ex)>,
        wr_atomic_write: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, *const c_void)>,
    }
}

impl ibv_qp_init_attr_ex {
    /// The part of the attributes that the short structure has too.
    pub(crate) fn short_form(&self) -> ibv_qp_init_attr {
        let Self {
            qp_context,
            send_cq,
            recv_cq,
            srq,
            cap,
            qp_type,
            sq_sig_all,
            ..
        } = *self;
        ibv_qp_init_attr {
            qp_context,
            send_cq,
            recv_cq,
            srq,
            cap,
            qp_type,
            sq_sig_all,
        }
    }
}

impl ibv_qp_init_attr {
    /// The long structure with these attributes, and no others.
    pub(crate) fn extended(&self) -> ibv_qp_init_attr_ex {
        let Self {
            qp_context,
            send_cq,
            recv_cq,
            srq,
            cap,
            qp_type,
            sq_sig_all,
        } = *self;
        ibv_qp_init_attr_ex {
            qp_context,
            send_cq,
            recv_cq,
            srq,
            cap,
            qp_type,
            sq_sig_all,
            ..ibv_qp_init_attr_ex::zeroed()
        }
    }
}
