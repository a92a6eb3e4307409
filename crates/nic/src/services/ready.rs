//! Queue pairs that are to have a turn to transmit: they have more than their last turn allowed, or
//! an acknowledgement that waits for something to go with.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::base::sync::lock;
use crate::base::waiter::Waiter;

/// A round-robin list. A queue pair is in it at most once (it keeps the flag itself).
#[derive(Debug, Default)]
pub(crate) struct ReadyList {
    /// With acknowledgements that wait.
    acks: Turns,
    others: Turns,
}

#[derive(Debug, Default)]
struct Turns {
    queue: Mutex<VecDeque<Arc<dyn Waiter>>>,
    len: AtomicUsize,
}

impl ReadyList {
    pub(crate) fn push(&self, qp: Arc<dyn Waiter>) {
        self.others.push(qp);
    }

    /// Adds one that has an acknowledgement and nothing else to say.
    pub(crate) fn push_with_ack(&self, qp: Arc<dyn Waiter>) {
        self.acks.push(qp);
    }

    pub(crate) fn pop(&self) -> Option<Arc<dyn Waiter>> {
        self.pop_with_ack().or_else(|| self.others.pop())
    }

    /// As [`pop`](Self::pop), of those that came with an acknowledgement.
    pub(crate) fn pop_with_ack(&self) -> Option<Arc<dyn Waiter>> {
        self.acks.pop()
    }

    pub(crate) fn len(&self) -> usize {
        self.acks() + self.others.len()
    }

    /// Acknowledgements that wait.
    #[inline]
    pub(crate) fn acks(&self) -> usize {
        self.acks.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Turns {
    fn push(&self, qp: Arc<dyn Waiter>) {
        let mut queue = lock(&self.queue);
        queue.push_back(qp);
        self.len.store(queue.len(), Ordering::Relaxed);
    }

    fn pop(&self) -> Option<Arc<dyn Waiter>> {
        if self.len() == 0 {
            return None;
        }
        let mut queue = lock(&self.queue);
        let first = queue.pop_front();
        self.len.store(queue.len(), Ordering::Relaxed);
        first
    }

    #[inline]
    fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }
}
