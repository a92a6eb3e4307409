//! What was posted, to hold completions against.

use std::collections::VecDeque;

use ferroce_proto::verbs::{Wc, WcStatus};

/// Work requests of one queue that were accepted and have not completed, oldest first: identifier,
/// and whether success is told.
#[derive(Debug, Default)]
pub struct Posted(pub VecDeque<(u64, bool)>);

impl Posted {
    /// Whether this queue has a request with this identifier.
    pub fn has(&self, wr_id: u64) -> bool {
        self.0.iter().any(|&(id, _)| id == wr_id)
    }

    /// The completion must be of the oldest request that has to complete. Those without a signal
    /// complete silently on success.
    pub fn complete(&mut self, wc: &Wc) {
        while let Some((wr_id, signalled)) = self.0.pop_front() {
            if wr_id == wc.wr_id {
                let wanted = signalled || wc.status != WcStatus::Success;
                assert!(wanted, "{wc:?} was not asked for");
                return;
            }
            assert!(!signalled, "{wr_id} was passed over by {wc:?}");
        }
        panic!("{wc:?} completes nothing that is open");
    }

    /// Whether something still has to complete.
    pub fn waits(&self) -> bool {
        self.0.iter().any(|&(_, signalled)| signalled)
    }
}
