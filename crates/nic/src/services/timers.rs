//! Deadlines of queue pairs, one entry each.
//!
//! When a deadline moves later (the usual case: an ACK came) nothing is done until the entry falls
//! due and the queue pair says when it really wants to be called. So the entry moves once per
//! timer, not once per packet.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_proto::ids::Qpn;
use ferroce_proto::time::Time;

use crate::base::sync::lock;

/// The entry of links that have said no hello, of the listener, and of what is held up. This and
/// the next ones are no queue pair's: numbers of queue pairs begin with their process's slot.
pub(crate) const SILENT_LINKS: Qpn = Qpn::new(0);
/// The entry of the next look for short rings that are idle.
pub(crate) const IDLE_SHORT_RINGS: Qpn = Qpn::new(1);
/// The entry of connections whose queue pair is destroyed.
pub(crate) const PARTINGS: Qpn = Qpn::new(2);

/// The deadlines, earliest first.
#[derive(Debug)]
pub(crate) struct Timers {
    entries: Mutex<BTreeSet<(Time, Qpn)>>,
    /// The earliest entry, for a look without the lock.
    next: AtomicU64,
}

impl Timers {
    pub(crate) fn new() -> Self {
        Self {
            entries: Mutex::default(),
            next: AtomicU64::new(u64::MAX),
        }
    }

    /// Replaces a queue pair's entry. `old` is the time of the entry that it has.
    pub(crate) fn set(&self, qpn: Qpn, old: Option<Time>, new: Option<Time>) {
        let mut entries = lock(&self.entries);
        if let Some(old) = old {
            entries.remove(&(old, qpn));
        }
        if let Some(new) = new {
            entries.insert((new, qpn));
        }
        self.publish(&entries);
    }

    /// When the earliest entry falls due.
    pub(crate) fn next(&self) -> Option<Time> {
        Some(Time(self.next.load(Ordering::Relaxed))).filter(|t| t.0 != u64::MAX)
    }

    /// Adds up to `max` entries that are due to `due`. They stay until their owners
    /// [`set`](Self::set) them.
    pub(crate) fn due(&self, now: Time, max: usize, due: &mut Vec<Qpn>) {
        if self.next.load(Ordering::Relaxed) <= now.0 {
            due.extend(
                lock(&self.entries)
                    .iter()
                    .take_while(|(at, _)| *at <= now)
                    .take(max)
                    .map(|(_, qpn)| *qpn),
            );
        }
    }

    fn publish(&self, entries: &BTreeSet<(Time, Qpn)>) {
        self.next.store(
            entries.first().map_or(u64::MAX, |(at, _)| at.0),
            Ordering::Relaxed,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(timers: &Timers, now: u64, max: usize) -> Vec<u32> {
        let mut due = Vec::new();
        timers.due(Time(now), max, &mut due);
        due.into_iter().map(Qpn::get).collect()
    }

    #[test]
    fn entries_fall_due_in_order_and_in_bounded_lots() {
        let timers = Timers::new();
        assert_eq!(timers.next(), None);
        for at in [30, 10, 20] {
            timers.set(Qpn::new(at), None, Some(Time(u64::from(at))));
        }
        assert_eq!(timers.next(), Some(Time(10)));
        assert_eq!(due(&timers, 9, 10), []);
        assert_eq!(due(&timers, 25, 1), [10]);
        assert_eq!(due(&timers, 25, 10), [10, 20]);
        timers.set(Qpn::new(10), Some(Time(10)), None);
        timers.set(Qpn::new(20), Some(Time(20)), Some(Time(40)));
        assert_eq!(timers.next(), Some(Time(30)));
        assert_eq!(due(&timers, 50, 10), [30, 20]);
    }
}
