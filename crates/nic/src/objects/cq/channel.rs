//! Completion channels.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::base::events::{EventQueue, Owned};
use crate::{Context, Error};

/// A completion channel.
#[derive(Debug)]
pub struct CompChannel {
    events: EventQueue<CqEvent>,
    /// Number of completion queues that use it.
    queues: AtomicUsize,
}

/// A queue, by its cookie, has news.
#[derive(Debug)]
struct CqEvent(usize);

impl Owned for CqEvent {
    type Owner = usize;

    fn owner(&self) -> usize {
        self.0
    }
}

impl CompChannel {
    /// Makes a channel.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn new(_context: &Arc<Context>) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self {
            events: EventQueue::new()?,
            queues: AtomicUsize::new(0),
        }))
    }
    /// Semaphore eventfd: its count is the number of queued events. Read one count (8 bytes), then
    /// [`pop`](Self::pop).
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.events.fd()
    }
    /// Takes the oldest event: the cookie of its CQ.
    pub fn pop(&self) -> Option<usize> {
        self.events.pop().map(|event| event.0)
    }
    /// Removes the undelivered events of a CQ that is being destroyed, with their counts.
    pub fn forget(&self, cookie: usize) {
        self.events.forget(cookie);
    }
    /// Counts a completion queue in.
    pub(super) fn attach(&self) {
        self.queues.fetch_add(1, Ordering::Relaxed);
    }
    /// Counts a completion queue out.
    pub(super) fn detach(&self) {
        self.queues.fetch_sub(1, Ordering::Relaxed);
    }
    /// True if several completion queues use it. A program makes its queues before it arms them, so
    /// no order with other memory is needed.
    pub(super) fn is_shared(&self) -> bool {
        self.queues.load(Ordering::Relaxed) > 1
    }
    /// Takes the newest event of a CQ back. Returns false if there is none that no consumer has
    /// taken.
    pub(super) fn take_back(&self, cookie: usize) -> bool {
        self.events.take_back(cookie)
    }
    pub(super) fn push(&self, cookie: usize) {
        self.events.push(CqEvent(cookie));
    }
}
