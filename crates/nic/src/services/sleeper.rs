//! How the device thread sleeps, what may wake it, and when it naps because the program does its
//! work: by polling, or while it waits for events ([`lead`](super::lead)).

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::Duration;

use ferroce_os::clock;
use ferroce_os::poll::{Event, Interest, Poller};
use ferroce_proto::time::Time;

use super::alarm::Alarm;
use super::doors::Doors;
use super::lead::Lead;

/// A program that polled this recently does the device's work itself.
const RECENT: Duration = Duration::from_micros(50);
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

/// The sleep of the device thread.
#[derive(Debug)]
pub(crate) struct Sleeper {
    alarm: Alarm,
    /// Watches nothing but `alarm`.
    nap: Poller,
    /// Watches what ends a sleep that relies on the leader.
    doze: Poller,
    lead: Lead,
    doors: Doors,
    napping: AtomicBool,
    last_poll: AtomicU64,
    /// When the first of the last close polls was.
    first_poll: AtomicU64,
    /// The process exits, and the thread has work that no program that polls on meanwhile does for
    /// it.
    leaves: AtomicBool,
}

impl Sleeper {
    pub(crate) fn new() -> io::Result<Self> {
        let (alarm, nap) = (Alarm::new()?, Poller::new()?);
        nap.add(alarm.fd(), 0, Interest::READ)?;
        let (doze, lead) = (Poller::new()?, Lead::new()?);
        doze.add(alarm.fd(), 0, Interest::READ)?;
        doze.add(lead.patience_fd(), 0, Interest::READ)?;
        Ok(Self {
            alarm,
            nap,
            doze,
            lead,
            doors: Doors::new(),
            napping: AtomicBool::new(false),
            last_poll: AtomicU64::new(0),
            first_poll: AtomicU64::new(0),
            leaves: AtomicBool::new(false),
        })
    }

    /// The descriptor that the thread's sleep must watch.
    pub(crate) fn wake_fd(&self) -> RawFd {
        self.alarm.fd()
    }

    /// The program's thread that does the device's work.
    pub(crate) fn lead(&self) -> &Lead {
        &self.lead
    }

    /// The descriptors on which the program waits by itself.
    pub(crate) fn doors(&self) -> &Doors {
        &self.doors
    }

    /// Work was published that must be done at `at`: wakes those threads that would sleep longer.
    pub(crate) fn wake_for(&self, at: Time) {
        fence(Ordering::SeqCst);
        self.alarm.wake_for(at);
        self.lead.alarm().wake_for(at);
    }

    /// Announces a sleep until `until` (`None`: without end). The thread must look for work once
    /// more before it sleeps.
    pub(crate) fn announce(&self, until: Option<Time>) {
        self.alarm.announce(until);
    }

    /// The thread is up again (or decided not to sleep).
    pub(crate) fn up(&self) {
        self.alarm.up();
    }

    /// In a nap: takes back what has ended it. The wake-up of an exit stays for the sleep that
    /// follows.
    fn clear_nap(&self) {
        self.alarm.clear();
        if self.leaves() {
            self.alarm.ring();
        }
    }

    /// Takes back a wake-up that has arrived.
    pub(crate) fn clear_wake(&self) {
        self.alarm.clear();
    }

    /// A program polled an empty queue that it is not about to sleep on, so many times since this
    /// was told last. Returns whether that was close to each other, on average.
    ///
    /// Who polls many times in a row may lose his processor once meanwhile, to this very thread: he
    /// is polling all the same. The thread would else come back soon, and take it from him again.
    pub(crate) fn on_polls(&self, polls: u32, now: Time) -> bool {
        let lost = if polls > 1 { LATELY } else { Duration::ZERO };
        self.on_polls_within(CLOSE * polls + lost, now)
    }

    /// A program polled while somebody else did the device's work, which kept it from telling for
    /// how many polls before.
    pub(crate) fn on_vain_poll(&self, now: Time) {
        self.on_polls_within(RECENT, now);
    }

    fn on_polls_within(&self, time: Duration, now: Time) -> bool {
        let before = Time(self.last_poll.swap(now.0, Ordering::Relaxed));
        let close = now.since(before) < time;
        if !close {
            self.first_poll.store(now.0, Ordering::Relaxed);
        }
        close
    }

    /// A program is about to sleep where it leads: that is its own round, and a nap of the thread
    /// need not end for it.
    pub(crate) fn end_streak(&self) {
        self.first_poll.store(u64::MAX, Ordering::Relaxed);
    }

    /// A program is about to sleep: the thread looks after everything again.
    pub(crate) fn end_polling(&self) {
        self.end_streak();
        fence(Ordering::SeqCst);
        if self.napping.swap(false, Ordering::Relaxed) {
            self.alarm.ring();
        }
    }

    /// The process exits: the thread leaves nothing to programs any more, and wakes for its last
    /// work.
    pub(crate) fn leave(&self) {
        self.leaves.store(true, Ordering::Relaxed);
        self.end_polling();
        self.alarm.ring();
    }

    /// Naps once, if a program polls all the time.
    pub(crate) fn nap_polled(&self, nap: Duration, events: &mut Vec<Event>) {
        self.nap_if(Self::is_polled, nap, events);
    }

    /// Naps once, if a program polls now and then.
    pub(crate) fn nap(&self, nap: Duration, events: &mut Vec<Event>) {
        self.nap_if(Self::was_polled, nap, events);
    }

    fn nap_if(&self, polled: fn(&Self, Time) -> bool, nap: Duration, events: &mut Vec<Event>) {
        self.napping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if polled(self, clock::monotonic()) {
            let _ = self.nap.wait(events, Some(nap));
            if !events.is_empty() {
                self.clear_nap();
            }
        }
        self.napping.store(false, Ordering::Relaxed);
    }

    /// Naps once, whatever is polled meanwhile.
    pub(crate) fn nap_awhile(&self, nap: Duration, events: &mut Vec<Event>) {
        self.nap_if(|_, _| true, nap, events);
    }

    /// Sleeps until the leader that waits has been away for a while, the time is over, or something
    /// wakes the thread. It has announced the sleep.
    pub(crate) fn doze(&self, timeout: Option<Duration>, events: &mut Vec<Event>) {
        self.lead.rely(|| {
            if !self.leaves() {
                // If it fails, the thread works on.
                let _ = self.doze.wait(events, timeout);
                self.clear_nap();
            }
        });
    }

    /// Whether the process exits.
    pub(crate) fn leaves(&self) -> bool {
        self.leaves.load(Ordering::Relaxed)
    }

    /// When a program has made a round last.
    pub(crate) fn last_poll(&self) -> Time {
        Time(self.last_poll.load(Ordering::Relaxed))
    }

    /// Whether a program has polled just now, however close its polls are.
    pub(crate) fn was_polled(&self, now: Time) -> bool {
        let first = self.first_poll.load(Ordering::Relaxed);
        let last = Time(self.last_poll.load(Ordering::Relaxed));
        first != u64::MAX && now.since(last) < LATELY && !self.leaves.load(Ordering::Relaxed)
    }

    /// Whether a program that has polled lately does something else now.
    pub(crate) fn is_away(&self, now: Time) -> bool {
        self.was_polled(now) && now.since(self.last_poll()) >= AWAY
    }

    /// Whether a program polls.
    pub(crate) fn is_polled(&self, now: Time) -> bool {
        let last = Time(self.last_poll.load(Ordering::Relaxed));
        last.since(Time(self.first_poll.load(Ordering::Relaxed))) >= STREAK
            && now.since(last) < RECENT
            && !self.leaves.load(Ordering::Relaxed)
    }

    /// Whether the thread leaves the work to a program that polls, for the length of a nap at
    /// most.
    #[inline]
    pub(crate) fn naps(&self) -> bool {
        self.napping.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn woken(sleeper: &Sleeper) -> bool {
        sleeper.alarm.clear()
    }

    /// Close polls until `until`, for `span`.
    fn poll_closely(s: &Sleeper, until: Time, span: Duration) {
        let step = CLOSE / 2;
        let mut at = Time(until.0 - u64::try_from(span.as_nanos()).unwrap());
        while at < until {
            s.on_polls(1, at);
            at = at + step;
        }
        s.on_polls(1, until);
    }

    #[test]
    fn a_streak_of_polls_makes_a_polling_program_and_sleeping_ends_it() {
        let s = Sleeper::new().unwrap();
        let now = Time(1_000_000_000);
        poll_closely(&s, now, STREAK - CLOSE);
        assert!(!s.is_polled(now), "not for long enough");
        let later = now + Duration::from_secs(1);
        poll_closely(&s, later, STREAK);
        assert!(s.is_polled(later));
        assert!(!s.is_polled(later + RECENT), "the polls ended");
        s.end_polling();
        assert!(!s.is_polled(later));
        assert!(!woken(&s), "the thread does not nap");
    }

    #[test]
    fn whoever_polls_while_the_process_exits_keeps_the_thread_from_nothing() {
        let s = Sleeper::new().unwrap();
        s.leave();
        assert!(woken(&s));
        let now = Time(1_000_000_000);
        // Not in one streak with the polls before: he lost his processor meanwhile.
        poll_closely(&s, now, STREAK);
        assert!(!s.is_polled(now) && !s.was_polled(now));
    }

    #[test]
    fn rare_polls_make_no_streak() {
        let s = Sleeper::new().unwrap();
        let mut now = Time(1_000_000_000);
        for _ in 0..100 {
            now = now + CLOSE;
            s.on_polls(1, now);
        }
        assert!(!s.is_polled(now));
    }

    #[test]
    fn polls_between_two_looks_at_the_clock_count_as_close_as_they_were_on_average() {
        let s = Sleeper::new().unwrap();
        let mut now = Time(1_000_000_000);
        assert!(!s.on_polls(1, now), "the first one");
        let start = now;
        while now.since(start) < STREAK {
            now = now + (CLOSE * 8 - Duration::from_nanos(1));
            assert!(s.on_polls(8, now));
        }
        assert!(s.is_polled(now));
        now = now + (CLOSE * 8 + LATELY - Duration::from_nanos(1));
        assert!(s.on_polls(8, now), "it may have lost its processor once");
        assert!(s.is_polled(now));
        now = now + (CLOSE * 8 + LATELY);
        assert!(!s.on_polls(8, now));
        assert!(!s.is_polled(now));
    }

    #[test]
    fn a_nap_ends_when_the_program_goes_to_sleep() {
        let s = std::sync::Arc::new(Sleeper::new().unwrap());
        let start = clock::monotonic();
        let hour = Duration::from_secs(3600);
        let future = start + hour;
        poll_closely(&s, future, STREAK);
        let napper = {
            let s = std::sync::Arc::clone(&s);
            std::thread::spawn(move || s.nap_polled(hour, &mut Vec::new()))
        };
        while !s.napping.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        s.end_polling();
        napper.join().unwrap();
    }
}
