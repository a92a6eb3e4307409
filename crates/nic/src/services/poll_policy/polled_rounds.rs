//! Rounds of a program that polls: which polls look at the clock, and when the program yields its
//! processor.

use std::time::Duration;

use ferroce_os::linger::{SLICE, SWITCH};
use ferroce_proto::time::Time;

use super::Polls;

/// Close polls between two rounds.
const SILENT_POLLS: u32 = 31;
/// Time since the last round from which on the next polls make rounds.
const LONGEST_SILENCE: Duration = Duration::from_micros(400);
/// Aimed time between two looks at the clock. A poll that takes a long message lasts for
/// microseconds: after 31 of them without a look the device thread would take the program for one
/// that polls no more.
const UNSEEN: Duration = Duration::from_micros(10);
/// Rounds without anything to do after which a program gives way that shares its processor with its
/// peer: some 2 µs. Its peer fills the ring, or empties it, in some microseconds, and yields in
/// turn: nothing comes until it runs.
const SHARED_ROUNDS: u32 = 8;
/// The same of a program that has its processor to itself, as far as it knows: some 25 µs.
const OWN_ROUNDS: u32 = 128;
/// The same of a program that lost its processor for long when it gave way last: some 200 µs.
const CROWDED_ROUNDS: u32 = 1024;
/// Number of rounds without a system call that take as long as one with it.
const CALL_ROUNDS: u32 = 8;

/// A poll that makes a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimedPoll {
    Plain,
    /// Its rounds read or write a TCP connection, which takes longer than polls are apart.
    OverTcp,
    /// The program is about to sleep on the queue that it polls.
    BeforeSleep,
}

/// Number of polls until the next look at the clock, if the last `polls` `took` so long.
#[inline]
fn polls_unseen(polls: u32, took: Duration) -> u32 {
    let fit = u128::from(polls) * UNSEEN.as_nanos() / took.as_nanos().max(1);
    u32::try_from(fit).map_or(u32::MAX, |fit| fit.max(1))
}

/// What the rounds of polling programs have found, and how close they were.
#[derive(Debug)]
pub(crate) struct PolledRounds {
    /// Rounds since the last one that had something to do, or since the program gave way.
    idle: u32,
    /// Such rounds until it gives way.
    patience: u32,
    /// Another program has had the processor since: what the next round finds says whether it was
    /// the peer.
    gave: bool,
    /// Polls since the last round, and how many there may be.
    silent: u32,
    may_be_silent: u32,
    /// Polls since the clock was looked at, and how many there may be.
    unseen: u32,
    may_be_unseen: u32,
    /// When a poll looked at the clock last.
    seen: Time,
    /// When a poll made a round last, or polls were found to be apart.
    rounded: Time,
}

impl PolledRounds {
    pub(crate) fn new() -> Self {
        Self {
            idle: 0,
            patience: OWN_ROUNDS,
            gave: false,
            silent: 0,
            may_be_silent: 0,
            unseen: 0,
            may_be_unseen: 0,
            seen: Time(0),
            rounded: Time(0),
        }
    }

    /// Whether the next poll may do without a round: the last ones were close to each other, so
    /// nothing that is due has to wait for long.
    #[inline]
    pub(crate) fn may_be_silent(&self) -> bool {
        self.silent < self.may_be_silent
    }

    /// When a poll looked at the clock last.
    #[inline]
    pub(crate) fn seen(&self) -> Time {
        self.seen
    }

    /// A poll made no round. `served`: it had something to do. Looks at the clock now and then.
    #[inline]
    pub(crate) fn on_silent_poll(
        &mut self,
        polls: &Polls,
        served: bool,
        clock: impl FnOnce() -> Time,
    ) {
        self.count(served, 1);
        self.silent += 1;
        self.unseen += 1;
        // The poll that makes a round looks soon.
        if self.unseen >= self.may_be_unseen && self.may_be_silent() {
            let now = clock();
            // The poll that makes a round belongs to them.
            let close = polls.on_polls(self.silent + 1, self.known(), now);
            if !self.on_seen(now) || !close {
                (self.silent, self.may_be_silent) = (0, 0);
                self.rounded = now;
            }
        }
    }

    /// Time from the last round to the last look at the clock.
    #[inline]
    fn known(&self) -> Duration {
        self.seen.since(self.rounded)
    }

    /// The clock was looked at. Returns whether the last round was not long ago.
    #[inline]
    fn on_seen(&mut self, now: Time) -> bool {
        let took = now.since(std::mem::replace(&mut self.seen, now));
        self.may_be_unseen = polls_unseen(std::mem::take(&mut self.unseen), took);
        now.since(self.rounded) < LONGEST_SILENCE
    }

    /// A round took as long as this number of `rounds` without a system call.
    #[inline]
    fn count(&mut self, served: bool, rounds: u32) {
        if self.gave {
            self.gave = false;
            self.learn(served);
        }
        if served {
            self.on_served();
        } else {
            self.idle += rounds;
        }
    }

    /// A poll makes a round, and tells how close it and those since the last look at the clock
    /// were.
    #[inline]
    pub(crate) fn on_timed_poll(&mut self, polls: &Polls, poll: TimedPoll, now: Time) {
        let count = std::mem::take(&mut self.silent) + 1;
        self.unseen += 1;
        polls.on_round();
        let close = match poll {
            TimedPoll::Plain => polls.on_polls(count, self.known(), now),
            TimedPoll::OverTcp => polls.on_slow_poll(now),
            TimedPoll::BeforeSleep => false,
        };
        // Polls that find completions in a queue come between rounds, and count as close ones.
        let silent = self.on_seen(now) && close;
        self.rounded = now;
        self.may_be_silent = if silent { SILENT_POLLS } else { 0 };
    }

    /// A round without a sleep before it has ended. `served`: it had something to do;
    /// `watches_rings`: a look at memory was enough for it.
    #[inline]
    pub(crate) fn on_round(&mut self, served: bool, watches_rings: bool) {
        self.count(served, if watches_rings { 1 } else { CALL_ROUNDS });
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
        let gives_way = self.idle >= self.patience;
        if gives_way {
            self.idle = 0;
        }
        gives_way
    }

    /// The program has its processor back, after it has given way for so long.
    pub(crate) fn on_back(&mut self, after: Duration) {
        self.gave = (SWITCH..SLICE).contains(&after);
        if after >= SLICE {
            self.patience = CROWDED_ROUNDS;
        } else if !self.gave {
            self.learn(false);
        }
    }

    /// To give way has brought something, or not: where the peer shares the processor, the kernel
    /// may still have chosen this program again.
    #[cold]
    fn learn(&mut self, paid: bool) {
        self.patience = if paid {
            SHARED_ROUNDS
        } else {
            (self.patience * 2).min(OWN_ROUNDS)
        };
    }
}
