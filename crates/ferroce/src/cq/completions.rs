//! Completions that are read in place.

use std::fmt;

use ferroce_abi::types::{
    IBV_WC_GRH, IBV_WC_RECV, IBV_WC_SUCCESS, IBV_WC_WITH_IMM, IBV_WC_WITH_INV,
};

use crate::Result;
use crate::cq::{Completion, Done, Timestamp, WorkError, WorkKind, WorkStatus};
use crate::sys::{BATCH, Fetched, PollBuffer, Queue, View, cause};
use crate::ud::Origin;

/// A completion as it came, of which each part is read when it is asked for.
#[derive(Clone, Copy)]
pub struct CompletionRef<'c>(View<'c>);

impl View<'_> {
    #[inline(always)]
    fn has(self, flag: u32) -> bool {
        self.wc.wc_flags & flag != 0
    }

    #[inline(always)]
    fn status(self) -> std::result::Result<(), WorkError> {
        match self.wc.status {
            IBV_WC_SUCCESS => Ok(()),
            status => {
                let (status, detail) = (WorkStatus(status), self.wc.vendor_err);
                Err(WorkError::new(status, detail, cause(self.wc)))
            }
        }
    }

    /// Whether it is of a receive, whose codes are two. Some devices set flags of receives for the
    /// sender, too.
    #[inline(always)]
    fn is_receive(self) -> bool {
        self.wc.opcode & !1 == IBV_WC_RECV
    }

    #[inline(always)]
    fn immediate(self) -> Option<u32> {
        (self.is_receive() && self.has(IBV_WC_WITH_IMM)).then(|| u32::from_be(self.wc.imm_data))
    }

    #[inline(always)]
    fn invalidated(self) -> Option<u32> {
        (self.is_receive() && self.has(IBV_WC_WITH_INV)).then_some(self.wc.imm_data)
    }

    #[inline(always)]
    fn origin(self) -> Origin {
        if self.wc.opcode != IBV_WC_RECV {
            // Of the other kinds these fields need not be set.
            return Origin::default();
        }
        Origin {
            queue_pair: self.wc.src_qp,
            has_header: self.has(IBV_WC_GRH),
            lid: self.wc.slid,
            service_level: self.wc.sl,
            path_bits: self.wc.dlid_path_bits,
        }
    }

    /// Returns the kind of work that was done, or the reason for its failure.
    #[inline(always)]
    pub(crate) fn result(self) -> std::result::Result<Done, WorkError> {
        self.status()?;
        Ok(Done {
            what: WorkKind::from_c(self.wc.opcode),
            bytes: self.wc.byte_len,
            immediate: self.immediate(),
            invalidated: self.invalidated(),
            origin: self.origin(),
        })
    }

    /// All of it.
    #[inline(always)]
    pub(crate) fn completion(self) -> Completion {
        Completion {
            tag: self.wc.wr_id,
            queue_pair: self.wc.qp_num,
            result: self.result(),
            timestamp: *self.timestamp,
        }
    }
}

impl CompletionRef<'_> {
    /// Returns the tag of the work request.
    #[must_use]
    #[inline]
    pub fn tag(&self) -> u64 {
        self.0.wc.wr_id
    }

    /// Number of the queue pair.
    #[must_use]
    #[inline]
    pub fn queue_pair(&self) -> u32 {
        self.0.wc.qp_num
    }

    /// Whether the work succeeded. Of work that did not, the parts below mean nothing.
    ///
    /// # Errors
    /// The reason why the work failed.
    #[inline]
    pub fn status(&self) -> std::result::Result<(), WorkError> {
        self.0.status()
    }

    /// Returns the kind of the work.
    #[must_use]
    #[inline]
    pub fn what(&self) -> WorkKind {
        WorkKind::from_c(self.0.wc.opcode)
    }

    /// Bytes that arrived here: of receives and reads only.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> u32 {
        self.0.wc.byte_len
    }

    /// Returns the immediate data that the peer sent.
    #[must_use]
    #[inline]
    pub fn immediate(&self) -> Option<u32> {
        self.0.immediate()
    }

    /// Key of the own memory window that the peer's SEND closed.
    #[must_use]
    #[inline]
    pub fn invalidated(&self) -> Option<u32> {
        self.0.invalidated()
    }

    /// Where a datagram came from.
    #[must_use]
    #[inline]
    pub fn origin(&self) -> Origin {
        self.0.origin()
    }

    /// When, if the queue was made [with timestamps](crate::cq::CompletionQueue::with_timestamps).
    #[must_use]
    #[inline]
    pub fn timestamp(&self) -> Option<Timestamp> {
        *self.0.timestamp
    }

    /// All of it.
    #[must_use]
    #[inline]
    pub fn completion(&self) -> Completion {
        self.0.completion()
    }
}

impl fmt::Debug for CompletionRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.completion(), f)
    }
}

/// The completions of a queue, taken off the device by and by. Each is lent until the next is asked
/// for:
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::mem::{Access, MemoryRegion};
/// use ferroce::qp::Operation;
/// let pair = pair()?;
/// let board = MemoryRegion::new(&pair.domain, 8, Access::Remote)?;
/// pair.near.post_inline(7, Operation::Write(board.remote().at(0)), b"written")?;
/// let mut seen = Vec::new();
/// while seen.is_empty() {
///     let mut completions = pair.completions.completions();
///     while let Some(completion) = completions.next()? {
///         completion.status()?;
///         seen.push(completion.tag());
///     }
/// }
/// assert_eq!(seen, [7]);
/// # Ok(())
/// # }
/// ```
/// Others may poll the queue meanwhile. What was not asked for stays in the queue when this is
/// dropped.
pub struct Completions<'q> {
    queue: &'q Queue,
    /// Completions that the iterator lends.
    lent: Fetched,
}

impl<'q> Completions<'q> {
    pub(crate) fn new(queue: &'q Queue) -> Self {
        Self {
            queue,
            lent: Fetched::flushed(0, 0),
        }
    }

    /// The oldest completion; none if nothing more has completed.
    ///
    /// # Errors
    /// The queue overflowed.
    #[expect(
        clippy::should_implement_trait,
        reason = "what it lends does not outlive the next call"
    )]
    #[inline]
    pub fn next(&mut self) -> Result<Option<CompletionRef<'_>>> {
        let lent = &mut self.lent;
        let taken = self.queue.take(|view| *lent = view.copy())?;
        Ok(taken.map(|()| CompletionRef(self.lent.view())))
    }
}

/// A place for completions that are taken together, as by the array of `ibv_poll_cq(3)`: see
/// [`CompletionQueue::poll_into`](crate::cq::CompletionQueue::poll_into). It is made once and used
/// again and again.
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::cq::CompletionBuffer;
/// use ferroce::mem::{Access, MemoryRegion};
/// use ferroce::qp::Operation;
/// let pair = pair()?;
/// let board = MemoryRegion::new(&pair.domain, 8, Access::Remote)?;
/// for tag in 0..3 {
///     pair.near.post_inline(tag, Operation::Write(board.remote().at(tag)), b"x")?;
/// }
/// let mut arrivals = CompletionBuffer::new();
/// let mut tags = Vec::new();
/// while tags.len() < 3 {
///     pair.completions.poll_into(&mut arrivals)?;
///     for arrived in arrivals.iter() {
///         arrived.status()?;
///         tags.push(arrived.tag());
///     }
/// }
/// assert_eq!(tags, [0, 1, 2]);
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct CompletionBuffer(pub(crate) PollBuffer);

impl CompletionBuffer {
    /// Completions that are taken together at most.
    pub const ROOM: usize = BATCH;

    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Those that were taken last, the oldest first.
    #[inline(always)]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = CompletionRef<'_>> {
        self.0.views().map(CompletionRef)
    }
}

impl fmt::Debug for CompletionBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl fmt::Debug for Completions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Completions")
    }
}
