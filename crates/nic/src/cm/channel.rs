//! Event channels.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Id;
use super::types::{Event, EventParam};
use crate::Error;
use crate::base::events::{EventQueue, Owned};

/// An event channel.
#[derive(Debug)]
pub struct EventChannel {
    events: EventQueue<QueuedEvent>,
}

/// An event that waits to be taken.
#[derive(Debug)]
pub(crate) struct QueuedEvent {
    pub(super) event: Event,
    #[expect(dead_code, reason = "held until the event is taken")]
    pub(super) place: Option<BacklogPlace>,
}

impl Owned for QueuedEvent {
    type Owner = u64;

    /// The key of the identifier that it is an event of (a connect request is one of its listener).
    fn owner(&self) -> u64 {
        let owner = self.event.listen_id.as_ref().unwrap_or(&self.event.id);
        owner.key()
    }
}

/// A connect request's place in its listener's backlog, free again when the request is taken.
#[derive(Debug)]
pub(super) struct BacklogPlace(Arc<AtomicUsize>);

impl BacklogPlace {
    /// Whether `limit` places are taken.
    pub(super) fn none_left(taken: &AtomicUsize, limit: usize) -> bool {
        taken.load(Ordering::Relaxed) >= limit
    }

    /// A place, if fewer than `limit` are taken.
    pub(super) fn take(taken: &Arc<AtomicUsize>, limit: usize) -> Option<Self> {
        let add = |n: usize| (n < limit).then_some(n + 1);
        taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .ok()?;
        Some(Self(Arc::clone(taken)))
    }
}

impl Drop for BacklogPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl EventChannel {
    /// A channel, with or without devices.
    pub(crate) fn without_device() -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self {
            events: EventQueue::new()?,
        }))
    }

    /// Semaphore eventfd: its count is the number of queued events. Read one count (8 bytes), or
    /// let [`take_count_as_leader`](Self::take_count_as_leader) do so, then [`pop`](Self::pop).
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.events.fd()
    }

    /// Takes the oldest event. `None` if the event whose count was read has vanished with its
    /// identifier: read again.
    pub fn pop(&self) -> Option<Event> {
        self.events.pop().map(|queued| queued.event)
    }

    /// The queue, for a thread that waits for its next event.
    pub(crate) fn events(&self) -> &EventQueue<QueuedEvent> {
        &self.events
    }

    /// Reads one count.
    #[cfg(test)]
    pub(super) fn take_count(&self) -> bool {
        self.events.take_count()
    }

    pub(super) fn push(&self, queued: QueuedEvent) {
        self.events.push(queued);
    }

    /// Takes out the events of one of an identifier's joins of multicast groups.
    pub(super) fn extract_join(&self, id: &Id, join: u64) -> Vec<QueuedEvent> {
        self.events.extract(
            id.key(),
            |queued| matches!(queued.event.param, EventParam::Group { join: j, .. } if j == join),
        )
    }

    /// Takes out the events of an identifier. To be dropped with no lock held: the last reference
    /// to an identifier may go.
    pub(super) fn extract(&self, id: &Id) -> Vec<QueuedEvent> {
        self.events.extract(id.key(), |_| true)
    }
}
