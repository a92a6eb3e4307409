//! The work requests whose completions have not been polled, and the completions that wait for their reader.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

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

/// Work by the `wr_id` that C knows it by: the number of its slot, and a count that tells the slot's tenants apart.
#[derive(Default)]
pub(super) struct Outstanding {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Completions that were taken from the device and not yet by the program.
    unread: VecDeque<Completion>,
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
}

enum Interest {
    Poller,
    Future(Option<Waker>),
    /// The future was dropped. The memory stays held for the device.
    Nobody,
}

/// What is left to do when a completion was settled, without the lock: wake its future, let go of its memory.
#[derive(Default)]
pub(super) struct Settled {
    waker: Option<Waker>,
    _held: Held,
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
    /// Takes note of work that is about to be posted; its `wr_id`.
    pub(super) fn add(&mut self, tag: u64, owner: Owner, held: Held, reader: Reader) -> u64 {
        let interest = match reader {
            Reader::Poller => Interest::Poller,
            Reader::Future => Interest::Future(None),
        };
        let state = State::Posted(Work {
            tag,
            owner,
            held,
            interest,
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
        id(slot.tenant, number)
    }

    /// The slot of work that is still known by this number.
    fn slot(&mut self, id: u64) -> Option<&mut Slot> {
        let (tenant, number) = parts(id);
        let slot = self.slots.get_mut(number as usize)?;
        (slot.tenant == tenant).then_some(slot)
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

    /// Work was not posted after all; its memory.
    pub(super) fn withdraw(&mut self, id: u64) -> Held {
        match self.vacate(id) {
            State::Posted(work) => work.held,
            _ => Held::default(),
        }
    }

    /// The device has completed work. `completion` makes a completion of its tag.
    pub(super) fn complete(
        &mut self,
        id: u64,
        completion: impl FnOnce(u64) -> Completion,
    ) -> Settled {
        // Work of a queue pair that is gone tells nobody anything.
        let Some(slot) = self.slot(id) else {
            return Settled::default();
        };
        let State::Posted(work) = std::mem::replace(&mut slot.state, State::Free) else {
            return Settled::default();
        };
        let done = completion(work.tag);
        if let Interest::Future(waker) = work.interest {
            slot.state = State::Done(done, work.held);
            let _held = Held::default();
            return Settled { waker, _held };
        }
        self.vacate(id);
        if matches!(work.interest, Interest::Poller) {
            self.unread.push_back(done);
        }
        Settled {
            waker: None,
            _held: work.held,
        }
    }

    /// The oldest completion that waits for a poller.
    pub(super) fn next(&mut self) -> Option<Completion> {
        self.unread.pop_front()
    }

    /// A future asks for its completion and the memory of its work.
    pub(super) fn poll(&mut self, id: u64, context: &Context<'_>) -> Poll<(Completion, Held)> {
        let slot = self
            .slot(id)
            .expect("invariant: a slot stays while its future has not had the completion");
        if let State::Posted(work) = &mut slot.state {
            work.interest = Interest::Future(Some(context.waker().clone()));
            return Poll::Pending;
        }
        match self.vacate(id) {
            State::Done(completion, held) => Poll::Ready((completion, held)),
            State::Free | State::Posted(_) => unreachable!("invariant: the future's own slot"),
        }
    }

    /// A future was dropped before it had its completion; memory that nothing needs any more.
    pub(super) fn abandon(&mut self, id: u64) -> Held {
        let Some(slot) = self.slot(id) else {
            return Held::default();
        };
        if let State::Posted(work) = &mut slot.state {
            work.interest = Interest::Nobody;
            return Held::default();
        }
        match self.vacate(id) {
            State::Done(_, held) => held,
            State::Free | State::Posted(_) => Held::default(),
        }
    }

    /// A queue pair was destroyed: the device has let go of the memory of its work. Futures learn that their work was flushed.
    pub(super) fn forget(&mut self, owner: Owner, queue_pair: u32) -> Vec<Settled> {
        let mut settled = Vec::new();
        for number in 0..self.slots.len().try_into().unwrap_or(u32::MAX) {
            let slot = &self.slots[number as usize];
            let id = id(slot.tenant, number);
            let State::Posted(work) = &slot.state else {
                continue;
            };
            if work.owner != owner {
                continue;
            }
            settled.push(if matches!(work.interest, Interest::Future(_)) {
                self.complete(id, |tag| Completion::flushed(tag, queue_pair))
            } else {
                Settled {
                    waker: None,
                    _held: self.withdraw(id),
                }
            });
        }
        settled
    }
}

/// The `wr_id` of a slot's tenant.
fn id(tenant: u32, number: u32) -> u64 {
    u64::from(tenant) << 32 | u64::from(number)
}

/// Tenant and slot of a `wr_id`.
#[expect(clippy::cast_possible_truncation, reason = "the halves of a number")]
fn parts(id: u64) -> (u32, u32) {
    ((id >> 32) as u32, (id & u64::from(u32::MAX)) as u32)
}
