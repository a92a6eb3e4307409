//! The queue inside a completion queue.

use std::collections::VecDeque;

use ferroce_proto::ids::Qpn;
use ferroce_proto::time::Time;
use ferroce_proto::verbs::Wc;

use super::CompletionTimes;
use super::arming::{Arming, Kind, Queued};
use super::moderation::{DelayedEvent, Moderation};

/// What a pushed completion calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PushOutcome {
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

/// Completions between a device and its program: bounded, one-shot armed, dead after the first
/// overflow.
#[derive(Debug)]
pub(super) struct Ring {
    queue: VecDeque<Queued>,
    capacity: usize,
    arming: Arming,
    /// Completions at the front that an event has told of.
    told: usize,
    overflowed: bool,
    /// A full queue loses its oldest completion instead of dying.
    overwrites: bool,
    moderation: Moderation,
    /// What an armed and moderated queue has collected since.
    waiting: DelayedEvent,
}

impl Ring {
    /// An empty queue. `overwrites`: an overflow loses the oldest completions and nothing else
    /// happens.
    pub(super) fn new(capacity: usize, overwrites: bool) -> Self {
        Self {
            queue: VecDeque::new(),
            capacity,
            arming: Arming::Idle,
            told: 0,
            overflowed: false,
            overwrites,
            moderation: Moderation::default(),
            waiting: DelayedEvent::default(),
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Queues a completion, if the ring is not armed and has room. Returns whether it did.
    #[expect(
        clippy::inline_always,
        reason = "a completion is not to go through memory"
    )]
    #[inline(always)]
    pub(super) fn push_if_idle(
        &mut self,
        wc: Wc,
        solicited: bool,
        timestamps: CompletionTimes,
    ) -> bool {
        let may =
            !self.overflowed && self.arming == Arming::Idle && self.queue.len() < self.capacity;
        if may {
            self.queue.push_back(Queued::new(wc, timestamps, solicited));
        }
        may
    }

    /// Queues a completion. `now` is asked for only if events are moderated.
    pub(super) fn push(
        &mut self,
        wc: Wc,
        solicited: bool,
        timestamps: CompletionTimes,
        now: impl FnOnce() -> Time,
    ) -> PushOutcome {
        if self.overflowed {
            return PushOutcome::Dead;
        }
        if self.queue.len() >= self.capacity {
            if !self.overwrites {
                self.overflowed = true;
                return PushOutcome::Overflowed;
            }
            self.drop_front();
        }
        let queued = Queued::new(wc, timestamps, solicited);
        let arming = self.arming.of(&queued);
        self.queue.push_back(queued);
        match arming {
            Arming::Idle => PushOutcome::Quiet,
            Arming::Awaits(_) => self.on_awaited(now),
            // The event that was raised for older completions tells of this one, too.
            Arming::Repeats(_) => {
                self.disarm();
                PushOutcome::Quiet
            }
        }
    }

    /// A completion came that the program waits for.
    fn on_awaited(&mut self, now: impl FnOnce() -> Time) -> PushOutcome {
        if !self.moderation.delays() || self.waiting.add() >= self.moderation.count {
            self.disarm();
            return PushOutcome::Notify;
        }
        match self.waiting.start(self.moderation, now) {
            Some(at) => PushOutcome::NotifyAt(at),
            None => PushOutcome::Quiet,
        }
    }

    /// Ends the arming: the event is on its way, or there will be none.
    pub(super) fn disarm(&mut self) {
        self.arming = Arming::Idle;
        self.told = self.queue.len();
        self.waiting = DelayedEvent::default();
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

    /// Returns when the event that an armed queue delays is due at the latest.
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

    /// Drops the oldest completion, which was taken.
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
        matches!(self.arming, Arming::Awaits(_))
    }

    /// Arms the queue. Asking for any completion wins over asking for a solicited one, in whatever
    /// order.
    ///
    /// Returns true if the event is due at once, because a completion that it waits for is queued
    /// already. An adapter does the same: it compares the armed consumer index with what it has
    /// written. Moderation does not delay that event. If an earlier event has told of all of those
    /// completions, the event is due only if the queue `repeats` events: see
    /// [`end_of_repeat`](Self::end_of_repeat).
    #[must_use]
    pub(super) fn arm(&mut self, solicited_only: bool, repeats: bool) -> bool {
        let kind = self.arming.kind_with(solicited_only);
        let awaited = |queued: &Queued| kind.includes(queued);
        let untold = self.queue.iter().skip(self.told).any(awaited);
        let repeated = !untold && repeats && self.queue.iter().any(awaited);
        if untold || repeated {
            self.disarm();
        }
        if repeated {
            self.arming = Arming::Repeats(kind);
        } else if !untold {
            self.arming = Arming::Awaits(kind);
        }
        untold || repeated
    }

    /// After completions were taken: the kind that a repeated event stands for, if no completion of
    /// that kind is left. The event is to be taken back then, unless the program has it already;
    /// [`repeat_ended`](Self::repeat_ended) is to be called in either case.
    #[inline]
    pub(super) fn end_of_repeat(&self) -> Option<Kind> {
        match self.arming {
            Arming::Repeats(kind) if !self.queue.iter().any(|q| kind.includes(q)) => Some(kind),
            _ => None,
        }
    }

    /// A repeated event stands for nothing any more. If it was taken back, the arming holds for the
    /// next completion.
    pub(super) fn repeat_ended(&mut self, kind: Kind, taken_back: bool) {
        self.arming = if taken_back {
            Arming::Awaits(kind)
        } else {
            Arming::Idle
        };
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
pub(super) mod tests;
