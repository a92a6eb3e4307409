//! Shared receive queues, and XRC domains.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::Result;
use crate::cq::CompletionQueue;
use crate::device::Context;
use crate::mem::pieces;
use crate::mem::{Buffer, ProtectionDomain, Slice};
use crate::qp::pending::Extent;
use crate::qp::queue_pair::pending_buffer;
use crate::qp::{Pending, PendingBuffer, RefusedBuffer};
use crate::sys::{Reader, SharedQueue, XrcDomainObject};

/// Receives that several queue pairs share (`ibv_create_srq(3)`). Each completes in the receive
/// completion queue of the queue pair that took it. Clones are the same one.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::cq::CompletionQueue;
/// use ferroce::mem::{Access, MemoryRegion};
/// use ferroce::qp::{QueuePair, QueuePairBuilder};
/// use ferroce::srq::SharedReceiveQueue;
/// use ferroce::transport::Rc;
/// let pair = pair()?;
/// let shared = SharedReceiveQueue::new(&pair.domain, 128, 1)?;
/// let room = MemoryRegion::new(&pair.domain, 128 * 256, Access::LocalWrite)?;
/// for tag in 0..128_u64 {
///     let start = usize::try_from(tag)? * 256;
///     shared.post_receive(tag, &[room.slice(start..start + 256)?])?;
/// }
/// // However many queue pairs take from it, there are receives for 128 messages.
/// let build = || -> ferroce::Result<QueuePair<Rc>> {
///     QueuePairBuilder::new(&pair.domain, &pair.completions).shared_receives(&shared).build()
/// };
/// let many = (0..8).map(|_| build()).collect::<ferroce::Result<Vec<_>>>()?;
/// assert_eq!(many.len(), 8);
/// assert!(shared.query()?.receives >= 128);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedReceiveQueue(pub(crate) Arc<SharedQueue>);

/// What a shared receive queue holds, and when it warns (`ibv_query_srq(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedReceiveQueueInfo {
    /// Receives.
    pub receives: u32,
    /// Pieces of memory of one receive.
    pub pieces: u32,
    /// When fewer receives are left, an asynchronous event tells so, once. 0 means never.
    pub limit: u32,
}

/// The number by which senders name an XRC shared receive queue: 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SharedReceiveQueueNumber(pub u32);

impl SharedReceiveQueue {
    /// Makes one for at least that many receives of that many pieces of memory
    /// (`ibv_create_srq(3)`).
    ///
    /// # Errors
    /// EINVAL beyond the device's limits, ENOMEM.
    pub fn new(domain: &ProtectionDomain, receives: u32, pieces: u32) -> Result<Self> {
        SharedQueue::new(&domain.0, receives, pieces).map(Self)
    }

    /// Makes one of an XRC domain (`ibv_create_srq_ex(3)`). Its receives complete in this queue.
    ///
    /// # Errors
    /// As [`new`](Self::new); EOPNOTSUPP if the device does not have XRC;
    /// [`Error::Misuse`](crate::Error::Misuse) if the parts are of different contexts.
    pub fn for_xrc(
        domain: &ProtectionDomain,
        xrc: &XrcDomain,
        completions: &CompletionQueue,
        receives: u32,
        pieces: u32,
    ) -> Result<Self> {
        SharedQueue::for_xrc(&domain.0, &xrc.0, &completions.0, receives, pieces).map(Self)
    }

    /// The number of a queue of an XRC domain, for its senders (`ibv_get_srq_num(3)`).
    ///
    /// # Errors
    /// EINVAL for a queue that is not of XRC, or EOPNOTSUPP.
    pub fn number(&self) -> Result<SharedReceiveQueueNumber> {
        self.0.number().map(SharedReceiveQueueNumber)
    }

    /// Returns the capacities that the queue really has.
    ///
    /// # Errors
    /// The device is gone.
    pub fn query(&self) -> Result<SharedReceiveQueueInfo> {
        let (receives, pieces, limit) = self.0.query()?;
        Ok(SharedReceiveQueueInfo {
            receives,
            pieces,
            limit,
        })
    }

    /// Sets the limit below which an event warns (`ibv_modify_srq(3)`). The event disarms it.
    ///
    /// # Errors
    /// EINVAL for more than it holds.
    pub fn set_limit(&self, limit: u32) -> Result<()> {
        self.0.set_limit(limit)
    }

    /// Posts a receive (`ibv_post_srq_recv(3)`). Its completion comes with this tag to the queue
    /// pair that takes it.
    ///
    /// # Errors
    /// ENOMEM if the queue is full; [`Error::Limit`](crate::Error::Limit) for too many pieces.
    pub fn post_receive(&self, tag: u64, bytes: &[Slice<'_>]) -> Result<()> {
        self.0.post((tag, Reader::Poller), pieces(bytes))?;
        Ok(())
    }

    /// Posts a receive, as a future. Someone must drive or poll the completion queues of the queue
    /// pairs.
    ///
    /// # Errors
    /// As [`post_receive`](Self::post_receive).
    pub fn submit_receive(&self, bytes: &[Slice<'_>]) -> Result<Pending> {
        let id = self.0.post((0, Reader::Future), pieces(bytes))?;
        Ok(Pending::of(self.0.ledger(), id))
    }

    /// Posts a receive into a buffer, with room for as many bytes as its
    /// [capacity](Buffer::capacity). It comes back with the bytes that came.
    ///
    /// # Errors
    /// As [`post_receive`](Self::post_receive), with the buffer.
    pub fn receive_buffer(
        &self,
        buffer: Buffer,
    ) -> std::result::Result<PendingBuffer, RefusedBuffer> {
        let extent = Extent::of(&buffer);
        let posted = self.0.post((0, Reader::Future), buffer.give_room());
        pending_buffer(posted, self.0.ledger(), extent, true)
    }
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedReceiveQueue")
    }
}

/// An XRC domain: shared receive queues, and the targets that serve them (`ibv_open_xrcd(3)`).
/// Clones are the same one.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::qp::{Operation, QueuePair, Work};
/// use ferroce::srq::{SharedReceiveQueue, XrcDomain};
/// use ferroce::transport::XrcInitiator;
/// let pair = pair()?;
/// let xrc = XrcDomain::new(&pair.context)?;
/// // One target for each peer, and as many queues as there are kinds of messages.
/// let target = QueuePair::target(&xrc)?;
/// let shared = SharedReceiveQueue::for_xrc(&pair.domain, &xrc, &pair.completions, 16, 1)?;
/// // The peer's initiator is connected with the target, and names the queue with each message.
/// let number = shared.number()?;
/// let message: Work<XrcInitiator> = Operation::Send.to(number);
/// # let _ = (target, message);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct XrcDomain(pub(crate) Arc<XrcDomainObject>);

impl XrcDomain {
    /// Makes one that only this process has (`ibv_open_xrcd(3)`).
    ///
    /// # Errors
    /// ENOMEM at the device's limit; EOPNOTSUPP if the device does not have XRC.
    pub fn new(context: &Context) -> Result<Self> {
        XrcDomainObject::open(&context.0, None, libc::O_CREAT).map(Self)
    }

    /// Opens the domain that belongs to a file, which processes share; makes it if need be.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_file(context: &Context, file: BorrowedFd<'_>) -> Result<Self> {
        XrcDomainObject::open(&context.0, Some(file), libc::O_CREAT).map(Self)
    }
}

impl fmt::Debug for XrcDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("XrcDomain")
    }
}
