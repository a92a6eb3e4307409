//! Moderation of completion events (`ibv_modify_cq(3)`): fewer events for a program that sleeps
//! under load.
//!
//! An armed queue raises its event when `count` of the completions it waits for have come, or
//! `period` after the first of them, whichever is earlier. Either of them 0 means no moderation, as
//! in ConnectX devices.

use std::time::Duration;

use ferroce_proto::time::Time;

/// How long events are delayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moderation {
    pub(super) count: u16,
    pub(super) period: Duration,
}

impl Moderation {
    /// `count` completions or `period` microseconds.
    pub(super) fn new(count: u16, period: u16) -> Self {
        Self {
            count,
            period: Duration::from_micros(period.into()),
        }
    }

    /// Whether there is any delay.
    pub(super) fn delays(self) -> bool {
        self.count > 1 && !self.period.is_zero()
    }
}

/// Completions that an event which is not raised yet stands for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DelayedEvent {
    completions: u16,
    until: Option<Time>,
}

impl DelayedEvent {
    /// Counts one more; how many there are.
    pub(super) fn add(&mut self) -> u16 {
        self.completions = self.completions.saturating_add(1);
        self.completions
    }

    /// Starts the period with the first completion: its end, or `None` if it has started before.
    pub(super) fn start(
        &mut self,
        moderation: Moderation,
        now: impl FnOnce() -> Time,
    ) -> Option<Time> {
        if self.until.is_some() {
            return None;
        }
        self.until = Some(now() + moderation.period);
        self.until
    }

    /// End of the period, if one runs.
    pub(super) fn until(&self) -> Option<Time> {
        self.until
    }
}
