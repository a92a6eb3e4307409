//! What was posted, to hold completions against.

use std::collections::VecDeque;

use ferroce_proto::verbs::{Wc, WcStatus};

/// Work requests of one queue that were accepted and have not completed, oldest first.
#[derive(Default)]
pub struct Posted {
    pub open: VecDeque<(u64, bool)>,
    /// Completions that were looked at.
    seen: usize,
}

impl Posted {
    /// Each completion must be of the oldest open request that has to complete. Requests without a
    /// signal complete silently on success.
    pub fn check(&mut self, completions: &[(Wc, bool)]) {
        for (wc, _) in &completions[self.seen..] {
            loop {
                let (wr_id, signalled) = self
                    .open
                    .pop_front()
                    .unwrap_or_else(|| panic!("{wc:?} completes nothing that is open"));
                if wr_id == wc.wr_id {
                    assert!(
                        signalled || wc.status != WcStatus::Success,
                        "{wc:?} was not asked for"
                    );
                    break;
                }
                assert!(!signalled, "{wr_id} was passed over by {wc:?}");
            }
        }
        self.seen = completions.len();
    }

    /// After a flush nothing is left that has to complete.
    pub fn check_empty(&self) {
        assert!(
            !self.open.iter().any(|&(_, signalled)| signalled),
            "never completed: {:?}",
            self.open
        );
    }
}
