//! Completions that are read in place.

use std::fmt;

use ferroce_abi::types::{IBV_WC_GRH, IBV_WC_SUCCESS, IBV_WC_WITH_IMM, IBV_WC_WITH_INV};
use smallvec::SmallVec;

use crate::sys::{BATCH, Fetched, Queue};
use crate::{Completed, Completion, Done, Origin, Result, Timestamp, WorkError, WorkStatus};

/// A completion as it came, of which each part is read when it is asked for.
#[derive(Clone, Copy)]
pub struct Arrived {
    tag: u64,
    fetched: Fetched,
}

impl Arrived {
    pub(crate) fn new(tag: u64, fetched: Fetched) -> Self {
        Self { tag, fetched }
    }

    fn has(&self, flag: u32) -> bool {
        self.fetched.wc.wc_flags & flag != 0
    }

    /// What the work request carried.
    #[must_use]
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Number of the queue pair.
    #[must_use]
    pub fn queue_pair(&self) -> u32 {
        self.fetched.wc.qp_num
    }

    /// Whether the work succeeded. Of work that did not, the parts below mean nothing.
    ///
    /// # Errors
    /// Why it failed.
    pub fn status(&self) -> std::result::Result<(), WorkError> {
        match self.fetched.wc.status {
            IBV_WC_SUCCESS => Ok(()),
            status => Err(WorkError {
                status: WorkStatus(status),
                detail: self.fetched.wc.vendor_err,
            }),
        }
    }

    /// What was done.
    #[must_use]
    pub fn what(&self) -> Completed {
        Completed::from_c(self.fetched.wc.opcode)
    }

    /// Bytes that arrived here: of receives and reads only.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        self.fetched.wc.byte_len
    }

    /// Whether it is of a receive. Some devices set flags of receives for the sender, too.
    fn is_receive(&self) -> bool {
        matches!(
            self.what(),
            Completed::Receive | Completed::ReceiveWriteImmediate
        )
    }

    /// What the peer sent along.
    #[must_use]
    pub fn immediate(&self) -> Option<u32> {
        (self.is_receive() && self.has(IBV_WC_WITH_IMM))
            .then(|| u32::from_be(self.fetched.wc.imm_data))
    }

    /// Key of the own memory window that the peer's SEND closed.
    #[must_use]
    pub fn invalidated(&self) -> Option<u32> {
        (self.is_receive() && self.has(IBV_WC_WITH_INV)).then_some(self.fetched.wc.imm_data)
    }

    /// Where a datagram came from.
    #[must_use]
    pub fn origin(&self) -> Origin {
        let wc = &self.fetched.wc;
        match self.what() {
            Completed::Receive => Origin {
                queue_pair: wc.src_qp,
                has_header: self.has(IBV_WC_GRH),
                lid: wc.slid,
                service_level: wc.sl,
                path_bits: wc.dlid_path_bits,
            },
            // Of the other kinds these fields need not be set.
            _ => Origin::default(),
        }
    }

    /// When, if the queue was made [with timestamps](crate::CompletionQueue::with_timestamps).
    #[must_use]
    pub fn timestamp(&self) -> Option<Timestamp> {
        self.fetched.timestamp
    }

    /// All of it.
    #[must_use]
    pub fn completion(&self) -> Completion {
        Completion {
            tag: self.tag,
            queue_pair: self.queue_pair(),
            result: self.status().map(|()| Done {
                what: self.what(),
                bytes: self.bytes(),
                immediate: self.immediate(),
                invalidated: self.invalidated(),
                origin: self.origin(),
            }),
            timestamp: self.timestamp(),
        }
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
    taken: SmallVec<[Arrived; BATCH]>,
    next: usize,
}

impl<'q> Completions<'q> {
    pub(crate) fn new(queue: &'q Queue) -> Self {
        Self {
            queue,
            taken: SmallVec::new(),
            next: 0,
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
    pub fn next(&mut self) -> Result<Option<&Arrived>> {
        if self.next == self.taken.len() {
            self.taken.clear();
            self.next = 0;
            self.queue.take_some(&mut self.taken)?;
        }
        let arrived = self.taken.get(self.next);
        self.next += usize::from(arrived.is_some());
        Ok(arrived)
    }
}

impl Drop for Completions<'_> {
    fn drop(&mut self) {
        if self.next < self.taken.len() {
            self.queue.give_back(self.taken.drain(self.next..));
        }
    }
}

impl fmt::Debug for Completions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Completions")
    }
}
