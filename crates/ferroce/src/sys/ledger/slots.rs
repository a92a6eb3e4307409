//! Where work is noted: a slot for each work request, used again and again.
//!
//! A slot's parts are written and read one by one where they are: work is never moved through the stack.

use std::task::Waker;

use ferroce_abi::types::ibv_wc;
use smallvec::SmallVec;

use super::super::fetch::{BATCH, Fetched};
use super::super::held::Held;
use super::super::work::Owner;
use super::{Reader, number};
use crate::Timestamp;

/// Work by the number of its slot.
pub(super) struct Outstanding {
    slots: Vec<Slot>,
    /// The free slot that is used next; it names another.
    free: u32,
    /// The ledger's number, if it is of a shared receive queue.
    ledger: Option<u32>,
}

/// Instead of a free slot, if there is none: more than slots can be.
const NONE: u32 = u32::MAX;

/// Work that is about to be posted.
pub(in crate::sys) struct NewWork {
    /// What the program calls it.
    pub(in crate::sys) tag: u64,
    /// Its queue pair.
    pub(in crate::sys) owner: Owner,
    /// Who is told.
    pub(in crate::sys) reader: Reader,
    /// The work before it in the same queue, if that completes without a word: at the latest when this does. It names the one before it in
    /// turn.
    pub(in crate::sys) before: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing is held, nobody is to be woken.
    Free,
    /// The device works on it, for whoever polls.
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
        matches!(self, Self::Tagged | Self::Awaited | Self::Abandoned)
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
    /// It becomes free: nothing of its tenant is held any more.
    #[inline(always)]
    fn vacate(&mut self, free: &mut u32) {
        self.next = std::mem::replace(free, number::slot(self.id));
        self.id = number::next(self.id);
        self.state = State::Free;
    }
}

/// Who is to be woken when completions were brought to their readers, without the locks.
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
        self.0.into_iter().for_each(Waker::wake);
    }
}

/// One slot more, and that.
#[cold]
#[inline(never)]
fn grow(slots: &mut Vec<Slot>, ledger: Option<u32>) -> &mut Slot {
    let number = u32::try_from(slots.len())
        .ok()
        .filter(|&number| number < NONE)
        .expect("invariant: work requests take memory");
    slots.push(Slot {
        id: number::first(ledger, number),
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
    pub(super) fn new(ledger: Option<u32>) -> Self {
        Self {
            slots: Vec::new(),
            free: NONE,
            ledger,
        }
    }

    /// The `wr_id` of new work. `hold` says what it holds.
    #[inline(always)]
    pub(super) fn add(&mut self, new: NewWork, hold: impl FnOnce(&mut Held)) -> u64 {
        let Self {
            slots,
            free,
            ledger,
        } = self;
        let slot = match slots.get_mut(*free as usize) {
            Some(slot) => slot,
            None => grow(slots, *ledger),
        };
        *free = slot.next;
        slot.state = match new.reader {
            Reader::Poller => State::Tagged,
            Reader::Future => State::Awaited,
        };
        slot.tag = new.tag;
        slot.owner = new.owner;
        slot.before = new.before;
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
                slot.vacate(free);
                withdrawn
            }
            _ => Default::default(),
        }
    }

    pub(super) fn is_posted(&mut self, id: u64) -> bool {
        self.slot(id)
            .is_some_and(|(slot, _)| slot.state.is_posted())
    }

    /// Brings a completion to its reader. If that is whoever polls, the answer is true, and its `wr_id` is the tag now.
    #[inline(always)]
    pub(super) fn complete(
        &mut self,
        wc: &mut ibv_wc,
        timestamp: &Option<Timestamp>,
        settled: &mut Settled,
    ) -> bool {
        // Work of a queue pair that is gone tells nobody anything.
        let Some((slot, free)) = self.slot(wc.wr_id) else {
            return false;
        };
        if slot.state != State::Tagged || slot.before.is_some() {
            return self.complete_other(wc, *timestamp, settled);
        }
        wc.wr_id = slot.tag;
        slot.held.release();
        slot.vacate(free);
        true
    }

    /// [`complete`](Self::complete) of what is not tagged work alone.
    #[inline(never)]
    fn complete_other(
        &mut self,
        wc: &mut ibv_wc,
        timestamp: Option<Timestamp>,
        settled: &mut Settled,
    ) -> bool {
        let Some((slot, free)) = self.slot(wc.wr_id) else {
            return false;
        };
        let silent = slot.before.take();
        let state = slot.state;
        match state {
            State::Tagged | State::Abandoned => {
                wc.wr_id = slot.tag;
                slot.held.release();
                slot.vacate(free);
            }
            State::Awaited => {
                slot.state = State::Done;
                wc.wr_id = slot.tag;
                slot.done = Fetched { wc: *wc, timestamp };
                if let Some(waker) = slot.waker.take() {
                    settled.wake(waker);
                }
            }
            // Settled already: flushed with its queue pair, whose completions come all the same. Its future has that still to come.
            State::Free | State::Done => return false,
        }
        self.release_silent(silent);
        state == State::Tagged
    }

    /// Silent work has completed, and so has what it names.
    fn release_silent(&mut self, mut silent: Option<u64>) {
        while let Some(before) = silent {
            let (_released, earlier) = self.withdraw(before);
            silent = earlier;
        }
    }

    /// The completion of a future's work and the memory, if it is done.
    #[inline(always)]
    pub(super) fn answer(&mut self, id: u64) -> Option<(Fetched, Held)> {
        let (slot, free) = self
            .slot(id)
            .expect("invariant: a slot stays while its future has not had the completion");
        if slot.state != State::Done {
            return None;
        }
        let answer = (slot.done, std::mem::take(&mut slot.held));
        slot.vacate(free);
        Some(answer)
    }

    /// Whom work that is not done wakes; whom it would have woken.
    pub(super) fn listen(&mut self, id: u64, waker: Waker) -> Option<Waker> {
        match self.slot(id) {
            Some((slot, _)) => slot.waker.replace(waker),
            None => Some(waker),
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
                slot.vacate(free);
                (held, None)
            }
            State::Free | State::Tagged | State::Abandoned => Default::default(),
        }
    }

    pub(super) fn posted(&self, owner: Owner) -> Vec<u64> {
        let posted = self
            .slots
            .iter()
            .filter(|slot| slot.state.is_posted() && slot.owner == owner);
        posted.map(|slot| slot.id).collect()
    }

    /// The device has let go of some work, as far as it has not completed. Its futures learn that it was flushed.
    pub(super) fn forget(&mut self, work: &[u64], queue_pair: u32, settled: &mut Settled) {
        for &id in work {
            match self.slot(id) {
                Some((slot, _)) if slot.state == State::Awaited => {
                    let mut wc = Fetched::flushed(id, queue_pair).wc;
                    self.complete_other(&mut wc, None, settled);
                }
                _ => drop(self.withdraw(id)),
            }
        }
    }
}
