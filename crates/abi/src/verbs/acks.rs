//! Events delivered and acknowledged: what makes destroying an object wait.

use std::sync::{Condvar, Mutex, PoisonError};

/// Counts of one object's events of one kind.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Counts {
    delivered: u64,
    acknowledged: u64,
    /// Threads in [`Acks::wait`]: to wake nobody would be a system call per event.
    waiting: usize,
}

impl Acks {
    /// An event was handed to the program.
    pub(crate) fn deliver(&self) {
        self.counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .delivered += 1;
    }

    /// The program acknowledged events.
    pub(crate) fn acknowledge(&self, events: u64) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.acknowledged += events;
        // Under the lock: the thread that waits may free this very object as soon as the lock is
        // free.
        if counts.waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// Returns when every event that was handed out is acknowledged.
    pub(crate) fn wait(&self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.waiting += 1;
        let mut counts = self
            .changed
            .wait_while(counts, |c| c.acknowledged < c.delivered)
            .unwrap_or_else(PoisonError::into_inner);
        counts.waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Acks;

    #[test]
    fn waits_for_the_last_acknowledgement() {
        let acks = Arc::new(Acks::default());
        acks.wait();
        acks.deliver();
        acks.deliver();
        let waiter = std::thread::spawn({
            let acks = Arc::clone(&acks);
            move || acks.wait()
        });
        acks.acknowledge(1);
        assert!(!waiter.is_finished());
        acks.acknowledge(1);
        waiter.join().unwrap();
    }
}
