//! Work as futures.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::sys::{Held, Ledger, Queue};
use crate::{Arrived, Buffer, Done, WorkError};

/// Work that was posted; ready when it has completed. It needs someone who [drives](crate::Driver) or polls its completion queue.
///
/// Dropping it takes nothing back: the work is done all the same, and its memory is held until then.
#[must_use = "the work is done either way, but nobody learns how it ended"]
#[derive(Debug)]
pub struct Pending(Ticket);

impl Pending {
    #[inline]
    pub(crate) fn new(queue: &Arc<Queue>, id: u64) -> Self {
        Self::of(queue.ledger(), id)
    }

    #[inline]
    pub(crate) fn of(ledger: &Arc<Ledger>, id: u64) -> Self {
        Self(Ticket::new(ledger, id))
    }
}

impl Future for Pending {
    type Output = Result<Done, WorkError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context).map(|(arrived, _)| arrived.result())
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
    #[inline]
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

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.ticket.poll(context).map(|(arrived, mut held)| {
            let memory = held
                .take_exclusive()
                .expect("invariant: this future is made of work on a buffer");
            let (result, mut length) = (arrived.result(), self.length);
            // Of receives, as many bytes as came.
            if self.receives && result.is_ok() {
                length = (arrived.bytes() as usize).min(self.capacity);
            }
            let buffer = Buffer::from_parts(memory, length, self.capacity);
            (result, buffer)
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
    #[inline]
    pub(crate) fn new(ledger: &Arc<Ledger>, id: u64) -> Self {
        Self {
            ledger: Arc::clone(ledger),
            id,
            used: false,
        }
    }

    #[inline]
    pub(crate) fn poll(&mut self, context: &Context<'_>) -> Poll<(Arrived, Held)> {
        assert!(!self.used, "polled after it was ready");
        let answer = self.ledger.poll(self.id, context);
        self.used = answer.is_ready();
        answer
    }
}

impl Drop for Ticket {
    #[inline]
    fn drop(&mut self) {
        if !self.used {
            self.ledger.abandon(self.id);
        }
    }
}
