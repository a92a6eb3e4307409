//! Symbols that providers' libraries (libmlx5, libefa ...) import from `libibverbs.so.1`. Programs
//! that are linked with such a library load only if all of them are there. See
//! `ferroce_abi::verbs::provider` for what they do.

exports! { "IBVERBS_PRIVATE_34" from verbs:
    ibv_query_gid_type
}

exports_all! { "IBVERBS_PRIVATE_34" as refuse_with_null:
    _verbs_init_and_alloc_context
    verbs_open_device
}

exports_all! { "IBVERBS_PRIVATE_34" as ignore:
    __verbs_log
    verbs_init_cq
    verbs_register_driver_34
    verbs_set_ops
    verbs_uninit_context
}

exports_all! { "IBVERBS_PRIVATE_34" as refuse_with_errno:
    __ioctl_final_num_attrs
    execute_ioctl
    ibv_cmd_advise_mr
    ibv_cmd_alloc_dm
    ibv_cmd_alloc_mw
    ibv_cmd_alloc_pd
    ibv_cmd_attach_mcast
    ibv_cmd_close_xrcd
    ibv_cmd_create_ah
    ibv_cmd_create_counters
    ibv_cmd_create_cq
    ibv_cmd_create_cq_ex
    ibv_cmd_create_flow
    ibv_cmd_create_flow_action_esp
    ibv_cmd_create_qp
    ibv_cmd_create_qp_ex
    ibv_cmd_create_qp_ex2
    ibv_cmd_create_rwq_ind_table
    ibv_cmd_create_srq
    ibv_cmd_create_srq_ex
    ibv_cmd_create_wq
    ibv_cmd_dealloc_mw
    ibv_cmd_dealloc_pd
    ibv_cmd_dereg_mr
    ibv_cmd_destroy_ah
    ibv_cmd_destroy_counters
    ibv_cmd_destroy_cq
    ibv_cmd_destroy_flow
    ibv_cmd_destroy_flow_action
    ibv_cmd_destroy_qp
    ibv_cmd_destroy_rwq_ind_table
    ibv_cmd_destroy_srq
    ibv_cmd_destroy_wq
    ibv_cmd_detach_mcast
    ibv_cmd_free_dm
    ibv_cmd_get_context
    ibv_cmd_modify_cq
    ibv_cmd_modify_flow_action_esp
    ibv_cmd_modify_qp
    ibv_cmd_modify_qp_ex
    ibv_cmd_modify_srq
    ibv_cmd_modify_wq
    ibv_cmd_open_qp
    ibv_cmd_open_xrcd
    ibv_cmd_poll_cq
    ibv_cmd_post_recv
    ibv_cmd_post_send
    ibv_cmd_post_srq_recv
    ibv_cmd_query_context
    ibv_cmd_query_device_any
    ibv_cmd_query_mr
    ibv_cmd_query_port
    ibv_cmd_query_qp
    ibv_cmd_query_srq
    ibv_cmd_read_counters
    ibv_cmd_reg_dm_mr
    ibv_cmd_reg_dmabuf_mr
    ibv_cmd_reg_mr
    ibv_cmd_req_notify_cq
    ibv_cmd_rereg_mr
    ibv_cmd_resize_cq
    ibv_read_ibdev_sysfs_file
}

// Whether a device may be closed by force when it disappears: a bool that providers read.
core::arch::global_asm!(
    ".pushsection .bss.ferroce_allow_disassociate_destroy, \"aw\", %nobits",
    ".globl ferroce_allow_disassociate_destroy",
    ".type ferroce_allow_disassociate_destroy, %object",
    ".size ferroce_allow_disassociate_destroy, 1",
    "ferroce_allow_disassociate_destroy:",
    ".zero 1",
    ".symver ferroce_allow_disassociate_destroy, verbs_allow_disassociate_destroy@@IBVERBS_PRIVATE_34",
    ".popsection",
);
