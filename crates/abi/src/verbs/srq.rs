//! Shared receive queues, which this device does not have yet.

use std::ffi::c_int;

use crate::errno::{as_errno, as_null, unbuilt};
use crate::types::{
    ibv_context, ibv_pd, ibv_recv_wr, ibv_srq, ibv_srq_attr, ibv_srq_init_attr,
    ibv_srq_init_attr_ex,
};

const WHAT: &str = "a shared receive queue";

/// `ibv_create_srq(3)`.
pub unsafe extern "C" fn ibv_create_srq(
    _pd: *mut ibv_pd,
    _attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    as_null("ibv_create_srq", &unbuilt(WHAT))
}

/// `ibv_modify_srq(3)`.
pub unsafe extern "C" fn ibv_modify_srq(
    _srq: *mut ibv_srq,
    _attr: *mut ibv_srq_attr,
    _attr_mask: c_int,
) -> c_int {
    as_errno("ibv_modify_srq", &unbuilt(WHAT))
}

/// `ibv_query_srq(3)`.
pub unsafe extern "C" fn ibv_query_srq(_srq: *mut ibv_srq, _attr: *mut ibv_srq_attr) -> c_int {
    as_errno("ibv_query_srq", &unbuilt(WHAT))
}

/// `ibv_destroy_srq(3)`.
pub unsafe extern "C" fn ibv_destroy_srq(_srq: *mut ibv_srq) -> c_int {
    as_errno("ibv_destroy_srq", &unbuilt(WHAT))
}

/// `ibv_post_srq_recv(3)`.
pub(crate) unsafe extern "C" fn post_srq_recv(
    _srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    if !bad_wr.is_null() {
        // SAFETY: room for the refused work request.
        unsafe { *bad_wr = wr };
    }
    as_errno("ibv_post_srq_recv", &unbuilt(WHAT))
}

/// `ibv_create_srq_ex(3)`.
pub(crate) unsafe extern "C" fn create_srq_ex(
    _context: *mut ibv_context,
    _attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    as_null("ibv_create_srq_ex", &unbuilt(WHAT))
}
