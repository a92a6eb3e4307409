//! How often a better way is tried again that was refused: after the first refusal soon, after more
//! of them in a row rarely.

/// Most messages that go the usual way after a refusal, as a power of 2.
const RAREST: u32 = 10;

/// Refusals in a row, and when to try again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BackOff {
    /// Refusals in a row.
    refused: u32,
    /// Messages that go the usual way, from now on.
    skip: u32,
}

impl BackOff {
    /// Whether the next message is to try.
    pub(super) fn tries(self) -> bool {
        self.skip == 0
    }

    /// Takes note of a message that goes the usual way.
    pub(super) fn pass(&mut self) {
        self.skip = self.skip.saturating_sub(1);
    }

    /// A message went the better way.
    pub(super) fn on_taken(&mut self) {
        self.refused = 0;
    }

    /// Counts one more refusal in a row.
    pub(super) fn on_refused(&mut self) {
        self.refused = (self.refused + 1).min(RAREST);
        self.skip = 1 << self.refused;
    }
}
