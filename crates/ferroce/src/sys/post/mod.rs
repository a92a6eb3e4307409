//! Posting to the send queues of queue pairs.

mod batch;
mod chain;
mod receive;
mod special;

use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferroce_abi::types::{ibv_send_wr, ibv_sge};

use super::held::{Held, Refused};
use super::ledger::NewWork;
use super::pieces::{Few, Memory, length, refused};
use super::work::{Addressee, Command, Destination, Order, Reached};
use super::{Domain, QueuePairHandle, Reader};
use crate::qp::Operation;
use crate::{Error, Result};
use chain::{Takes, WorkRequest};

pub(crate) use batch::Checked;
pub(super) use chain::Operations;

/// What work is to its reader: the tag, and the reader.
pub(crate) type Task = (u64, Reader);

/// The last work request of a send queue, if it will complete without a word. Held while posting,
/// so that it is in the order of the queue.
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

/// How many calls are posting work to a queue pair just now, and whether it is being reset.
///
/// Work is noted before it is posted, and a reset lets go of what is noted. So none of the two may
/// come into the other.
#[derive(Default)]
pub(super) struct Posting(AtomicUsize);

/// Set in [`Posting`] while the queue pair is being reset.
const RESET: usize = 1 << (usize::BITS - 1);

/// One such call, until it is dropped.
pub(super) struct Entered<'p>(&'p AtomicUsize);

/// A reset, until it is dropped. No call posts meanwhile.
pub(super) struct Alone<'p>(&'p AtomicUsize);

impl Posting {
    #[inline(always)]
    fn enter(&self) -> Entered<'_> {
        if self.0.fetch_add(1, Ordering::SeqCst) & RESET != 0 {
            self.enter_later();
        }
        Entered(&self.0)
    }

    /// Waits for the end of a reset.
    #[cold]
    #[inline(never)]
    fn enter_later(&self) {
        loop {
            self.0.fetch_sub(1, Ordering::SeqCst);
            while self.0.load(Ordering::SeqCst) & RESET != 0 {
                std::thread::yield_now();
            }
            if self.0.fetch_add(1, Ordering::SeqCst) & RESET == 0 {
                return;
            }
        }
    }

    /// Keeps calls out, and waits until those that had begun have ended.
    pub(super) fn alone(&self) -> Alone<'_> {
        while self.0.fetch_or(RESET, Ordering::SeqCst) & RESET != 0 {
            std::thread::yield_now();
        }
        while self.0.load(Ordering::SeqCst) != RESET {
            std::thread::yield_now();
        }
        Alone(&self.0)
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.fetch_and(!RESET, Ordering::SeqCst);
    }
}

impl Drop for Entered<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The right to post to a send queue; of those that may have silent work, with the last of it.
type Turn<'q> = Option<MutexGuard<'q, Option<u64>>>;

impl QueuePairHandle {
    pub(super) fn turn(&self) -> Turn<'_> {
        self.silent.as_ref().map(Silent::lock)
    }

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
        match (&self.silent, addressee) {
            (None, None) => self.note_and_post(task, memory, (command, None), None),
            (_, addressee) => self.post_far(task, memory, (command, addressee), is_silent),
        }
    }

    /// Posts a datagram, or work of a queue pair that may have silent work.
    #[inline(never)]
    fn post_far<M: Memory>(
        &self,
        task: Task,
        memory: M,
        (command, addressee): (Command, Option<Addressee>),
        is_silent: bool,
    ) -> std::result::Result<u64, Box<Refused>> {
        let addressee = addressee.map(|(address, number, key)| (address.into_arc(), number, key));
        let mut turn = self.turn();
        let before = turn.as_deref().copied().flatten();
        let order = (command, addressee.as_ref());
        let id = self.note_and_post(task, memory, order, before)?;
        if let Some(last) = turn.as_deref_mut() {
            *last = is_silent.then_some(id);
        }
        Ok(id)
    }

    /// Posts work that was checked, behind the silent work `before`.
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
        let _posting = self.posting.enter();
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
        // Still posting: a reset meanwhile waits until this work is not known any more.
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
        if order.silent && (self.silent.is_none() || reader != Reader::Poller) {
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
