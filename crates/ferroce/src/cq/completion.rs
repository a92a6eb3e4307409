//! Completion queues.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
#[cfg(feature = "futures-core")]
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll};
use std::time::{Duration, Instant};

use ferroce_abi::types::{
    IBV_WC_ATOMIC_WRITE, IBV_WC_BIND_MW, IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD, IBV_WC_FLUSH,
    IBV_WC_LOCAL_INV, IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE, IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM,
    IBV_WC_SEND,
};

use crate::cq::{CompletionBuffer, Completions, WorkError};
use crate::device::Context;
use crate::driver::Driver;
use crate::sys::{Next, Queue};
use crate::ud::Origin;
use crate::{Error, Result};

/// A completion queue. Clones are the same one.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::cq::Done;
/// use ferroce::mem::{Access, MemoryRegion};
/// use ferroce::qp::Operation;
/// let pair = pair()?;
/// let room = MemoryRegion::new(&pair.domain, 64, Access::LocalWrite)?;
/// pair.far.post_receive(1, &[room.slice(0..64)?])?;
/// pair.near.post_inline(2, Operation::Send, b"hello")?;
/// let mut left = 2;
/// while left > 0 {
///     // `wait` sleeps; this does not.
///     let Some(completion) = pair.completions.poll()? else { continue };
///     left -= 1;
///     match completion.result {
///         Ok(Done { bytes, .. }) if completion.tag == 1 => assert_eq!(bytes, 5),
///         Ok(_) => assert_eq!(completion.tag, 2),
///         Err(error) => return Err(error.into()),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CompletionQueue(pub(crate) Arc<Queue>);

impl CompletionQueue {
    /// Makes one with room for at least that many completions (`ibv_create_cq(3)`), at most
    /// [`max_cqe`](crate::device::DeviceLimits::max_cqe).
    ///
    /// # Errors
    /// EINVAL for 0 or more than the device can, or out of descriptors.
    pub fn new(context: &Context, entries: u32) -> Result<Self> {
        Queue::new(&context.0, entries, Timestamps::None).map(Self)
    }

    /// As [`new`](Self::new), with the time of each completion (`ibv_create_cq_ex(3)`).
    ///
    /// # Errors
    /// As [`new`](Self::new); EOPNOTSUPP or EINVAL if the device does not have such timestamps.
    pub fn with_timestamps(
        context: &Context,
        entries: u32,
        timestamps: Timestamps,
    ) -> Result<Self> {
        Queue::new(&context.0, entries, timestamps).map(Self)
    }

    /// Takes the oldest completion, if there is one (`ibv_poll_cq(3)`). Does not block; also lets
    /// the device work. Completions of futures go to them and are not shown here.
    ///
    /// # Errors
    /// The queue overflowed.
    #[inline(always)]
    pub fn poll(&self) -> Result<Option<Completion>> {
        self.0.take(|view| view.completion())
    }

    /// Takes up to [`CompletionBuffer::ROOM`] completions at once, the oldest first: how many. What
    /// was in `arrivals` before is gone. Does not block; also lets the device work. Completions of
    /// futures go to them and are not shown here. This is the cheapest way where many come.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    #[inline]
    pub fn poll_into(&self, arrivals: &mut CompletionBuffer) -> Result<usize> {
        self.0.take_into(&mut arrivals.0)
    }

    /// The completions that are there, to be read in place: no more is read of each than is asked
    /// for. See [`Completions`].
    #[must_use]
    pub fn completions(&self) -> Completions<'_> {
        Completions::new(&self.0)
    }

    /// Takes the oldest completion, polling until there is one. The quickest answer, at the price
    /// of a processor.
    ///
    /// # Errors
    /// The queue overflowed.
    #[inline(always)]
    pub fn spin(&self) -> Result<Completion> {
        loop {
            if let Some(completion) = self.poll()? {
                return Ok(completion);
            }
            std::hint::spin_loop();
        }
    }

    /// Takes the oldest completion, sleeping until there is one (`ibv_req_notify_cq(3)`,
    /// `ibv_get_cq_event(3)`).
    ///
    /// # Errors
    /// The queue overflowed; [`Error::Misuse`] if a [driver](Self::driver) has the queue.
    #[expect(clippy::missing_panics_doc, reason = "an invariant")]
    pub fn wait(&self) -> Result<Completion> {
        let found = self.0.wait_for(None, || self.take_undriven())?;
        Ok(found.expect("invariant: without a deadline it waits until there is one"))
    }

    /// [`wait`](Self::wait), for that long at most; none if nothing completed.
    ///
    /// # Errors
    /// As that.
    pub fn wait_timeout(&self, limit: Duration) -> Result<Option<Completion>> {
        let deadline = Instant::now().checked_add(limit);
        self.0.wait_for(deadline, || self.take_undriven())
    }

    /// The oldest completion, for a task of any runtime; a [driver](Self::driver) brings it.
    /// Completions of futures go to them and are not shown here. Dropping it loses none. With the
    /// feature `futures-core` the queue is a stream of them.
    ///
    /// # Errors
    /// The queue overflowed.
    pub async fn next(&self) -> Result<Completion> {
        Next::new(&self.0).await
    }

    /// [`next`](Self::next) for hand-written futures.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn poll_next(&self, context: &mut Task<'_>) -> Poll<Result<Completion>> {
        self.0.poll_take(context)
    }

    /// Which completions end a sleep, of a thread or a driver, from the next one on: all, or only
    /// those of messages that the peer sent [solicited](crate::qp::Work::solicited) and of work
    /// that failed (`solicited_only` of `ibv_req_notify_cq(3)`). The others wait until then, or
    /// until they are polled for.
    pub fn set_solicited_only(&self, only: bool) {
        self.0.set_solicited_only(only);
    }

    fn take_undriven(&self) -> Result<Option<Completion>> {
        if self.0.is_driven() {
            return Err(Error::Misuse(
                "a driver or an endpoint has the queue: await `next()`, in a task or by \
                 `Connection::wait` or `Endpoint::block_on`, or use `poll()`",
            ));
        }
        self.poll()
    }
}

impl CompletionQueue {
    /// What brings completions to [futures](crate::qp::Pending). There is one at a time.
    ///
    /// # Errors
    /// [`Error::Misuse`] if there is one.
    pub fn driver(&self) -> Result<Driver> {
        Driver::new(&self.0)
    }
}

#[cfg(feature = "futures-core")]
impl futures_core::Stream for CompletionQueue {
    type Item = Result<Completion>;

    /// As [`CompletionQueue::poll_next`]. It has no end.
    fn poll_next(self: Pin<&mut Self>, context: &mut Task<'_>) -> Poll<Option<Self::Item>> {
        Self::poll_next(&self, context).map(Some)
    }
}

impl AsFd for CompletionQueue {
    /// The completion channel, for event loops that turn a [`Driver`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CompletionQueue")
    }
}

/// How a work request ended.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::cq::{WorkKind, WorkStatus};
/// use ferroce::mem::RemoteAddress;
/// use ferroce::qp::Operation;
/// let pair = pair()?;
/// pair.far.post_receive(1, &[])?;
/// pair.near.post_send(2, Operation::SendImmediate(0xcafe), &[])?;
/// for _ in 0..2 {
///     let completion = pair.completions.wait()?;
///     println!("{completion}"); // tag 1 of queue pair 0x000012: receive, 0 bytes, …
///     let done = completion.result?;
///     match completion.tag {
///         1 => assert_eq!((done.what, done.immediate), (WorkKind::Receive, Some(0xcafe))),
///         _ => assert_eq!(done.what, WorkKind::Send),
///     }
/// }
/// // Work that fails has a completion, too: here of a key that the peer never gave.
/// let nowhere = RemoteAddress { address: 0, rkey: 1 };
/// pair.near.post_inline(3, Operation::Write(nowhere), b"lost")?;
/// let failed = pair.completions.wait()?;
/// assert_eq!((failed.tag, failed.result.unwrap_err().status), (3, WorkStatus::REMOTE_ACCESS));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completion {
    /// What the work request carried (`wr_id`).
    pub tag: u64,
    /// Number of the queue pair: 24 bits.
    pub queue_pair: u32,
    /// The work that was done, or the reason for its failure.
    pub result: std::result::Result<Done, WorkError>,
    /// When, if the queue was made [with timestamps](CompletionQueue::with_timestamps) and the work
    /// succeeded.
    pub timestamp: Option<Timestamp>,
}

/// Which time completions carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Timestamps {
    /// None.
    #[default]
    None,
    /// That of the device's own clock.
    Device,
    /// That of the wall clock.
    WallClock,
}

/// When work completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
// So that whether there is a completion is not read from its time.
#[repr(u8)]
#[non_exhaustive]
pub enum Timestamp {
    /// Ticks of the device's clock, of no known beginning.
    Ticks(u64),
    /// Nanoseconds of the wall clock, since 1970.
    Nanoseconds(u64),
}

/// Successful work (`struct ibv_wc`; `ibv_poll_cq(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Done {
    /// Kind of the work.
    pub what: WorkKind,
    /// Bytes that arrived here: of receives and reads only. Of a receive of UD with the
    /// [`GRH_BYTES`](crate::ud::GRH_BYTES) before the message.
    pub bytes: u32,
    /// What the peer sent along, as the number that the peer gave: the byte order of the wire does
    /// not show.
    pub immediate: Option<u32>,
    /// Key of the own memory window that the peer's SEND closed.
    pub invalidated: Option<u32>,
    /// Of datagrams: where they came from.
    pub origin: Origin,
}

/// Kinds of successful work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names are those of ibv_poll_cq(3)")]
pub enum WorkKind {
    Send,
    Write,
    Read,
    CompareSwap,
    FetchAdd,
    AtomicWrite,
    Flush,
    /// The bind of a memory window.
    Bind,
    Invalidate,
    Receive,
    /// A receive used up by a WRITE with immediate.
    ReceiveWriteImmediate,
    Other(u32),
}

impl WorkKind {
    /// Those of the send queue by their codes, which are small.
    const SENT: [(u32, Self); 10] = [
        (IBV_WC_SEND, Self::Send),
        (IBV_WC_RDMA_WRITE, Self::Write),
        (IBV_WC_RDMA_READ, Self::Read),
        (IBV_WC_COMP_SWAP, Self::CompareSwap),
        (IBV_WC_FETCH_ADD, Self::FetchAdd),
        (IBV_WC_BIND_MW, Self::Bind),
        (IBV_WC_LOCAL_INV, Self::Invalidate),
        (7, Self::Other(7)),
        (IBV_WC_FLUSH, Self::Flush),
        (IBV_WC_ATOMIC_WRITE, Self::AtomicWrite),
    ];

    #[inline(always)]
    pub(crate) fn from_c(opcode: u32) -> Self {
        if let Some((_, sent)) = Self::SENT.get(opcode as usize) {
            return *sent;
        }
        match opcode {
            IBV_WC_RECV => Self::Receive,
            IBV_WC_RECV_RDMA_WITH_IMM => Self::ReceiveWriteImmediate,
            other => Self::Other(other),
        }
    }
}

crate::display::shown_in_words!(WorkKind);

/// Each is where its code says.
const _: () = {
    let mut at = 0;
    while at < WorkKind::SENT.len() {
        assert!(WorkKind::SENT[at].0 as usize == at);
        at += 1;
    }
};
