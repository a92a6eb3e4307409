//! The work requests whose completions have not been polled.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::task::{Context, Poll, Waker};

use smallvec::SmallVec;

use super::work::{Held, Owner};
use crate::Completion;

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
            shared.next = (number + 1) & SHARED_NUMBERS;
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

    /// The ledger of a shared receive queue whose work has this `wr_id`; none if it is not of one, or of one that is gone.
    pub(super) fn of_shared(id: u64) -> Option<Arc<Self>> {
        let number = shared_number(id)?;
        let shared = SHARED.read().unwrap_or_else(PoisonError::into_inner);
        shared.ledgers.get(&number)?.upgrade()
    }

    fn lock(&self) -> MutexGuard<'_, Outstanding> {
        self.outstanding
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of work that is about to be posted; its `wr_id`.
    pub(super) fn add(&self, work: NewWork) -> u64 {
        let (tenant, slot) = self.lock().add(work);
        match self.number {
            None => id(tenant, slot),
            Some(number) => shared_id(number, tenant, slot),
        }
    }

    /// Work was not posted after all; its memory.
    pub(super) fn withdraw(&self, id: u64) -> Held {
        self.lock().withdraw(id)
    }

    /// The device has completed work. `completion` makes a completion of its tag, for a future; the tag comes back if it is for whoever
    /// polls.
    pub(super) fn complete(
        &self,
        id: u64,
        completion: impl FnOnce(u64) -> Completion,
    ) -> (Settled, Option<u64>) {
        self.lock().complete(id, completion)
    }

    /// Whether the device works on it.
    pub(super) fn is_posted(&self, id: u64) -> bool {
        let mut outstanding = self.lock();
        let slot = outstanding.slot(id);
        slot.is_some_and(|slot| matches!(slot.state, State::Posted(_)))
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
        let settled = { self.lock().forget(work, queue_pair) };
        settled.into_iter().for_each(Settled::finish);
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

/// Work by the number of its slot, and a count that tells the slot's tenants apart: both are in the `wr_id` that C knows it by.
#[derive(Default)]
struct Outstanding {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

/// Work that is about to be posted.
pub(super) struct NewWork {
    /// What the program calls it.
    pub(super) tag: u64,
    /// Its queue pair.
    pub(super) owner: Owner,
    /// Its memory.
    pub(super) held: Held,
    /// Who is told.
    pub(super) reader: Reader,
    /// Work before it in the same queue that completes without a word, at the latest when this does.
    pub(super) before: SmallVec<[u64; 4]>,
}

struct Slot {
    tenant: u32,
    state: State,
}

enum State {
    Free,
    /// The device works on it.
    Posted(Work),
    /// It completed, and its future has not been polled since.
    Done(Completion, Held),
}

struct Work {
    tag: u64,
    owner: Owner,
    held: Held,
    interest: Interest,
    before: SmallVec<[u64; 4]>,
}

enum Interest {
    Poller,
    Future(Option<Waker>),
    /// The future was dropped. The memory stays held for the device.
    Nobody,
}

impl Interest {
    fn waker(self) -> Option<Waker> {
        match self {
            Self::Future(waker) => waker,
            Self::Poller | Self::Nobody => None,
        }
    }
}

/// What is left to do when a completion was settled, without the lock: wake its future, let go of its memory.
#[derive(Default)]
pub(super) struct Settled {
    waker: Option<Waker>,
    released: SmallVec<[Held; 1]>,
}

impl Settled {
    /// Does it.
    pub(super) fn finish(self) {
        if let Some(waker) = self.waker {
            waker.wake();
        }
    }
}

impl Outstanding {
    /// Tenant and slot of new work.
    fn add(&mut self, new: NewWork) -> (u32, u32) {
        let interest = match new.reader {
            Reader::Poller => Interest::Poller,
            Reader::Future => Interest::Future(None),
        };
        let state = State::Posted(Work {
            tag: new.tag,
            owner: new.owner,
            held: new.held,
            interest,
            before: new.before,
        });
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                tenant: 0,
                state: State::Free,
            });
            u32::try_from(self.slots.len() - 1).expect("invariant: work requests take memory")
        });
        let slot = &mut self.slots[number as usize];
        slot.state = state;
        (slot.tenant, number)
    }

    /// The slot of work that is still known by this number.
    fn slot(&mut self, id: u64) -> Option<&mut Slot> {
        let (tenant, number) = parts(id);
        let slot = self.slots.get_mut(number as usize)?;
        let mask = tenant_mask(id);
        (slot.tenant & mask == tenant).then_some(slot)
    }

    /// Empties a slot; what was in it.
    fn vacate(&mut self, id: u64) -> State {
        let Some(slot) = self.slot(id) else {
            return State::Free;
        };
        slot.tenant = slot.tenant.wrapping_add(1);
        let state = std::mem::replace(&mut slot.state, State::Free);
        self.free.push(parts(id).1);
        state
    }

    fn withdraw(&mut self, id: u64) -> Held {
        match self.vacate(id) {
            State::Posted(work) => work.held,
            _ => Held::default(),
        }
    }

    fn complete(
        &mut self,
        id: u64,
        completion: impl FnOnce(u64) -> Completion,
    ) -> (Settled, Option<u64>) {
        // Work of a queue pair that is gone tells nobody anything.
        let Some(slot) = self.slot(id) else {
            return Default::default();
        };
        // It may be settled already: flushed with its queue pair, whose completions come all the same. Its future has that still to come.
        if !matches!(slot.state, State::Posted(_)) {
            return Default::default();
        }
        let State::Posted(work) = std::mem::replace(&mut slot.state, State::Free) else {
            return Default::default();
        };
        let mut settled = Settled::default();
        for id in work.before {
            settled.released.push(self.withdraw(id));
        }
        if let Interest::Future(waker) = work.interest {
            if let Some(slot) = self.slot(id) {
                slot.state = State::Done(completion(work.tag), work.held);
            }
            settled.waker = waker;
            return (settled, None);
        }
        self.vacate(id);
        settled.released.push(work.held);
        let for_poller = matches!(work.interest, Interest::Poller).then_some(work.tag);
        (settled, for_poller)
    }

    /// The answer, and a waker that is of no use any more.
    fn poll(&mut self, id: u64, waker: Waker) -> (Poll<(Completion, Held)>, Option<Waker>) {
        let slot = self
            .slot(id)
            .expect("invariant: a slot stays while its future has not had the completion");
        if let State::Posted(work) = &mut slot.state {
            let before = std::mem::replace(&mut work.interest, Interest::Future(Some(waker)));
            return (Poll::Pending, before.waker());
        }
        match self.vacate(id) {
            State::Done(completion, held) => (Poll::Ready((completion, held)), Some(waker)),
            State::Free | State::Posted(_) => unreachable!("invariant: the future's own slot"),
        }
    }

    /// Memory, and a waker, that nothing needs any more.
    fn abandon(&mut self, id: u64) -> (Held, Option<Waker>) {
        let Some(slot) = self.slot(id) else {
            return Default::default();
        };
        if let State::Posted(work) = &mut slot.state {
            let before = std::mem::replace(&mut work.interest, Interest::Nobody);
            return (Held::default(), before.waker());
        }
        match self.vacate(id) {
            State::Done(_, held) => (held, None),
            State::Free | State::Posted(_) => Default::default(),
        }
    }

    fn posted(&self, owner: Owner) -> Vec<u64> {
        let numbered = (0..).zip(&self.slots);
        numbered
            .filter(|(_, slot)| matches!(&slot.state, State::Posted(work) if work.owner == owner))
            .map(|(number, slot)| id(slot.tenant, number))
            .collect()
    }

    fn forget(&mut self, work: &[u64], queue_pair: u32) -> Vec<Settled> {
        let mut settled = Vec::new();
        for &id in work {
            let state = self.slot(id).map(|slot| &slot.state);
            let Some(State::Posted(work)) = state else {
                continue;
            };
            settled.push(if matches!(work.interest, Interest::Future(_)) {
                self.complete(id, |tag| Completion::flushed(tag, queue_pair))
                    .0
            } else {
                Settled {
                    waker: None,
                    released: SmallVec::from_iter([self.withdraw(id)]),
                }
            });
        }
        settled
    }
}

/// The `wr_id` of a completion queue's own work: tenant (31 bits), slot (32 bits).
fn id(tenant: u32, slot: u32) -> u64 {
    u64::from(tenant & !(1 << 31)) << 32 | u64::from(slot)
}

/// Set in the `wr_id` of work of a shared receive queue.
const OF_SHARED: u64 = 1 << 63;
/// Numbers of the ledgers of shared receive queues: 23 bits.
const SHARED_NUMBERS: u32 = (1 << 23) - 1;
/// Slots of such a ledger: 24 bits, more than any device's queue holds.
const SHARED_SLOTS: u32 = (1 << 24) - 1;
/// Tenants of such a slot: 16 bits.
const SHARED_TENANTS: u32 = (1 << 16) - 1;

/// The `wr_id` of work of a shared receive queue.
fn shared_id(number: u32, tenant: u32, slot: u32) -> u64 {
    OF_SHARED
        | u64::from(number) << 40
        | u64::from(tenant & SHARED_TENANTS) << 24
        | u64::from(slot & SHARED_SLOTS)
}

fn shared_number(id: u64) -> Option<u32> {
    (id & OF_SHARED != 0).then(|| low(id >> 40) & SHARED_NUMBERS)
}

fn tenant_mask(id: u64) -> u32 {
    if id & OF_SHARED == 0 {
        !(1 << 31)
    } else {
        SHARED_TENANTS
    }
}

/// Tenant and slot of a `wr_id`.
fn parts(id: u64) -> (u32, u32) {
    if id & OF_SHARED == 0 {
        (low(id >> 32), low(id))
    } else {
        (low(id >> 24) & SHARED_TENANTS, low(id) & SHARED_SLOTS)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a part of a number")]
fn low(number: u64) -> u32 {
    number as u32
}

impl Ledger {
    /// The work that was taken note of last was not posted after all; its memory. Silent work before it waits for another one again.
    pub(super) fn withdraw_last(&self, id: u64, silent: Option<&mut SmallVec<[u64; 4]>>) -> Held {
        let mut outstanding = self.lock();
        let State::Posted(work) = outstanding.vacate(id) else {
            return Held::default();
        };
        if let Some(silent) = silent {
            if silent.last() == Some(&id) {
                silent.pop();
            }
            if !work.before.is_empty() {
                let later = std::mem::replace(silent, work.before);
                silent.extend(later);
            }
        }
        drop(outstanding);
        work.held
    }
}
