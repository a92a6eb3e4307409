//! The work requests whose completions have not been polled.

mod number;
mod slots;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::task::{Context, Poll};

pub(super) use slots::{NewWork, Settled};

use ferroce_abi::types::ibv_wc;
use ferroce_os::lock::{Lock, LockGuard};

use super::held::Held;
use super::place::{PollBuffer, View};
use super::work::Owner;
use crate::cq::Timestamp;
use crate::{Error, Result};
use slots::Outstanding;

/// The reader of a completion.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    /// The next poll of the queue.
    Poller,
    /// One future, which is woken.
    Future,
}

/// The work of one completion queue, or of one shared receive queue, whose completions come to
/// several completion queues.
pub(crate) struct Ledger {
    outstanding: Lock<Outstanding>,
    /// Of a shared receive queue; its work carries the number.
    number: Option<u32>,
}

/// The ledgers of shared receive queues by their numbers. A completion of theirs names no other
/// thing by which it could be found: numbers of queue pairs come again.
static SHARED: RwLock<SharedLedgers> = RwLock::new(SharedLedgers {
    ledgers: BTreeMap::new(),
    made: 0,
});

struct SharedLedgers {
    ledgers: BTreeMap<u32, Weak<Ledger>>,
    /// Number of ledgers that were ever made.
    made: u64,
}

impl Ledger {
    /// Makes the ledger of a completion queue.
    pub(super) fn own() -> Arc<Self> {
        Arc::new(Self {
            outstanding: Lock::new(Outstanding::new(number::Family::Own)),
            number: None,
        })
    }

    /// Makes the ledger of a shared receive queue.
    pub(super) fn shared() -> Result<Arc<Self>> {
        let mut shared = SHARED.write().unwrap_or_else(PoisonError::into_inner);
        if shared.ledgers.len() > number::SHARED_NUMBERS as usize {
            return Err(Error::Limit {
                object: "process",
                what: "shared receive queues",
                asked: shared.ledgers.len() as u64 + 1,
                limit: u64::from(number::SHARED_NUMBERS) + 1,
            });
        }
        let family = loop {
            let family = number::Family::of_shared(shared.made);
            shared.made += 1;
            if !shared.ledgers.contains_key(&family.number()) {
                break family;
            }
        };
        let number = family.number();
        let new = Arc::new(Self {
            outstanding: Lock::new(Outstanding::new(family)),
            number: Some(number),
        });
        shared.ledgers.insert(number, Arc::downgrade(&new));
        Ok(new)
    }

    /// The ledger of a shared receive queue; none if that is gone.
    fn shared_by(number: u32) -> Option<Arc<Self>> {
        let shared = SHARED.read().unwrap_or_else(PoisonError::into_inner);
        shared.ledgers.get(&number)?.upgrade()
    }

    #[inline(always)]
    fn lock(&self) -> LockGuard<'_, Outstanding> {
        self.outstanding.lock()
    }

    /// Takes note of work that is about to be posted; its `wr_id`. `hold` says what it holds, and
    /// runs under the lock.
    #[inline(always)]
    pub(super) fn add(&self, work: NewWork, hold: impl FnOnce(&mut Held)) -> u64 {
        self.lock().add(work, hold)
    }

    /// Work was not posted after all; its memory, and the silent work before it, which waits for
    /// another one again.
    pub(super) fn withdraw(&self, id: u64) -> (Held, Option<u64>) {
        self.lock().withdraw(id)
    }

    /// The device has completed work. What is for a poller stays in `place`, by its tag; the
    /// rest is brought to its futures.
    ///
    /// `self` is the ledger of the completion queue. Its lock is taken before that of a shared
    /// receive queue, never after.
    #[inline]
    pub(super) fn settle(&self, place: &mut PollBuffer, settled: &mut Settled) {
        let mut own = self.lock();
        let fetched = place.fetched_mut();
        let count = fetched.len();
        let simple = own.complete_simple(fetched);
        if simple < count {
            Self::settle_rest(&mut own, place, simple, settled);
        }
    }

    /// The same from a completion on that is not of simple work.
    #[inline(never)]
    fn settle_rest(
        own: &mut Outstanding,
        place: &mut PollBuffer,
        from: usize,
        settled: &mut Settled,
    ) {
        place.retain_from(from, |wc, timestamp| match number::ledger(wc.wr_id) {
            None => own.complete(wc, timestamp, settled),
            Some(number) => Self::complete_shared(number, wc, timestamp, settled),
        });
    }

    /// Work of a shared receive queue has completed. If that is gone, nobody is told.
    #[inline(never)]
    fn complete_shared(
        number: u32,
        wc: &mut ibv_wc,
        timestamp: Option<Timestamp>,
        settled: &mut Settled,
    ) -> bool {
        Self::shared_by(number).is_some_and(|shared| shared.lock().complete(wc, timestamp, settled))
    }

    /// Whether the device works on it.
    pub(super) fn is_posted(&self, id: u64) -> bool {
        self.lock().is_posted(id)
    }

    /// Whether the device works on anything of an owner.
    pub(super) fn has_posted(&self, owner: Owner) -> bool {
        !self.lock().posted(owner).is_empty()
    }

    /// A future asks for its completion and what its work held. `read` takes of them what the
    /// future needs, under the lock.
    #[inline]
    pub(crate) fn poll<R>(
        &self,
        id: u64,
        context: &Context<'_>,
        read: impl Fn(View<'_>, &mut Held) -> R,
    ) -> Poll<R> {
        loop {
            let answer = self.lock().answer(id, &read);
            if answer.is_ready() || self.listen(id, context) {
                return answer;
            }
            // It was done meanwhile, and stays so.
        }
    }

    /// A future waits, unless its work is done.
    #[inline(never)]
    fn listen(&self, id: u64, context: &Context<'_>) -> bool {
        // Wakers are anyone's code, which may come back here: none is cloned or dropped under the
        // lock.
        let waker = context.waker().clone();
        let unused = self.lock().listen(id, waker);
        unused.is_ok()
    }

    /// A future was dropped before it had its completion.
    pub(crate) fn abandon(&self, id: u64) {
        // In two statements: the lock must be free when the memory goes, and the waker.
        let unused = { self.lock().abandon(id) };
        drop(unused);
    }

    /// The device has let go of the memory of an owner's work. Futures learn that their work was
    /// flushed.
    pub(super) fn forget(&self, owner: Owner, queue_pair: u32) {
        let mut settled = Settled::default();
        self.forget_quietly(owner, queue_pair, &mut settled);
        settled.finish();
    }

    /// The same; the tasks to be woken are added to `settled`.
    pub(super) fn forget_quietly(&self, owner: Owner, queue_pair: u32, settled: &mut Settled) {
        let mut outstanding = self.lock();
        let work = outstanding.posted(owner);
        outstanding.forget(&work, queue_pair, settled);
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

#[cfg(test)]
mod tests {
    use super::{Ledger, NewWork, Owner, Reader};

    fn post(ledger: &Ledger) -> u64 {
        let work = NewWork {
            tag: 7,
            owner: Owner::new(),
            reader: Reader::Poller,
            is_simple: true,
            before: None,
        };
        ledger.add(work, |_| ())
    }

    /// A completion that a device gives twice, or late, is of nobody: its number does not come
    /// again with a slot's 65,537th tenant, nor in another shared receive queue of the number.
    #[test]
    #[cfg_attr(miri, ignore = "it takes 400,000 rounds")]
    fn numbers_of_shared_receive_queues_do_not_come_again_soon() {
        let ledger = Ledger::shared().unwrap();
        let stale = post(&ledger);
        ledger.withdraw(stale);
        for _ in 0..200_000 {
            let id = post(&ledger);
            assert_ne!(id, stale);
            assert!(!ledger.is_posted(stale) && ledger.is_posted(id));
            ledger.withdraw(id);
        }
        drop(ledger);
        for _ in 0..200_000 {
            let ledger = Ledger::shared().unwrap();
            assert_ne!(post(&ledger), stale);
        }
    }
}
