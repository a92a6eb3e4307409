//! Events on a descriptor: a queue whose length a semaphore eventfd shows.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Mutex;

use ferroce_os::eventfd::EventFd;

use super::sync::lock;
use crate::Error;

/// A queue of events with a descriptor that is readable while it is not empty. A consumer reads one count (8 bytes, outside
/// of any lock, so that it can block there), then [`pop`](Self::pop)s. One count stands for one queued event, so every kind
/// of waiting (blocking, `O_NONBLOCK`, poll, epoll in both modes) loses no wake-up.
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    fd: EventFd,
    queue: Mutex<VecDeque<T>>,
}

impl<T> EventQueue<T> {
    /// An empty queue.
    pub(crate) fn new() -> Result<Self, Error> {
        let fd = EventFd::semaphore().map_err(|e| Error::system("eventfd", &e))?;
        Ok(Self {
            fd,
            queue: Mutex::default(),
        })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Adds an event.
    pub(crate) fn push(&self, event: T) {
        let mut queue = lock(&self.queue);
        queue.push_back(event);
        // It fails only if a stranger has written 2^64 to the descriptor: then it is readable anyway.
        let _ = self.fd.add(1);
    }

    /// Takes one count, as a consumer's read does. Returns whether there was one.
    #[cfg(test)]
    pub(crate) fn take_count(&self) -> bool {
        self.fd.try_take().expect("an eventfd can be read")
    }

    /// Takes the oldest event; the caller has taken its count.
    pub(crate) fn pop(&self) -> Option<T> {
        lock(&self.queue).pop_front()
    }

    /// Removes the events that match, with their counts. A count that a consumer has already taken stays taken: its
    /// [`pop`](Self::pop) finds nothing and it waits again.
    pub(crate) fn forget(&self, matches: impl Fn(&T) -> bool) {
        drop(self.extract(matches));
    }

    /// Removes the events that match, with their counts, and hands them over in order.
    pub(crate) fn extract(&self, matches: impl Fn(&T) -> bool) -> Vec<T> {
        let mut queue = lock(&self.queue);
        let (taken, kept): (VecDeque<T>, _) =
            std::mem::take(&mut *queue).into_iter().partition(matches);
        *queue = kept;
        for _ in &taken {
            if !self.fd.try_take().unwrap_or(false) {
                break;
            }
        }
        taken.into()
    }
}
