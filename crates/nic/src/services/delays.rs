//! Completion queues that something is to be done for: whose event is delayed by moderation, each
//! with the time at which it comes at the latest, or which overflowed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use ferroce_proto::time::Time;

use crate::base::sync::lock;
use crate::base::waiter::Waiter;

/// The delayed events, earliest first. A queue has at most one.
#[derive(Debug)]
pub(crate) struct Delays {
    /// By time, and by what tells the queue from others.
    entries: Mutex<BTreeMap<(Time, usize), Weak<dyn Waiter>>>,
    /// The earliest entry, for a look without the lock.
    next: AtomicU64,
}

impl Delays {
    pub(crate) fn new() -> Self {
        Self {
            entries: Mutex::default(),
            next: AtomicU64::new(u64::MAX),
        }
    }

    /// When the earliest event is due.
    pub(crate) fn next(&self) -> Option<Time> {
        Some(Time(self.next.load(Ordering::Relaxed))).filter(|t| t.0 != u64::MAX)
    }

    pub(crate) fn add(&self, at: Time, id: usize, cq: Weak<dyn Waiter>) {
        let mut entries = lock(&self.entries);
        entries.insert((at, id), cq);
        self.publish(&entries);
    }

    pub(crate) fn remove(&self, at: Time, id: usize) {
        let mut entries = lock(&self.entries);
        entries.remove(&(at, id));
        self.publish(&entries);
    }

    /// Takes up to `max` queues out whose event is due.
    pub(crate) fn due(&self, now: Time, max: usize) -> Vec<Arc<dyn Waiter>> {
        if self.next.load(Ordering::Relaxed) > now.0 {
            return Vec::new();
        }
        let mut entries = lock(&self.entries);
        let mut due = Vec::new();
        while due.len() < max
            && let Some(first) = entries.first_entry()
            && first.key().0 <= now
        {
            due.extend(first.remove().upgrade());
        }
        self.publish(&entries);
        due
    }

    fn publish(&self, entries: &BTreeMap<(Time, usize), Weak<dyn Waiter>>) {
        let next = entries.first_key_value().map_or(u64::MAX, |(k, _)| k.0.0);
        self.next.store(next, Ordering::Relaxed);
    }
}
