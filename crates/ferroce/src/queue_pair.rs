//! Queue pairs.

use std::fmt;
use std::sync::Arc;

use ferroce_abi::types::ibv_qp_cap;

use crate::memory::request;
use crate::sys::{Held, Queue, QueuePairHandle, Reader, Refused};
use crate::{
    Buffer, CompletionQueue, Error, Id, Pending, PendingBuffer, ProtectionDomain, RemoteAddress,
    Result, Slice,
};

/// What a queue pair must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairCapacities {
    /// Work requests of the send queue that have not completed.
    pub send: u32,
    /// Receives that have not completed.
    pub receive: u32,
    /// Pieces of memory of one work request.
    pub pieces: u32,
}

/// What a send-queue work request does with its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// SEND: the peer's oldest receive gets them.
    Send,
    /// SEND with immediate: as [`Send`](Self::Send), and 32 bits that appear in the peer's completion.
    SendImmediate(u32),
    /// RDMA WRITE: they go to this place in the peer's memory. The peer is not told.
    Write(RemoteAddress),
    /// RDMA WRITE with immediate: as [`Write`](Self::Write); uses up the peer's oldest receive to tell it.
    WriteImmediate(RemoteAddress, u32),
    /// RDMA READ: they come from this place in the peer's memory.
    Read(RemoteAddress),
    /// Compare and swap: sets 8 bytes of the peer if they have this value. The old value comes to the work request's 8 bytes.
    CompareSwap {
        /// The place, a multiple of 8.
        target: RemoteAddress,
        /// Value compared with.
        compare: u64,
        /// Value set.
        swap: u64,
    },
    /// Fetch and add: adds to 8 bytes of the peer. The old value comes to the work request's 8 bytes.
    FetchAdd {
        /// The place, a multiple of 8.
        target: RemoteAddress,
        /// What is added.
        add: u64,
    },
}

/// A queue pair for a reliable connection, made for an [`Id`]. The connection manager takes it through its states.
pub struct QueuePair {
    handle: QueuePairHandle,
    capacities: QueuePairCapacities,
}

impl QueuePair {
    /// Makes the identifier's queue pair. Its state is INIT: receives can be posted.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the identifier has one or the parts are of different contexts; EINVAL for capacities
    /// beyond the device's limits or an identifier that is not bound to a device.
    pub fn new(
        id: &Id,
        domain: &ProtectionDomain,
        send: &CompletionQueue,
        receive: &CompletionQueue,
        capacities: QueuePairCapacities,
    ) -> Result<Self> {
        let mut cap = ibv_qp_cap {
            max_send_wr: capacities.send,
            max_recv_wr: capacities.receive,
            max_send_sge: capacities.pieces,
            max_recv_sge: capacities.pieces,
            max_inline_data: 0,
        };
        let handle =
            QueuePairHandle::new(id.identifier(), &domain.0, &send.0, &receive.0, &mut cap)?;
        let pieces = cap.max_send_sge.min(cap.max_recv_sge);
        Ok(Self {
            handle,
            capacities: QueuePairCapacities {
                send: cap.max_send_wr,
                receive: cap.max_recv_wr,
                pieces,
            },
        })
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.handle.number()
    }

    /// What it really holds: at least what was asked for.
    #[must_use]
    pub fn capacities(&self) -> QueuePairCapacities {
        self.capacities
    }

    /// Posts work. Its completion comes to the send queue's completion queue with this tag.
    ///
    /// # Errors
    /// ENOMEM if the queue is full; EINVAL in a state that does not allow it, or for too many pieces; nothing was posted then.
    pub fn post_send(&self, tag: u64, operation: Operation, bytes: &[Slice<'_>]) -> Result<()> {
        let request = request(tag, Reader::Poller, bytes);
        let posted = self.handle.post_send(request, operation);
        posted.map(drop).map_err(|(error, _)| error)
    }

    /// Posts a receive for a SEND, or for the notice of a WRITE with immediate, which needs no bytes.
    ///
    /// # Errors
    /// As [`post_send`](Self::post_send).
    pub fn post_receive(&self, tag: u64, bytes: &[Slice<'_>]) -> Result<()> {
        let posted = self
            .handle
            .post_receive(request(tag, Reader::Poller, bytes));
        posted.map(drop).map_err(|(error, _)| error)
    }

    /// Posts work, as a future of its completion.
    ///
    /// # Errors
    /// As [`post_send`](Self::post_send).
    pub fn submit(&self, operation: Operation, bytes: &[Slice<'_>]) -> Result<Pending> {
        let request = request(0, Reader::Future, bytes);
        match self.handle.post_send(request, operation) {
            Ok(id) => Ok(Pending::new(self.handle.send_queue(), id)),
            Err((error, _)) => Err(error),
        }
    }

    /// Posts a receive, as a future of its completion.
    ///
    /// # Errors
    /// As [`post_send`](Self::post_send).
    pub fn submit_receive(&self, bytes: &[Slice<'_>]) -> Result<Pending> {
        match self.handle.post_receive(request(0, Reader::Future, bytes)) {
            Ok(id) => Ok(Pending::new(self.handle.receive_queue(), id)),
            Err((error, _)) => Err(error),
        }
    }

    /// Posts work on a buffer, which comes back with the completion.
    ///
    /// # Errors
    /// As [`post_send`](Self::post_send), with the buffer.
    pub fn submit_buffer(
        &self,
        operation: Operation,
        buffer: Buffer,
    ) -> std::result::Result<PendingBuffer, RefusedBuffer> {
        // A READ changes the bytes, but not how many there are.
        let lengths = (buffer.len(), buffer.capacity());
        let posted = self
            .handle
            .post_send(buffer.into_request(Reader::Future), operation);
        pending_buffer(posted, self.handle.send_queue(), lengths, false)
    }

    /// Posts a receive into a buffer. It comes back with the bytes that came.
    ///
    /// # Errors
    /// As [`post_send`](Self::post_send), with the buffer.
    pub fn receive_buffer(
        &self,
        buffer: Buffer,
    ) -> std::result::Result<PendingBuffer, RefusedBuffer> {
        let lengths = (buffer.len(), buffer.capacity());
        let posted = self
            .handle
            .post_receive(buffer.into_request(Reader::Future));
        pending_buffer(posted, self.handle.receive_queue(), lengths, true)
    }
}

/// Work that was not posted, and its buffer.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct RefusedBuffer {
    /// Why.
    #[source]
    pub error: Error,
    /// The buffer.
    pub buffer: Buffer,
}

fn pending_buffer(
    posted: std::result::Result<u64, Refused>,
    queue: &Arc<Queue>,
    (length, capacity): (usize, usize),
    receives: bool,
) -> std::result::Result<PendingBuffer, RefusedBuffer> {
    match posted {
        Ok(id) => Ok(PendingBuffer::new(
            (queue, id),
            (length, capacity),
            receives,
        )),
        Err((error, Held::Exclusive(memory))) => Err(RefusedBuffer {
            error,
            buffer: Buffer::from_parts(memory, length, capacity),
        }),
        Err(_) => unreachable!("invariant: a request holds what it was made with"),
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueuePair({:#08x})", self.number())
    }
}
