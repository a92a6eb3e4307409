//! Turns of threads that post to one queue pair, and of one that resets it.

use super::locks::{Lock, LockGuard};

/// The turns of threads that post to a queue pair, one for each of its queues.
///
/// Invariant: work that a turn's thread has noted is posted, or not noted any more, when the turn
/// ends.
/// Enforced by: all functions that post take the turn first; a reset takes both.
/// If broken: a reset lets go of memory that the device then works on.
pub(in crate::sys) struct Turns {
    /// With the last work request of the queue, if it will complete without a word.
    send: Lock<Option<u64>>,
    receive: Lock<()>,
}

/// The right to post to a send queue.
pub(super) type SendTurn<'q> = LockGuard<'q, Option<u64>>;

impl Turns {
    pub(in crate::sys) fn new() -> Self {
        Self {
            send: Lock::new(None),
            receive: Lock::new(()),
        }
    }

    #[inline(always)]
    pub(super) fn send(&self) -> SendTurn<'_> {
        self.send.lock()
    }

    #[inline(always)]
    pub(super) fn receive(&self) -> LockGuard<'_, ()> {
        self.receive.lock()
    }

    /// Waits until no thread posts, and keeps all from it.
    pub(in crate::sys) fn both(&self) -> (SendTurn<'_>, LockGuard<'_, ()>) {
        (self.send(), self.receive())
    }
}
