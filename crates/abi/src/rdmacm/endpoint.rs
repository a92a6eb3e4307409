//! Endpoints: an identifier that is resolved or bound, and has its queue pair, in one call.

use crate::object::{inherited_minus_one, refuse_inherited};
use std::ffi::c_int;

use ferroce_nic::Error;

use super::id::Id;
use super::types::{
    RAI_PASSIVE, RDMA_CM_EVENT_CONNECT_REQUEST, rdma_addrinfo, rdma_cm_event, rdma_cm_id,
};
use super::{lifecycle, lock, path, qp, resolve, srq, sync};
use crate::errno::{invalid, result_as_minus_one};
use crate::types::{ibv_pd, ibv_qp_init_attr};

/// Time allowed for the resolution of an address, and again for that of a route.
const RESOLUTION_MS: c_int = 2000;

/// With what the queue pairs of a passive endpoint's connections are made.
#[derive(Clone, Copy)]
pub(super) struct RequestQp {
    pd: *mut ibv_pd,
    attr: ibv_qp_init_attr,
}

/// Binds or resolves a new endpoint.
///
/// # Safety
/// All pointers are NULL (except `res`) or live.
unsafe fn set_up(
    id: *mut rdma_cm_id,
    res: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Result<(), Error> {
    // The queue pair is of the kind that the address information promises.
    let qp_type = u32::try_from(res.ai_qp_type).map_err(|_| invalid("ai_qp_type is negative"))?;
    if !attr.is_null() {
        // SAFETY: the caller's attributes.
        unsafe { (*attr).qp_type = qp_type };
    }
    // SAFETY: the identifier was made by the caller.
    let endpoint = unsafe { Id::new(id)? };
    if res.ai_flags & RAI_PASSIVE != 0 {
        // SAFETY: the caller's address.
        unsafe { resolve::bind(id, res.ai_src_addr)? };
        if !attr.is_null() {
            // SAFETY: the caller's attributes.
            let attr = unsafe { attr.read() };
            lock(endpoint.settings()).request_qp = Some(RequestQp { pd, attr });
        }
        return Ok(());
    }
    // SAFETY: the caller's addresses.
    unsafe { resolve::resolve_addr(id, res.ai_src_addr, res.ai_dst_addr, RESOLUTION_MS)? };
    if res.ai_route.is_null() {
        // SAFETY: the identifier is live.
        unsafe { resolve::resolve_route(id, RESOLUTION_MS)? };
    } else {
        // SAFETY: the caller's buffer has that many bytes.
        unsafe { path::set(endpoint, res.ai_route, res.ai_route_len)? };
    }
    if !res.ai_connect.is_null() && res.ai_connect_len > 0 {
        // SAFETY: the caller's buffer has that many bytes.
        let data =
            unsafe { std::slice::from_raw_parts(res.ai_connect.cast::<u8>(), res.ai_connect_len) };
        lock(endpoint.settings()).connect_prefix = data.to_vec();
    }
    if attr.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's protection domain and attributes.
    unsafe { qp::create(id, pd, attr) }
}

/// Makes an endpoint; it is synchronous.
///
/// # Safety
/// All pointers are NULL or live.
unsafe fn create(
    res: *const rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Result<*mut rdma_cm_id, Error> {
    if res.is_null() {
        return Err(invalid("no address information was given"));
    }
    // SAFETY: the caller's address information; nobody changes it during the call.
    let res = unsafe { &*res };
    let number = |value: c_int| {
        u32::try_from(value)
            .map_err(|_| invalid(format!("{value} in the address information is negative")))
    };
    let (ps, qp_type) = (number(res.ai_port_space)?, number(res.ai_qp_type)?);
    // SAFETY: no channel is given.
    let id = unsafe { lifecycle::create(std::ptr::null_mut(), std::ptr::null_mut(), ps, qp_type)? };
    // SAFETY: the caller's pointers, and the identifier made above.
    let result = unsafe { set_up(id, res, pd, attr) };
    if let Err(e) = result {
        // SAFETY: the identifier was made above and the program never saw it.
        unsafe { destroy(id) }?;
        return Err(e);
    }
    Ok(id)
}

/// Destroys an endpoint with its queue pair and shared receive queue.
///
/// # Safety
/// `id` is NULL or a live identifier that the caller hands over.
unsafe fn destroy(id: *mut rdma_cm_id) -> Result<(), Error> {
    // SAFETY: the caller's pointer.
    let endpoint = unsafe { Id::new(id)? };
    qp::destroy_on(endpoint);
    srq::destroy_on(endpoint);
    // SAFETY: the caller hands the identifier over.
    unsafe { lifecycle::destroy(id) }
}

/// Makes a fetched event's new connection a synchronous identifier, with a queue pair if the
/// listener's endpoint was made with attributes for one.
///
/// # Safety
/// `event` is live and was fetched from the listener's channel.
unsafe fn take_connection(
    listen: Id<'_>,
    event: *mut rdma_cm_event,
) -> Result<*mut rdma_cm_id, Error> {
    // SAFETY: the caller's event.
    let (kind, id) = unsafe {
        sync::outcome(event)?;
        ((*event).event, (*event).id)
    };
    if kind != RDMA_CM_EVENT_CONNECT_REQUEST {
        return Err(invalid(format!(
            "event {kind} came where a connect request was awaited"
        )));
    }
    let request_qp = lock(listen.settings()).request_qp;
    let result = request_qp
        // SAFETY: the new identifier is live; domain and attributes are those that the program gave
        // for it.
        .map_or(Ok(()), |RequestQp { pd, mut attr }| unsafe {
            qp::create(id, pd, &raw mut attr)
        })
        // SAFETY: the new identifier is live.
        .and_then(|()| unsafe { lifecycle::migrate(id, std::ptr::null_mut()) });
    match result {
        // SAFETY: the new identifier is live.
        Ok(()) => unsafe { Id::new(id) }.map(|new| {
            new.set_event(event);
            id
        }),
        Err(e) => {
            // SAFETY: the program never saw the new identifier. Its end rejects the request.
            unsafe { destroy(id) }?;
            Err(e)
        }
    }
}

/// Waits for a connect request on a synchronous listener.
///
/// # Safety
/// `listen` is NULL or live.
unsafe fn request(listen: *mut rdma_cm_id) -> Result<*mut rdma_cm_id, Error> {
    // SAFETY: the caller's pointer.
    let listen = unsafe { Id::new(listen)? };
    if !listen.is_sync() {
        return Err(invalid(
            "the listener reports to an event channel: its requests come as events",
        ));
    }
    let event = sync::next_event(listen)?;
    // SAFETY: the event was fetched just now.
    let result = unsafe { take_connection(listen, event) };
    if result.is_err() {
        // Acknowledged by the next call on the listener.
        listen.set_event(event);
    }
    result
}

/// `rdma_create_ep(3)`
pub unsafe extern "C" fn rdma_create_ep(
    id: *mut *mut rdma_cm_id,
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    refuse_inherited!(pd, inherited_minus_one());
    let result = if id.is_null() {
        Err(invalid("no place for the identifier was given"))
    } else {
        // SAFETY: the caller's pointers.
        unsafe { create(res, pd, qp_init_attr).map(|new| id.write(new)) }
    };
    result_as_minus_one("rdma_create_ep", result)
}

/// `rdma_destroy_ep(3)`
pub unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    refuse_inherited!(id);
    // SAFETY: the caller hands the identifier over.
    result_as_minus_one("rdma_destroy_ep", unsafe { destroy(id) });
}

/// `rdma_get_request(3)`
pub unsafe extern "C" fn rdma_get_request(
    listen: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    refuse_inherited!(listen, inherited_minus_one());
    let result = if id.is_null() {
        Err(invalid("no place for the identifier was given"))
    } else {
        // SAFETY: the caller's pointers.
        unsafe { request(listen).map(|new| id.write(new)) }
    };
    result_as_minus_one("rdma_get_request", result)
}
