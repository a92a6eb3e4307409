//! Where work is noted: a slot for each work request, used again and again.
//!
//! A slot's parts are written and read one by one where they are: work is never moved through the
//! stack.

use std::task::{Poll, Waker};

use ferroce_abi::types::ibv_wc;
use smallvec::SmallVec;

use super::super::held::Held;
use super::super::place::{BATCH, Fetched, View};
use super::super::work::Owner;
use super::Reader;
use super::number::{self, Family};
use crate::cq::Timestamp;
use crate::wake::wake_all;

/// Work by the number of its slot.
pub(super) struct Outstanding {
    slots: Vec<Slot>,
    /// The free slot that is used next; it names another.
    free: u32,
    family: Family,
}

/// Instead of a free slot, if there is none.
const NONE: u32 = u32::MAX;

/// Work that is about to be posted.
pub(in crate::sys) struct NewWork {
    /// What the program calls it.
    pub(in crate::sys) tag: u64,
    /// Queue pair that the work was posted to.
    pub(in crate::sys) owner: Owner,
    /// The reader that is told.
    pub(in crate::sys) reader: Reader,
    /// Whether it holds a region at most.
    pub(in crate::sys) is_simple: bool,
    /// The work before it in the same queue, if that completes without a word: at the latest when
    /// this does. It names the one before it in turn.
    pub(in crate::sys) before: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing is held, nobody is to be woken.
    Free,
    /// The device works on it, for a poller. It holds a region at most, and names no silent
    /// work: what most work is like.
    Simple,
    /// The same of other work.
    Tagged,
    /// The device works on it, for a future.
    Awaited,
    /// The device works on it, and its future was dropped. The memory stays held for the device.
    Abandoned,
    /// It completed, and its future has not been polled since.
    Done,
}

impl State {
    fn is_posted(self) -> bool {
        matches!(
            self,
            Self::Simple | Self::Tagged | Self::Awaited | Self::Abandoned
        )
    }
}

struct Slot {
    /// The `wr_id` of its tenant, or of the next one.
    id: u64,
    /// Of a free slot: the one that is used after it.
    next: u32,
    state: State,
    tag: u64,
    owner: Owner,
    held: Held,
    before: Option<u64>,
    /// Of work that is awaited: whom it wakes, once that has asked.
    waker: Option<Waker>,
    /// Of work that is done: how it ended.
    done: Fetched,
}

impl Slot {
    /// Its tenant, which a future awaits, has completed.
    #[inline(always)]
    fn finish(&mut self, wc: &ibv_wc, timestamp: Option<Timestamp>, settled: &mut Settled) {
        self.state = State::Done;
        self.done = Fetched { wc: *wc, timestamp };
        if let Some(waker) = self.waker.take() {
            settled.wake(waker);
        }
    }

    /// Its tenant, whose number is `id`, goes: nothing of it is held any more.
    #[inline(always)]
    fn vacate(&mut self, id: u64, free: &mut u32) {
        self.become_free((number::slot(id), number::next(id)), free);
    }

    /// It is free for a tenant of another number: its own number, and that.
    #[inline(always)]
    fn become_free(&mut self, (own, next): (u32, u64), free: &mut u32) {
        self.next = std::mem::replace(free, own);
        self.id = next;
        self.state = State::Free;
    }
}

/// Tasks to be woken when completions were brought to their readers, without the locks.
#[derive(Default)]
pub(in crate::sys) struct Settled(SmallVec<[Waker; BATCH]>);

impl Settled {
    /// One more is to be woken.
    pub(in crate::sys) fn wake(&mut self, waker: Waker) {
        self.0.push(waker);
    }

    /// Whether there is nobody.
    #[inline(always)]
    pub(in crate::sys) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Wakes them.
    pub(in crate::sys) fn finish(self) {
        wake_all(self.0);
    }
}

/// One slot more, and that.
#[cold]
#[inline(never)]
fn grow(slots: &mut Vec<Slot>, family: Family) -> &mut Slot {
    let number = u32::try_from(slots.len())
        .ok()
        .filter(|&number| number <= family.last())
        .expect("invariant: work requests take memory");
    slots.push(Slot {
        id: family.first(number),
        next: NONE,
        state: State::Free,
        tag: 0,
        owner: Owner::NOBODY,
        held: Held::default(),
        before: None,
        waker: None,
        done: Fetched::flushed(0, 0),
    });
    &mut slots[number as usize]
}

impl Outstanding {
    pub(super) fn new(family: Family) -> Self {
        Self {
            slots: Vec::new(),
            free: NONE,
            family,
        }
    }

    /// The `wr_id` of new work. `hold` says what it holds.
    #[inline(always)]
    pub(super) fn add(&mut self, new: NewWork, hold: impl FnOnce(&mut Held)) -> u64 {
        let Self {
            slots,
            free,
            family,
        } = self;
        let slot = match slots.get_mut(*free as usize) {
            Some(slot) => slot,
            None => grow(slots, *family),
        };
        *free = slot.next;
        slot.state = match (new.reader, new.is_simple && new.before.is_none()) {
            (Reader::Poller, true) => State::Simple,
            (Reader::Poller, false) => State::Tagged,
            (Reader::Future, _) => State::Awaited,
        };
        slot.tag = new.tag;
        slot.owner = new.owner;
        if new.before.is_some() {
            // No slot names anything when its tenant has gone.
            slot.before = new.before;
        }
        hold(&mut slot.held);
        slot.id
    }

    /// The slot of work that is still known by this number, and the head of the free ones.
    #[inline(always)]
    fn slot(&mut self, id: u64) -> Option<(&mut Slot, &mut u32)> {
        let slot = self.slots.get_mut(number::slot(id) as usize)?;
        (slot.id == id).then_some((slot, &mut self.free))
    }

    /// Its memory, and the silent work before it.
    pub(super) fn withdraw(&mut self, id: u64) -> (Held, Option<u64>) {
        match self.slot(id) {
            Some((slot, free)) if slot.state.is_posted() => {
                // Nobody waits for work that was refused, nor for what completes without a word.
                let withdrawn = (std::mem::take(&mut slot.held), slot.before.take());
                slot.vacate(id, free);
                withdrawn
            }
            _ => Default::default(),
        }
    }

    pub(super) fn is_posted(&mut self, id: u64) -> bool {
        self.slot(id)
            .is_some_and(|(slot, _)| slot.state.is_posted())
    }

    /// [`complete`](Self::complete) of simple work of a completion queue's own, in few
    /// instructions, as far as one after the other is such: how many.
    // On its own it has enough registers.
    #[inline(never)]
    pub(super) fn complete_simple(&mut self, completions: &mut [ibv_wc]) -> usize {
        let slots = self.slots.as_mut_slice();
        let mut free = self.free;
        let mut count = 0;
        for wc in completions {
            let id = wc.wr_id;
            let own = number::own_slot(id);
            let slot = slots.get_mut(own as usize);
            let Some(slot) = slot.filter(|slot| slot.id == id && slot.state == State::Simple)
            else {
                break;
            };
            wc.wr_id = slot.tag;
            slot.held.release_region();
            slot.become_free((own, number::own_next(id)), &mut free);
            count += 1;
        }
        self.free = free;
        count
    }

    /// Brings a completion to its reader. If that is a poller, the answer is true, and its
    /// `wr_id` is the tag now.
    pub(super) fn complete(
        &mut self,
        wc: &mut ibv_wc,
        timestamp: Option<Timestamp>,
        settled: &mut Settled,
    ) -> bool {
        let id = wc.wr_id;
        // Work of a queue pair that is gone tells nobody anything.
        let Some((slot, free)) = self.slot(id) else {
            return false;
        };
        if slot.state == State::Awaited && slot.before.is_none() {
            slot.finish(wc, timestamp, settled);
            return false;
        }
        let silent = slot.before.take();
        let state = slot.state;
        match state {
            State::Simple | State::Tagged | State::Abandoned => {
                wc.wr_id = slot.tag;
                slot.held.release();
                slot.vacate(id, free);
            }
            State::Awaited => slot.finish(wc, timestamp, settled),
            // Settled already: flushed with its queue pair, whose completions come all the same.
            // Its future has that still to come.
            State::Free | State::Done => return false,
        }
        if silent.is_some() {
            self.release_silent(silent);
        }
        matches!(state, State::Simple | State::Tagged)
    }

    /// Silent work has completed, and so has what it names.
    #[cold]
    fn release_silent(&mut self, mut silent: Option<u64>) {
        while let Some(before) = silent {
            let (_released, earlier) = self.withdraw(before);
            silent = earlier;
        }
    }

    /// The completion of a future's work and what it held, if it is done: what `read` makes of
    /// them, which leaves what nobody needs.
    #[inline(always)]
    pub(super) fn answer<R>(
        &mut self,
        id: u64,
        read: impl FnOnce(View<'_>, &mut Held) -> R,
    ) -> Poll<R> {
        let (slot, free) = self
            .slot(id)
            .expect("invariant: a slot stays while its future has not had the completion");
        if slot.state != State::Done {
            return Poll::Pending;
        }
        let answer = Poll::Ready(read(slot.done.view(), &mut slot.held));
        slot.held.release();
        slot.vacate(id, free);
        answer
    }

    /// Whom work that is not done wakes, and whom it would have woken; if it is done, the waker
    /// comes back.
    pub(super) fn listen(&mut self, id: u64, waker: Waker) -> Result<Option<Waker>, Waker> {
        match self.slot(id) {
            Some((slot, _)) if slot.state != State::Done => Ok(slot.waker.replace(waker)),
            _ => Err(waker),
        }
    }

    /// Memory, and a waker, that nothing needs any more.
    pub(super) fn abandon(&mut self, id: u64) -> (Held, Option<Waker>) {
        let Some((slot, free)) = self.slot(id) else {
            return Default::default();
        };
        match slot.state {
            State::Awaited => {
                slot.state = State::Abandoned;
                (Held::default(), slot.waker.take())
            }
            State::Done => {
                let held = std::mem::take(&mut slot.held);
                slot.vacate(id, free);
                (held, None)
            }
            State::Free | State::Simple | State::Tagged | State::Abandoned => Default::default(),
        }
    }

    pub(super) fn posted(&self, owner: Owner) -> Vec<u64> {
        let posted = self
            .slots
            .iter()
            .filter(|slot| slot.state.is_posted() && slot.owner == owner);
        posted.map(|slot| slot.id).collect()
    }

    /// The device has let go of some work, as far as it has not completed. Its futures learn that
    /// it was flushed.
    pub(super) fn forget(&mut self, work: &[u64], queue_pair: u32, settled: &mut Settled) {
        for &id in work {
            match self.slot(id) {
                Some((slot, _)) if slot.state == State::Awaited => {
                    let mut wc = Fetched::flushed(id, queue_pair).wc;
                    self.complete(&mut wc, None, settled);
                }
                _ => drop(self.withdraw(id)),
            }
        }
    }
}
