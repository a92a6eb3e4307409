//! Whether a program that polls an armed completion queue is about to sleep on it.
//!
//! Most programs arm a queue, poll it once more, and sleep: then the device's work is prepared for
//! the sleep. Others keep a queue armed and poll it all the same, as often as they poll others: UCX
//! has a thread that takes the events of its UD queues. What is made ready for a sleep that does
//! not come costs them wake-ups.

use std::sync::atomic::{AtomicU32, Ordering};

/// Polls of an armed, empty queue before its program sleeps, at most.
const LAST_POLLS: u32 = 4;

/// Polls that found a queue armed and empty, since it was armed.
#[derive(Debug, Default)]
pub(super) struct ArmedPolls(AtomicU32);

impl ArmedPolls {
    /// The queue is armed.
    pub(super) fn on_armed(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// The armed queue is polled, and empty. Threads that poll one queue together may miss a count.
    pub(super) fn on_empty(&self) {
        let polls = self.0.load(Ordering::Relaxed);
        self.0.store(polls.saturating_add(1), Ordering::Relaxed);
    }

    /// Whether the program is likely to sleep next. One that has polled more often is not.
    pub(super) fn sleep_follows(&self) -> bool {
        self.0.load(Ordering::Relaxed) <= LAST_POLLS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_polls_on_does_not_sleep() {
        let polls = ArmedPolls::default();
        polls.on_armed();
        for _ in 0..LAST_POLLS {
            polls.on_empty();
            assert!(polls.sleep_follows());
        }
        polls.on_empty();
        assert!(!polls.sleep_follows());
        polls.on_armed();
        assert!(polls.sleep_follows(), "it has armed the queue again");
    }
}
