//! Verbs that this device does not have: each answers EOPNOTSUPP in the form that its manual page
//! names.

use std::ffi::{c_int, c_void};

use crate::errno::{as_errno, as_minus_one, as_null, unbuilt};
use crate::types::{ibv_context, ibv_dm, ibv_qp};

/// Functions that answer NULL with `errno`, or the positive errno.
macro_rules! refuse {
    ($($vis:vis fn $name:ident($($ty:ty),*) -> $ret:ty = $form:ident($call:literal, $what:literal);)*) => {$(
        #[doc = concat!("`", $call, "`.")]
        $vis unsafe extern "C" fn $name($(_: $ty),*) -> $ret {
            $form($call, &unbuilt($what))
        }
    )*};
}

refuse! {
    // Newer than the interface that this library follows.
    pub fn ibv_dm_export_dmabuf_fd(*mut ibv_dm) -> c_int = as_minus_one("ibv_dm_export_dmabuf_fd", "device memory");
    pub fn _ibv_query_comp_cntr_caps(*mut ibv_context, *mut c_void, usize) -> c_int = as_errno("ibv_query_comp_cntr_caps", "a completion counter");
    pub fn ibv_create_comp_cntr(*mut ibv_context, *mut c_void) -> *mut c_void = as_null("ibv_create_comp_cntr", "a completion counter");
    pub fn ibv_destroy_comp_cntr(*mut c_void) -> c_int = as_errno("ibv_destroy_comp_cntr", "a completion counter");
    pub fn ibv_read_comp_cntr(*mut c_void, *mut u64) -> c_int = as_errno("ibv_read_comp_cntr", "a completion counter");
    pub fn ibv_set_comp_cntr(*mut c_void, u64) -> c_int = as_errno("ibv_set_comp_cntr", "a completion counter");
    pub fn ibv_inc_comp_cntr(*mut c_void, u64) -> c_int = as_errno("ibv_inc_comp_cntr", "a completion counter");
    pub fn ibv_read_err_comp_cntr(*mut c_void, *mut u64) -> c_int = as_errno("ibv_read_err_comp_cntr", "a completion counter");
    pub fn ibv_set_err_comp_cntr(*mut c_void, u64) -> c_int = as_errno("ibv_set_err_comp_cntr", "a completion counter");
    pub fn ibv_inc_err_comp_cntr(*mut c_void, u64) -> c_int = as_errno("ibv_inc_err_comp_cntr", "a completion counter");
    pub fn ibv_qp_attach_comp_cntr(*mut ibv_qp, *mut c_void, *mut c_void) -> c_int = as_errno("ibv_qp_attach_comp_cntr", "a completion counter");
}
