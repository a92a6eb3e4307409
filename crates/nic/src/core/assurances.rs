//! What the process keeps in mind of messages that its peers may hold for taken (`crate::qp`, `lane/assured`).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::Nic;

/// Whether there are any, and whether there may be.
#[derive(Debug, Default)]
pub(super) struct Assurances {
    /// Some queue pair has assured something since [`take_some`](Self::take_some).
    some: AtomicBool,
    /// Those who are about to close memory.
    closing: AtomicUsize,
}

impl Assurances {
    /// Whether there may be some. If so, they count as seen: who finds that one still holds says so by [`note`](Self::note).
    #[inline]
    pub(super) fn take_some(&self) -> bool {
        self.some.load(Ordering::Relaxed) && self.some.swap(false, Ordering::AcqRel)
    }

    /// There is one.
    #[inline]
    pub(super) fn note(&self) {
        if !self.some.load(Ordering::Relaxed) {
            self.some.store(true, Ordering::Release);
        }
    }
}

/// As long as it lives no queue pair assures anything.
#[derive(Debug)]
pub(crate) struct NoAssurances<'a>(&'a Assurances);

impl Drop for NoAssurances<'_> {
    fn drop(&mut self) {
        self.0.closing.fetch_sub(1, Ordering::Release);
    }
}

impl Nic {
    /// Memory is about to close: whoever assured that it takes a message has taken it when this returns. The caller has neither the
    /// lock of a queue pair nor that of the rights table.
    pub(crate) fn keep_assurances(&self) -> NoAssurances<'_> {
        // Who assures something does so under the lock of a queue pair: before it is taken here, or else it sees this.
        self.assurances.closing.fetch_add(1, Ordering::AcqRel);
        for qp in self.remembering() {
            qp.end_assurance();
        }
        NoAssurances(&self.assurances)
    }

    /// Whether a queue pair, whose lock the caller has, may assure something. If so, it does.
    #[inline]
    pub(crate) fn may_assure(&self) -> bool {
        let may = self.assurances.closing.load(Ordering::Acquire) == 0;
        if may {
            self.assurances.note();
        }
        may
    }
}
