//! What short messages by short rings have found out about a queue pair, and need not look at
//! again.
//!
//! Before one is sent or taken past everything else, some thirty things must be so: the state,
//! nothing owed, nothing sent again, nothing timed. As long as only such messages come and go it
//! stays so. Everything else needs the other guard ([`General`](super::super::guard::General)),
//! which ends eligibility; so does what lets the transport do anything else
//! ([`Qp::run_delivering`](super::super::Qp::run_delivering)). The next message looks again then.

use ferroce_proto::rc::FastHead;

/// Shortcuts that were found open, until something goes the general way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::objects::qp) struct Eligibility {
    sends: Option<FastHead>,
    takes: bool,
}

impl Eligibility {
    /// If a SEND may go into the short ring, and an acknowledgement be taken out of it, whatever
    /// else there is to look at: what SENDs have in common.
    #[inline]
    pub(in crate::objects::qp) fn sends(&self) -> Option<&FastHead> {
        self.sends.as_ref()
    }

    /// Whether a SEND may be taken out of the short ring.
    #[inline]
    pub(in crate::objects::qp) fn takes(&self) -> bool {
        self.takes
    }

    /// SENDs may go into the short ring.
    pub(in crate::objects::qp) fn set_sends(&mut self, common: FastHead) {
        self.sends = Some(common);
    }

    /// SENDs may be taken out of the short ring.
    #[inline]
    pub(in crate::objects::qp) fn set_takes(&mut self) {
        self.takes = true;
    }

    /// Something else is done with the queue pair.
    #[inline]
    pub(in crate::objects::qp) fn end(&mut self) {
        *self = Self::default();
    }
}
