//! Posting receives: to queue pairs, and to shared receive queues.

use std::ptr::{self, NonNull};

use ferroce_abi::types::{ibv_context_ops, ibv_qp, ibv_recv_wr, ibv_srq};
use smallvec::SmallVec;

use super::super::held::{Held, Refused};
use super::super::ledger::{Ledger, NewWork};
use super::super::pieces::{Memory, listed, refused};
use super::super::work::Owner;
use super::super::{OpenDevice, QueuePairHandle, SharedQueue};
use super::chain::{Chain, Operation, Takes, WorkRequest, post_all};
use super::{Task, check_domain, check_pieces};
use crate::{Error, Result};

/// Takes note of a receive; its `wr_id`.
#[inline(always)]
fn note(ledger: &Ledger, owner: Owner, (tag, reader): Task, hold: impl FnOnce(&mut Held)) -> u64 {
    let work = NewWork {
        tag,
        owner,
        reader,
        before: None,
    };
    ledger.add(work, hold)
}

/// Takes note of one receive that was checked, and posts it; the `wr_id`.
#[inline(always)]
fn post(
    queue: &impl Takes<ibv_recv_wr>,
    (ledger, owner): (&Ledger, Owner),
    task: Task,
    memory: impl Memory,
) -> std::result::Result<u64, Box<Refused>> {
    listed(memory, |memory, first| {
        let mut form = ibv_recv_wr::zeroed();
        form.link(ptr::null_mut(), first, memory.count());
        let id = note(ledger, owner, task, |held| memory.hold(held));
        form.wr_id = id;
        // SAFETY: linked to nothing else, and the ledger holds its memory, or the caller of an unsafe function does.
        match unsafe { queue.call(&raw mut form) } {
            Ok(()) => Ok(id),
            Err((error, _)) => Err(refused_receive(ledger, id, error)),
        }
    })
}

#[cold]
#[expect(clippy::boxed_local, reason = "it comes so: C's answer is short then")]
fn refused_receive(ledger: &Ledger, id: u64, error: Box<Error>) -> Box<Refused> {
    let (held, _) = ledger.withdraw(id);
    Refused::new(*error, held)
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
        let _posting = self.posting.enter();
        let place = (&**self.receive_queue().ledger(), self.owner);
        post(self, place, task, memory)
    }

    /// `ibv_post_recv` of several work requests at once, in order. How many were posted, and why the next one was not.
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
        let _posting = self.posting.enter();
        let ledger = self.receive_queue().ledger();
        let mut chain: Chain<ibv_recv_wr> = receives
            .into_iter()
            .map(|(task, memory)| {
                let mut form = ibv_recv_wr::zeroed();
                let elements = memory.elements().collect();
                form.wr_id = note(ledger, self.owner, task, |held| memory.hold(held));
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

// SAFETY: the queue pair lives until this is dropped, and was made from the device's context.
unsafe impl Takes<ibv_recv_wr> for QueuePairHandle {
    type Raw = ibv_qp;
    const CALL: &'static str = "ibv_post_recv";

    #[inline(always)]
    fn raw(&self) -> NonNull<ibv_qp> {
        self.raw
    }

    #[inline(always)]
    fn device(&self) -> &OpenDevice {
        &self.device
    }

    #[inline(always)]
    fn operation(operations: &ibv_context_ops) -> Operation<ibv_qp, ibv_recv_wr> {
        operations.post_recv
    }

    fn explain(&self, error: Error) -> Error {
        self.explain_post(error, "receive")
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

// SAFETY: the queue lives until this is dropped, and was made from the context of its domain.
unsafe impl Takes<ibv_recv_wr> for SharedQueue {
    type Raw = ibv_srq;
    const CALL: &'static str = "ibv_post_srq_recv";

    #[inline(always)]
    fn raw(&self) -> NonNull<ibv_srq> {
        self.raw
    }

    #[inline(always)]
    fn device(&self) -> &OpenDevice {
        &self.domain().device
    }

    #[inline(always)]
    fn operation(operations: &ibv_context_ops) -> Operation<ibv_srq, ibv_recv_wr> {
        operations.post_srq_recv
    }

    fn explain(&self, error: Error) -> Error {
        error.about(|| format!("shared receive queue of {} receives", self.max_wr))
    }
}
