//! Completion channels.

use std::os::fd::RawFd;
use std::sync::Arc;

use crate::base::events::{EventQueue, Owned};
use crate::{Context, Error};

/// A completion channel.
#[derive(Debug)]
pub struct CompChannel {
    events: EventQueue<CqEvent>,
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
    pub(super) fn push(&self, cookie: usize) {
        self.events.push(CqEvent(cookie));
    }
}
