//! Completions that go straight to the program that polls for them, past the ring of their queue.
//!
//! A queue pair gives a completion to who polls only if the queue has nothing queued and is not armed. It looks at that under its own
//! lock, so what it has completed before is taken already: completions of a queue pair keep their order.

use ferroce_proto::verbs::Wc;
use smallvec::SmallVec;

use super::{Cq, Stamp};

/// Completions that are caught at most: those that come together are few, or many more than a program has room for.
const MOST: usize = 4;

/// What a poll that has found its queue empty catches while it does the device's work. By default nothing.
#[derive(Debug, Default)]
pub(crate) struct Catch {
    /// Tells the queue from others.
    of: usize,
    room: usize,
    caught: SmallVec<[(Wc, Stamp); MOST]>,
}

impl Catch {
    /// For a program that has room for so many completions of a queue.
    pub(super) fn of(cq: &Cq, room: usize) -> Self {
        Self {
            of: cq.id(),
            room: room.min(MOST),
            caught: SmallVec::new(),
        }
    }

    /// Whether a program polls.
    #[inline]
    pub(crate) fn is_polled(&self) -> bool {
        self.room > 0
    }

    /// Whether it takes one more completion of a queue.
    #[inline]
    pub(super) fn takes(&self, cq: &Cq) -> bool {
        self.of == cq.id() && self.caught.len() < self.room
    }

    #[inline]
    pub(super) fn push(&mut self, wc: Wc, stamp: Stamp) {
        self.caught.push((wc, stamp));
    }

    /// Gives out what was caught, and says how much that is.
    #[inline]
    pub(super) fn give(&self, each: &mut dyn FnMut(usize, &Wc, Stamp)) -> usize {
        for (index, (wc, stamp)) in self.caught.iter().enumerate() {
            each(index, wc, *stamp);
        }
        self.caught.len()
    }
}
