//! Several work requests, posted at once.

use std::fmt;
use std::marker::PhantomData;

use smallvec::SmallVec;

use crate::Error;
use crate::mem::Slice;
use crate::mem::pieces;
use crate::qp::{QueuePair, Work};
use crate::sys::{Checked, Copied, Memory, Reader};
use crate::transport::{Receives, Sends};

/// Work requests that are collected, then handed to the device in one call, with one doorbell (the
/// chain of `ibv_post_send(3)`): see [`QueuePair::batch`].
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::mem::{Access, MemoryRegion};
/// use ferroce::qp::Operation;
/// let pair = pair()?;
/// let room = MemoryRegion::new(&pair.domain, 64, Access::LocalWrite)?;
/// pair.far.post_receive(1, &[room.slice(0..32)?])?;
/// pair.far.post_receive(2, &[room.slice(32..64)?])?;
/// pair.near
///     .batch()
///     .inline(3, Operation::Send, b"first")
///     .inline(4, Operation::Send, b"second")
///     .post()?;
/// for _ in 0..4 {
///     pair.completions.wait()?.result?;
/// }
/// let mut came = [0; 6];
/// room.read(32, &mut came)?;
/// assert_eq!(&came, b"second");
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is done until it is posted"]
pub struct Batch<'b, T: Sends> {
    queue_pair: &'b QueuePair<T>,
    work: SmallVec<[Checked; 4]>,
    /// The first mistake.
    refused: Option<Error>,
    inline: PhantomData<&'b [u8]>,
}

/// A batch that was not posted, or not wholly.
#[derive(Debug, thiserror::Error)]
#[error("after {posted} of the batch: {error}")]
#[non_exhaustive]
pub struct RefusedBatch {
    /// Why the next one was refused.
    #[source]
    pub error: Error,
    /// How many were posted before it; their completions will come. The refused one and those after
    /// it were not posted.
    pub posted: usize,
}

impl<T: Sends> QueuePair<T> {
    /// Begins a batch, which nothing is posted of before [`Batch::post`].
    pub fn batch(&self) -> Batch<'_, T> {
        Batch {
            queue_pair: self,
            work: SmallVec::new(),
            refused: None,
            inline: PhantomData,
        }
    }
}

impl<T: Receives> QueuePair<T> {
    /// Posts several receives in one call, each with its tag, in order (the chain of
    /// `ibv_post_recv(3)`).
    ///
    /// # Errors
    /// As for [`post_receive`](Self::post_receive), and as for [`Batch::post`]: those before the
    /// refused one were posted.
    pub fn post_receives<'s>(
        &self,
        receives: impl IntoIterator<Item = (u64, &'s [Slice<'s>])>,
    ) -> Result<(), RefusedBatch> {
        let receives = receives
            .into_iter()
            .map(|(tag, bytes)| ((tag, Reader::Poller), pieces(bytes)));
        match self.handle.post_receives(receives) {
            (_, None) => Ok(()),
            (posted, Some(error)) => Err(RefusedBatch { error, posted }),
        }
    }
}

impl<'b, T: Sends> Batch<'b, T> {
    /// Adds work, as [`QueuePair::post_send`] would post it.
    pub fn send(self, tag: u64, work: impl Into<Work<T>>, bytes: &[Slice<'_>]) -> Self {
        self.add(tag, work.into(), Ok(pieces(bytes)))
    }

    fn add(mut self, tag: u64, work: Work<T>, memory: crate::Result<impl Memory>) -> Self {
        let handle = &self.queue_pair.handle;
        match memory.and_then(|memory| handle.check(tag, memory, work.order)) {
            Ok(checked) => self.work.push(checked),
            Err(error) => {
                self.refused.get_or_insert(error);
            }
        }
        self
    }

    /// Adds work, as [`QueuePair::post_inline`] would post it. The bytes are copied when the batch
    /// is posted.
    pub fn inline(self, tag: u64, work: impl Into<Work<T>>, bytes: &'b [u8]) -> Self {
        self.add(tag, work.into(), Copied::new(bytes))
    }

    /// Returns the number of its work requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.work.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    /// Posts it, in order; no other work of the queue pair comes between. An empty batch is posted
    /// by doing nothing.
    ///
    /// # Errors
    /// As for [`QueuePair::post_send`]. What this crate refuses ([`Error::Misuse`],
    /// [`Error::Limit`]) it refuses before anything is posted. Otherwise it is as
    /// `ibv_post_send(3)` says: the device takes the work requests one by one, those before the
    /// refused one are posted, and that one and those behind it are not. So a batch that is larger
    /// than the free part of the send queue is posted in part, with ENOMEM;
    /// [`RefusedBatch::posted`] tells how much.
    pub fn post(self) -> Result<(), RefusedBatch> {
        if let Some(error) = self.refused {
            return Err(RefusedBatch { error, posted: 0 });
        }
        let (posted, refused) = self.queue_pair.handle.post_batch(self.work);
        match refused {
            None => Ok(()),
            Some(error) => Err(RefusedBatch { error, posted }),
        }
    }
}

impl<T: Sends> fmt::Debug for Batch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("queue_pair", self.queue_pair)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// Of the [error](RefusedBatch::error).
impl From<RefusedBatch> for std::io::Error {
    fn from(refused: RefusedBatch) -> Self {
        refused.error.into()
    }
}

/// So that `?` turns a refused batch into an error where how much was posted does not matter.
impl From<RefusedBatch> for Error {
    fn from(refused: RefusedBatch) -> Self {
        refused.error
    }
}
