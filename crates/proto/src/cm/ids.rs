//! Communication ids and transaction ids.

use crate::mad::CommId;

/// Low bits of a communication id that the agent chooses; the bits above name its process.
const CHOSEN_BITS: u32 = 22;
const CHOSEN: u32 = (1 << CHOSEN_BITS) - 1;

/// Draws identifiers. They are spread over their range, so that a peer that remembers an earlier conversation does not take a
/// new one for it; they are no secrets.
#[derive(Clone, Debug)]
pub(super) struct Ids {
    prefix: u32,
    state: u64,
}

impl Ids {
    pub(super) const fn new(prefix: u32, seed: u64) -> Self {
        Self {
            prefix: prefix & !CHOSEN,
            state: seed,
        }
    }

    /// The next of a sequence that visits every 64-bit value (`SplitMix64`).
    pub(super) const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
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
            let id = CommId(self.prefix | (self.next_u64() as u32 & CHOSEN));
            if !id.is_none() && !taken(id) {
                return Some(id);
            }
        }
    }
}
