//! Devices, ports and contexts.

use std::fmt;

use libc::{c_char, c_int, c_void, pthread_mutex_t, timespec};

use super::{
    ibv_alloc_dm_attr, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_dm, ibv_modify_cq_attr, ibv_mr,
    ibv_mw, ibv_mw_bind, ibv_parent_domain_init_attr, ibv_pd, ibv_qp, ibv_qp_init_attr_ex,
    ibv_qp_open_attr, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq, ibv_srq_init_attr_ex, ibv_td,
    ibv_td_init_attr, ibv_wc, ibv_xrcd, ibv_xrcd_init_attr,
};
use crate::layout::c_structs;

/// A slot for an operation that is not built: only ever NULL, so its signature does not matter.
pub type AbsentOp = Option<unsafe extern "C" fn()>;

/// 16 bytes of a GID (`union ibv_gid`), as on the wire.
#[allow(non_camel_case_types, reason = "the name is the C union's")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct ibv_gid {
    /// The bytes.
    pub raw: [u8; 16],
}

c_structs! { DEVICE_LAYOUTS;
    /// Two pointers that nobody may use any more.
    struct _ibv_device_ops {
        _dummy1: *mut c_void,
        _dummy2: *mut c_void,
    }

    /// An RDMA device.
    struct ibv_device {
        _ops: _ibv_device_ops,
        node_type: c_int,
        transport_type: c_int,
        name: [c_char; 64],
        dev_name: [c_char; 64],
        dev_path: [c_char; 256],
        ibdev_path: [c_char; 256],
    }

    /// Limits and capabilities.
    struct ibv_device_attr {
        fw_ver: [c_char; 64],
        /// Big-endian.
        node_guid: u64,
        /// Big-endian.
        sys_image_guid: u64,
        max_mr_size: u64,
        page_size_cap: u64,
        vendor_id: u32,
        vendor_part_id: u32,
        hw_ver: u32,
        max_qp: c_int,
        max_qp_wr: c_int,
        device_cap_flags: u32,
        max_sge: c_int,
        max_sge_rd: c_int,
        max_cq: c_int,
        max_cqe: c_int,
        max_mr: c_int,
        max_pd: c_int,
        max_qp_rd_atom: c_int,
        max_ee_rd_atom: c_int,
        max_res_rd_atom: c_int,
        max_qp_init_rd_atom: c_int,
        max_ee_init_rd_atom: c_int,
        atomic_cap: u32,
        max_ee: c_int,
        max_rdd: c_int,
        max_mw: c_int,
        max_raw_ipv6_qp: c_int,
        max_raw_ethy_qp: c_int,
        max_mcast_grp: c_int,
        max_mcast_qp_attach: c_int,
        max_total_mcast_qp_attach: c_int,
        max_ah: c_int,
        max_fmr: c_int,
        max_map_per_fmr: c_int,
        max_srq: c_int,
        max_srq_wr: c_int,
        max_srq_sge: c_int,
        max_pkeys: u16,
        local_ca_ack_delay: u8,
        phys_port_cnt: u8,
    }

    /// Selects parts of `ibv_query_device_ex`; must be 0.
    struct ibv_query_device_ex_input {
        comp_mask: u32,
    }

    /// On-demand paging.
    struct ibv_odp_caps {
        general_caps: u64,
        per_transport_caps: [u32; 3],
    }

    /// Segmentation offload.
    struct ibv_tso_caps {
        max_tso: u32,
        supported_qpts: u32,
    }

    /// Receive-side scaling.
    struct ibv_rss_caps {
        supported_qpts: u32,
        max_rwq_indirection_tables: u32,
        max_rwq_indirection_table_size: u32,
        rx_hash_fields_mask: u64,
        rx_hash_function: u8,
    }

    /// Rate limits.
    struct ibv_packet_pacing_caps {
        qp_rate_limit_min: u32,
        qp_rate_limit_max: u32,
        supported_qpts: u32,
    }

    /// Tag matching.
    struct ibv_tm_caps {
        max_rndv_hdr_size: u32,
        max_num_tags: u32,
        flags: u32,
        max_ops: u32,
        max_sge: u32,
    }

    /// Completion moderation.
    struct ibv_cq_moderation_caps {
        max_cq_count: u16,
        max_cq_period: u16,
    }

    /// Atomic operations towards the bus.
    struct ibv_pci_atomic_caps {
        fetch_add: u16,
        swap: u16,
        compare_swap: u16,
    }

    /// Limits and capabilities, extended.
    struct ibv_device_attr_ex {
        orig_attr: ibv_device_attr,
        comp_mask: u32,
        odp_caps: ibv_odp_caps,
        completion_timestamp_mask: u64,
        hca_core_clock: u64,
        device_cap_flags_ex: u64,
        tso_caps: ibv_tso_caps,
        rss_caps: ibv_rss_caps,
        max_wq_type_rq: u32,
        packet_pacing_caps: ibv_packet_pacing_caps,
        raw_packet_caps: u32,
        tm_caps: ibv_tm_caps,
        cq_mod_caps: ibv_cq_moderation_caps,
        max_dm_size: u64,
        pci_atomic_caps: ibv_pci_atomic_caps,
        xrc_odp_caps: u32,
        phys_port_cnt_ex: u32,
    }

    /// State of a port.
    struct ibv_port_attr {
        state: u32,
        max_mtu: u32,
        active_mtu: u32,
        gid_tbl_len: c_int,
        port_cap_flags: u32,
        max_msg_sz: u32,
        bad_pkey_cntr: u32,
        qkey_viol_cntr: u32,
        pkey_tbl_len: u16,
        lid: u16,
        sm_lid: u16,
        lmc: u8,
        max_vl_num: u8,
        sm_sl: u8,
        subnet_timeout: u8,
        init_type_reply: u8,
        active_width: u8,
        active_speed: u8,
        phys_state: u8,
        link_layer: u8,
        flags: u8,
        port_cap_flags2: u16,
    }

    /// An entry of the GID table.
    struct ibv_gid_entry {
        gid: ibv_gid,
        gid_index: u32,
        port_num: u32,
        gid_type: u32,
        ndev_ifindex: u32,
    }

    /// Operations that the header calls through the context.
    struct ibv_context_ops {
        _compat_query_device: AbsentOp,
        _compat_query_port: AbsentOp,
        _compat_alloc_pd: AbsentOp,
        _compat_dealloc_pd: AbsentOp,
        _compat_reg_mr: AbsentOp,
        _compat_rereg_mr: AbsentOp,
        _compat_dereg_mr: AbsentOp,
        alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, u32) -> *mut ibv_mw>,
        bind_mw: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int>,
        dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
        _compat_create_cq: AbsentOp,
        poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
        req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
        _compat_cq_event: AbsentOp,
        _compat_resize_cq: AbsentOp,
        _compat_destroy_cq: AbsentOp,
        _compat_create_srq: AbsentOp,
        _compat_modify_srq: AbsentOp,
        _compat_query_srq: AbsentOp,
        _compat_destroy_srq: AbsentOp,
        post_srq_recv: Option<unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
        _compat_create_qp: AbsentOp,
        _compat_query_qp: AbsentOp,
        _compat_modify_qp: AbsentOp,
        _compat_destroy_qp: AbsentOp,
        post_send: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int>,
        post_recv: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
        _compat_create_ah: AbsentOp,
        _compat_destroy_ah: AbsentOp,
        _compat_attach_mcast: AbsentOp,
        _compat_detach_mcast: AbsentOp,
        _compat_async_event: AbsentOp,
    }

    /// An open device.
    struct ibv_context {
        device: *mut ibv_device,
        ops: ibv_context_ops,
        cmd_fd: c_int,
        async_fd: c_int,
        num_comp_vectors: c_int,
        mutex: pthread_mutex_t,
        abi_compat: *mut c_void,
    }

    /// Clock values.
    struct ibv_values_ex {
        comp_mask: u32,
        raw_clock: timespec,
    }

    /// What stands before every context: the operations of the extended interface. It grows at its
    /// start.
    struct verbs_context {
        query_port: Option<unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int>,
        advise_mr: Option<unsafe extern "C" fn(*mut ibv_pd, u32, u32, *mut ibv_sge, u32) -> c_int>,
        alloc_null_mr: Option<unsafe extern "C" fn(*mut ibv_pd) -> *mut ibv_mr>,
        read_counters: AbsentOp,
        attach_counters_point_flow: AbsentOp,
        create_counters: AbsentOp,
        destroy_counters: AbsentOp,
        reg_dm_mr: Option<unsafe extern "C" fn(*mut ibv_pd, *mut ibv_dm, u64, usize, u32) -> *mut ibv_mr>,
        alloc_dm: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_alloc_dm_attr) -> *mut ibv_dm>,
        free_dm: Option<unsafe extern "C" fn(*mut ibv_dm) -> c_int>,
        modify_flow_action_esp: AbsentOp,
        destroy_flow_action: AbsentOp,
        create_flow_action_esp: AbsentOp,
        modify_qp_rate_limit: AbsentOp,
        alloc_parent_domain: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_parent_domain_init_attr) -> *mut ibv_pd>,
        dealloc_td: Option<unsafe extern "C" fn(*mut ibv_td) -> c_int>,
        alloc_td: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_td_init_attr) -> *mut ibv_td>,
        modify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, *mut ibv_modify_cq_attr) -> c_int>,
        post_srq_ops: Option<unsafe extern "C" fn(*mut ibv_srq, *mut c_void, *mut *mut c_void) -> c_int>,
        destroy_rwq_ind_table: AbsentOp,
        create_rwq_ind_table: AbsentOp,
        destroy_wq: AbsentOp,
        modify_wq: AbsentOp,
        create_wq: AbsentOp,
        query_rt_values: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_values_ex) -> c_int>,
        create_cq_ex: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex>,
        r#priv: *mut c_void,
        query_device_ex: Option<
            unsafe extern "C" fn(*mut ibv_context, *const ibv_query_device_ex_input, *mut ibv_device_attr_ex, usize) -> c_int,
        >,
        ibv_destroy_flow: AbsentOp,
        ABI_placeholder2: AbsentOp,
        ibv_create_flow: AbsentOp,
        ABI_placeholder1: AbsentOp,
        open_qp: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_open_attr) -> *mut ibv_qp>,
        create_qp_ex: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp>,
        get_srq_num: Option<unsafe extern "C" fn(*mut ibv_srq, *mut u32) -> c_int>,
        create_srq_ex: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq>,
        open_xrcd: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd>,
        close_xrcd: Option<unsafe extern "C" fn(*mut ibv_xrcd) -> c_int>,
        _ABI_placeholder3: u64,
        sz: usize,
        context: ibv_context,
    }

    /// Enhanced connection establishment options.
    struct ibv_ece {
        vendor_id: u32,
        options: u32,
        comp_mask: u32,
    }
}

/// What an asynchronous event is about.
#[allow(
    non_camel_case_types,
    reason = "named after its place in the C structure"
)]
#[derive(Clone, Copy)]
#[repr(C)]
pub union ibv_async_event_element {
    /// Subject of an event of a completion queue.
    pub cq: *mut ibv_cq,
    /// Subject of an event of a queue pair.
    pub qp: *mut ibv_qp,
    /// Subject of an event of a shared receive queue.
    pub srq: *mut ibv_srq,
    /// Of a port, or of the device.
    pub port_num: c_int,
}

/// Shows no member: the type of the event says which one is set.
impl fmt::Debug for ibv_async_event_element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ibv_async_event_element")
            .finish_non_exhaustive()
    }
}

c_structs! { ASYNC_LAYOUTS;
    /// An asynchronous event.
    struct ibv_async_event {
        element: ibv_async_event_element,
        event_type: u32,
    }
}
