//! Queue pairs of identifiers, with the completion queues that the program did not bring.

use crate::object::{inherited_minus_one, refuse_inherited};
use std::ffi::c_int;
use std::ptr;

use ferroce_nic::Error;

use super::id::Id;
use super::types::rdma_cm_id;
use super::{device, multicast, transition};
use crate::errno::{errno, invalid, result_as_minus_one};
use crate::types::{
    IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_XRCD, IBV_QPT_UD, IBV_QPT_XRC_RECV, ibv_comp_channel,
    ibv_context, ibv_cq, ibv_pd, ibv_qp, ibv_qp_init_attr, ibv_qp_init_attr_ex,
};
use crate::verbs::{
    create_qp_ex, ibv_create_comp_channel, ibv_create_cq, ibv_create_qp, ibv_destroy_comp_channel,
    ibv_destroy_cq, ibv_destroy_qp,
};

/// The error of a verb that gave NULL.
fn verb_failed(verb: &str) -> Error {
    Error::new(errno(), format!("{verb} failed"))
}

/// Makes a completion queue with its channel; the identifier comes back with its events.
fn create_cq(
    id: Id<'_>,
    verbs: *mut ibv_context,
    size: u32,
) -> Result<(*mut ibv_comp_channel, *mut ibv_cq), Error> {
    let size = c_int::try_from(size.max(1))
        .map_err(|_| invalid(format!("{size} work requests are too many for a queue")))?;
    // SAFETY: the identifier's context is live.
    let channel = unsafe { ibv_create_comp_channel(verbs) };
    if channel.is_null() {
        return Err(verb_failed("ibv_create_comp_channel"));
    }
    // SAFETY: context and channel are live.
    let cq = unsafe { ibv_create_cq(verbs, size, id.as_ptr().cast(), channel, 0) };
    if cq.is_null() {
        let error = verb_failed("ibv_create_cq");
        // SAFETY: the channel was made above and nobody else knows it.
        unsafe { ibv_destroy_comp_channel(channel) };
        return Err(error);
    }
    Ok((channel, cq))
}

/// The completion queue of the identifier's receives, made with that size if there is none.
pub(super) fn own_recv_cq(
    id: Id<'_>,
    verbs: *mut ibv_context,
    size: u32,
) -> Result<*mut ibv_cq, Error> {
    if id.recv_cq().is_null() {
        let (channel, cq) = create_cq(id, verbs, size)?;
        id.set_recv_cq_channel(channel);
        id.set_recv_cq(cq);
    }
    Ok(id.recv_cq())
}

/// Makes the completion queues that `attr` lacks, unless the identifier has them already.
fn complete_cqs(
    id: Id<'_>,
    verbs: *mut ibv_context,
    attr: &mut ibv_qp_init_attr_ex,
) -> Result<(), Error> {
    if attr.recv_cq.is_null() {
        attr.recv_cq = own_recv_cq(id, verbs, attr.cap.max_recv_wr)?;
    }
    if attr.send_cq.is_null() {
        if id.send_cq().is_null() {
            let (channel, cq) = create_cq(id, verbs, attr.cap.max_send_wr)?;
            id.set_send_cq_channel(channel);
            id.set_send_cq(cq);
        }
        attr.send_cq = id.send_cq();
    }
    Ok(())
}

/// Destroys the identifier's completion queues with their channels. A program may have put its own
/// there, one for both directions (librdmacm's rsockets do): it is destroyed once, as there.
pub(super) fn destroy_cqs(id: Id<'_>) {
    let (recv_cq, send_cq) = (id.recv_cq(), id.send_cq());
    let (recv_channel, send_channel) = (id.recv_cq_channel(), id.send_cq_channel());
    id.set_recv_cq(ptr::null_mut());
    id.set_recv_cq_channel(ptr::null_mut());
    id.set_send_cq(ptr::null_mut());
    id.set_send_cq_channel(ptr::null_mut());
    for cq in distinct(recv_cq, send_cq) {
        // SAFETY: the identifier's, whose queue pair is gone, and destroyed once.
        unsafe { ibv_destroy_cq(cq) };
    }
    for channel in distinct(recv_channel, send_channel) {
        // SAFETY: the identifier's, whose completion queues are gone, and destroyed once.
        unsafe { ibv_destroy_comp_channel(channel) };
    }
}

/// The objects behind two pointers, without NULL, each once.
fn distinct<T>(one: *mut T, other: *mut T) -> impl Iterator<Item = *mut T> {
    let other = if one == other { ptr::null_mut() } else { other };
    [one, other].into_iter().filter(|object| !object.is_null())
}

/// Calls the verb that fits the attributes.
fn create_verbs_qp(
    verbs: *mut ibv_context,
    attr: &mut ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp, Error> {
    let qp = if attr.comp_mask == IBV_QP_INIT_ATTR_PD {
        let mut short = attr.short_form();
        // SAFETY: the protection domain is the caller's or the device's default one; the attributes
        // are live.
        let qp = unsafe { ibv_create_qp(attr.pd, &raw mut short) };
        attr.cap = short.cap;
        qp
    } else {
        // SAFETY: the context is live, and so are the attributes and what the caller put into them.
        unsafe { create_qp_ex(verbs, &raw mut *attr) }
    };
    if qp.is_null() {
        Err(verb_failed("ibv_create_qp"))
    } else {
        Ok(qp)
    }
}

/// Makes the identifier's queue pair and moves it to INIT; one for datagrams to RTS.
fn create_on(id: Id<'_>, attr: &mut ibv_qp_init_attr_ex) -> Result<(), Error> {
    if !id.qp().is_null() {
        return Err(invalid("the identifier has a queue pair already"));
    }
    let verbs = id.bound_verbs()?;
    if attr.comp_mask & IBV_QP_INIT_ATTR_PD == 0 || attr.pd.is_null() {
        attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
        attr.pd = id.pd();
    }
    // SAFETY: the protection domain is the caller's or the device's default one.
    if unsafe { (*attr.pd).context } != verbs {
        return Err(invalid(
            "the protection domain is not of the identifier's context (id->verbs)",
        ));
    }
    if attr.srq.is_null() {
        attr.srq = id.srq();
    }
    if attr.qp_type == IBV_QPT_XRC_RECV
        && (attr.comp_mask & IBV_QP_INIT_ATTR_XRCD == 0 || attr.xrcd.is_null())
    {
        attr.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
        attr.xrcd = device::xrc_domain(verbs)?;
    }
    let result = complete_cqs(id, verbs, attr)
        .and_then(|()| create_verbs_qp(verbs, attr))
        .and_then(|qp| {
            id.set_qp(qp);
            if attr.qp_type == IBV_QPT_UD {
                transition::datagram_to_rts(id)
            } else {
                transition::to_init(id)
            }
        });
    match result {
        Ok(()) => id.set_pd(attr.pd),
        Err(_) => destroy_on(id),
    }
    result
}

/// Destroys the identifier's queue pair and what this library made for it.
pub(super) fn destroy_on(id: Id<'_>) {
    let qp = id.qp();
    if !qp.is_null() {
        multicast::detach_all(id);
        id.set_qp(ptr::null_mut());
        // SAFETY: the queue pair belongs to the identifier, and the caller of the C function gives
        // it up.
        unsafe { ibv_destroy_qp(qp) };
    }
    // An XRC receive queue still uses its completion queue, and takes it along when it goes.
    if id.qp_type() != IBV_QPT_XRC_RECV || id.srq().is_null() {
        destroy_cqs(id);
    }
}

/// Makes the identifier's queue pair from the short attributes, and gives the real ones back in
/// them.
///
/// # Errors
/// EINVAL for an identifier without a device or with a queue pair, or a protection domain of
/// another context; else as `ibv_create_qp`.
///
/// # Safety
/// All pointers are NULL or live.
pub(super) unsafe fn create(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Result<(), Error> {
    if attr.is_null() {
        return Err(invalid("no attributes were given"));
    }
    // SAFETY: the caller's pointers.
    let (id, short) = unsafe { (Id::new(id)?, attr.read()) };
    let mut full = ibv_qp_init_attr_ex {
        comp_mask: if pd.is_null() { 0 } else { IBV_QP_INIT_ATTR_PD },
        pd,
        ..short.extended()
    };
    create_on(id, &mut full)?;
    // SAFETY: the caller's pointer.
    unsafe { attr.write(full.short_form()) };
    Ok(())
}

/// As [`create`], from the long attributes.
///
/// # Safety
/// All pointers are NULL or live.
unsafe fn create_ex(id: *mut rdma_cm_id, attr: *mut ibv_qp_init_attr_ex) -> Result<(), Error> {
    if attr.is_null() {
        return Err(invalid("no attributes were given"));
    }
    // SAFETY: the caller's pointers; nobody else uses the attributes during the call.
    unsafe { create_on(Id::new(id)?, &mut *attr) }
}

/// `rdma_create_qp(3)`
pub unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    // SAFETY: the caller's pointers.
    result_as_minus_one("rdma_create_qp", unsafe { create(id, pd, qp_init_attr) })
}

/// `rdma_create_qp_ex`: as [`rdma_create_qp`], with the long attributes.
pub unsafe extern "C" fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    qp_init_attr: *mut ibv_qp_init_attr_ex,
) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    // SAFETY: the caller's pointers.
    result_as_minus_one("rdma_create_qp_ex", unsafe { create_ex(id, qp_init_attr) })
}

/// `rdma_destroy_qp(3)`
pub unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    refuse_inherited!(id);
    // SAFETY: the caller's pointer.
    if let Ok(id) = unsafe { Id::new(id) } {
        destroy_on(id);
    }
}
