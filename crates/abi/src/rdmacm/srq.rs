//! Shared receive queues of identifiers.

use crate::object::{inherited_minus_one, refuse_inherited};
use std::ffi::c_int;
use std::ptr;

use ferroce_nic::Error;

use super::device;
use super::id::Id;
use super::qp::{destroy_cqs, own_recv_cq};
use super::types::rdma_cm_id;
use crate::errno::{errno, invalid, result_as_minus_one};
use crate::types::{
    IBV_QPT_XRC_RECV, IBV_SRQ_INIT_ATTR_CQ, IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE,
    IBV_SRQ_INIT_ATTR_XRCD, IBV_SRQT_BASIC, IBV_SRQT_XRC, ibv_pd, ibv_srq, ibv_srq_init_attr,
    ibv_srq_init_attr_ex,
};
use crate::verbs::{create_srq_ex, ibv_destroy_srq};

/// Keeps a new queue on the identifier.
fn keep(id: Id<'_>, srq: *mut ibv_srq, pd: *mut ibv_pd) -> Result<(), Error> {
    if srq.is_null() {
        return Err(Error::new(errno(), "ibv_create_srq failed"));
    }
    id.set_srq(srq);
    id.set_pd(pd);
    Ok(())
}

/// The identifier, if it can get a queue on this protection domain, and the domain: its device's
/// default one for NULL.
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
        // SAFETY: the queue belongs to the identifier, and the caller of the C function gives it
        // up.
        unsafe { ibv_destroy_srq(srq) };
    }
    if id.qp().is_null() {
        destroy_cqs(id);
    }
}

/// Makes a queue; one of an XRC target's identifier is for XRC. What the long attributes lack comes
/// from the identifier.
///
/// # Safety
/// `id` is NULL or live; what the attributes point to is live.
unsafe fn create(id: *mut rdma_cm_id, attr: &mut ibv_srq_init_attr_ex) -> Result<(), Error> {
    let pd = if attr.comp_mask & IBV_SRQ_INIT_ATTR_PD == 0 {
        ptr::null_mut()
    } else {
        attr.pd
    };
    // SAFETY: the caller's pointers.
    let (id, pd) = unsafe { ready(id, pd)? };
    attr.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
    attr.pd = pd;
    if attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE != 0 && attr.srq_type == IBV_SRQT_XRC {
        complete_xrc(id, attr)?;
    }
    // SAFETY: the domain's context is live, and so is what the attributes point to.
    let srq = unsafe { create_srq_ex((*pd).context, &raw mut *attr) };
    keep(id, srq, pd)
}

/// Domain and completion queue of an XRC receive queue.
fn complete_xrc(id: Id<'_>, attr: &mut ibv_srq_init_attr_ex) -> Result<(), Error> {
    let verbs = id.bound_verbs()?;
    if attr.comp_mask & IBV_SRQ_INIT_ATTR_XRCD == 0 || attr.xrcd.is_null() {
        attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
        attr.xrcd = device::xrc_domain(verbs)?;
    }
    if attr.comp_mask & IBV_SRQ_INIT_ATTR_CQ == 0 || attr.cq.is_null() {
        attr.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
        attr.cq = own_recv_cq(id, verbs, attr.attr.max_wr)?;
    }
    Ok(())
}

/// `rdma_create_srq(3)`
pub unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    if attr.is_null() {
        return result_as_minus_one("rdma_create_srq", Err(invalid("no attributes were given")));
    }
    // SAFETY: the caller's pointers; the attributes are read and changed only here during the call.
    let result = unsafe {
        let short = attr.read();
        let mut full = ibv_srq_init_attr_ex {
            srq_context: short.srq_context,
            attr: short.attr,
            comp_mask: IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
            srq_type: kind(id),
            pd,
            ..ibv_srq_init_attr_ex::zeroed()
        };
        create(id, &mut full).map(|()| (*attr).attr = full.attr)
    };
    result_as_minus_one("rdma_create_srq", result)
}

/// The type of receive queue that goes with an identifier.
///
/// # Safety
/// `id` is NULL or live.
unsafe fn kind(id: *mut rdma_cm_id) -> u32 {
    // SAFETY: the caller's pointer.
    match unsafe { Id::new(id) } {
        Ok(id) if id.qp_type() == IBV_QPT_XRC_RECV => IBV_SRQT_XRC,
        _ => IBV_SRQT_BASIC,
    }
}

/// `rdma_create_srq_ex`: as [`rdma_create_srq`], with the long attributes.
pub unsafe extern "C" fn rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_srq_init_attr_ex,
) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    if attr.is_null() {
        return result_as_minus_one(
            "rdma_create_srq_ex",
            Err(invalid("no attributes were given")),
        );
    }
    // SAFETY: the caller's pointers; the attributes are read and changed only here during the call.
    let result = unsafe { create(id, &mut *attr) };
    result_as_minus_one("rdma_create_srq_ex", result)
}

/// `rdma_destroy_srq(3)`
pub unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    refuse_inherited!(id);
    // SAFETY: the caller's pointer.
    if let Ok(id) = unsafe { Id::new(id) } {
        destroy_on(id);
    }
}
