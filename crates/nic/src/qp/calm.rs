//! What short messages by lanes have found out about a queue pair, and need not look at again.
//!
//! Before one is sent or taken past everything else, some thirty things must be so: the state, nothing owed, nothing sent again,
//! nothing timed. As long as only such messages come and go it stays so. Whoever takes the queue pair's lock for anything else
//! ([`Qp::lock`](super::Qp::lock)), or lets the transport do anything else ([`Qp::run_catching`](super::Qp::run_catching)), makes the
//! next message look again.

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Calm {
    sends: bool,
    takes: bool,
}

impl Calm {
    /// Whether a SEND may go into the lane, and an acknowledgement be taken out of it, whatever else there is to look at.
    #[inline]
    pub(super) fn sends(self) -> bool {
        self.sends
    }

    /// Whether a SEND may be taken out of the lane.
    #[inline]
    pub(super) fn takes(self) -> bool {
        self.takes
    }

    /// A SEND has gone into the lane.
    #[inline]
    pub(super) fn on_sent(&mut self) {
        self.sends = true;
    }

    /// A SEND was taken out of the lane.
    #[inline]
    pub(super) fn on_taken(&mut self) {
        self.takes = true;
    }

    /// Something else is done with the queue pair.
    #[inline]
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }
}
