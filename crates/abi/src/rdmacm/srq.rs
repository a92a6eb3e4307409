//! Shared receive queues of identifiers.

use std::ffi::c_int;
use std::ptr;

use ferroce_nic::Error;

use super::id::Id;
use super::qp::destroy_cqs;
use super::types::rdma_cm_id;
use crate::errno::{errno, invalid, result_as_minus_one};
use crate::types::{ibv_pd, ibv_srq, ibv_srq_init_attr, ibv_srq_init_attr_ex};
use crate::verbs::{create_srq_ex, ibv_create_srq, ibv_destroy_srq};

/// Bit of `ibv_srq_init_attr_ex.comp_mask`: `pd` is set.
const PD: u32 = 1 << 1;

/// Keeps a new queue on the identifier.
fn keep(id: Id<'_>, srq: *mut ibv_srq, pd: *mut ibv_pd) -> Result<(), Error> {
    if srq.is_null() {
        return Err(Error::new(errno(), "ibv_create_srq failed"));
    }
    id.set_srq(srq);
    id.set_pd(pd);
    Ok(())
}

/// The identifier, if it can get a queue on this protection domain, and the domain: its device's default one for NULL.
///
/// # Safety
/// `id` and `pd` are NULL or live.
unsafe fn ready<'a>(id: *mut rdma_cm_id, pd: *mut ibv_pd) -> Result<(Id<'a>, *mut ibv_pd), Error> {
    // SAFETY: the caller's pointer.
    let id = unsafe { Id::new(id)? };
    if !id.srq().is_null() {
        return Err(invalid("the identifier has a shared receive queue already"));
    }
    let verbs = id.bound_verbs()?;
    let pd = if pd.is_null() { id.pd() } else { pd };
    // SAFETY: the caller's protection domain or the device's default one.
    if unsafe { (*pd).context } != verbs {
        return Err(invalid(
            "the protection domain is not of the identifier's context (id->verbs)",
        ));
    }
    Ok((id, pd))
}

/// Destroys the identifier's shared receive queue.
pub(super) fn destroy_on(id: Id<'_>) {
    let srq = id.srq();
    if !srq.is_null() {
        id.set_srq(ptr::null_mut());
        // SAFETY: the queue belongs to the identifier, and the caller of the C function gives it up.
        unsafe { ibv_destroy_srq(srq) };
    }
    if id.qp().is_null() {
        destroy_cqs(id);
    }
}

/// `rdma_create_srq(3)`
pub unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    // SAFETY: the caller's pointers.
    let result =
        unsafe { ready(id, pd).and_then(|(id, pd)| keep(id, ibv_create_srq(pd, attr), pd)) };
    result_as_minus_one("rdma_create_srq", result)
}

/// `rdma_create_srq_ex`: as [`rdma_create_srq`], with the long attributes.
pub unsafe extern "C" fn rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_srq_init_attr_ex,
) -> c_int {
    if attr.is_null() {
        return result_as_minus_one(
            "rdma_create_srq_ex",
            Err(invalid("no attributes were given")),
        );
    }
    // SAFETY: the caller's pointers; the attributes are read and changed only here during the call.
    let result = unsafe {
        let pd = if (*attr).comp_mask & PD == 0 {
            ptr::null_mut()
        } else {
            (*attr).pd
        };
        ready(id, pd).and_then(|(id, pd)| {
            (*attr).comp_mask |= PD;
            (*attr).pd = pd;
            keep(id, create_srq_ex((*pd).context, attr), pd)
        })
    };
    result_as_minus_one("rdma_create_srq_ex", result)
}

/// `rdma_destroy_srq(3)`
pub unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    // SAFETY: the caller's pointer.
    if let Ok(id) = unsafe { Id::new(id) } {
        destroy_on(id);
    }
}
