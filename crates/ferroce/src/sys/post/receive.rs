//! Posting receives: to queue pairs, and to shared receive queues.

use std::ptr::{self, NonNull};

use ferroce_abi::types::{ibv_recv_wr, ibv_sge, ibv_srq};
use smallvec::SmallVec;

use super::super::held::Refused;
use super::super::ledger::{Ledger, NewWork};
use super::super::pieces::{Few, Memory, refused};
use super::super::work::Owner;
use super::super::{QueuePairHandle, SharedQueue};
use super::chain::{Chain, Operation, Takes, WorkRequest, of_context, post_all};
use super::{Task, check_domain, check_pieces};
use crate::{Error, Result};

/// Takes note of a receive; its `wr_id`.
#[inline(always)]
fn note(ledger: &Ledger, owner: Owner, (tag, reader): Task, memory: impl Memory) -> u64 {
    let work = NewWork {
        tag,
        owner,
        reader,
        is_simple: memory.is_simple(),
        before: None,
    };
    ledger.add(work, |held| memory.hold(held))
}

/// Takes note of one receive that was checked, and posts it; the `wr_id`.
#[inline(always)]
fn post(
    queue: &impl Takes<ibv_recv_wr>,
    place: (&Ledger, Owner),
    task: Task,
    memory: impl Memory,
) -> std::result::Result<u64, Box<Refused>> {
    match Few::of(&memory) {
        Some(mut few) => post_listed(queue, place, task, (memory, few.first())),
        None => post_many(queue, place, task, memory),
    }
}

/// [`post`] with a list of pieces that has no room on the stack.
#[inline(never)]
fn post_many(
    queue: &impl Takes<ibv_recv_wr>,
    place: (&Ledger, Owner),
    task: Task,
    memory: impl Memory,
) -> std::result::Result<u64, Box<Refused>> {
    let mut list: Vec<_> = memory.elements().collect();
    post_listed(queue, place, task, (memory, list.as_mut_ptr()))
}

/// The same with C's list of the pieces, by its first one.
#[inline(always)]
fn post_listed(
    queue: &impl Takes<ibv_recv_wr>,
    (ledger, owner): (&Ledger, Owner),
    task: Task,
    (memory, first): (impl Memory, *mut ibv_sge),
) -> std::result::Result<u64, Box<Refused>> {
    let mut form = ibv_recv_wr::zeroed();
    form.link(ptr::null_mut(), first, memory.count());
    form.wr_id = note(ledger, owner, task, memory);
    let id = form.wr_id;
    // SAFETY: linked to nothing else, and the ledger holds its memory, or the caller of an unsafe
    // function does.
    let errno = unsafe { queue.call(&raw mut form, &mut ptr::null_mut()) };
    if errno == 0 {
        return Ok(id);
    }
    Err(refused_receive(ledger, id, queue.refused(errno)))
}

#[cold]
fn refused_receive(ledger: &Ledger, id: u64, error: Error) -> Box<Refused> {
    let (held, _) = ledger.withdraw(id);
    Refused::new(error, held)
}

impl QueuePairHandle {
    /// `ibv_post_recv` of one work request; the `wr_id`.
    #[inline(always)]
    pub(crate) fn post_receive(
        &self,
        task: Task,
        memory: impl Memory,
    ) -> std::result::Result<u64, Box<Refused>> {
        if let Err(error) = self.check_receive(&memory) {
            return Err(refused(memory, error));
        }
        let _turn = self.turns.receive();
        let place = (&**self.receive_queue().ledger(), self.owner);
        post(self, place, task, memory)
    }

    /// `ibv_post_recv` of several work requests at once, in order. How many were posted, and why
    /// the next one was not.
    pub(crate) fn post_receives<M: Memory>(
        &self,
        receives: impl Iterator<Item = (Task, M)>,
    ) -> (usize, Option<Error>) {
        let receives: SmallVec<[_; 4]> = receives.collect();
        for (_, memory) in &receives {
            if let Err(error) = self.check_receive(memory) {
                return (0, Some(error));
            }
        }
        let _turn = self.turns.receive();
        let ledger = self.receive_queue().ledger();
        let mut chain: Chain<ibv_recv_wr> = receives
            .into_iter()
            .map(|(task, memory)| {
                let mut form = ibv_recv_wr::zeroed();
                let elements = memory.elements().collect();
                form.wr_id = note(ledger, self.owner, task, memory);
                (form.wr_id, form, elements)
            })
            .collect();
        let (posted, error) = post_all(self, &mut chain);
        for (id, ..) in &chain[posted..] {
            drop(ledger.withdraw(*id));
        }
        (posted, error)
    }

    #[inline(always)]
    fn check_receive(&self, memory: &impl Memory) -> Result<()> {
        if self.shared.is_some() {
            return Err(Error::Misuse(
                "the queue pair takes its receives from a shared receive queue",
            ));
        }
        if let Some(domain) = &self.domain {
            check_domain(memory, domain)?;
        }
        check_pieces(memory, self.cap.max_recv_sge)
    }
}

impl SharedQueue {
    /// `ibv_post_srq_recv`; the `wr_id`.
    #[inline(always)]
    pub(crate) fn post(
        &self,
        task: Task,
        memory: impl Memory,
    ) -> std::result::Result<u64, Box<Refused>> {
        let checked = check_domain(&memory, self.domain());
        if let Err(error) = checked.and_then(|()| check_pieces(&memory, self.max_sge)) {
            return Err(refused(memory, error));
        }
        post(self, (self.ledger(), self.owner), task, memory)
    }
}

// SAFETY: the queue lives until this is dropped, and the operation is of the context of its domain.
unsafe impl Takes<ibv_recv_wr> for SharedQueue {
    type Raw = ibv_srq;
    const CALL: &'static str = "ibv_post_srq_recv";

    #[inline(always)]
    fn target(&self) -> (NonNull<ibv_srq>, Operation<ibv_srq, ibv_recv_wr>) {
        // SAFETY: an open context has its operations filled in, and does not change them.
        let operations = unsafe { &(*self.domain().device.raw.as_ptr()).ops };
        (self.raw, of_context(operations.post_srq_recv))
    }

    fn explain(&self, error: Error) -> Error {
        error.about(|| format!("shared receive queue of {} receives", self.max_wr))
    }
}
