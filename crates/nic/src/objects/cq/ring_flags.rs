//! What a completion queue's ring says, for a look without its lock: most polls find nothing.
//!
//! It is shown under the lock, before the lock is free again. So a thread that comes after a push
//! sees what the push has shown, by whatever tells it so (the lock that arming takes, an event, a
//! word in memory). The usual order of arming, draining and sleeping misses nothing.

use std::sync::atomic::Ordering;

use super::ring::Ring;
use crate::base::atomics::{Atomic as _, Atomics, Machine};

const NEWS: u8 = 1;
const ARMED: u8 = 2;

/// Flags. A model checker runs them on a byte of its own.
#[derive(Debug, Default)]
pub(super) struct RingFlags<M: Atomics = Machine>(M::Byte);

impl<M: Atomics> RingFlags<M> {
    /// Shows the state of the ring. The caller has its lock.
    pub(super) fn show(&self, ring: &Ring) {
        let news = if ring.has_news() { NEWS } else { 0 };
        let armed = if ring.is_armed() { ARMED } else { 0 };
        self.0.store(news | armed, Ordering::Release);
    }

    /// Shows a ring with a completion that nobody waits for. The caller has its lock.
    #[inline]
    pub(super) fn show_news(&self) {
        self.0.store(NEWS, Ordering::Release);
    }

    /// Whether there is a completion, or an overflow.
    pub(super) fn has_news(&self) -> bool {
        self.0.load(Ordering::Acquire) & NEWS != 0
    }

    /// Whether there is nothing, and nobody waits for something.
    #[inline]
    pub(super) fn is_blank(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    /// Whether somebody is about to sleep until the next completion.
    pub(super) fn is_armed(&self) -> bool {
        self.0.load(Ordering::Relaxed) & ARMED != 0
    }
}
