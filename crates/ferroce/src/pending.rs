//! Work as futures.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::sys::{Held, Ledger, Queue};
use crate::{Buffer, Completion, Done, WorkError};

/// Work that was posted; ready when it has completed. It needs someone who [drives](crate::Driver) or polls its completion queue.
///
/// Dropping it takes nothing back: the work is done all the same, and its memory is held until then.
#[must_use = "the work is done either way, but nobody learns how it ended"]
#[derive(Debug)]
pub struct Pending(Ticket);

impl Pending {
    pub(crate) fn new(queue: &Arc<Queue>, id: u64) -> Self {
        Self::of(queue.ledger(), id)
    }

    pub(crate) fn of(ledger: &Arc<Ledger>, id: u64) -> Self {
        Self(Ticket::new(ledger, id))
    }
}

impl Future for Pending {
    type Output = Result<Done, WorkError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0
            .poll(context)
            .map(|(completion, _)| completion.result)
    }
}

/// Work on a [`Buffer`]; ready with the buffer when it has completed, well or not. See [`Pending`].
///
/// If it is dropped, so is the buffer, once the device has let go of it.
#[must_use = "the buffer comes back through it"]
#[derive(Debug)]
pub struct PendingBuffer {
    ticket: Ticket,
    length: usize,
    capacity: usize,
    receives: bool,
}

impl PendingBuffer {
    pub(crate) fn new(
        (ledger, id): (&Arc<Ledger>, u64),
        (length, capacity): (usize, usize),
        receives: bool,
    ) -> Self {
        Self {
            ticket: Ticket::new(ledger, id),
            length,
            capacity,
            receives,
        }
    }
}

impl Future for PendingBuffer {
    type Output = (Result<Done, WorkError>, Buffer);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.ticket.poll(context).map(|(completion, mut held)| {
            let memory = held
                .take_exclusive()
                .expect("invariant: this future is made of work on a buffer");
            let mut length = self.length;
            // Of receives, as many bytes as came.
            if let (true, Ok(done)) = (self.receives, completion.result) {
                length = (done.bytes as usize).min(self.capacity);
            }
            let buffer = Buffer::from_parts(memory, length, self.capacity);
            (completion.result, buffer)
        })
    }
}

/// The right to one completion.
pub(crate) struct Ticket {
    ledger: Arc<Ledger>,
    id: u64,
    used: bool,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("id", &self.id)
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}

impl Ticket {
    pub(crate) fn new(ledger: &Arc<Ledger>, id: u64) -> Self {
        Self {
            ledger: Arc::clone(ledger),
            id,
            used: false,
        }
    }

    pub(crate) fn poll(&mut self, context: &Context<'_>) -> Poll<(Completion, Held)> {
        assert!(!self.used, "polled after it was ready");
        let answer = self.ledger.poll(self.id, context);
        self.used = answer.is_ready();
        answer
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.used {
            self.ledger.abandon(self.id);
        }
    }
}
