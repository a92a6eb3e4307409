//! Symbols for programs and providers' libraries that were built before 2008. The structures of
//! version 1.0 have another layout, and so had the interface of providers. A program of that time
//! is told that there is no device, so it has nothing to pass to the other functions.

use ferroce_abi::verbs::provider::{
    ignore, no_devices_of_version_1_0, refuse_with_errno, refuse_with_null,
};

exports_old! { "IBVERBS_1.0" as no_devices_of_version_1_0:
    ibv_get_device_list
}

exports_old! { "IBVERBS_1.0" as refuse_with_null:
    ibv_alloc_pd
    ibv_create_ah
    ibv_create_cq
    ibv_create_qp
    ibv_create_srq
    ibv_get_device_guid
    ibv_get_device_name
    ibv_open_device
    ibv_reg_mr
}

exports_old! { "IBVERBS_1.0" as ignore:
    ibv_ack_async_event
    ibv_ack_cq_events
    ibv_free_device_list
}

exports_old! { "IBVERBS_1.0" as refuse_with_errno:
    ibv_attach_mcast
    ibv_close_device
    ibv_dealloc_pd
    ibv_dereg_mr
    ibv_destroy_ah
    ibv_destroy_cq
    ibv_destroy_qp
    ibv_destroy_srq
    ibv_detach_mcast
    ibv_get_async_event
    ibv_get_cq_event
    ibv_modify_qp
    ibv_modify_srq
    ibv_query_device
    ibv_query_gid
    ibv_query_pkey
    ibv_query_port
    ibv_query_qp
    ibv_query_srq
    ibv_resize_cq
}

exports_old! { "IBVERBS_1.1" as ignore:
    ibv_register_driver
}
