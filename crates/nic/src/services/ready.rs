//! Queue pairs that have more to transmit than their turn allowed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::base::sync::lock;
use crate::base::waiter::Waiter;

/// A round-robin list. A queue pair is in it at most once (it keeps the flag itself).
#[derive(Debug, Default)]
pub(crate) struct ReadyList {
    queue: Mutex<VecDeque<Arc<dyn Waiter>>>,
    len: AtomicUsize,
}

impl ReadyList {
    pub(crate) fn push(&self, qp: Arc<dyn Waiter>) {
        let mut queue = lock(&self.queue);
        queue.push_back(qp);
        self.len.store(queue.len(), Ordering::Relaxed);
    }

    pub(crate) fn pop(&self) -> Option<Arc<dyn Waiter>> {
        if self.is_empty() {
            return None;
        }
        let mut queue = lock(&self.queue);
        let first = queue.pop_front();
        self.len.store(queue.len(), Ordering::Relaxed);
        first
    }

    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
