//! The work requests whose completions have not been polled.

mod number;
mod slots;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::task::{Context, Poll};

pub(super) use slots::{NewWork, Settled};

use super::work::{Held, Owner};
use crate::Completion;
use slots::Outstanding;

/// Who is told of a completion.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Whoever polls the queue next.
    Poller,
    /// One future, which is woken.
    Future,
}

/// The work of one completion queue, or of one shared receive queue, whose completions come to several completion queues.
pub(crate) struct Ledger {
    outstanding: Mutex<Outstanding>,
    /// Of a shared receive queue; its work carries the number.
    number: Option<u32>,
}

/// The ledgers of shared receive queues by their numbers. A completion of theirs names no other thing by which it could be found: numbers of
/// queue pairs come again.
static SHARED: RwLock<Shared> = RwLock::new(Shared {
    ledgers: BTreeMap::new(),
    next: 0,
});

struct Shared {
    ledgers: BTreeMap<u32, Weak<Ledger>>,
    next: u32,
}

impl Ledger {
    /// Of a completion queue.
    pub(super) fn own() -> Arc<Self> {
        Arc::new(Self {
            outstanding: Mutex::default(),
            number: None,
        })
    }

    /// Of a shared receive queue.
    pub(super) fn shared() -> Arc<Self> {
        let mut shared = SHARED.write().unwrap_or_else(PoisonError::into_inner);
        let number = loop {
            let number = shared.next;
            shared.next = (number + 1) & number::SHARED_NUMBERS;
            if !shared.ledgers.contains_key(&number) {
                break number;
            }
        };
        let new = Arc::new(Self {
            outstanding: Mutex::default(),
            number: Some(number),
        });
        shared.ledgers.insert(number, Arc::downgrade(&new));
        new
    }

    /// If work with this `wr_id` is of a shared receive queue, the number of its ledger.
    #[inline]
    pub(super) fn number_of_shared(id: u64) -> Option<u32> {
        number::ledger(id)
    }

    /// The ledger of a shared receive queue; none if that is gone.
    pub(super) fn shared_by(number: u32) -> Option<Arc<Self>> {
        let shared = SHARED.read().unwrap_or_else(PoisonError::into_inner);
        shared.ledgers.get(&number)?.upgrade()
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, Outstanding> {
        self.outstanding
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of work that is about to be posted; its `wr_id`.
    #[inline(always)]
    pub(super) fn add(&self, work: NewWork) -> u64 {
        let (tenant, slot) = self.lock().add(work);
        match self.number {
            None => number::own(tenant, slot),
            Some(number) => number::shared(number, tenant, slot),
        }
    }

    /// Work was not posted after all; its memory, and the silent work before it, which waits for another one again.
    pub(super) fn withdraw(&self, id: u64) -> (Held, Option<u64>) {
        self.lock().withdraw(id)
    }

    /// The device has completed work. `completion` makes a completion of its tag, for a future; the tag comes back if it is for whoever
    /// polls.
    #[inline]
    pub(super) fn complete(
        &self,
        id: u64,
        completion: impl FnOnce(u64) -> Completion,
        settled: &mut Settled,
    ) -> Option<u64> {
        self.lock().complete(id, completion, settled)
    }

    /// Whether the device works on it.
    pub(super) fn is_posted(&self, id: u64) -> bool {
        self.lock().is_posted(id)
    }

    /// A future asks for its completion and the memory of its work.
    pub(crate) fn poll(&self, id: u64, context: &Context<'_>) -> Poll<(Completion, Held)> {
        // Wakers are anyone's code, which may come back here: none is cloned or dropped under the lock.
        let waker = context.waker().clone();
        let (answer, unused) = { self.lock().poll(id, waker) };
        drop(unused);
        answer
    }

    /// A future was dropped before it had its completion.
    pub(crate) fn abandon(&self, id: u64) {
        // In two statements: the lock must be free when the memory goes, and the waker.
        let unused = { self.lock().abandon(id) };
        drop(unused);
    }

    /// The device has let go of the memory of an owner's work. Futures learn that their work was flushed.
    pub(super) fn forget(&self, owner: Owner, queue_pair: u32) {
        self.forget_these(&self.posted(owner), queue_pair);
    }

    /// The work of an owner that the device may have.
    pub(super) fn posted(&self, owner: Owner) -> Vec<u64> {
        self.lock().posted(owner)
    }

    /// [`forget`](Self::forget) of some work, as far as it has not completed.
    pub(super) fn forget_these(&self, work: &[u64], queue_pair: u32) {
        let mut settled = Settled::default();
        self.lock().forget(work, queue_pair, &mut settled);
        settled.finish();
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let mut shared = SHARED.write().unwrap_or_else(PoisonError::into_inner);
            shared.ledgers.remove(&number);
        }
    }
}
