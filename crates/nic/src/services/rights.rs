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

/// The table and its lock.
#[derive(Debug, Default)]
pub(crate) struct RightsTable {
    rights: RwLock<Rights>,
    /// Changes so far.
    edition: AtomicU64,
    /// Queue pairs that remember something.
    memos: Mutex<Vec<Weak<dyn Remembers>>>,
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
        lock(&self.memos).push(qp);
    }

    /// A region is not in the table any more, or not as it was: when this returns no queue pair
    /// uses what it remembers of it. The caller has neither the lock of a queue pair nor that of
    /// the table.
    pub(crate) fn end_memos(&self) {
        let qps: Vec<Arc<dyn Remembers>> = {
            let mut memos = lock(&self.memos);
            memos.retain(|qp| qp.strong_count() > 0);
            memos.iter().filter_map(Weak::upgrade).collect()
        };
        for qp in qps {
            qp.end_step();
        }
    }
}
