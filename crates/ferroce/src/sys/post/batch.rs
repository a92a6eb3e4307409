//! Posting several work requests of the send queue at once.

use ferroce_abi::types::ibv_send_wr;
use smallvec::SmallVec;

use super::super::held::Held;
use super::super::pieces::Memory;
use super::super::work::Order;
use super::super::{QueuePairHandle, Reader};
use super::chain::{Chain, Elements, post_all};
use super::{SendTurn, Task};
use crate::{Error, Result};

/// Work that can be posted to the send queue of one queue pair, and what it will hold.
pub(crate) struct Checked {
    task: Task,
    /// But for `wr_id` and what points elsewhere.
    form: ibv_send_wr,
    is_silent: bool,
    held: Held,
    elements: Elements,
}

// SAFETY: its form points to nothing yet but an address handle that it holds; C's may be used by
// any thread.
unsafe impl Send for Checked {}
// SAFETY: by a shared reference nothing of it changes: only its owner takes it apart.
unsafe impl Sync for Checked {}

impl QueuePairHandle {
    /// Work for a [batch](Self::post_batch) of this queue pair.
    ///
    /// Inline bytes are read when the batch is posted, and must be borrowed until then.
    pub(crate) fn check<M: Memory>(&self, tag: u64, memory: M, order: Order) -> Result<Checked> {
        self.check_send(Reader::Poller, &memory, &order)?;
        let elements = memory.elements().collect();
        let mut held = Held::default();
        memory.hold(&mut held);
        let is_silent = order.silent;
        let (command, addressee) = order.split(M::INLINE);
        let addressee = addressee.map(|(address, number, key)| (address.into_arc(), number, key));
        let mut form = ibv_send_wr::zeroed();
        command.fill(&mut form, addressee.as_ref());
        if let Some((address, ..)) = &addressee {
            held.hold(address);
        }
        Ok(Checked {
            task: (tag, Reader::Poller),
            form,
            is_silent,
            held,
            elements,
        })
    }

    /// `ibv_post_send` of several work requests at once, in order. How many were posted, and why
    /// the next one was not.
    pub(crate) fn post_batch(&self, batch: SmallVec<[Checked; 4]>) -> (usize, Option<Error>) {
        let mut turn = self.turns.send();
        let mut chain: Chain<ibv_send_wr> = batch
            .into_iter()
            .map(|work| self.note(work, &mut turn))
            .collect();
        let (posted, error) = post_all(self, &mut chain);
        for (id, ..) in chain[posted..].iter().rev() {
            drop(self.withdraw_send(*id, &mut turn));
        }
        (posted, error)
    }

    /// Takes note of work of a batch.
    fn note(&self, work: Checked, turn: &mut SendTurn<'_>) -> (u64, ibv_send_wr, Elements) {
        let mut form = work.form;
        let is_simple = work.held.is_simple();
        let id = self.note_send(work.task, **turn, is_simple, |held| *held = work.held);
        **turn = work.is_silent.then_some(id);
        form.wr_id = id;
        (id, form, work.elements)
    }

    /// The work that was taken note of last was not posted after all; its memory.
    fn withdraw_send(&self, id: u64, turn: &mut SendTurn<'_>) -> Held {
        let (held, before) = self.send_queue().ledger().withdraw(id);
        **turn = before;
        held
    }
}
