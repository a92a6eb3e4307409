//! Rounds of a program that polls: which polls look at the clock, and when the program yields its
//! processor.

use std::time::Duration;

use ferroce_proto::time::Time;

use super::Polls;

/// Close polls between two looks at the clock.
const SILENT_POLLS: u32 = 31;
/// Time between two looks at the clock from which on the next polls look as well.
const LONGEST_SILENCE: Duration = Duration::from_micros(400);
/// Rounds of a polling program without anything to do after which it gives way now and then: some
/// 20 µs.
const IDLE_ROUNDS: u32 = 1024;
/// Rounds from there to the next time.
const ROUNDS_AGAIN: u32 = 128;
/// Number of rounds without a system call that take as long as one with it.
const CALL_ROUNDS: u32 = 8;

/// What the rounds of polling programs have found, and how close they were.
#[derive(Debug)]
pub(crate) struct PolledRounds {
    /// Rounds since the last one that had something to do.
    idle: u32,
    /// Polls since the clock was looked at, and how many there may be.
    silent: u32,
    may_be_silent: u32,
    /// When a poll looked at the clock last.
    seen: Time,
}

impl PolledRounds {
    pub(crate) fn new() -> Self {
        Self {
            idle: 0,
            silent: 0,
            may_be_silent: 0,
            seen: Time(0),
        }
    }

    /// Whether the next poll may do without a look at the clock: the last ones were close to each
    /// other, so nothing that is due has to wait for long.
    #[inline]
    pub(crate) fn may_be_silent(&self) -> bool {
        self.silent < self.may_be_silent
    }

    /// When a poll looked at the clock last.
    #[inline]
    pub(crate) fn seen(&self) -> Time {
        self.seen
    }

    /// A poll did not look at the clock. `served`: it had something to do.
    #[inline]
    pub(crate) fn on_silent_poll(&mut self, served: bool) {
        if served {
            self.idle = 0;
        } else {
            self.idle += 1;
        }
        self.silent += 1;
    }

    /// A poll looks at the clock, and tells how close it and the silent ones before it were.
    /// `sleeps_soon`: the program is about to sleep on the queue that it polls.
    #[inline]
    pub(crate) fn on_timed_poll(&mut self, polls: &Polls, sleeps_soon: bool, now: Time) {
        let count = std::mem::take(&mut self.silent) + 1;
        polls.on_round();
        let close = !sleeps_soon && polls.on_polls(count, now);
        // Polls that find completions in a queue come between rounds, and count as close ones.
        let seen = std::mem::replace(&mut self.seen, now);
        let silent = close && now.since(seen) < LONGEST_SILENCE;
        self.may_be_silent = if silent { SILENT_POLLS } else { 0 };
    }

    /// A round without a sleep before it has ended. `served`: it had something to do;
    /// `watches_rings`: a look at memory was enough for it.
    #[inline]
    pub(crate) fn on_round(&mut self, served: bool, watches_rings: bool) {
        self.idle = match (served, watches_rings) {
            (true, _) => 0,
            (false, true) => self.idle + 1,
            (false, false) => self.idle + CALL_ROUNDS,
        };
    }

    /// A round of a thread that waits for an event had something to do.
    #[inline]
    pub(crate) fn on_served(&mut self) {
        self.idle = 0;
    }

    /// Whether a program that polls has found nothing for so long that its peer may well wait for
    /// this processor.
    #[inline]
    pub(crate) fn gives_way(&mut self) -> bool {
        let gives_way = self.idle >= IDLE_ROUNDS;
        if gives_way {
            self.idle -= ROUNDS_AGAIN;
        }
        gives_way
    }
}
