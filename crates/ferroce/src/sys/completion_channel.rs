//! Completion channels: where the events of completion queues arrive, of one queue or of many.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ferroce_abi::types::{ibv_comp_channel, ibv_cq};

use super::{OpenDevice, Queue, descriptor};
use crate::{Error, Result};

/// A completion channel.
pub(crate) struct CompletionChannel {
    pub(super) device: Arc<OpenDevice>,
    pub(super) raw: NonNull<ibv_comp_channel>,
    /// The queues that complete here, by C's address of them. Only those that share the channel are
    /// listed.
    queues: Mutex<HashMap<usize, Weak<Queue>>>,
    /// Whether it is destroyed with this.
    owned: bool,
}

// SAFETY: C's channels may be used by several threads at once.
unsafe impl Send for CompletionChannel {}
// SAFETY: C's channels may be used by several threads at once.
unsafe impl Sync for CompletionChannel {}

impl CompletionChannel {
    /// `ibv_create_comp_channel`
    pub(crate) fn new(device: &Arc<OpenDevice>) -> Result<Arc<Self>> {
        // SAFETY: a live context.
        let raw = unsafe { (device.verbs.ibv_create_comp_channel)(device.raw.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(|| Error::last("ibv_create_comp_channel"))?;
        Ok(Self::adopt(device, raw, true))
    }

    /// One of the device, which it destroys if it owns it.
    fn adopt(device: &Arc<OpenDevice>, raw: NonNull<ibv_comp_channel>, owned: bool) -> Arc<Self> {
        Arc::new(Self {
            device: Arc::clone(device),
            raw,
            queues: Mutex::default(),
            owned,
        })
    }

    /// The channel of a queue that C has made of the device, which it destroys if it owns it.
    /// Reading its events waits from then on.
    ///
    /// # Safety
    /// A live queue.
    pub(super) unsafe fn of_raw_queue(
        device: &Arc<OpenDevice>,
        queue: NonNull<ibv_cq>,
        owned: bool,
    ) -> Result<Arc<Self>> {
        // SAFETY: the field of a live queue does not change.
        let raw = NonNull::new(unsafe { (*queue.as_ptr()).channel }).ok_or(Error::Misuse(
            "the completion queue was made without a completion channel, so nobody can wait for it",
        ))?;
        // SAFETY: a live queue has a live channel, which never changes its descriptor.
        descriptor::set_nonblocking(unsafe { (*raw.as_ptr()).fd }, false)?;
        Ok(Self::adopt(device, raw, owned))
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<usize, Weak<Queue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists a queue, so that [`next_queue`](Self::next_queue) finds it.
    pub(super) fn list(&self, queue: &Arc<Queue>) {
        let key = queue.raw.as_ptr().addr();
        self.queues().insert(key, Arc::downgrade(queue));
    }

    /// Before a queue is destroyed.
    pub(super) fn strike(&self, queue: NonNull<ibv_cq>) {
        self.queues().remove(&queue.as_ptr().addr());
    }

    /// Whether reading events waits for one.
    pub(crate) fn set_nonblocking(&self, nonblocking: bool) -> Result<()> {
        descriptor::set_nonblocking(self.as_fd().as_raw_fd(), nonblocking)
    }

    /// `ibv_get_cq_event`, acknowledged at once.
    pub(super) fn take_event(&self) -> Result<()> {
        self.take_event_of(|_| ())
    }

    /// The queue of the oldest event, which is taken: `None` of one that is going away. EAGAIN if
    /// there is none and reading does not wait.
    pub(crate) fn next_queue(&self) -> Result<Option<Arc<Queue>>> {
        self.take_event_of(|queue| self.queues().get(&queue.addr()).and_then(Weak::upgrade))
    }

    /// `ibv_get_cq_event`; `look` runs before the event is acknowledged, while the queue cannot be
    /// destroyed.
    fn take_event_of<T>(&self, look: impl FnOnce(*mut ibv_cq) -> T) -> Result<T> {
        let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
        let verbs = self.device.verbs;
        // SAFETY: a live channel and places for the answers.
        let result = unsafe {
            (verbs.ibv_get_cq_event)(self.raw.as_ptr(), &raw mut queue, &raw mut context)
        };
        Error::check_last("ibv_get_cq_event", result)?;
        let seen = look(queue);
        // SAFETY: the event is of this queue, whose destruction waits for this.
        unsafe { (verbs.ibv_ack_cq_events)(queue, 1) };
        Ok(seen)
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: a live channel has an open descriptor, and never changes it.
        unsafe { BorrowedFd::borrow_raw((*self.raw.as_ptr()).fd) }
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        // SAFETY: made by C; its queues held this object, and every event was acknowledged.
        unsafe { (self.device.verbs.ibv_destroy_comp_channel)(self.raw.as_ptr()) };
    }
}
