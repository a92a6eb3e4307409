//! A completion queue for all work of an endpoint, with the channel of its events.

use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr;

use ferroce_os::fd::set_nonblocking;
use libc::{c_int, c_void};

use super::errno::{Errno, Result};
use crate::types::{ibv_comp_channel, ibv_context, ibv_cq, ibv_wc};
use crate::verbs::{
    ibv_ack_cq_events, ibv_create_comp_channel, ibv_create_cq, ibv_destroy_comp_channel,
    ibv_destroy_cq, ibv_get_cq_event, poll_cq, req_notify_cq,
};

/// See the module's documentation. Its users are destroyed before it.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    channel: *mut ibv_comp_channel,
    cq: *mut ibv_cq,
}

// SAFETY: verbs may be called on objects from any thread.
unsafe impl Send for CompletionQueue {}
// SAFETY: verbs lock what they use.
unsafe impl Sync for CompletionQueue {}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: made in `new` and destroyed only here, the user before the used.
        unsafe {
            ibv_destroy_cq(self.cq);
            ibv_destroy_comp_channel(self.channel);
        }
    }
}

impl CompletionQueue {
    /// Creates a completion queue of at least `entries` entries, whose channel does not block.
    ///
    /// # Safety
    /// `context` is live until this is dropped.
    pub(super) unsafe fn new(context: *mut ibv_context, entries: u32) -> Result<Self> {
        let entries = c_int::try_from(entries).map_err(|_| Errno(libc::EINVAL))?;
        // SAFETY: the caller's promise.
        let channel = unsafe { ibv_create_comp_channel(context) };
        if channel.is_null() {
            return Err(Errno::last());
        }
        // SAFETY: a live context and channel.
        let cq = unsafe { ibv_create_cq(context, entries, ptr::null_mut(), channel, 0) };
        if cq.is_null() {
            let error = Errno::last();
            // SAFETY: made above.
            unsafe { ibv_destroy_comp_channel(channel) };
            return Err(error);
        }
        let queue = Self { channel, cq };
        set_nonblocking(queue.fd()).map_err(|_| Errno::last())?;
        Ok(queue)
    }

    /// For queue pairs.
    pub(super) fn as_ptr(&self) -> *mut ibv_cq {
        self.cq
    }

    /// Readable while the armed queue has news.
    pub(super) fn fd(&self) -> RawFd {
        // SAFETY: live as long as `self`.
        unsafe { (*self.channel).fd }
    }

    /// Has the next completion make the descriptor readable.
    pub(super) fn arm(&self) {
        // SAFETY: live as long as `self`.
        unsafe { req_notify_cq(self.cq, 0) };
    }

    /// Takes the events. Returns whether there was any.
    pub(super) fn take_events(&self) -> bool {
        let mut taken = 0;
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut::<c_void>());
        // SAFETY: live as long as `self`; the channel does not block, and has one queue.
        while unsafe { ibv_get_cq_event(self.channel, &raw mut cq, &raw mut context) } == 0 {
            taken += 1;
        }
        if taken > 0 {
            // SAFETY: the queue is live, and `taken` of its events were taken.
            unsafe { ibv_ack_cq_events(self.cq, taken) };
        }
        taken > 0
    }

    /// Takes completions into `room`, as many as it has room for. `None` if the queue has failed.
    pub(super) fn poll<'w>(&self, room: &'w mut [MaybeUninit<ibv_wc>]) -> Option<&'w [ibv_wc]> {
        let most = c_int::try_from(room.len()).unwrap_or(c_int::MAX);
        // SAFETY: the queue is live, and there is room for `most` entries.
        let polled = unsafe { poll_cq(self.cq, most, room.as_mut_ptr().cast()) };
        let polled = usize::try_from(polled).ok()?;
        // SAFETY: the call has filled the first `polled` entries.
        Some(unsafe { std::slice::from_raw_parts(room.as_ptr().cast(), polled) })
    }
}
