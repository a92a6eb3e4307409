//! Shared receive queues.

use libc::{c_void, pthread_cond_t, pthread_mutex_t};

use super::{ibv_context, ibv_cq, ibv_pd, ibv_xrcd};
use crate::layout::c_structs;

c_structs! { SRQ_LAYOUTS;
    /// A shared receive queue.
    struct ibv_srq {
        context: *mut ibv_context,
        srq_context: *mut c_void,
        pd: *mut ibv_pd,
        handle: u32,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        events_completed: u32,
    }

    /// Sizes and limit.
    struct ibv_srq_attr {
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
    }

    /// What `ibv_create_srq` asks for.
    struct ibv_srq_init_attr {
        srq_context: *mut c_void,
        attr: ibv_srq_attr,
    }

    /// Tag matching sizes.
    struct ibv_tm_cap {
        max_num_tags: u32,
        max_ops: u32,
    }

    /// What `ibv_create_srq_ex` asks for.
    struct ibv_srq_init_attr_ex {
        srq_context: *mut c_void,
        attr: ibv_srq_attr,
        comp_mask: u32,
        srq_type: u32,
        pd: *mut ibv_pd,
        xrcd: *mut ibv_xrcd,
        cq: *mut ibv_cq,
        tm_cap: ibv_tm_cap,
    }
}
