//! The queue inside a completion queue.

use std::collections::VecDeque;

use ferroce_proto::ids::Qpn;
use ferroce_proto::time::Time;
use ferroce_proto::verbs::{Wc, WcStatus};

use super::Stamp;
use super::moderation::{Moderation, Waiting};

/// Which completion makes the next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Armed {
    #[default]
    No,
    Solicited,
    Any,
}

/// What a pushed completion calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// Queued.
    Quiet,
    /// Queued, and it was waited for: one event on the channel.
    Notify,
    /// Queued, and it was waited for, but events are moderated: [`Ring::on_period`] is to be called
    /// at this time.
    NotifyAt(Time),
    /// The queue was full: this completion is lost and the queue is dead from here.
    Overflowed,
    /// The queue had overflowed before.
    Dead,
}

/// A completion that no poll has returned.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) wc: Wc,
    pub(super) stamp: Stamp,
    /// The message asked for an event (`IBV_SEND_SOLICITED`).
    solicited: bool,
}

impl Queued {
    /// True if the completion raises the event of a queue that is armed for solicited completions
    /// only. A failed completion does, as `ibv_req_notify_cq(3)` says.
    fn is_solicited(&self) -> bool {
        self.solicited || self.wc.status != WcStatus::Success
    }
}

/// Completions between a device and its program: bounded, one-shot armed, dead after the first
/// overflow.
#[derive(Debug)]
pub(super) struct Ring {
    queue: VecDeque<Queued>,
    capacity: usize,
    armed: Armed,
    /// Completions at the front that an event has told of. Programs answer that event by a poll:
    /// perftest arms first and polls then, and takes a second event for a second completion.
    told: usize,
    overflowed: bool,
    /// A full queue loses its oldest completion instead of dying.
    overwrites: bool,
    moderation: Moderation,
    /// What an armed and moderated queue has collected since.
    waiting: Waiting,
}

impl Ring {
    /// An empty queue. `overwrites`: an overflow loses the oldest completions and nothing else
    /// happens.
    pub(super) fn new(capacity: usize, overwrites: bool) -> Self {
        Self {
            queue: VecDeque::new(),
            capacity,
            armed: Armed::No,
            told: 0,
            overflowed: false,
            overwrites,
            moderation: Moderation::default(),
            waiting: Waiting::default(),
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Queues a completion, if nobody waits for one and there is room. Returns whether it did.
    #[expect(
        clippy::inline_always,
        reason = "a completion is not to go through memory"
    )]
    #[inline(always)]
    pub(super) fn push_unawaited(&mut self, wc: Wc, solicited: bool, stamp: Stamp) -> bool {
        let may = !self.overflowed && self.armed == Armed::No && self.queue.len() < self.capacity;
        if may {
            self.queue.push_back(Queued {
                wc,
                stamp,
                solicited,
            });
        }
        may
    }

    /// Queues a completion. `now` is asked for only if events are moderated.
    pub(super) fn push(
        &mut self,
        wc: Wc,
        solicited: bool,
        stamp: Stamp,
        now: impl FnOnce() -> Time,
    ) -> Pushed {
        if self.overflowed {
            return Pushed::Dead;
        }
        if self.queue.len() >= self.capacity {
            if !self.overwrites {
                self.overflowed = true;
                return Pushed::Overflowed;
            }
            self.drop_front();
        }
        let queued = Queued {
            wc,
            stamp,
            solicited,
        };
        let awaited = match self.armed {
            Armed::No => false,
            Armed::Solicited => queued.is_solicited(),
            Armed::Any => true,
        };
        self.queue.push_back(queued);
        if awaited {
            return self.on_awaited(now);
        }
        Pushed::Quiet
    }

    /// A completion came that the program waits for.
    fn on_awaited(&mut self, now: impl FnOnce() -> Time) -> Pushed {
        if !self.moderation.delays() || self.waiting.add() >= self.moderation.count {
            self.disarm();
            return Pushed::Notify;
        }
        match self.waiting.start(self.moderation, now) {
            Some(at) => Pushed::NotifyAt(at),
            None => Pushed::Quiet,
        }
    }

    /// The event is on its way, or there will be none.
    pub(super) fn disarm(&mut self) {
        self.armed = Armed::No;
        self.told = self.queue.len();
        self.waiting = Waiting::default();
    }

    /// The period of moderation may be over: whether an event is due. If not, when to ask again, if
    /// ever.
    pub(super) fn on_period(&mut self, now: Time) -> Result<(), Option<Time>> {
        match self.waiting.until() {
            Some(until) if until <= now => {
                self.disarm();
                Ok(())
            }
            later => Err(later),
        }
    }

    /// When the event that an armed queue delays is due at the latest.
    pub(super) fn due(&self) -> Option<Time> {
        self.waiting.until()
    }

    /// Sets how events are delayed from the next arming on. Whether one that waits now must not
    /// wait any longer.
    pub(super) fn moderate(&mut self, moderation: Moderation) -> bool {
        self.moderation = moderation;
        let waits = self.waiting.until().is_some();
        if waits {
            self.disarm();
        }
        waits
    }

    /// The oldest completion.
    #[inline]
    pub(super) fn front(&self) -> Option<&Queued> {
        self.queue.front()
    }

    /// The oldest completion is taken.
    #[inline]
    pub(super) fn drop_front(&mut self) {
        self.queue.pop_front();
        self.told = self.told.saturating_sub(1);
    }

    /// Whether a poll has something to tell: a completion, or an overflow.
    pub(super) fn has_news(&self) -> bool {
        self.overflowed || !self.queue.is_empty()
    }

    /// Drops what is queued for a queue pair.
    pub(super) fn forget(&mut self, qpn: Qpn) {
        let goes = |queued: &&Queued| queued.wc.qp_num == qpn;
        self.told -= self.queue.iter().take(self.told).filter(goes).count();
        self.queue.retain(|queued| queued.wc.qp_num != qpn);
    }

    /// Whether the next completion, or the next solicited one, makes an event.
    pub(super) fn is_armed(&self) -> bool {
        self.armed != Armed::No
    }

    /// Arms the queue. Asking for any completion wins over asking for a solicited one, in whatever
    /// order.
    ///
    /// Returns true if the event is due at once, because a completion that it waits for is queued
    /// already, and no event has told of it. An adapter does the same: it compares the armed
    /// consumer index with what it has written. Moderation does not delay that event.
    #[must_use]
    pub(super) fn arm(&mut self, solicited_only: bool) -> bool {
        self.armed = self.armed.max(if solicited_only {
            Armed::Solicited
        } else {
            Armed::Any
        });
        let mut untold = self.queue.iter().skip(self.told);
        let due = match self.armed {
            Armed::Any => untold.next().is_some(),
            _ => untold.any(Queued::is_solicited),
        };
        if due {
            self.disarm();
        }
        due
    }

    /// Changes the capacity unless more is queued than would fit; then it says how much.
    pub(super) fn resize(&mut self, capacity: usize) -> Result<(), usize> {
        if self.queue.len() > capacity {
            return Err(self.queue.len());
        }
        self.capacity = capacity;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ferroce_proto::verbs::{WcFlags, WcOpcode};

    use super::*;

    fn wc(wr_id: u64, status: WcStatus) -> Wc {
        Wc {
            wr_id,
            status,
            opcode: WcOpcode::Send,
            vendor_err: 0,
            byte_len: 0,
            imm: None,
            qp_num: Qpn::new(5),
            src_qp: Qpn::new(0),
            sl: 0,
            flags: WcFlags::empty(),
        }
    }

    fn push(ring: &mut Ring, wc: Wc, solicited: bool) -> Pushed {
        ring.push(wc, solicited, Stamp::default(), || {
            unreachable!("nothing is moderated")
        })
    }

    /// Arms a queue without completions that it waits for.
    fn arm(ring: &mut Ring, solicited_only: bool) {
        assert!(!ring.arm(solicited_only));
    }

    fn drain(ring: &mut Ring) {
        while pop(ring).is_some() {}
    }

    fn push_at(ring: &mut Ring, now: u64) -> Pushed {
        ring.push(wc(1, WcStatus::Success), false, Stamp::default(), || {
            Time(now)
        })
    }

    fn pop(ring: &mut Ring) -> Option<u64> {
        let wr_id = ring.front().map(|queued| queued.wc.wr_id);
        ring.drop_front();
        wr_id
    }

    #[test]
    fn a_queue_that_ignores_overruns_loses_the_oldest() {
        let mut ring = Ring::new(2, true);
        for wr_id in 1..=3 {
            let pushed = push(&mut ring, wc(wr_id, WcStatus::Success), false);
            assert_eq!(pushed, Pushed::Quiet);
        }
        assert_eq!([pop(&mut ring), pop(&mut ring)], [Some(2), Some(3)]);
        assert!(!ring.overflowed());
    }

    #[test]
    fn moderated_events_wait_for_the_count_or_the_period() {
        let mut ring = Ring::new(16, false);
        assert!(!ring.moderate(Moderation::new(3, 10)));
        assert_eq!(push_at(&mut ring, 0), Pushed::Quiet, "not armed");
        drain(&mut ring);
        arm(&mut ring, false);
        assert_eq!(push_at(&mut ring, 100), Pushed::NotifyAt(Time(10_100)));
        assert_eq!(push_at(&mut ring, 200), Pushed::Quiet);
        assert_eq!(ring.on_period(Time(10_099)), Err(Some(Time(10_100))));
        assert_eq!(push_at(&mut ring, 300), Pushed::Notify, "the third");
        assert_eq!(ring.on_period(Time(10_100)), Err(None), "it has gone");
        drain(&mut ring);
        arm(&mut ring, false);
        assert_eq!(push_at(&mut ring, 20_000), Pushed::NotifyAt(Time(30_000)));
        assert_eq!(ring.on_period(Time(30_000)), Ok(()));
        assert_eq!(push_at(&mut ring, 40_000), Pushed::Quiet, "one-shot");
    }

    #[test]
    fn a_change_of_moderation_lets_go_what_waits() {
        let mut ring = Ring::new(16, false);
        ring.moderate(Moderation::new(100, 1000));
        arm(&mut ring, false);
        assert_eq!(push_at(&mut ring, 0), Pushed::NotifyAt(Time(1_000_000)));
        assert!(ring.moderate(Moderation::default()));
        drain(&mut ring);
        arm(&mut ring, false);
        assert_eq!(push_at(&mut ring, 0), Pushed::Notify);
    }

    #[test]
    fn holds_exactly_its_capacity_then_dies() {
        let mut ring = Ring::new(2, false);
        assert_eq!(
            push(&mut ring, wc(1, WcStatus::Success), false),
            Pushed::Quiet
        );
        assert_eq!(
            push(&mut ring, wc(2, WcStatus::Success), false),
            Pushed::Quiet
        );
        assert_eq!(
            push(&mut ring, wc(3, WcStatus::Success), false),
            Pushed::Overflowed
        );
        assert_eq!(pop(&mut ring), Some(1));
        assert_eq!(
            push(&mut ring, wc(4, WcStatus::Success), false),
            Pushed::Dead
        );
        assert_eq!(pop(&mut ring), Some(2));
        assert_eq!(pop(&mut ring), None);
        assert!(ring.overflowed());
    }

    #[test]
    fn arming_is_one_shot() {
        let mut ring = Ring::new(8, false);
        arm(&mut ring, false);
        let pushed = push(&mut ring, wc(2, WcStatus::Success), false);
        assert_eq!(pushed, Pushed::Notify);
        let pushed = push(&mut ring, wc(3, WcStatus::Success), false);
        assert_eq!(pushed, Pushed::Quiet);
    }

    #[test]
    fn arming_a_queue_that_holds_a_completion_is_one_event_at_once() {
        let mut ring = Ring::new(8, false);
        push(&mut ring, wc(1, WcStatus::Success), false);
        assert!(ring.arm(false));
        let pushed = push(&mut ring, wc(2, WcStatus::Success), false);
        assert_eq!(pushed, Pushed::Quiet, "the event has gone");
        drain(&mut ring);
        arm(&mut ring, false);
        let pushed = push(&mut ring, wc(3, WcStatus::Success), false);
        assert_eq!(pushed, Pushed::Notify, "polled entries raise nothing");
    }

    #[test]
    fn arming_for_solicited_looks_for_solicited_or_failed_completions() {
        let mut ring = Ring::new(8, false);
        push(&mut ring, wc(1, WcStatus::Success), false);
        arm(&mut ring, true);
        let pushed = push(&mut ring, wc(2, WcStatus::Success), true);
        assert_eq!(pushed, Pushed::Notify);
        arm(&mut ring, true);
        drain(&mut ring);
        ring.disarm();
        push(&mut ring, wc(3, WcStatus::WrFlushErr), false);
        assert!(ring.arm(true));
    }

    #[test]
    fn arming_again_does_not_wait_for_moderation() {
        let mut ring = Ring::new(8, false);
        ring.moderate(Moderation::new(100, 1000));
        arm(&mut ring, false);
        assert_eq!(push_at(&mut ring, 0), Pushed::NotifyAt(Time(1_000_000)));
        assert!(ring.arm(false));
        assert_eq!(ring.due(), None);
    }

    #[test]
    fn solicited_arming_waits_for_solicited_or_error() {
        let mut ring = Ring::new(8, false);
        arm(&mut ring, true);
        let pushed = push(&mut ring, wc(1, WcStatus::Success), false);
        assert_eq!(pushed, Pushed::Quiet);
        let pushed = push(&mut ring, wc(2, WcStatus::Success), true);
        assert_eq!(pushed, Pushed::Notify);
        drain(&mut ring);
        arm(&mut ring, true);
        let pushed = push(&mut ring, wc(3, WcStatus::WrFlushErr), false);
        assert_eq!(pushed, Pushed::Notify);
        drain(&mut ring);
        arm(&mut ring, false);
        arm(&mut ring, true);
        let pushed = push(&mut ring, wc(4, WcStatus::Success), false);
        assert_eq!(pushed, Pushed::Notify);
    }

    #[test]
    fn forgets_one_queue_pair_and_keeps_the_others_in_order() {
        let mut ring = Ring::new(8, false);
        let other = |wr_id| Wc {
            qp_num: Qpn::new(6),
            ..wc(wr_id, WcStatus::Success)
        };
        push(&mut ring, other(1), false);
        push(&mut ring, wc(2, WcStatus::WrFlushErr), false);
        push(&mut ring, other(3), false);
        ring.forget(Qpn::new(5));
        assert_eq!(pop(&mut ring), Some(1));
        assert_eq!(pop(&mut ring), Some(3));
        assert_eq!(pop(&mut ring), None);
    }

    #[test]
    fn shrinks_only_to_what_is_queued() {
        let mut ring = Ring::new(8, false);
        push(&mut ring, wc(1, WcStatus::Success), false);
        push(&mut ring, wc(2, WcStatus::Success), false);
        assert_eq!(ring.resize(1), Err(2));
        assert_eq!(ring.resize(2), Ok(()));
        assert_eq!(ring.capacity(), 2);
    }
}
