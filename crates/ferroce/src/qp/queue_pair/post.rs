//! Posting work, one request at a time: tagged, as futures, on buffers that are given away, and
//! unsafely.

use std::sync::Arc;

use crate::mem::pieces;
use crate::mem::{Buffer, RawPiece, Slice};
use crate::qp::pending::Extent;
use crate::qp::{Pending, PendingBuffer, QueuePair, Work};
use crate::sys::{Copied, Ledger, Memory, Raw, Reader, Refused};
use crate::transport::{Receives, Sends};
use crate::{Error, Result};

impl<T: Sends> QueuePair<T> {
    /// Posts work (`ibv_post_send(3)`). Its completion comes to the send queue's completion queue
    /// with this tag.
    ///
    /// # Errors
    /// ENOMEM if the queue is full; EINVAL in a state that does not allow it; [`Error::Limit`] for
    /// too many pieces, [`Error::Misuse`] for an atomic on other than 8 bytes. Nothing was posted
    /// then.
    #[inline(always)]
    pub fn post_send(&self, tag: u64, work: impl Into<Work<T>>, bytes: &[Slice<'_>]) -> Result<()> {
        let task = (tag, Reader::Poller);
        match self
            .handle
            .post_send(task, pieces(bytes), work.into().order)
        {
            Ok(_) => Ok(()),
            Err(refused) => Err(refused.into_error()),
        }
    }

    /// Posts work that sends bytes which are copied now (`IBV_SEND_INLINE`): they need not be
    /// registered, and may be changed when this returns. As many as
    /// [`inline_capacity`](Self::inline_capacity) says, for SEND, WRITE and ATOMIC WRITE.
    ///
    /// # Errors
    /// As [`post_send`](Self::post_send); [`Error::Limit`] for more bytes, [`Error::Misuse`] for
    /// other operations.
    pub fn post_inline(&self, tag: u64, work: impl Into<Work<T>>, bytes: &[u8]) -> Result<()> {
        let (task, memory) = ((tag, Reader::Poller), Copied::new(bytes)?);
        self.handle.post_send(task, memory, work.into().order)?;
        Ok(())
    }

    /// Posts work on memory that nothing here keeps: the third way, for programs
    /// that manage registrations themselves.
    ///
    /// # Safety
    /// Until the completion was polled, or the queue pair has been dropped or [reset](Self::reset):
    /// the memory stays valid and registered with these keys; what is sent from is not written;
    /// what READ and atomics write into is not touched at all.
    ///
    /// # Errors
    /// As [`post_send`](Self::post_send).
    #[allow(unsafe_code, reason = "the caller's promise")]
    pub unsafe fn post_send_raw(
        &self,
        tag: u64,
        work: impl Into<Work<T>>,
        pieces: &[RawPiece],
    ) -> Result<()> {
        let task = (tag, Reader::Poller);
        self.handle
            .post_send(task, Raw(pieces), work.into().order)?;
        Ok(())
    }

    /// Posts work, as a future of its completion.
    ///
    /// # Errors
    /// As [`post_send`](Self::post_send).
    #[inline(always)]
    pub fn submit(&self, work: impl Into<Work<T>>, bytes: &[Slice<'_>]) -> Result<Pending> {
        self.submit_memory(pieces(bytes), work.into())
    }

    /// [`post_inline`](Self::post_inline) as a future.
    ///
    /// # Errors
    /// As that.
    pub fn submit_inline(&self, work: impl Into<Work<T>>, bytes: &[u8]) -> Result<Pending> {
        self.submit_memory(Copied::new(bytes)?, work.into())
    }

    #[inline(always)]
    fn submit_memory(&self, memory: impl Memory, work: Work<T>) -> Result<Pending> {
        let task = (0, Reader::Future);
        let id = self.handle.post_send(task, memory, work.order)?;
        Ok(Pending::new(self.handle.send_queue(), id))
    }

    /// Posts work on a buffer, which comes back with the completion.
    ///
    /// # Errors
    /// As [`post_send`](Self::post_send), with the buffer.
    #[inline(always)]
    pub fn submit_buffer(
        &self,
        work: impl Into<Work<T>>,
        buffer: Buffer,
    ) -> std::result::Result<PendingBuffer, RefusedBuffer> {
        // A READ changes the bytes, but not how many there are.
        let extent = Extent::of(&buffer);
        let task = (0, Reader::Future);
        let posted = self
            .handle
            .post_send(task, buffer.give(), work.into().order);
        let ledger = self.handle.send_queue().ledger();
        pending_buffer(posted, ledger, extent, false)
    }
}

impl<T: Receives> QueuePair<T> {
    /// Posts a receive (`ibv_post_recv(3)`) for a SEND, or for the notice of a WRITE with
    /// immediate, which needs no bytes. Receives of UD begin with
    /// [`GRH_BYTES`](crate::ud::GRH_BYTES) bytes of header.
    ///
    /// # Errors
    /// As [`post_send`](Self::post_send); [`Error::Misuse`] if the queue pair takes its receives
    /// from a shared queue.
    #[inline(always)]
    pub fn post_receive(&self, tag: u64, bytes: &[Slice<'_>]) -> Result<()> {
        let task = (tag, Reader::Poller);
        match self.handle.post_receive(task, pieces(bytes)) {
            Ok(_) => Ok(()),
            Err(refused) => Err(refused.into_error()),
        }
    }

    /// Posts a receive into memory that nothing here keeps.
    ///
    /// # Safety
    /// As for [`post_send_raw`](Self::post_send_raw): the memory stays valid, registered and
    /// untouched.
    ///
    /// # Errors
    /// As [`post_receive`](Self::post_receive).
    #[allow(unsafe_code, reason = "the caller's promise")]
    pub unsafe fn post_receive_raw(&self, tag: u64, pieces: &[RawPiece]) -> Result<()> {
        self.handle
            .post_receive((tag, Reader::Poller), Raw(pieces))?;
        Ok(())
    }

    /// Posts a receive, as a future of its completion.
    ///
    /// # Errors
    /// As [`post_receive`](Self::post_receive).
    pub fn submit_receive(&self, bytes: &[Slice<'_>]) -> Result<Pending> {
        let task = (0, Reader::Future);
        let id = self.handle.post_receive(task, pieces(bytes))?;
        Ok(Pending::new(self.handle.receive_queue(), id))
    }

    /// Posts a receive into a buffer, with room for as many bytes as its
    /// [capacity](Buffer::capacity), whatever its length is. It comes back with the bytes that
    /// came.
    ///
    /// # Errors
    /// As [`post_receive`](Self::post_receive), with the buffer.
    #[inline(always)]
    pub fn receive_buffer(
        &self,
        buffer: Buffer,
    ) -> std::result::Result<PendingBuffer, RefusedBuffer> {
        let extent = Extent::of(&buffer);
        let task = (0, Reader::Future);
        let posted = self.handle.post_receive(task, buffer.give_room());
        let ledger = self.handle.receive_queue().ledger();
        pending_buffer(posted, ledger, extent, true)
    }
}

/// Work that was not posted, and its buffer.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
#[non_exhaustive]
pub struct RefusedBuffer {
    /// Reason for the refusal.
    #[source]
    pub error: Error,
    /// The buffer.
    pub buffer: Buffer,
}

/// Of the [error](RefusedBuffer::error); the buffer is dropped.
impl From<RefusedBuffer> for std::io::Error {
    fn from(refused: RefusedBuffer) -> Self {
        refused.error.into()
    }
}

impl From<RefusedBuffer> for Error {
    fn from(refused: RefusedBuffer) -> Self {
        refused.error
    }
}

#[inline(always)]
pub(crate) fn pending_buffer(
    posted: std::result::Result<u64, Box<Refused>>,
    ledger: &Arc<Ledger>,
    extent: Extent,
    receives: bool,
) -> std::result::Result<PendingBuffer, RefusedBuffer> {
    match posted {
        Ok(id) => Ok(PendingBuffer::new(ledger, id, extent, receives)),
        Err(refused) => Err(refused_buffer(*refused, extent)),
    }
}

#[cold]
fn refused_buffer(refused: Refused, extent: Extent) -> RefusedBuffer {
    let Refused { error, mut held } = refused;
    let memory = held
        .take_exclusive()
        .expect("invariant: a request holds what it was made with");
    let buffer = Buffer::from_parts(memory, extent.length, extent.capacity);
    RefusedBuffer { error, buffer }
}
