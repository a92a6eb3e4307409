//! A message that is as good as taken when it is in its ring slot.
//!
//! An acknowledgement says that a message has reached the responder, and not that its program has
//! seen it (IBTA, "fault zone"). So a SEND by a short ring may be complete before its receiver has
//! looked, if nothing can come between. In a conversation (`delayed_ack`) an answer tells the peer
//! that its next message, with so many bytes at most, is as good as taken. The receive for it is
//! posted, and its memory is open.
//!
//! The receiver keeps that promise. Before each of three steps it takes back what it said, and then
//! what is there. The first is anything else with the queue pair than short messages by short rings
//! ([`Qp::end_eligibility`]). The second is the deregistration of a region
//! (`Services::settle_early_completions`). The third is a look at what the same process sent later
//! to another of its queue pairs. The word by which it takes that back and the ring slot make a
//! decision between both sides
//! ([`ShortRingProducer::completes_early`](ferroce_os::ring::ShortRingProducer::completes_early)):
//! either the sender waits for an acknowledgement as always, or the receiver has the message. One
//! message at a time is promised, the one behind all that were taken, by one queue pair of the
//! process.

use ferroce_proto::rc::{FastOutcome, RcQp};

use super::ShortRings;
use super::receive::Receiving;
use super::take::acknowledge;
use crate::objects::cq::DirectDelivery;
use crate::objects::qp::Qp;
use crate::objects::qp::fast::rights_cache::{QpMemo, Remembered};
use crate::objects::qp::locked::Locked;
use crate::objects::qp::results::Results;
use crate::objects::qp::transport::Transport;

/// A receive that was found to take a message, of so many bytes at most, as long as the rights
/// table has this edition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checked {
    edition: u64,
    most: u32,
}

/// The receives of a queue pair, whose lock the caller has.
pub(super) struct PostedReceives<'a> {
    pub(super) qp: &'a Qp,
    pub(super) rc: &'a RcQp,
    /// The region that the last message went to. One in another is not promised, since to look that
    /// up takes longer than it saves.
    pub(super) memo: &'a QpMemo,
}

impl PostedReceives<'_> {
    /// Most bytes of the next message that is surely taken if it comes by the short ring, if its
    /// receive was looked at before, or is good now.
    #[inline]
    pub(super) fn early_limit(&self, before: Option<Checked>) -> Option<u32> {
        let edition = self.qp.services().rights.edition();
        let is_good = |checked: &Checked| checked.edition == edition;
        let checked = before.filter(is_good).or_else(|| self.check(0))?;
        let qp = self.qp;
        qp.services()
            .may_complete_early(qp.qpn)
            .then_some(checked.most)
    }

    /// Looks at the receive for a message behind `ahead` others.
    #[inline(always)]
    fn check(&self, ahead: usize) -> Option<Checked> {
        let &Self { qp, rc, memo } = self;
        let edition = qp.services().rights.edition();
        let most = rc.room_for(ahead, &mut Remembered { qp, memo })?;
        Some(Checked { edition, most })
    }
}

impl ShortRings {
    /// Something was sent, and the peer has time to read it: looks at the receive for the message
    /// behind the next one, if that next one is promised.
    #[inline]
    pub(super) fn look_ahead(&mut self, receives: &PostedReceives<'_>) {
        if let Some(into) = self.into.as_deref_mut()
            && into.eye.promises()
        {
            into.next = receives.check(1);
        }
    }

    /// Whether the message that was put in last, with `rest` bytes behind its header, is as good
    /// as taken: then it counts as acknowledged. The transport has not been told of the message
    /// yet.
    #[inline]
    pub(super) fn try_complete_early(&mut self, posted: &PostedReceives<'_>, rest: usize) -> bool {
        let out = self.out.as_deref_mut();
        let Some(out) = out.filter(|_| !posted.rc.is_unanswered()) else {
            return false;
        };
        out.try_complete_early(rest)
    }
}

impl Qp {
    /// What was sent last is as good as taken, and nothing else waits for an acknowledgement.
    pub(in crate::objects::qp) fn complete_early(&self, locked: &mut Locked) {
        let Transport::Rc(rc) = &mut locked.transport else {
            return;
        };
        let psn = rc.last_psn();
        let delivery = &mut DirectDelivery::default();
        let done = acknowledge(
            rc,
            &locked.eligibility,
            &mut Results::new(self, delivery),
            psn,
        );
        if done != FastOutcome::Done {
            let now = locked.seen;
            self.end_eligibility(locked);
            self.on_general_ack(locked, psn, done, now);
        }
    }

    /// Takes what the peer may hold for taken, and leaves it to others to promise something.
    pub(in crate::objects::qp) fn settle_early_completion(&self, locked: &mut Locked) {
        let into = locked.short_rings.into.as_deref_mut();
        if into.is_some_and(Receiving::withdraw) {
            self.take_completed_early(locked);
        }
    }

    #[cold]
    fn take_completed_early(&self, locked: &mut Locked) {
        self.services().release_early_completion(self.qpn);
        self.drain_short_ring(locked, locked.seen, &mut DirectDelivery::default());
        // The holder of the lock may be about something that gives the queue pair no turn.
        if locked.transport.wants_transmit() && !locked.queued && !locked.retired {
            locked.queued = true;
            if !locked.holds_ack {
                self.services().push_ready(self.me());
            }
        }
    }
}
