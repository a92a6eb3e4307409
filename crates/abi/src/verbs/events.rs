//! Asynchronous events.

use crate::object::{inherited_minus_one, refuse_inherited};
use std::ffi::c_int;
use std::ptr;

use ferroce_nic::objects::device::AsyncSubject;
use ferroce_proto::verbs::AsyncEvent;

use super::{context, cq, qp, srq, wait};
use crate::types::{
    ibv_async_event, ibv_async_event_element, ibv_context, ibv_cq, ibv_qp, ibv_srq,
};

/// `ibv_get_async_event(3)`.
pub unsafe extern "C" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    refuse_inherited!(context, inherited_minus_one());
    loop {
        // SAFETY: a live context.
        if wait::take_one(unsafe { (*context).async_fd }).is_err() {
            return -1;
        }
        // SAFETY: a live context.
        if let Some(next) = unsafe { deliver(context) } {
            // SAFETY: `event` points to room for an event.
            unsafe { ptr::write(event, next) };
            return 0;
        }
    }
}

/// Takes the oldest event and counts it as delivered. `None` if the object that it was about is
/// being destroyed.
///
/// # Safety
/// `context` is live.
unsafe fn deliver(context: *mut ibv_context) -> Option<ibv_async_event> {
    // SAFETY: the caller's promise.
    let private = unsafe { context::private(context) };
    let _delivery = private.delivery();
    let (kind, subject) = private.nic().pop_async_event()?;
    let element = match subject {
        AsyncSubject::Cq(cookie) => {
            let cq = ptr::with_exposed_provenance_mut::<ibv_cq>(cookie);
            // SAFETY: destroying the queue removes its events under the lock held here, so it is
            // still there.
            unsafe { cq::private(cq) }.async_acks.deliver();
            ibv_async_event_element { cq }
        }
        AsyncSubject::Qp(cookie) => {
            let qp = ptr::with_exposed_provenance_mut::<ibv_qp>(cookie);
            // SAFETY: `ibv_destroy_qp` removes the queue pair's events under the lock held here,
            // and this event was there still: so is the queue pair.
            unsafe { qp::private(qp) }.acks.deliver();
            ibv_async_event_element { qp }
        }
        AsyncSubject::Srq(cookie) => {
            let srq = ptr::with_exposed_provenance_mut::<ibv_srq>(cookie);
            // SAFETY: `ibv_destroy_srq` removes the queue's events under the lock held here, and
            // this event was there still: so is the queue.
            unsafe { srq::private(srq) }.acks.deliver();
            ibv_async_event_element { srq }
        }
        AsyncSubject::Port(port) => ibv_async_event_element {
            port_num: port.into(),
        },
        AsyncSubject::Device => ibv_async_event_element { port_num: 0 },
    };
    // The element's unused bytes must not be garbage: a port number fills only half of it.
    let mut event = ibv_async_event::zeroed();
    event.element = element;
    event.event_type = kind as u32;
    Some(event)
}

/// `ibv_ack_async_event(3)`.
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: an event that `ibv_get_async_event` filled.
    let event = unsafe { *event };
    if event.event_type == AsyncEvent::CqErr as u32 {
        // SAFETY: events of this type are about a completion queue, which waits for this
        // acknowledgement before it goes.
        unsafe { cq::private(event.element.cq) }
            .async_acks
            .acknowledge(1);
    } else if is_about_srq(event.event_type) {
        // SAFETY: events of this type are about a shared receive queue, which waits for this
        // acknowledgement before it goes.
        unsafe { srq::private(event.element.srq) }
            .acks
            .acknowledge(1);
    } else if is_about_qp(event.event_type) {
        // SAFETY: events of this type are about a queue pair, which waits for this acknowledgement
        // before it goes.
        unsafe { qp::private(event.element.qp) }.acks.acknowledge(1);
    }
}

/// Whether events of this type carry a shared receive queue.
fn is_about_srq(event_type: u32) -> bool {
    [AsyncEvent::SrqErr, AsyncEvent::SrqLimitReached]
        .iter()
        .any(|&e| e as u32 == event_type)
}

/// Whether events of this type carry a queue pair.
fn is_about_qp(event_type: u32) -> bool {
    AsyncEvent::OF_QPS.iter().any(|&e| e as u32 == event_type)
}
