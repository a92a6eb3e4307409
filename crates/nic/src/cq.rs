//! Completion queues and completion channels.

use std::os::fd::RawFd;
use std::sync::Arc;

use ferroce_proto::verbs::Wc;

use crate::{Context, Error};

/// A completion channel.
#[derive(Debug)]
pub struct CompChannel {
    // nic helper: fill
}

impl CompChannel {
    /// Makes a channel.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn new(_context: &Arc<Context>) -> Result<Arc<Self>, Error> {
        todo!()
    }
    /// Semaphore eventfd: its count is the number of queued events. Read one count (8 bytes), then [`pop`](Self::pop).
    #[must_use]
    pub fn fd(&self) -> RawFd {
        todo!()
    }
    /// Takes the oldest event: the cookie of its CQ.
    pub fn pop(&self) -> Option<usize> {
        todo!()
    }
    /// Removes the undelivered events of a CQ that is being destroyed, with their counts.
    pub fn forget(&self, _cookie: usize) {
        todo!()
    }
}

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    // nic helper: fill
}

impl Cq {
    /// Makes a queue of at least `cqe` entries. `cookie` comes back in events.
    ///
    /// # Errors
    /// EINVAL for a size of 0 or above the device's limit.
    pub fn create(_context: &Arc<Context>, _cqe: u32, _channel: Option<Arc<CompChannel>>) -> Result<Arc<Self>, Error> {
        todo!()
    }
    /// The cookie that events carry; set once, before the first completion.
    pub fn set_cookie(&self, _cookie: usize) {
        todo!()
    }
    /// Entries.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        todo!()
    }
    /// Takes up to `max` completions, oldest first, giving each to `each`; returns how many. Drives progress inline when the
    /// queue is empty.
    ///
    /// # Errors
    /// The queue overflowed.
    pub fn poll(&self, _max: usize, _each: &mut dyn FnMut(usize, &Wc)) -> Result<usize, Error> {
        todo!()
    }
    /// Arms the queue: the next completion (solicited or error only, if so asked) makes one event on the channel.
    pub fn req_notify(&self, _solicited_only: bool) {
        todo!()
    }
    /// Changes the capacity (`ibv_resize_cq`).
    ///
    /// # Errors
    /// EINVAL if more completions are queued than fit, or for 0 or above the limit.
    pub fn resize(&self, _cqe: u32) -> Result<(), Error> {
        todo!()
    }
    /// Queue pairs that use it. `ibv_destroy_cq` answers EBUSY unless 0.
    #[must_use]
    pub fn users(&self) -> usize {
        todo!()
    }
}
