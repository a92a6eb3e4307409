//! The rights table, with its lock, and what queue pairs remember of it.
//!
//! To look a key up for each short message costs as much as all that is done with it, most of it
//! for the lock. So a queue pair that has a short ring remembers the last region that it used. It
//! does so under its own lock, and only as long as the table has not changed since. A
//! revocation changes the table first and then takes the lock of each of these queue pairs once
//! ([`RightsTable::end_memos`]): when that is done none is in the middle of a copy, and none begins
//! another.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use ferroce_proto::mr::Rights;

use crate::base::sync::{lock, read, write};

/// A queue pair that remembers something of the table.
pub(crate) trait Remembers: fmt::Debug + Send + Sync {
    /// Returns when no step is under way that was when this was called.
    fn end_step(&self);
}

/// Queue pairs that have ended and are still in the list, at most, where few live.
const FEW: usize = 64;

/// Queue pairs that remember something, and some that have ended.
#[derive(Debug, Default)]
struct Memos {
    qps: Vec<Weak<dyn Remembers>>,
    /// As many as there were when those that had ended were dropped.
    living: usize,
}

impl Memos {
    /// Those that have ended are never more than the others, but for a few: each keeps its memory.
    fn add(&mut self, qp: Weak<dyn Remembers>) {
        if self.qps.len() >= 2 * self.living + FEW {
            self.drop_ended();
        }
        self.qps.push(qp);
    }

    fn drop_ended(&mut self) {
        self.qps.retain(|qp| qp.strong_count() > 0);
        self.living = self.qps.len();
    }
}

/// The table and its lock.
#[derive(Debug, Default)]
pub(crate) struct RightsTable {
    rights: RwLock<Rights>,
    /// Changes so far.
    edition: AtomicU64,
    /// Queue pairs that remember something.
    memos: Mutex<Memos>,
}

impl RightsTable {
    /// Locks it for reading. Never twice in one thread: a waiting writer between the two would
    /// block both.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Rights> {
        read(&self.rights)
    }

    /// Changes so far. What was open and is so no longer has changed it.
    #[inline]
    pub(crate) fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    /// Locks it for a change.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Rights> {
        let guard = write(&self.rights);
        self.edition.fetch_add(1, Ordering::Release);
        guard
    }

    /// A queue pair begins to remember: from here on a change reaches it.
    pub(crate) fn remember(&self, qp: Weak<dyn Remembers>) {
        lock(&self.memos).add(qp);
    }

    /// A region is not in the table any more, or not as it was: when this returns no queue pair
    /// uses what it remembers of it. The caller has neither the lock of a queue pair nor that of
    /// the table.
    pub(crate) fn end_memos(&self) {
        let qps: Vec<Arc<dyn Remembers>> = {
            let mut memos = lock(&self.memos);
            memos.drop_ended();
            memos.qps.iter().filter_map(Weak::upgrade).collect()
        };
        for qp in qps {
            qp.end_step();
        }
    }
}
