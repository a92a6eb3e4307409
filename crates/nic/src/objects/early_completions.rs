//! What the process keeps in mind of the message that a peer may hold for taken
//! (`crate::objects::qp`, `fast/early_completion`).
//!
//! One queue pair at a time promises something: of two messages that are both held for taken nobody
//! could tell which came first.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use ferroce_proto::ids::Qpn;
use ferroce_proto::time::Time;

use crate::objects::cq::DirectDelivery;
use crate::objects::qp::RingEnd;
use crate::objects::services::Services;
use crate::services::revoke::{Closing, revoke};

/// Nobody: no queue pair of a device has this number.
const NOBODY: u32 = 0;
/// Messages for others, and none for it between, after which another queue pair may promise
/// something.
const OTHERS: u32 = 64;

/// The queue pair that promises something, and whether any may.
#[derive(Debug, Default)]
pub(crate) struct EarlyCompletions {
    /// Number of the queue pair. A queue pair takes the place under its own lock.
    holder: AtomicU32,
    /// What came for others since it promised something last.
    others: AtomicU32,
    /// Number of threads that are about to close memory.
    closing: AtomicUsize,
}

impl EarlyCompletions {
    /// The queue pair that may have promised something.
    #[inline]
    pub(crate) fn holder(&self) -> Option<Qpn> {
        let holder = self.holder.load(Ordering::SeqCst);
        (holder != NOBODY).then(|| Qpn::new(holder))
    }

    /// Something came for another than the holder. Returns whether it has had its time.
    pub(crate) fn count_other(&self) -> bool {
        self.others.fetch_add(1, Ordering::Relaxed) >= OTHERS
    }

    /// Puts another one in the place, if it is this one's. Returns whether it was.
    fn change(&self, from: u32, to: u32) -> bool {
        let (order, fails) = (Ordering::SeqCst, Ordering::Relaxed);
        self.holder.compare_exchange(from, to, order, fails).is_ok()
    }

    /// Whether a queue pair may promise something.
    #[inline]
    fn admits(&self, qpn: Qpn) -> bool {
        let me = qpn.get();
        let is_mine = self.holder.load(Ordering::Relaxed) == me || self.change(NOBODY, me);
        if is_mine && self.others.load(Ordering::Relaxed) > 0 {
            self.others.store(0, Ordering::Relaxed);
        }
        is_mine && self.closing.load(Ordering::SeqCst) == 0
    }
}

/// As long as it lives no queue pair promises anything.
#[derive(Debug)]
struct NoEarlyCompletions<'a>(&'a EarlyCompletions);

impl Drop for NoEarlyCompletions<'_> {
    fn drop(&mut self) {
        self.0.closing.fetch_sub(1, Ordering::Release);
    }
}

impl Services {
    /// Closes what `close` names: when this returns, no queue pair of this process and no peer is
    /// in the middle of using it, and none begins to. The caller has neither the lock of a queue
    /// pair nor that of the rights table.
    ///
    /// # Errors
    /// That of `close`, which has closed nothing then.
    pub(crate) fn revoke<E>(
        &self,
        close: impl FnOnce(&mut Closing<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        // 1. A message that its sender holds for taken still goes into its receive, and no queue
        //    pair promises to take another one before the end.
        let _none = self.settle_early_completions();
        revoke(&self.rights, &self.boards, close)
    }

    /// Memory is about to close: the queue pair that promised to take a message has taken it when
    /// this returns. The caller has neither the lock of a queue pair nor that of the rights table.
    fn settle_early_completions(&self) -> NoEarlyCompletions<'_> {
        // A queue pair promises something under its own lock: before that is taken here, or else it
        // sees this. A queue pair that takes the place only now sees it as well, or is seen.
        self.early_completions
            .closing
            .fetch_add(1, Ordering::SeqCst);
        self.end_early_completion();
        NoEarlyCompletions(&self.early_completions)
    }

    /// Lets the holder take what it has promised, and gives its place away.
    pub(crate) fn end_early_completion(&self) {
        if let Some(qpn) = self.early_completions.holder() {
            match self.qps.find(qpn) {
                Some(qp) => qp.end_early_completion(),
                None => self.release_early_completion(qpn),
            }
        }
    }

    /// Something has come for another queue pair: what its sender held for taken before is taken
    /// first. The caller has no lock of a queue pair.
    #[inline]
    pub(crate) fn take_completed_early(&self, now: Time) {
        if let Some(holder) = self.early_completions.holder() {
            self.take_from(holder, now);
        }
    }

    #[cold]
    fn take_from(&self, holder: Qpn, now: Time) {
        if self.early_completions.count_other() {
            return self.end_early_completion();
        }
        if let Some(qp) = self.qps.find(holder) {
            qp.on_short_ring(RingEnd::Receiving, now, &mut DirectDelivery::default());
        }
    }

    /// A queue pair, which promises nothing now, and whose lock the caller has if there is one,
    /// leaves the place to others.
    pub(crate) fn release_early_completion(&self, qpn: Qpn) {
        self.early_completions.change(qpn.get(), NOBODY);
    }

    /// Whether a queue pair, whose lock the caller has, may promise something. If so, it does.
    #[inline]
    pub(crate) fn may_complete_early(&self, qpn: Qpn) -> bool {
        self.early_completions.admits(qpn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_as_long_as_it_goes_on() {
        let (a, b) = (Qpn::new(5), Qpn::new(6));
        let early_completions = EarlyCompletions::default();
        assert!(early_completions.admits(a));
        for _ in 0..3 * OTHERS {
            assert!(!early_completions.count_other());
            assert!(!early_completions.admits(b));
            assert!(early_completions.admits(a));
        }
        assert_eq!(early_completions.holder(), Some(a));
        let others = (0..)
            .take_while(|_| !early_completions.count_other())
            .count();
        assert_eq!(others, OTHERS as usize);
        assert!(early_completions.change(a.get(), NOBODY));
        assert!(early_completions.admits(b));
        assert!(!early_completions.admits(a));
    }

    #[test]
    fn nobody_while_memory_closes() {
        let early_completions = EarlyCompletions::default();
        early_completions.closing.fetch_add(2, Ordering::SeqCst);
        assert!(!early_completions.admits(Qpn::new(5)));
        drop(NoEarlyCompletions(&early_completions));
        assert!(!early_completions.admits(Qpn::new(5)));
        drop(NoEarlyCompletions(&early_completions));
        assert!(early_completions.admits(Qpn::new(5)));
    }
}
