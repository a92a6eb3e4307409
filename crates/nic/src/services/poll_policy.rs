//! Which thread does the device's work while a program polls: the program's, while the device
//! thread naps, or the device thread. Also, when that program looks at the clock, and when it
//! yields its processor ([`PolledRounds`]).
//!
//! Nothing here looks at a clock, waits or holds a lock: each call is given the time. The device
//! thread (`engine/thread.rs`) and the sleep (`services/sleeper.rs`) do what comes out.

mod polled_rounds;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use ferroce_proto::time::Time;

pub(crate) use self::polled_rounds::{PolledRounds, TimedPoll};
use super::lead::this_thread;

/// A program that polled this recently does the device's work itself.
const RECENT: Duration = Duration::from_micros(50);
/// A program that polled as lately is at it: what has come, it sees at its next poll.
const JUST_NOW: Duration = Duration::from_micros(5);
/// A program that polled as lately does it now and then, between other things.
const LATELY: Duration = Duration::from_micros(300);
/// A program that has not polled for so long, and did so lately, does something else now, unless it
/// lost its processor.
const AWAY: Duration = Duration::from_micros(20);
/// Polls of a loop that does nothing else are this close.
const CLOSE: Duration = Duration::from_micros(1);
/// Close polls for this long make a polling program. One that sleeps on a completion channel polls
/// once or twice per event, and one that watches its memory for a peer's WRITE, which nobody else
/// would bring it, polls in between.
const STREAK: Duration = Duration::from_micros(50);
/// What the device does for a program between two of its polls takes no longer: a copy, unless
/// memory has to be brought in for it, or a turn of another program.
const LONGEST_ERRAND: Duration = Duration::from_millis(2);
/// How long the thread leaves a program alone before it looks again, at first. A program may turn
/// to something else (watch its memory for a WRITE, compute), and its peers should not wait long
/// then.
const FIRST_NAP: Duration = Duration::from_micros(50);
/// Longest nap beside a program that has been polling for long, and for a leader that keeps coming
/// by.
const LONGEST_NAP: Duration = Duration::from_micros(800);
/// Longest nap for a leader that comes by once in each [`LONGEST_NAP`] on average, or a program
/// that polls, if all has come from processes of this host, which repeat nothing, and no deadline
/// is soon. The end of a nap takes the processor from the program for longer than a request does,
/// or several messages.
pub(crate) const LONGEST_NAP_WITHIN_HOST: Duration = Duration::from_micros(3200);
/// Longest nap beside other programs, once the thread has found nothing undone.
const SERVED_NAP: Duration = Duration::from_micros(200);
/// A nap while something waits: longer than it takes to post 64 KiB.
pub(crate) const SHORT_NAP: Duration = Duration::from_micros(40);

/// What the device thread leaves the work to while it naps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NapFor {
    /// A program that polls all the time.
    Polling,
    /// A program that polls now and then, and leaves nothing undone.
    Visits,
    /// A thread that waits for events and does the work meanwhile, whatever is polled.
    Leader,
}

/// What is known of the polls of a program.
#[derive(Debug)]
pub(crate) struct Polls {
    /// When the last one was.
    last: AtomicU64,
    /// Rounds of programs. One that finds completions in its queue polls, and makes none.
    rounds: AtomicU64,
    /// Something has ever come by a socket.
    has_wire: AtomicBool,
    /// When the first of the last close ones was; `u64::MAX`: a program is about to sleep.
    first: AtomicU64,
    /// The thread that made it.
    thread: AtomicUsize,
    /// That thread is in the middle of an [errand](Self::begin_errand).
    on_errand: AtomicBool,
    /// When its last errand ended, or the device thread's work beside it.
    returned: AtomicU64,
    /// Messages come one at a time by a TCP connection.
    expects_answers: AtomicBool,
    /// The process exits, and the thread has work that no program that polls on meanwhile does for
    /// it.
    leaves: AtomicBool,
}

impl Polls {
    pub(crate) fn new() -> Self {
        Self {
            last: AtomicU64::new(0),
            rounds: AtomicU64::new(0),
            has_wire: AtomicBool::new(false),
            first: AtomicU64::new(0),
            thread: AtomicUsize::new(0),
            on_errand: AtomicBool::new(false),
            returned: AtomicU64::new(0),
            expects_answers: AtomicBool::new(false),
            leaves: AtomicBool::new(false),
        }
    }

    /// A program polled an empty queue that it is not about to sleep on: the last of `polls` since
    /// a round, and `known` of their time was told before. Returns whether they are close to each
    /// other, on average.
    ///
    /// A program that polls many times in a row may lose its processor once meanwhile, to the
    /// device thread, and still polls. If not, that thread would come back soon, and take the
    /// processor from it again.
    pub(crate) fn on_polls(&self, polls: u32, known: Duration, now: Time) -> bool {
        let lost = if polls > 1 { LATELY } else { Duration::ZERO };
        self.on_polls_within((CLOSE * polls + lost).saturating_sub(known), now)
    }

    /// A program polled in a way that takes longer than a look at memory: by a system call at a TCP
    /// connection, or while another thread did the device's work. Returns whether that was soon
    /// after the poll before it.
    pub(crate) fn on_slow_poll(&self, now: Time) -> bool {
        self.on_polls_within(RECENT, now)
    }

    /// Tells whether messages come one at a time by a TCP connection, so that a poll may look on
    /// for the next (`Engine::await_answer`).
    pub(crate) fn expect_answers(&self, expected: bool) {
        self.expects_answers.store(expected, Ordering::Relaxed);
    }

    /// What [`expect_answers`](Self::expect_answers) was told last.
    pub(crate) fn expects_answers(&self) -> bool {
        self.expects_answers.load(Ordering::Relaxed)
    }

    /// A program has made a round.
    pub(crate) fn on_round(&self) {
        let rounds = self.rounds.load(Ordering::Relaxed);
        self.rounds.store(rounds.wrapping_add(1), Ordering::Relaxed);
    }

    /// A count that changes when a program makes a round.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Something has come by a socket.
    pub(crate) fn on_wire(&self) {
        self.has_wire.store(true, Ordering::Relaxed);
    }

    /// True if all that has ever come was by links of this host.
    pub(crate) fn are_within_host(&self) -> bool {
        !self.has_wire.load(Ordering::Relaxed)
    }

    fn on_polls_within(&self, time: Duration, now: Time) -> bool {
        let before = Time(self.last.swap(now.0, Ordering::Relaxed));
        let since = self.or_returned(before);
        // The program may have got its processor back since.
        let time = if since == before {
            time
        } else {
            time.max(JUST_NOW)
        };
        let has_ended = self.first.load(Ordering::Relaxed) == u64::MAX;
        let close = now.since(since) < time;
        if !close || has_ended {
            self.first.store(now.0, Ordering::Relaxed);
            self.thread.store(this_thread(), Ordering::Relaxed);
        }
        close
    }

    /// Whether the polls are the calling thread's: it has begun them.
    pub(crate) fn are_own(&self) -> bool {
        self.thread.load(Ordering::Relaxed) == this_thread()
    }

    /// The calling thread begins what the device does between two polls of its program, and what
    /// may take longer than polls are apart: a long copy, or a yield of its processor. Returns
    /// whether that is part of its polls, as it has just polled: then it says when the errand
    /// [ends](Self::end_errand). A program that copies again and again and makes no round meanwhile
    /// does not poll.
    pub(crate) fn begin_errand(&self, now: Time) -> bool {
        let polls = self.first.load(Ordering::Relaxed) != u64::MAX
            && self.are_own()
            && now.since(self.last()) < RECENT;
        if polls {
            self.on_errand.store(true, Ordering::Relaxed);
        }
        polls
    }

    /// The errand has ended.
    pub(crate) fn end_errand(&self, now: Time) {
        self.returned.store(now.0, Ordering::Relaxed);
        self.on_errand.store(false, Ordering::Relaxed);
    }

    /// The device thread has worked `since` it woke up, perhaps on the processor of a program that
    /// had just polled. That is no reason to do the program's work from then on: it would wake up
    /// for each message, and keep the program from polling all the time.
    pub(crate) fn on_thread_worked(&self, since: Time, now: Time) {
        if since.since(self.last()) < RECENT {
            self.returned.store(now.0, Ordering::Relaxed);
        }
    }

    /// The later of a poll and of the end of an errand that followed it, or of the thread's work.
    fn or_returned(&self, poll: Time) -> Time {
        poll.max(Time(self.returned.load(Ordering::Relaxed)))
    }

    /// How long ago a program has polled, or has ended an errand right after a poll.
    fn age(&self, now: Time) -> Duration {
        let last = self.last();
        if self.on_errand.load(Ordering::Relaxed) && now.since(last) < LONGEST_ERRAND {
            return Duration::ZERO;
        }
        now.since(self.or_returned(last))
    }

    /// The polls end: a program is about to sleep.
    pub(crate) fn end_streak(&self) {
        self.first.store(u64::MAX, Ordering::Relaxed);
    }

    /// A program that has polled turns to something else: the next poll begins anew.
    pub(crate) fn end_visits(&self) {
        self.last.store(0, Ordering::Relaxed);
        self.returned.store(0, Ordering::Relaxed);
    }

    /// The process exits: nothing is left to programs from here on.
    pub(crate) fn leave(&self) {
        self.leaves.store(true, Ordering::Relaxed);
    }

    /// Whether the process exits.
    pub(crate) fn leaves(&self) -> bool {
        self.leaves.load(Ordering::Relaxed)
    }

    /// When a program has polled last.
    pub(crate) fn last(&self) -> Time {
        Time(self.last.load(Ordering::Relaxed))
    }

    /// Whether a program polls all the time.
    pub(crate) fn is_polled(&self, now: Time) -> bool {
        let last = self.last();
        last.since(Time(self.first.load(Ordering::Relaxed))) >= STREAK
            && self.age(now) < RECENT
            && !self.leaves()
    }

    /// Whether a program that polls all the time does so at this moment.
    pub(crate) fn is_at_it(&self, now: Time) -> bool {
        self.is_polled(now) && self.age(now) < JUST_NOW
    }

    /// Whether a program has polled just now, however close its polls are.
    pub(crate) fn was_polled(&self, now: Time) -> bool {
        let first = self.first.load(Ordering::Relaxed);
        first != u64::MAX && self.age(now) < LATELY && !self.leaves()
    }

    /// Whether a program that has polled lately does something else now.
    pub(crate) fn is_away(&self, now: Time) -> bool {
        self.was_polled(now) && self.age(now) >= AWAY
    }

    /// Whether the device thread may nap.
    pub(crate) fn allow(&self, nap: NapFor, now: Time) -> bool {
        match nap {
            NapFor::Polling => self.is_polled(now),
            NapFor::Visits => self.was_polled(now),
            NapFor::Leader => true,
        }
    }
}

/// How long naps in a row last: each twice as long as the one before it.
#[derive(Debug)]
pub(crate) struct Naps {
    next: Duration,
    longest: Duration,
}

impl Naps {
    pub(crate) fn of(what: NapFor) -> Self {
        let longest = match what {
            NapFor::Polling | NapFor::Leader => LONGEST_NAP,
            NapFor::Visits => SERVED_NAP,
        };
        Self {
            next: FIRST_NAP,
            longest,
        }
    }

    /// The length of the next nap.
    pub(crate) fn length(&self) -> Duration {
        self.next
    }

    /// A nap is over, and paid.
    pub(crate) fn grow(&mut self) {
        self.next = (self.next * 2).min(self.longest);
    }

    /// As [`grow`](Self::grow), for a leader or a program that serves processes of this host only,
    /// and has come by so often in the nap. Only one that comes often is left alone for longer.
    pub(crate) fn grow_within_host(&mut self, visits: u64) {
        let often = u128::from(visits) * LONGEST_NAP.as_nanos() >= self.next.as_nanos();
        self.next = match often {
            true => (self.next * 2).min(LONGEST_NAP_WITHIN_HOST),
            false => (self.next * 2).min(self.longest),
        };
    }

    /// A nap is over, and another reason to nap has come.
    pub(crate) fn restart(&mut self) {
        self.next = FIRST_NAP;
    }
}

/// What the end of a nap for a program that polls now and then has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// The program has come by: it may poll all the time by now.
    Visit,
    /// Nothing waits.
    NothingWaits,
    /// Something waits. A short nap shows whether the program takes it.
    SomethingWaits,
    /// The program has left what waited before.
    Undone,
}

/// Naps for a program that polls now and then. `W` is what waits to be done.
#[derive(Debug)]
pub(crate) struct VisitedNaps<W> {
    naps: Naps,
    waiting: Option<W>,
    visited: bool,
}

impl<W: PartialEq> VisitedNaps<W> {
    pub(crate) fn new() -> Self {
        Self {
            naps: Naps::of(NapFor::Visits),
            waiting: None,
            visited: false,
        }
    }

    /// Whether the program came by in the last nap.
    pub(crate) fn was_visited(&self) -> bool {
        self.visited
    }

    /// The length of the next nap.
    pub(crate) fn length(&self) -> Duration {
        match self.waiting {
            Some(_) => SHORT_NAP,
            None => self.naps.length(),
        }
    }

    /// A nap is over. `visited`: a program has polled meanwhile; `waits` looks at what is to
    /// be done.
    pub(crate) fn on_end(&mut self, visited: bool, waits: impl FnOnce() -> Option<W>) -> Shown {
        self.naps.grow();
        self.visited = visited;
        if visited {
            self.waiting = None;
            return Shown::Visit;
        }
        let before = std::mem::replace(&mut self.waiting, waits());
        match &self.waiting {
            None => Shown::NothingWaits,
            waits if *waits == before => Shown::Undone,
            Some(_) => Shown::SomethingWaits,
        }
    }
}

#[cfg(test)]
mod tests;
