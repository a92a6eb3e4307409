//! The rights table, with its lock, and what queue pairs remember of it.
//!
//! To look a key up for each short message costs as much as all that is done with it, most of it
//! for the lock. So a queue pair that has a lane remembers the last region that it used. It does so
//! under its own lock, and only as long as the table has not changed since. Who takes a region away
//! changes the table first and then takes the lock of each of these queue pairs once
//! ([`Nic::end_memos`]): when that is done none is in the middle of a copy, and none begins one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use ferroce_proto::ids::{Key, PdId};
use ferroce_proto::mr::{Access, Memo, Opens, Rights, RightsError, Span};

use super::Nic;
use super::sync::{lock, read, write};
use crate::Qp;

/// The table and its lock.
#[derive(Debug, Default)]
pub(crate) struct RightsTable {
    rights: RwLock<Rights>,
    /// Changes so far.
    edition: AtomicU64,
    /// Queue pairs that remember something.
    memos: Mutex<Vec<Weak<Qp>>>,
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
}

/// What a queue pair remembers. Its lock guards it.
#[derive(Debug, Default)]
pub(crate) struct QpMemo {
    memo: Option<(u64, Memo)>,
    /// Who takes a region away knows of it.
    known: bool,
}

impl QpMemo {
    /// What is remembered of a key, if it is that and still true.
    #[inline]
    fn of(&self, qp: &Qp, key: Key) -> Option<&Memo> {
        let (edition, memo) = self.memo.as_ref()?;
        let is_good = *edition == qp.nic().rights.edition() && memo.key() == key;
        is_good.then_some(memo)
    }
}

/// Opens memory for a queue pair, whose lock the caller has, if it is what it remembers.
#[derive(Debug)]
pub(crate) struct Remembered<'a> {
    pub(crate) qp: &'a Qp,
    pub(crate) memo: &'a QpMemo,
}

impl Opens for Remembered<'_> {
    #[inline]
    fn open(
        &mut self,
        key: Key,
        pd: PdId,
        range: (u64, u64),
        need: Access,
    ) -> Result<Span<'_>, RightsError> {
        match self.memo.of(self.qp, key) {
            Some(memo) => memo.open(pd, range, need),
            None => Err(RightsError::UnknownKey(key)),
        }
    }
}

/// Opens memory for a queue pair, whose lock the caller has, and remembers it.
#[derive(Debug)]
pub(crate) struct Remembering<'a> {
    pub(crate) qp: &'a Qp,
    pub(crate) memo: &'a mut QpMemo,
}

impl Opens for Remembering<'_> {
    #[inline]
    fn open(
        &mut self,
        key: Key,
        pd: PdId,
        range: (u64, u64),
        need: Access,
    ) -> Result<Span<'_>, RightsError> {
        if self.memo.of(self.qp, key).is_none() {
            self.renew(key);
        }
        match &self.memo.memo {
            Some((_, memo)) => memo.open(pd, range, need),
            None => Err(RightsError::UnknownKey(key)),
        }
    }
}

impl Remembering<'_> {
    #[cold]
    fn renew(&mut self, key: Key) {
        let table = &self.qp.nic().rights;
        if !std::mem::replace(&mut self.memo.known, true) {
            // Before it has anything: who changes the table from here on finds it in the list.
            lock(&table.memos).push(self.qp.weak());
        }
        let rights = table.read();
        let edition = table.edition();
        self.memo.memo = rights.memo(key).map(|memo| (edition, memo));
    }
}

impl Nic {
    /// A region is not in the table any more, or not as it was: when this returns no queue pair
    /// uses what it remembers of it. The caller has neither the lock of a queue pair nor that of
    /// the table.
    pub(crate) fn end_memos(&self) {
        let qps: Vec<Arc<Qp>> = {
            let mut memos = lock(&self.rights.memos);
            memos.retain(|qp| qp.strong_count() > 0);
            memos.iter().filter_map(Weak::upgrade).collect()
        };
        for qp in qps {
            qp.end_step();
        }
    }
}
