//! Posting to the send queues of queue pairs.

mod batch;
mod chain;
#[cfg(test)]
mod model;
mod receive;
mod special;
mod turns;

use std::ptr;
use std::sync::Arc;

use super::held::{Held, Refused};
use super::ledger::NewWork;
use super::locks;
use super::pieces::{Few, Memory, length, refused};
use super::work::{Addressee, Command, Destination, Order, Reached};
use super::{Domain, QueuePairHandle, Reader};
use crate::qp::Operation;
use crate::{Error, Result};
use chain::{Takes, WorkRequest};
use ferroce_abi::types::{ibv_send_wr, ibv_sge};
use turns::SendTurn;

pub(crate) use batch::Checked;
pub(super) use chain::Operations;
pub(super) use turns::Turns;

/// What work is to its reader: the tag, and the reader.
pub(crate) type Task = (u64, Reader);

impl QueuePairHandle {
    /// `ibv_post_send` of one work request; the `wr_id`.
    #[inline(always)]
    pub(crate) fn post_send<M: Memory>(
        &self,
        task: Task,
        memory: M,
        order: Order,
    ) -> std::result::Result<u64, Box<Refused>> {
        if let Err(error) = self.check_send(task.1, &memory, &order) {
            return Err(refused(memory, error));
        }
        let is_silent = order.silent;
        let (command, addressee) = order.split(M::INLINE);
        let mut turn = self.turns.send();
        match (self.unsignalled, addressee) {
            (false, None) => self.note_and_post(task, memory, (command, None), None),
            (_, addressee) => {
                let id = self.post_far(task, memory, (command, addressee), *turn)?;
                *turn = is_silent.then_some(id);
                Ok(id)
            }
        }
    }

    /// Posts a datagram, or work of a queue pair that may have silent work, behind the silent work
    /// `before`.
    #[inline(never)]
    fn post_far<M: Memory>(
        &self,
        task: Task,
        memory: M,
        (command, addressee): (Command, Option<Addressee>),
        before: Option<u64>,
    ) -> std::result::Result<u64, Box<Refused>> {
        let addressee = addressee.map(|(address, number, key)| (address.into_arc(), number, key));
        self.note_and_post(task, memory, (command, addressee.as_ref()), before)
    }

    /// Posts work that was checked, behind the silent work `before`. The caller has the turn.
    #[inline(always)]
    fn note_and_post<M: Memory>(
        &self,
        task: Task,
        memory: M,
        order: (Command, Option<&Reached>),
        before: Option<u64>,
    ) -> std::result::Result<u64, Box<Refused>> {
        match Few::of(&memory) {
            Some(mut few) => self.post_listed(task, (memory, few.first()), order, before),
            None => self.post_many(task, memory, order, before),
        }
    }

    /// [`note_and_post`](Self::note_and_post) with a list of pieces that has no room on the stack.
    #[inline(never)]
    fn post_many<M: Memory>(
        &self,
        task: Task,
        memory: M,
        order: (Command, Option<&Reached>),
        before: Option<u64>,
    ) -> std::result::Result<u64, Box<Refused>> {
        let mut list: Vec<_> = memory.elements().collect();
        self.post_listed(task, (memory, list.as_mut_ptr()), order, before)
    }

    /// The same with C's list of the pieces, by its first one.
    #[inline(always)]
    fn post_listed<M: Memory>(
        &self,
        task: Task,
        (memory, first): (M, *mut ibv_sge),
        (command, addressee): (Command, Option<&Reached>),
        before: Option<u64>,
    ) -> std::result::Result<u64, Box<Refused>> {
        let mut form = ibv_send_wr::zeroed();
        command.fill(&mut form, addressee);
        form.link(ptr::null_mut(), first, memory.count());
        let is_simple = addressee.is_none() && memory.is_simple();
        let id = self.note_send(task, before, is_simple, |held| {
            memory.hold(held);
            if let Some((address, ..)) = addressee {
                held.hold(address);
            }
        });
        form.wr_id = id;
        // SAFETY: linked to nothing else, and the ledger holds its memory, or the caller of an
        // unsafe function does.
        let errno = unsafe { self.call(&raw mut form, &mut ptr::null_mut()) };
        if errno == 0 {
            return Ok(id);
        }
        Err(self.refused_send(id, Takes::<ibv_send_wr>::refused(self, errno)))
    }

    #[cold]
    fn refused_send(&self, id: u64, error: Error) -> Box<Refused> {
        let (held, _) = self.send_queue().ledger().withdraw(id);
        Refused::new(error, held)
    }

    /// Takes note of work of the send queue; its `wr_id`.
    #[inline(always)]
    fn note_send(
        &self,
        (tag, reader): Task,
        before: Option<u64>,
        is_simple: bool,
        hold: impl FnOnce(&mut Held),
    ) -> u64 {
        let work = NewWork {
            tag,
            owner: self.owner,
            reader,
            is_simple,
            before,
        };
        self.send_queue().ledger().add(work, hold)
    }

    /// Whether work can be posted at all. What C's libraries do not check is checked here.
    #[inline(always)]
    fn check_send<M: Memory>(&self, reader: Reader, memory: &M, order: &Order) -> Result<()> {
        if let Some(domain) = &self.domain {
            check_domain(memory, domain)?;
            if let Destination::Datagram(address, ..) = &order.to
                && !address.is_of(domain)
            {
                return Err(Error::Misuse(
                    "the address handle is of another protection domain than the queue pair",
                ));
            }
        }
        if order.silent && (!self.unsignalled || reader != Reader::Poller) {
            return Err(Error::Misuse(
                "only tagged work of a queue pair built with unsignalled(true) can be unsignalled",
            ));
        }
        if M::INLINE {
            // Inline bytes are one piece, which even a queue for none takes.
            self.check_inline(length(memory))?;
        } else {
            check_pieces(memory, self.cap.max_send_sge)?;
        }
        check_operation(order.what, memory)
    }

    fn check_inline(&self, asked: u64) -> Result<()> {
        let limit = self.cap.max_inline_data.into();
        if asked <= limit {
            return Ok(());
        }
        Err(Error::Limit {
            object: "queue pair",
            what: "bytes of inline data",
            asked,
            limit,
        })
    }

    /// An error of posting, with what may stand in the way.
    #[cold]
    fn explain_post(&self, error: Error, queue: &str) -> Error {
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

/// Whether memory is of a domain.
#[inline(always)]
fn check_domain(memory: &impl Memory, domain: &Arc<Domain>) -> Result<()> {
    if memory.is_of(domain) {
        return Ok(());
    }
    // The device would find out when the work runs; here it is still a mistake of one line.
    Err(Error::Misuse(
        "the memory region is of another protection domain than the queue pair",
    ))
}

/// Whether work can have this many pieces of memory.
#[inline(always)]
fn check_pieces(memory: &impl Memory, limit: u32) -> Result<()> {
    let count = memory.count() as u64;
    if count <= limit.into() {
        return Ok(());
    }
    Err(too_many_pieces(count, limit))
}

#[cold]
fn too_many_pieces(asked: u64, limit: u32) -> Error {
    Error::Limit {
        object: "work queue",
        what: "pieces of memory in a work request",
        asked,
        limit: limit.into(),
    }
}

/// Whether an operation goes with its bytes.
#[inline(always)]
fn check_operation<M: Memory>(operation: Operation, memory: &M) -> Result<()> {
    match operation {
        Operation::CompareSwap { .. } | Operation::FetchAdd { .. } | Operation::AtomicWrite(_)
            if length(memory) != 8 =>
        {
            Err(Error::Misuse("an atomic operation works on 8 bytes"))
        }
        Operation::Read(_) | Operation::CompareSwap { .. } | Operation::FetchAdd { .. }
            if M::INLINE =>
        {
            Err(Error::Misuse(
                "what reads from a peer needs registered memory: inline data is only sent",
            ))
        }
        _ => Ok(()),
    }
}
