//! Completion queues, each with a completion channel of its own.

use std::ffi::c_int;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferroce_abi::types::{ibv_comp_channel, ibv_cq, ibv_wc};

use super::work::{Outstanding, Owner, Work};
use super::{OpenDevice, Request};
use crate::{Error, Result};

/// Completions that one call takes at most.
const BATCH: usize = 16;

/// A completion queue and its channel.
pub(crate) struct Queue {
    device: Arc<OpenDevice>,
    channel: NonNull<ibv_comp_channel>,
    pub(super) raw: NonNull<ibv_cq>,
    outstanding: Mutex<Outstanding>,
    /// One thread sleeps at a time: an event wakes one.
    sleeper: Mutex<()>,
}

// SAFETY: C's queues and channels may be used by several threads at once.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Queue {
    /// `ibv_create_comp_channel` and `ibv_create_cq`.
    pub(crate) fn new(device: &Arc<OpenDevice>, entries: u32) -> Result<Arc<Self>> {
        let entries = c_int::try_from(entries)
            .map_err(|_| Error::Misuse("a completion queue of this size is impossible"))?;
        let verbs = device.verbs;
        // SAFETY: a live context.
        let channel = unsafe { (verbs.ibv_create_comp_channel)(device.raw.as_ptr()) };
        let channel =
            NonNull::new(channel).ok_or_else(|| Error::last("ibv_create_comp_channel"))?;
        // SAFETY: a live context and a channel of it.
        let raw = unsafe {
            (verbs.ibv_create_cq)(
                device.raw.as_ptr(),
                entries,
                ptr::null_mut(),
                channel.as_ptr(),
                0,
            )
        };
        let Some(raw) = NonNull::new(raw) else {
            let error = Error::last("ibv_create_cq");
            // SAFETY: made above, unused.
            unsafe { (verbs.ibv_destroy_comp_channel)(channel.as_ptr()) };
            return Err(error);
        };
        let (outstanding, sleeper) = (Mutex::default(), Mutex::default());
        Ok(Arc::new(Self {
            device: Arc::clone(device),
            channel,
            raw,
            outstanding,
            sleeper,
        }))
    }

    /// Whether it is of this context.
    pub(super) fn is_of(&self, device: &OpenDevice) -> bool {
        self.device.raw == device.raw
    }

    fn outstanding(&self) -> MutexGuard<'_, Outstanding> {
        self.outstanding
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a request that is about to be posted; its `wr_id`.
    pub(super) fn add(&self, request: &Request, owner: Owner) -> u64 {
        self.outstanding().add(request, owner)
    }

    /// A request was not posted after all.
    pub(super) fn withdraw(&self, id: u64) {
        drop(self.outstanding().take(id));
    }

    /// A queue pair was destroyed.
    pub(super) fn forget(&self, owner: Owner) {
        self.outstanding().forget(owner);
    }

    /// `ibv_poll_cq`: gives each completion with its request to `each`; how many there were.
    pub(crate) fn poll(&self, max: usize, each: &mut dyn FnMut(Work, &ibv_wc)) -> Result<usize> {
        let mut place = [ibv_wc::zeroed(); BATCH];
        let room = c_int::try_from(max.min(BATCH)).unwrap_or(0);
        // SAFETY: an open context has its operations filled in, and does not change them.
        let poll_cq = unsafe { (*self.device.raw.as_ptr()).ops.poll_cq };
        let poll_cq = poll_cq.ok_or(Error::Misuse("the device has no ibv_poll_cq"))?;
        // SAFETY: a live queue and room for that many completions.
        let count = unsafe { poll_cq(self.raw.as_ptr(), room, place.as_mut_ptr()) };
        let count = usize::try_from(count).map_err(|_| Error::last("ibv_poll_cq"))?;
        for wc in &place[..count] {
            // Completions of queue pairs that are gone tell nobody anything.
            if let Some(work) = { self.outstanding().take(wc.wr_id) } {
                each(work, wc);
            }
        }
        Ok(count)
    }

    /// `ibv_req_notify_cq`: the next completion makes an event.
    pub(crate) fn arm(&self) -> Result<()> {
        // SAFETY: an open context has its operations filled in, and does not change them.
        let req_notify_cq = unsafe { (*self.device.raw.as_ptr()).ops.req_notify_cq };
        let req_notify_cq =
            req_notify_cq.ok_or(Error::Misuse("the device has no ibv_req_notify_cq"))?;
        // SAFETY: a live queue.
        Error::check("ibv_req_notify_cq", unsafe {
            req_notify_cq(self.raw.as_ptr(), 0)
        })
    }

    /// `ibv_get_cq_event`, acknowledged at once.
    pub(crate) fn sleep(&self) -> Result<()> {
        let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: a live channel and places for the answers.
        let result = unsafe {
            (self.device.verbs.ibv_get_cq_event)(
                self.channel.as_ptr(),
                &raw mut queue,
                &raw mut context,
            )
        };
        Error::check_last("ibv_get_cq_event", result)?;
        // SAFETY: the event is of this queue, the only one of its channel.
        unsafe { (self.device.verbs.ibv_ack_cq_events)(queue, 1) };
        Ok(())
    }

    /// Keeps other threads from sleeping on this queue.
    pub(crate) fn sleeper(&self) -> MutexGuard<'_, ()> {
        self.sleeper.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: made by `new`; queue pairs held this object, and every event was acknowledged.
        unsafe {
            (self.device.verbs.ibv_destroy_cq)(self.raw.as_ptr());
            (self.device.verbs.ibv_destroy_comp_channel)(self.channel.as_ptr());
        }
    }
}
