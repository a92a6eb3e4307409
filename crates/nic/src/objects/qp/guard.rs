//! The two ways to lock a queue pair.
//!
//! Before a message takes the fast way some thirty things are looked at once
//! ([`Eligibility`](super::fast::eligibility::Eligibility)), and not again as long as nothing else
//! is done with the queue pair. Two guards hold this:
//!
//! Invariant: whatever changes the queue pair outside of the fast way ends eligibility, and before
//! that the early completion which this side has promised.
//! Enforced by: [`General`], the only guard that gives the state out: to make one ends eligibility.
//! [`Fast`] keeps the state to itself and has the calls of the fast way only.
//! If broken: a message is sent or taken in a state that does not allow it. Debug builds look again
//! at each message (`debug_assert` in `proto::rc`), and find that.

use std::ops::{Deref, DerefMut};

use ferroce_os::lock::{Lock, LockGuard};
use ferroce_proto::rc::RcQp;
use ferroce_proto::time::Time;
use ferroce_proto::verbs::{PlainSend, RecvWr, SendWr};

use super::Qp;
use super::fast::PutSend;
use super::locked::Locked;
use super::transport::Transport;
use crate::objects::cq::DirectDelivery;

/// The lock of a queue pair's state.
#[derive(Debug)]
pub(super) struct QpLock(Lock<Locked>);

impl QpLock {
    pub(super) fn new(locked: Locked) -> Self {
        Self(Lock::new(locked))
    }
}

/// The lock, for anything at all.
pub(super) struct General<'a>(LockGuard<'a, Locked>);

impl Deref for General<'_> {
    type Target = Locked;

    fn deref(&self) -> &Locked {
        &self.0
    }
}

impl DerefMut for General<'_> {
    fn deref_mut(&mut self) -> &mut Locked {
        &mut self.0
    }
}

/// What an entry of a queue pair in the table of timers is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimerEntry {
    /// The timer is not due, or there is none.
    Waits,
    /// What the timer was set for was done meanwhile: only the next entry is to be made.
    Stale,
    /// Something is due.
    Due,
}

/// The lock, for the fast way: what leaves the queue pair as eligible as it is.
///
/// The verbs of the fast way are [`put`](Self::put) (also out of line), [`commit`](Self::commit),
/// [`recv_queue`](Self::recv_queue), [`take_acks`](Self::take_acks) and
/// [`take_messages`](Self::take_messages). The other calls stand beside them because
/// [`into_general`](Self::into_general) would end eligibility where nothing has to end it: a round
/// asks whether the queue pair [is destroyed](Self::is_retired) and
/// [wants a turn](Self::wants_turn), a sender [wakes its peer](Self::wake_late), a deregistration
/// [settles](Self::settle_early_completion), and a timer whose [entry](Self::entry) is stale is
/// [renewed](Self::renew_timer).
pub(super) struct Fast<'a> {
    qp: &'a Qp,
    locked: LockGuard<'a, Locked>,
}

/// A receive queue that has room, and for which nothing waits.
pub(super) struct RecvQueue<'a>(&'a mut RcQp);

impl RecvQueue<'_> {
    /// Queues the receive that [`Fast::recv_queue`] was asked about.
    #[inline]
    pub(super) fn push(self, wr: RecvWr) {
        self.0.post_recv_quietly(wr);
    }
}

impl<'a> Fast<'a> {
    /// Goes on the general way.
    pub(super) fn into_general(self) -> General<'a> {
        let Self { qp, mut locked } = self;
        qp.end_eligibility(&mut locked);
        General(locked)
    }

    /// As [`Qp::put_fast`]. The caller calls [`commit`](Self::commit) with what this returns.
    #[expect(clippy::inline_always, reason = "each message goes this way")]
    #[inline(always)]
    pub(super) fn put(&mut self, send: &PlainSend<'_>) -> Option<PutSend> {
        self.qp.put_fast(&mut self.locked, send)
    }

    /// As [`put`](Self::put), which is inline where most SENDs come by.
    #[inline(never)]
    pub(super) fn put_out_of_line(&mut self, send: &PlainSend<'_>) -> Option<PutSend> {
        self.put(send)
    }

    /// As [`Qp::commit_fast`].
    #[expect(
        clippy::inline_always,
        reason = "a work request is not to go through memory"
    )]
    #[inline(always)]
    pub(super) fn commit(&mut self, wr: impl Into<SendWr>, put: PutSend) {
        self.qp.commit_fast(&mut self.locked, wr, put);
    }

    /// The receive queue, if a receive of `sges` pieces can be queued without consequences
    /// ([`RcQp::takes_recv_quietly`]).
    #[inline]
    pub(super) fn recv_queue(&mut self, sges: usize) -> Option<RecvQueue<'_>> {
        match &mut self.locked.transport {
            Transport::Rc(rc) if rc.takes_recv_quietly(sges) => Some(RecvQueue(rc)),
            _ => None,
        }
    }

    /// Takes what the receiver of the short ring that it sends by has read as acknowledged.
    #[inline]
    pub(super) fn take_acks(&mut self, now: Time, delivery: &mut DirectDelivery<'_>) {
        self.qp
            .take_short_ring_acks(&mut self.locked, now, delivery);
    }

    /// Takes the messages in the short ring that it receives by.
    #[inline]
    pub(super) fn take_messages(&mut self, now: Time, delivery: &mut DirectDelivery<'_>) {
        self.qp
            .take_from_short_ring(&mut self.locked, now, delivery);
    }

    /// True once the queue pair was destroyed.
    #[inline]
    pub(super) fn is_retired(&self) -> bool {
        self.locked.retired
    }

    /// Whether the queue pair has something to send after what was taken, which is not the fast
    /// way.
    #[inline]
    pub(super) fn wants_turn(&self) -> bool {
        let transport = &self.locked.transport;
        self.locked.eligibility.sends().is_none()
            && (transport.wants_transmit() || transport.next_local().is_some())
    }

    /// Wakes the receiver of its short ring, if that went to sleep just when something was put in.
    pub(super) fn wake_late(&mut self) {
        self.locked.short_rings.wake_late();
    }

    /// Takes what its peer may hold for taken, and promises nothing.
    pub(super) fn settle_early_completion(&mut self) {
        self.qp.settle_early_completion(&mut self.locked);
    }

    /// What its entry in the table of timers is good for now.
    pub(super) fn entry(&self, now: Time) -> TimerEntry {
        if self.locked.timer.is_none_or(|entry| entry > now) {
            TimerEntry::Waits
        } else if self.locked.deadline().is_some_and(|at| at <= now) {
            TimerEntry::Due
        } else {
            TimerEntry::Stale
        }
    }

    /// Puts the next entry in the place of one that is used up.
    pub(super) fn renew_timer(&mut self) {
        self.qp.renew_timer(&mut self.locked);
    }
}

impl Qp {
    /// Takes its lock, for anything at all.
    pub(super) fn lock(&self) -> General<'_> {
        self.lock_fast().into_general()
    }

    /// Takes its lock, for the fast way.
    #[inline]
    pub(super) fn lock_fast(&self) -> Fast<'_> {
        let locked = self.locked.0.lock();
        Fast { qp: self, locked }
    }

    /// Something else than the fast way comes next. What the peer may hold for taken is taken
    /// before that.
    pub(super) fn end_eligibility(&self, locked: &mut Locked) {
        self.settle_early_completion(locked);
        locked.eligibility.end();
    }
}
