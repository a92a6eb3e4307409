//! Work as futures.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::cq::{Done, WorkError};
use crate::mem::Buffer;
use crate::sys::{Held, Ledger, Queue, View};

/// Work that was posted; ready when it has completed. It needs a task or thread that
/// [drives](crate::Driver) or polls its completion queue.
///
/// Dropping it takes nothing back: the work is done all the same, and its memory is held until
/// then.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::mem::{Access, MemoryRegion};
/// use ferroce::qp::Operation;
/// let pair = pair()?;
/// let board = MemoryRegion::new(&pair.domain, 8, Access::Remote)?;
/// let write = Operation::Write(board.remote().at(0));
/// let mut writing = pair.near.submit_inline(write, b"written")?;
/// let ended = loop {
///     // Brings completions to their futures. Elsewhere a driver does, and the future is awaited.
///     pair.completions.poll()?;
///     if let Some(ended) = writing.try_wait() {
///         break ended;
///     }
/// };
/// ended?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the work is done either way, but nobody learns how it ended"]
#[derive(Debug)]
pub struct Pending(Ticket);

impl Pending {
    #[inline]
    pub(crate) fn new(queue: &Arc<Queue>, id: u64) -> Self {
        Self::of(Queue::ledger(queue), id)
    }

    #[inline]
    pub(crate) fn of(ledger: &Arc<Ledger>, id: u64) -> Self {
        Self(Ticket::new(ledger, id))
    }
}

impl Pending {
    /// How it ended, if it has, for loops of one's own that poll or drive its completion queue. Not
    /// to be asked or awaited again when it has answered.
    ///
    /// # Panics
    /// If it has answered before.
    pub fn try_wait(&mut self) -> Option<Result<Done, WorkError>> {
        match Pin::new(self).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ended) => Some(ended),
            Poll::Pending => None,
        }
    }
}

impl Future for Pending {
    type Output = Result<Done, WorkError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context, |view, _| view.result())
    }
}

/// Work on a [`Buffer`]; ready with the buffer when it has completed, well or not. See [`Pending`].
///
/// If it is dropped, so is the buffer, once the device has let go of it.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::mem::Buffer;
/// use ferroce::qp::Operation;
/// let pair = pair()?;
/// let mut receiving = pair.far.receive_buffer(Buffer::new(&pair.domain, 64)?)?;
/// let mut hello = Buffer::new(&pair.domain, 5)?;
/// hello.copy_from_slice(b"hello");
/// let _sending = pair.near.submit_buffer(Operation::Send, hello)?;
/// let (result, message) = loop {
///     // Brings completions to their futures. Elsewhere a driver does.
///     pair.completions.poll()?;
///     if let Some(ended) = receiving.try_wait() {
///         break ended;
///     }
/// };
/// assert_eq!(result?.bytes, 5);
/// assert_eq!(*message, *b"hello");
/// # Ok(())
/// # }
/// ```
#[must_use = "the buffer comes back through it"]
#[derive(Debug)]
pub struct PendingBuffer {
    ticket: Ticket,
    extent: Extent,
    receives: bool,
}

/// Bytes of a buffer, kept while its memory is with the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) length: usize,
    pub(crate) capacity: usize,
}

impl Extent {
    #[inline(always)]
    pub(crate) fn of(buffer: &Buffer) -> Self {
        Self {
            length: buffer.len(),
            capacity: buffer.capacity(),
        }
    }
}

impl PendingBuffer {
    #[inline]
    pub(crate) fn new(ledger: &Arc<Ledger>, id: u64, extent: Extent, receives: bool) -> Self {
        Self {
            ticket: Ticket::new(ledger, id),
            extent,
            receives,
        }
    }
}

impl PendingBuffer {
    /// How it ended, if it has, for loops of one's own that poll or drive its completion queue. Not
    /// to be asked or awaited again when it has answered.
    ///
    /// # Panics
    /// If it has answered before.
    pub fn try_wait(&mut self) -> Option<(Result<Done, WorkError>, Buffer)> {
        match Pin::new(self).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ended) => Some(ended),
            Poll::Pending => None,
        }
    }
}

impl Future for PendingBuffer {
    type Output = (Result<Done, WorkError>, Buffer);

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            ticket,
            extent,
            receives,
        } = &mut *self;
        ticket.poll(context, |view, held| {
            let memory = held
                .take_exclusive()
                .expect("invariant: this future is made of work on a buffer");
            let (result, mut length) = (view.result(), extent.length);
            // Of receives, as many bytes as came.
            if *receives && result.is_ok() {
                length = (view.wc.byte_len as usize).min(extent.capacity);
            }
            let buffer = Buffer::from_parts(memory, length, extent.capacity);
            (result, buffer)
        })
    }
}

/// What leads to the ledger of work.
pub(crate) trait Home {
    fn ledger(&self) -> &Ledger;
}

impl Home for Arc<Ledger> {
    #[inline(always)]
    fn ledger(&self) -> &Ledger {
        self
    }
}

impl Home for Arc<Queue> {
    #[inline(always)]
    fn ledger(&self) -> &Ledger {
        Queue::ledger(self)
    }
}

/// The right to one completion.
pub(crate) struct Ticket<H: Home = Arc<Ledger>> {
    home: H,
    id: u64,
    used: bool,
}

impl<H: Home> fmt::Debug for Ticket<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("id", &self.id)
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}

impl<H: Home + Clone> Ticket<H> {
    #[inline]
    pub(crate) fn new(home: &H, id: u64) -> Self {
        Self {
            home: home.clone(),
            id,
            used: false,
        }
    }
}

impl<H: Home> Ticket<H> {
    /// Where it completes.
    pub(crate) fn home(&self) -> &H {
        &self.home
    }

    #[inline]
    pub(crate) fn poll<R>(
        &mut self,
        context: &Context<'_>,
        read: impl Fn(View<'_>, &mut Held) -> R,
    ) -> Poll<R> {
        assert!(!self.used, "polled after it was ready");
        let answer = self.home.ledger().poll(self.id, context, read);
        self.used = answer.is_ready();
        answer
    }
}

impl<H: Home> Drop for Ticket<H> {
    #[inline]
    fn drop(&mut self) {
        if !self.used {
            self.home.ledger().abandon(self.id);
        }
    }
}
