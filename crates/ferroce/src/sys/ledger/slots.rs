//! Where work is noted: a slot for each work request, used again and again.

use std::task::{Poll, Waker};

use smallvec::SmallVec;

use super::super::queue::BATCH;
use super::super::work::{Held, Owner};
use super::{Reader, number};
use crate::Completion;

/// Work by the number of its slot.
#[derive(Default)]
pub(super) struct Outstanding {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

/// Work that is about to be posted.
pub(in crate::sys) struct NewWork {
    /// What the program calls it.
    pub(in crate::sys) tag: u64,
    /// Its queue pair.
    pub(in crate::sys) owner: Owner,
    /// Its memory.
    pub(in crate::sys) held: Held,
    /// Who is told.
    pub(in crate::sys) reader: Reader,
    /// The work before it in the same queue, if that completes without a word: at the latest when this does. It names the one before it in
    /// turn.
    pub(in crate::sys) before: Option<u64>,
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
    before: Option<u64>,
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

/// What is left to do when completions were settled, without the lock: wake their futures, let go of their memory.
#[derive(Default)]
pub(in crate::sys) struct Settled {
    wakers: SmallVec<[Waker; BATCH]>,
    released: SmallVec<[Held; BATCH]>,
}

impl Settled {
    /// One more is to be woken.
    pub(in crate::sys) fn wake(&mut self, waker: Waker) {
        self.wakers.push(waker);
    }

    /// Does it.
    #[inline]
    pub(in crate::sys) fn finish(self) {
        self.wakers.into_iter().for_each(Waker::wake);
    }
}

impl Outstanding {
    /// Tenant and slot of new work.
    #[inline(always)]
    pub(super) fn add(&mut self, new: NewWork) -> (u32, u32) {
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
        // It is free: there is nothing to drop.
        std::mem::forget(std::mem::replace(&mut slot.state, state));
        (slot.tenant, number)
    }

    /// The slot of work that is still known by this number.
    #[inline]
    fn slot(&mut self, id: u64) -> Option<&mut Slot> {
        let (tenant, number) = number::parts(id);
        let slot = self.slots.get_mut(number as usize)?;
        let mask = number::tenant_mask(id);
        (slot.tenant & mask == tenant).then_some(slot)
    }

    /// Empties a slot; what was in it.
    fn vacate(&mut self, id: u64) -> State {
        let Some(slot) = self.slot(id) else {
            return State::Free;
        };
        slot.tenant = slot.tenant.wrapping_add(1);
        let state = std::mem::replace(&mut slot.state, State::Free);
        self.free.push(number::parts(id).1);
        state
    }

    /// Its memory, and the silent work before it.
    pub(super) fn withdraw(&mut self, id: u64) -> (Held, Option<u64>) {
        match self.vacate(id) {
            State::Posted(work) => (work.held, work.before),
            _ => Default::default(),
        }
    }

    pub(super) fn is_posted(&mut self, id: u64) -> bool {
        let slot = self.slot(id);
        slot.is_some_and(|slot| matches!(slot.state, State::Posted(_)))
    }

    #[inline]
    pub(super) fn complete(
        &mut self,
        id: u64,
        completion: impl FnOnce(u64) -> Completion,
        settled: &mut Settled,
    ) -> Option<u64> {
        // Work of a queue pair that is gone tells nobody anything. Other work may be settled already: flushed with its queue pair, whose
        // completions come all the same. Its future has that still to come.
        let slot = self.slot(id)?;
        let State::Posted(work) = &mut slot.state else {
            return None;
        };
        let silent = work.before.take();
        let mut for_poller = None;
        if let Interest::Future(waker) = &mut work.interest {
            settled.wakers.extend(waker.take());
            let (tag, held) = (work.tag, std::mem::take(&mut work.held));
            slot.state = State::Done(completion(tag), held);
        } else {
            for_poller = matches!(work.interest, Interest::Poller).then_some(work.tag);
            settled.released.push(std::mem::take(&mut work.held));
            // Nothing is left in it that needs to be dropped.
            std::mem::forget(std::mem::replace(&mut slot.state, State::Free));
            slot.tenant = slot.tenant.wrapping_add(1);
            self.free.push(number::parts(id).1);
        }
        if silent.is_some() {
            self.release_silent(silent, settled);
        }
        for_poller
    }

    /// Silent work has completed, and so has what it names.
    fn release_silent(&mut self, mut silent: Option<u64>, settled: &mut Settled) {
        while let Some(before) = silent {
            let (held, earlier) = self.withdraw(before);
            settled.released.push(held);
            silent = earlier;
        }
    }

    /// The answer, and a waker that is of no use any more.
    pub(super) fn poll(
        &mut self,
        id: u64,
        waker: Waker,
    ) -> (Poll<(Completion, Held)>, Option<Waker>) {
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
    pub(super) fn abandon(&mut self, id: u64) -> (Held, Option<Waker>) {
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

    pub(super) fn posted(&self, owner: Owner) -> Vec<u64> {
        let numbered = (0..).zip(&self.slots);
        numbered
            .filter(|(_, slot)| matches!(&slot.state, State::Posted(work) if work.owner == owner))
            .map(|(at, slot)| number::own(slot.tenant, at))
            .collect()
    }

    pub(super) fn forget(&mut self, work: &[u64], queue_pair: u32, settled: &mut Settled) {
        for &id in work {
            let state = self.slot(id).map(|slot| &slot.state);
            match state {
                Some(State::Posted(work)) if matches!(work.interest, Interest::Future(_)) => {
                    self.complete(id, |tag| Completion::flushed(tag, queue_pair), settled);
                }
                Some(State::Posted(_)) => settled.released.push(self.withdraw(id).0),
                _ => {}
            }
        }
    }
}
