//! Completions that are read in place.

use std::fmt;

use ferroce_abi::types::{
    IBV_WC_GRH, IBV_WC_RECV, IBV_WC_SUCCESS, IBV_WC_WITH_IMM, IBV_WC_WITH_INV,
};

use crate::sys::{Fetched, Queue, View};
use crate::{Completed, Completion, Done, Origin, Result, Timestamp, WorkError, WorkStatus};

/// A completion as it came, of which each part is read when it is asked for.
#[derive(Clone, Copy)]
pub struct Arrived {
    fetched: Fetched,
}

impl View<'_> {
    #[inline(always)]
    fn has(self, flag: u32) -> bool {
        self.wc.wc_flags & flag != 0
    }

    #[inline(always)]
    fn status(self) -> std::result::Result<(), WorkError> {
        match self.wc.status {
            IBV_WC_SUCCESS => Ok(()),
            status => Err(WorkError {
                status: WorkStatus(status),
                detail: self.wc.vendor_err,
            }),
        }
    }

    /// Whether it is of a receive, whose codes are two. Some devices set flags of receives for the sender, too.
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

    /// What was done, or why not.
    #[inline(always)]
    fn result(self) -> std::result::Result<Done, WorkError> {
        self.status()?;
        Ok(Done {
            what: Completed::from_c(self.wc.opcode),
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

    /// A copy.
    #[inline(always)]
    pub(crate) fn arrived(self) -> Arrived {
        Arrived::new(Fetched {
            wc: *self.wc,
            timestamp: *self.timestamp,
        })
    }
}

impl Arrived {
    #[inline(always)]
    pub(crate) fn new(fetched: Fetched) -> Self {
        Self { fetched }
    }

    #[inline(always)]
    fn view(&self) -> View<'_> {
        self.fetched.view()
    }

    /// What the work request carried.
    #[must_use]
    #[inline]
    pub fn tag(&self) -> u64 {
        self.fetched.wc.wr_id
    }

    /// Number of the queue pair.
    #[must_use]
    #[inline]
    pub fn queue_pair(&self) -> u32 {
        self.fetched.wc.qp_num
    }

    /// Whether the work succeeded. Of work that did not, the parts below mean nothing.
    ///
    /// # Errors
    /// Why it failed.
    #[inline]
    pub fn status(&self) -> std::result::Result<(), WorkError> {
        self.view().status()
    }

    /// What was done.
    #[must_use]
    #[inline]
    pub fn what(&self) -> Completed {
        Completed::from_c(self.fetched.wc.opcode)
    }

    /// Bytes that arrived here: of receives and reads only.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> u32 {
        self.fetched.wc.byte_len
    }

    /// What the peer sent along.
    #[must_use]
    #[inline]
    pub fn immediate(&self) -> Option<u32> {
        self.view().immediate()
    }

    /// Key of the own memory window that the peer's SEND closed.
    #[must_use]
    #[inline]
    pub fn invalidated(&self) -> Option<u32> {
        self.view().invalidated()
    }

    /// Where a datagram came from.
    #[must_use]
    #[inline]
    pub fn origin(&self) -> Origin {
        self.view().origin()
    }

    /// When, if the queue was made [with timestamps](crate::CompletionQueue::with_timestamps).
    #[must_use]
    #[inline]
    pub fn timestamp(&self) -> Option<Timestamp> {
        self.fetched.timestamp
    }

    /// All of it.
    #[must_use]
    #[inline]
    pub fn completion(&self) -> Completion {
        self.view().completion()
    }

    /// What was done, or why not.
    #[inline]
    pub(crate) fn result(&self) -> std::result::Result<Done, WorkError> {
        self.view().result()
    }
}

impl fmt::Debug for Arrived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.completion(), f)
    }
}

/// The completions of a queue, taken off the device by and by. Each is lent until the next is asked for:
/// ```no_run
/// # fn read(queue: &ferroce::CompletionQueue) -> ferroce::Result<()> {
/// let mut completions = queue.completions();
/// while let Some(completion) = completions.next()? {
///     println!("{} arrived: {:?}", completion.tag(), completion.status());
/// }
/// # Ok(())
/// # }
/// ```
/// Others may poll the queue meanwhile. What was not asked for stays in the queue when this is dropped.
pub struct Completions<'q> {
    queue: &'q Queue,
    /// What is lent.
    lent: Option<Arrived>,
}

impl<'q> Completions<'q> {
    pub(crate) fn new(queue: &'q Queue) -> Self {
        Self { queue, lent: None }
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
    pub fn next(&mut self) -> Result<Option<&Arrived>> {
        self.lent = self.queue.take(|view| view.arrived())?;
        Ok(self.lent.as_ref())
    }
}

impl fmt::Debug for Completions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Completions")
    }
}
