//! Synchronous mode: an identifier made without a channel has one of its own, and its calls block
//! until their event is there.

use std::ptr;

use ferroce_nic::Error;

use super::channel::ChannelRef;
use super::event::{self, rdma_ack_cm_event};
use super::id::Id;
use super::types::{RDMA_CM_EVENT_REJECTED, rdma_cm_event};
use crate::errno::errno;

/// Acknowledges the event that the last synchronous call left in `id->event`.
pub(super) fn release_event(id: Id<'_>) {
    let event = id.event();
    if !event.is_null() {
        id.set_event(ptr::null_mut());
        // SAFETY: only this library puts events there, fetched and not acknowledged.
        unsafe { rdma_ack_cm_event(event) };
    }
}

/// Fetches the next event of a synchronous identifier's channel. A cancellation point.
///
/// # Errors
/// EINTR after a signal.
pub(super) fn next_event(id: Id<'_>) -> Result<*mut rdma_cm_event, Error> {
    release_event(id);
    let channel = ChannelRef::new(id.channel())?;
    event::fetch(channel).map_err(|()| Error::new(errno(), "waiting for the event was interrupted"))
}

/// The error that a synchronous call makes of its event.
///
/// # Errors
/// ECONNREFUSED if the peer rejected; else the event's status, if it has one.
///
/// # Safety
/// `event` is live.
pub(super) unsafe fn outcome(event: *const rdma_cm_event) -> Result<(), Error> {
    // SAFETY: the caller's event.
    let (kind, status) = unsafe { ((*event).event, (*event).status) };
    match (kind, status) {
        (_, 0) => Ok(()),
        (RDMA_CM_EVENT_REJECTED, reason) => Err(Error::new(
            libc::ECONNREFUSED,
            format!("the peer rejected, reason {reason}"),
        )),
        (kind, status) => Err(Error::new(
            status.saturating_abs(),
            format!("event {kind} came with status {status}"),
        )),
    }
}

/// Ends a call that causes an event: in synchronous mode waits for it and keeps it in `id->event`.
///
/// # Errors
/// As [`next_event`] and [`outcome`].
pub(super) fn await_event(id: Id<'_>) -> Result<(), Error> {
    if !id.is_sync() {
        return Ok(());
    }
    let event = next_event(id)?;
    id.set_event(event);
    // SAFETY: the event was fetched just now.
    unsafe { outcome(event) }
}
