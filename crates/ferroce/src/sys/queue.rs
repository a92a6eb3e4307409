//! Completion queues, each with a completion channel of its own, or on one that many share.

use std::ffi::c_int;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use ferroce_abi::types::{ibv_cq, ibv_wc};

use super::outstanding::{Outstanding, Reader, Settled};
use super::work::{Held, Owner};
use super::{CompletionChannel, OpenDevice, descriptor};
use crate::{Completion, Error, Result};

/// Completions that one call takes at most.
const BATCH: c_int = 16;

/// A completion queue and its channel.
pub(crate) struct Queue {
    device: Arc<OpenDevice>,
    channel: Arc<CompletionChannel>,
    pub(super) raw: NonNull<ibv_cq>,
    outstanding: Mutex<Outstanding>,
    /// Held from taking completions off the device until they are with their readers, so that who finds nothing knows that nothing
    /// is on its way.
    fetching: Mutex<()>,
    /// One thread sleeps at a time: an event wakes one.
    sleeper: Mutex<()>,
    /// Whether a driver has the channel's events.
    driven: AtomicBool,
}

// SAFETY: C's queues and channels may be used by several threads at once.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Queue {
    /// A queue with a channel of its own.
    pub(crate) fn new(device: &Arc<OpenDevice>, entries: u32) -> Result<Arc<Self>> {
        Self::create(&CompletionChannel::new(device)?, entries, false)
    }

    /// A queue on a channel with others. Its events are taken with [`CompletionChannel::next_queue`]; here it counts as driven.
    pub(crate) fn shared(channel: &Arc<CompletionChannel>, entries: u32) -> Result<Arc<Self>> {
        let new = Self::create(channel, entries, true)?;
        channel.list(&new);
        Ok(new)
    }

    /// `ibv_create_cq`
    fn create(channel: &Arc<CompletionChannel>, entries: u32, driven: bool) -> Result<Arc<Self>> {
        let entries = c_int::try_from(entries)
            .map_err(|_| Error::Misuse("a completion queue of this size is impossible"))?;
        let device = &channel.device;
        // SAFETY: a live context and a channel of it.
        let raw = unsafe {
            (device.verbs.ibv_create_cq)(
                device.raw.as_ptr(),
                entries,
                ptr::null_mut(),
                channel.raw.as_ptr(),
                0,
            )
        };
        let raw = NonNull::new(raw).ok_or_else(|| Error::last("ibv_create_cq"))?;
        Ok(Arc::new(Self {
            device: Arc::clone(device),
            channel: Arc::clone(channel),
            raw,
            outstanding: Mutex::default(),
            fetching: Mutex::default(),
            sleeper: Mutex::default(),
            driven: AtomicBool::new(driven),
        }))
    }

    /// Whether it is of this context.
    pub(super) fn is_of(&self, device: &OpenDevice) -> bool {
        self.device.is(device)
    }

    fn outstanding(&self) -> MutexGuard<'_, Outstanding> {
        self.outstanding
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of work that is about to be posted; its `wr_id`.
    pub(super) fn add(&self, tag: u64, owner: Owner, held: Held, reader: Reader) -> u64 {
        self.outstanding().add(tag, owner, held, reader)
    }

    /// Work was not posted after all; its memory.
    pub(super) fn withdraw(&self, id: u64) -> Held {
        self.outstanding().withdraw(id)
    }

    /// A queue pair was destroyed.
    pub(super) fn forget(&self, owner: Owner, queue_pair: u32) {
        let settled = { self.outstanding().forget(owner, queue_pair) };
        settled.into_iter().for_each(Settled::finish);
    }

    /// A future asks for its completion.
    pub(crate) fn poll_future(&self, id: u64, context: &Context<'_>) -> Poll<(Completion, Held)> {
        self.outstanding().poll(id, context)
    }

    /// A future was dropped.
    pub(crate) fn abandon(&self, id: u64) {
        // In two statements: the lock must be free when the memory goes.
        let held = { self.outstanding().abandon(id) };
        drop(held);
    }

    /// The oldest completion that is for pollers.
    pub(crate) fn take(&self) -> Result<Option<Completion>> {
        loop {
            if let Some(completion) = { self.outstanding().next() } {
                return Ok(Some(completion));
            }
            let _fetching = self.fetching();
            // Another thread may have fetched some meanwhile.
            if let Some(completion) = { self.outstanding().next() } {
                return Ok(Some(completion));
            }
            if self.fetch()? == 0 {
                return Ok(None);
            }
        }
    }

    /// Takes everything off the device, for its readers.
    pub(crate) fn deliver(&self) -> Result<()> {
        let _fetching = self.fetching();
        while self.fetch()? > 0 {}
        Ok(())
    }

    fn fetching(&self) -> MutexGuard<'_, ()> {
        self.fetching.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `ibv_poll_cq`; how many completions went to their readers.
    fn fetch(&self) -> Result<usize> {
        let mut place = [ibv_wc::zeroed(); BATCH as usize];
        // SAFETY: an open context has its operations filled in, and does not change them.
        let poll_cq = unsafe { (*self.device.raw.as_ptr()).ops.poll_cq };
        let poll_cq = poll_cq.ok_or(Error::Misuse("the device has no ibv_poll_cq"))?;
        // SAFETY: a live queue and room for that many completions.
        let count = unsafe { poll_cq(self.raw.as_ptr(), BATCH, place.as_mut_ptr()) };
        let count = usize::try_from(count).map_err(|_| Error::last("ibv_poll_cq"))?;
        for wc in &place[..count] {
            let settled = {
                self.outstanding()
                    .complete(wc.wr_id, |tag| Completion::new(tag, wc))
            };
            settled.finish();
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

    /// Waits for an event, and takes it.
    pub(crate) fn sleep(&self) -> Result<()> {
        self.channel.take_event()
    }

    /// Takes the events that are there, without waiting.
    pub(crate) fn take_events(&self) -> Result<()> {
        loop {
            match self.sleep() {
                Ok(()) => {}
                Err(e) if e.would_block() => return Ok(()),
                Err(e) if e.is_interrupted() => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Gives the channel's events to a driver: from then on reading them never blocks.
    pub(crate) fn begin_driving(&self) -> Result<()> {
        if self.driven.swap(true, Ordering::AcqRel) {
            return Err(Error::Misuse("the completion queue has a driver already"));
        }
        self.channel.set_nonblocking(true)
    }

    /// The driver is gone.
    pub(crate) fn end_driving(&self) {
        // It can only fail for a descriptor that is not open, and this one is.
        let _ = self.channel.set_nonblocking(false);
        self.driven.store(false, Ordering::Release);
    }

    /// `poll(2)`: sleeps until there are events, the time is over, or a signal comes.
    pub(crate) fn wait_readable(&self, limit: Duration) -> Result<()> {
        descriptor::wait_one(self.as_fd(), limit)
    }

    /// Whether a driver has the channel's events.
    pub(crate) fn is_driven(&self) -> bool {
        self.driven.load(Ordering::Acquire)
    }

    /// Keeps other threads from sleeping on this queue.
    pub(crate) fn sleeper(&self) -> MutexGuard<'_, ()> {
        self.sleeper.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Queue")
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.channel.strike(self.raw);
        // SAFETY: made by `create`; queue pairs held this object, and every event is acknowledged as it is taken.
        unsafe { (self.device.verbs.ibv_destroy_cq)(self.raw.as_ptr()) };
    }
}
