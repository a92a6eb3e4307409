//! Communication ids and transaction ids.

use alloc::boxed::Box;
use core::fmt;

use crate::mad::CommId;

/// Low bits of a communication id that the agent chooses; the bits above name its process.
const CHOSEN_BITS: u32 = 22;
const CHOSEN: u32 = (1 << CHOSEN_BITS) - 1;

/// Where an agent's random numbers come from.
///
/// A host that has seen some of them must not be able to tell the next ones. With both ids and the
/// transaction id of a conversation it could end that, or answer in the peer's place. So this is
/// the system's generator, and never one whose output can be inverted.
pub struct Random(Box<dyn FnMut() -> u64 + Send>);

impl Random {
    /// Numbers that `draw` gives.
    pub fn new(draw: impl FnMut() -> u64 + Send + 'static) -> Self {
        Self(Box::new(draw))
    }
}

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Random")
    }
}

/// Draws identifiers. They are spread over their range, so that a peer that remembers an earlier
/// conversation does not take a new one for it.
#[derive(Debug)]
pub(super) struct Ids {
    prefix: u32,
    random: Random,
}

impl Ids {
    pub(super) const fn new(prefix: u32, random: Random) -> Self {
        Self {
            prefix: prefix & !CHOSEN,
            random,
        }
    }

    /// A transaction id.
    pub(super) fn tid(&mut self) -> u64 {
        (self.random.0)()
    }

    /// An id that is not 0 and not `taken`, `None` if half of all ids are (`in_use`).
    pub(super) fn comm_id(
        &mut self,
        in_use: usize,
        taken: impl Fn(CommId) -> bool,
    ) -> Option<CommId> {
        if in_use >= 1 << (CHOSEN_BITS - 1) {
            return None;
        }
        loop {
            #[expect(clippy::cast_possible_truncation, reason = "22 bits of the draw")]
            let id = CommId(self.prefix | (self.tid() as u32 & CHOSEN));
            if !id.is_none() && !taken(id) {
                return Some(id);
            }
        }
    }
}
