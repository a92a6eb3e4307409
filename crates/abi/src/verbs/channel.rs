//! Completion channels and completion events.

use crate::object::{self, Handle, inherited_minus_one, refuse_inherited};
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferroce_nic::{CompChannel, Error};
use libc::c_void;

use super::{context, cq};
use crate::errno::{as_errno, result_as_null, set_errno};
use crate::types::{ibv_comp_channel, ibv_context, ibv_cq};

/// What follows `struct ibv_comp_channel`.
pub(crate) struct CompChannelPrivate {
    nic: Arc<CompChannel>,
    /// Completion queues attached to it.
    cqs: AtomicUsize,
    /// As [`context::ContextPrivate::delivery`], for completion events.
    delivery: Mutex<()>,
}

impl Handle for ibv_comp_channel {
    type Public = Self;
    type Private = CompChannelPrivate;
}

impl CompChannelPrivate {
    /// The device's side.
    pub(crate) fn nic(&self) -> &Arc<CompChannel> {
        &self.nic
    }

    /// A completion queue was attached.
    pub(crate) fn adopt(&self) {
        self.cqs.fetch_add(1, Ordering::Relaxed);
    }

    /// A completion queue is gone. What was done with the channel before comes before its end in
    /// another thread.
    pub(crate) fn release(&self) {
        self.cqs.fetch_sub(1, Ordering::Release);
    }

    /// Keeps out the delivery of events while held.
    fn delivery(&self) -> MutexGuard<'_, ()> {
        self.delivery.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes sure that no event of a queue that is being destroyed appears any more.
    pub(crate) fn forget(&self, cookie: usize) {
        let _delivery = self.delivery();
        self.nic.forget(cookie);
    }
}

/// This library's part of a channel.
///
/// # Safety
/// `channel` is live until the end of `'a`.
pub(crate) unsafe fn private<'a>(channel: *mut ibv_comp_channel) -> &'a CompChannelPrivate {
    // SAFETY: the caller's promise.
    unsafe { object::private(channel) }
}

/// `ibv_create_comp_channel(3)`.
pub unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    refuse_inherited!(context);
    // SAFETY: a live context.
    let nic = CompChannel::new(unsafe { context::private(context) }.nic());
    result_as_null(
        "ibv_create_comp_channel",
        nic.map(|nic| {
            let public = ibv_comp_channel {
                context,
                fd: nic.fd(),
                refcnt: 0,
            };
            object::create(
                public,
                CompChannelPrivate {
                    nic,
                    cqs: AtomicUsize::new(0),
                    delivery: Mutex::default(),
                },
            )
        }),
    )
}

/// `ibv_destroy_comp_channel(3)`.
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    refuse_inherited!(channel);
    // SAFETY: a live channel.
    let cqs = unsafe { private(channel) }.cqs.load(Ordering::Acquire);
    if cqs > 0 {
        let reason = format!("{cqs} completion queues still use the channel");
        return as_errno("ibv_destroy_comp_channel", &Error::new(libc::EBUSY, reason));
    }
    // SAFETY: nothing refers to it.
    drop(unsafe { object::take(channel) });
    0
}

/// `ibv_get_cq_event(3)`: sleeps as in `read(2)` on the channel's descriptor.
pub unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    refuse_inherited!(channel, inherited_minus_one());
    loop {
        // A thread that is cancelled here leaves nothing behind: it borrows the channel only.
        // SAFETY: a live channel.
        if let Err(error) = unsafe { private(channel) }.nic.take_count() {
            set_errno(error.raw_os_error().unwrap_or(libc::EAGAIN));
            return -1;
        }
        // SAFETY: a live channel.
        if let Some(ready) = unsafe { deliver(channel) } {
            // SAFETY: room for both; the queue waits for the acknowledgement of this event before
            // it goes.
            unsafe {
                *cq = ready;
                *cq_context = (*ready).cq_context;
            }
            return 0;
        }
    }
}

/// Takes the oldest event and counts it as delivered. `None` if its queue is being destroyed.
///
/// # Safety
/// `channel` is live.
unsafe fn deliver(channel: *mut ibv_comp_channel) -> Option<*mut ibv_cq> {
    // SAFETY: the caller's promise.
    let private = unsafe { private(channel) };
    let _delivery = private.delivery();
    let cq = ptr::with_exposed_provenance_mut::<ibv_cq>(private.nic.pop()?);
    // SAFETY: destroying the queue removes its events under the lock held here, so it is still
    // there.
    unsafe { cq::private(cq) }.comp_acks.deliver();
    Some(cq)
}

/// `ibv_ack_cq_events(3)`.
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: u32) {
    refuse_inherited!(cq);
    // SAFETY: a live queue: it waits for this acknowledgement before it goes.
    unsafe { cq::private(cq) }
        .comp_acks
        .acknowledge(nevents.into());
}
