//! Posting to the send queues of queue pairs.

mod chain;
mod receive;
mod special;

use std::sync::{Mutex, MutexGuard, PoisonError};

use ferroce_abi::types::{ibv_context_ops, ibv_send_wr};
use smallvec::SmallVec;

use super::ledger::NewWork;
use super::work::{Destination, Elements, Held, Order, Request, send_request};
use super::{QueuePairHandle, Reader};
use crate::{Error, Operation, Result};
use chain::{Chain, Stopped, call, post_all, post_one};

/// The last work request of a send queue, if it will complete without a word. Held while posting, so that it is in the order of the queue.
#[derive(Default)]
pub(super) struct Silent(Mutex<Option<u64>>);

impl Silent {
    fn lock(&self) -> MutexGuard<'_, Option<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is posted any more.
    pub(super) fn clear(&self) {
        *self.lock() = None;
    }
}

/// The right to post to a send queue; of those that may have silent work, with the last of it.
type Turn<'q> = Option<MutexGuard<'q, Option<u64>>>;

impl QueuePairHandle {
    fn turn(&self) -> Turn<'_> {
        self.silent.as_ref().map(Silent::lock)
    }

    /// `ibv_post_send` of one work request; the `wr_id`. If it is refused, its memory is the request's again.
    pub(crate) fn post_send(&self, request: &mut Request, order: Order) -> Result<u64> {
        self.check_send(request, &order)?;
        let mut turn = self.turn();
        let mut form = self.prepare(request, order, &mut turn);
        match post_one(&mut form, &mut request.elements, |first| {
            self.call_send(first)
        }) {
            Ok(()) => Ok(form.wr_id),
            Err(error) => {
                request.held = self.withdraw_send(form.wr_id, &mut turn);
                Err(error)
            }
        }
    }

    /// `ibv_post_send` of several work requests at once, in order. How many were posted, and why the next one was not.
    pub(crate) fn post_batch(
        &self,
        batch: SmallVec<[(Request, Order); 4]>,
    ) -> (usize, Option<Error>) {
        let checked = |(request, order): &(Request, Order)| self.check_send(request, order);
        if let Err(error) = batch.iter().try_for_each(checked) {
            return (0, Some(error));
        }
        let mut turn = self.turn();
        let mut chain: Chain<ibv_send_wr> = batch
            .into_iter()
            .map(|(mut request, order)| {
                let form = self.prepare(&mut request, order, &mut turn);
                (form.wr_id, form, request.elements)
            })
            .collect();
        let (posted, error) = post_all(&mut chain, |first| self.call_send(first));
        for (id, ..) in chain[posted..].iter().rev() {
            drop(self.withdraw_send(*id, &mut turn));
        }
        (posted, error)
    }

    /// Takes note of work, and puts it into C's form but for what points elsewhere. The ledger has its memory from then on.
    #[inline]
    fn prepare(&self, request: &mut Request, order: Order, turn: &mut Turn<'_>) -> ibv_send_wr {
        let mut form = send_request(&order, request.inline);
        if let Destination::Datagram(address, ..) = order.to {
            request.held.hold(address);
        }
        let held = std::mem::take(&mut request.held);
        form.wr_id = self.note_send((request.tag, request.reader), held, order.silent, turn);
        form
    }

    /// Takes note of work of the send queue; its `wr_id`.
    #[inline]
    fn note_send(
        &self,
        (tag, reader): (u64, Reader),
        held: Held,
        silent: bool,
        turn: &mut Turn<'_>,
    ) -> u64 {
        let last = turn.as_deref_mut();
        let id = self.send_queue().ledger().add(NewWork {
            tag,
            owner: self.owner,
            held,
            reader,
            before: last.as_deref().copied().flatten(),
        });
        if let Some(last) = last {
            *last = silent.then_some(id);
        }
        id
    }

    /// The work that was taken note of last was not posted after all; its memory.
    fn withdraw_send(&self, id: u64, turn: &mut Turn<'_>) -> Held {
        let (held, before) = self.send_queue().ledger().withdraw(id);
        if let Some(last) = turn.as_deref_mut() {
            *last = before;
        }
        held
    }

    /// Whether work can be posted at all. What C's libraries do not check is checked here.
    #[inline]
    fn check_send(&self, request: &Request, order: &Order) -> Result<()> {
        if let Some(domain) = &self.domain {
            request.check(domain)?;
            if let Destination::Datagram(address, ..) = &order.to
                && !address.is_of(domain)
            {
                return Err(Error::Misuse(
                    "the address handle is of another protection domain than the queue pair",
                ));
            }
        }
        if order.silent && (self.silent.is_none() || request.reader != Reader::Poller) {
            return Err(Error::Misuse(
                "only tagged work of a queue pair built with unsignalled(true) can be unsignalled",
            ));
        }
        check_pieces(request, self.cap.max_send_sge)?;
        let length = length_of(&request.elements);
        check_operation(order.what, request.inline, length)?;
        if request.inline && length > self.cap.max_inline_data.into() {
            return Err(Error::Limit {
                object: "queue pair",
                what: "bytes of inline data",
                asked: length,
                limit: self.cap.max_inline_data.into(),
            });
        }
        Ok(())
    }

    /// `ibv_post_send`; why not, and from which one on.
    #[inline]
    fn call_send(&self, first: *mut ibv_send_wr) -> std::result::Result<(), Stopped<ibv_send_wr>> {
        // SAFETY: the operation of the live queue pair's own context; the memory of the chain is held until its completions.
        let posted = unsafe {
            call(
                "ibv_post_send",
                self.operations().post_send,
                self.raw,
                first,
            )
        };
        posted.map_err(|(error, bad)| (self.explain(error, "send"), bad))
    }

    /// The functions of the context that C's header calls itself.
    fn operations(&self) -> &ibv_context_ops {
        // SAFETY: an open context has its operations filled in, and does not change them.
        unsafe { &(*self.device.raw.as_ptr()).ops }
    }

    /// An error of posting, with what may stand in the way.
    #[cold]
    fn explain(&self, error: Error, queue: &str) -> Error {
        let full = error.raw_os_error() == Some(libc::ENOMEM);
        error.about(|| format!("{}: {}", self.describe(), self.full(queue, full)))
    }

    fn full(&self, queue: &str, full: bool) -> String {
        let room = match queue {
            "send" => self.cap.max_send_wr,
            _ => self.cap.max_recv_wr,
        };
        if full {
            return format!("its {queue} queue holds {room} work requests and is full");
        }
        match self.state() {
            Ok(state) => format!("it is in state {}", ferroce_abi::explain::state(state)),
            Err(_) => format!("its {queue} queue"),
        }
    }
}

/// Whether work can have this many pieces of memory.
#[inline]
pub(super) fn check_pieces(request: &Request, limit: u32) -> Result<()> {
    // Inline bytes are one piece, which even a queue for none takes.
    if request.elements.len() as u64 <= limit.into() || request.inline {
        return Ok(());
    }
    Err(Error::Limit {
        object: "work queue",
        what: "pieces of memory in a work request",
        asked: request.elements.len() as u64,
        limit: limit.into(),
    })
}

fn length_of(elements: &Elements) -> u64 {
    elements.iter().map(|e| u64::from(e.length)).sum()
}

/// Whether an operation goes with its bytes.
#[inline]
fn check_operation(operation: Operation, inline: bool, length: u64) -> Result<()> {
    match operation {
        Operation::CompareSwap { .. } | Operation::FetchAdd { .. } | Operation::AtomicWrite(_)
            if length != 8 =>
        {
            Err(Error::Misuse("an atomic operation works on 8 bytes"))
        }
        Operation::Read(_) | Operation::CompareSwap { .. } | Operation::FetchAdd { .. }
            if inline =>
        {
            Err(Error::Misuse(
                "what reads from a peer needs registered memory: inline data is only sent",
            ))
        }
        _ => Ok(()),
    }
}
