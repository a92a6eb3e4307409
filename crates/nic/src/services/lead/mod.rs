//! The program's thread that does the device's work while it waits for an event.
//!
//! A message then costs one wake-up: of the thread that waits for it. While such a thread leads,
//! the device thread steps back (`engine/thread.rs`). It comes back when the leader has not made a
//! round for the time of a nap, so a leader that computes, or is gone, holds nothing up for longer.

#[cfg(test)]
mod model;
mod words;

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ferroce_os::clock;
use ferroce_os::eventfd::EventFd;
use ferroce_os::linger::Looks;
use ferroce_os::timer::TimerFd;
use ferroce_os::waiter::{SignalWatch, Woken};
use ferroce_proto::time::Time;

use super::alarm::Alarm;
use words::{LeadWords, Wakes};

/// How long the device thread leaves everything to a leader that is away.
const PATIENCE: Duration = Duration::from_micros(50);

thread_local! {
    /// A byte whose address tells a thread from all others that live.
    static HERE: u8 = const { 0 };
}

/// What tells the calling thread from all others that live.
pub(crate) fn this_thread() -> usize {
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// The thread that leads, and how it sleeps.
#[derive(Debug)]
pub(crate) struct Lead {
    words: LeadWords,
    /// A leader has given way: a thread that follows may take the lead.
    vacancy: EventFd,
    /// Ends the sleep of a device thread that relies on the leader.
    patience: TimerFd,
    /// How often a thread that leads, or would, has come by: for an event, or for a round.
    visits: AtomicU64,
    /// Whether it pays to look on before a sleep, for completions and for connections.
    looks: [Looks; 2],
    alarm: Alarm,
    /// `None`: a sandbox does not allow it, and nobody ever leads.
    waiter: Option<SignalWatch>,
}

/// What a leader waits for. Threads that wait for one thing learn nothing of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LingersFor {
    Completions,
    Connections,
}

impl Lead {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            words: LeadWords::default(),
            vacancy: EventFd::nonblocking_counter()?,
            patience: TimerFd::new()?,
            visits: AtomicU64::new(0),
            looks: Default::default(),
            alarm: Alarm::new()?,
            waiter: SignalWatch::new().ok(),
        })
    }

    /// The calling thread leads from here on until it gives the lead back, unless another thread
    /// has it or waits for an event: of several waiting threads, none leads.
    pub(crate) fn take(&self) -> bool {
        self.is_possible() && self.words.take(this_thread())
    }

    /// As [`take`](Self::take), until another thread waits for completions: the leader looks
    /// whether there is one ([`has_followers`](Self::has_followers)) before each sleep, and is
    /// woken by it.
    pub(crate) fn take_until_followed(&self) -> bool {
        let taken = self.take();
        if taken {
            self.words.give_way();
        }
        taken
    }

    /// The thread that leads does not any more. If it has [given way](Self::take_until_followed),
    /// those that follow may take the lead.
    pub(crate) fn give_back(&self) {
        if self.words.give_back() {
            // It fails only if the count is at its maximum: then they wake anyway.
            let _ = self.vacancy.add(1);
        }
    }

    /// The leader does not wait any more. If the device thread relied on it, that looks after the
    /// device again in a while, unless a leader waits by then.
    fn end_wait(&self) {
        if self.words.end_wait() {
            // If it cannot be set, nothing works.
            let _ = self.patience.set(Some(PATIENCE));
        }
    }

    /// The descriptor that ends the device thread's reliance on the leader.
    pub(crate) fn patience_fd(&self) -> RawFd {
        self.patience.as_raw_fd()
    }

    /// In the device thread: `sleep` is called, and may last until the leader has been away for a
    /// while, if one waits now.
    pub(crate) fn rely(&self, sleep: impl FnOnce()) {
        let _ = self.patience.set(None);
        self.words.rely(sleep);
    }

    /// Waits for a completion event without leading, or until a leader has given way. The leader
    /// would have to wake this thread as well, so the device thread does not rely on a leader
    /// meanwhile. A cancellation point, at which no event is lost: other than a thread in `read(2)`
    /// this one takes nothing while it waits.
    ///
    /// A thread that `would_lead` does not wait where nobody leads and it is the only one: the
    /// leader has given the lead back since.
    pub(crate) fn follow(&self, event: RawFd, would_lead: bool) -> Woken {
        let Some(waiter) = &self.waiter else {
            return Woken::Ready([true; 3]);
        };
        let Some(wakes) = self.words.follow(would_lead) else {
            return Woken::Ready([false; 3]);
        };
        self.end_sleeps(wakes);
        let end = |_| self.words.end_follow();
        let woken = waiter.wait([event, self.vacancy.as_raw_fd(), event], None, &end);
        if let Woken::Ready([_, true, _]) = woken {
            // Of several that wake, none leads.
            let _ = self.vacancy.try_take();
        }
        woken
    }

    fn end_sleeps(&self, wakes: Wakes) {
        if wakes.device_thread {
            // If it cannot be set, nothing works.
            let _ = self.patience.set(Some(Duration::ZERO));
        }
        if wakes.leader {
            self.alarm.ring();
        }
    }

    /// Whether threads wait for completion events that the leader would have to wake.
    pub(crate) fn has_followers(&self) -> bool {
        self.words.has_followers()
    }

    /// Whether a thread leads.
    pub(crate) fn is_taken(&self) -> bool {
        self.words.is_taken()
    }

    /// The leader's sleep.
    pub(crate) fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// A thread has come by that leads where there is nothing for it: it does not leave work undone
    /// for long.
    pub(crate) fn on_visit(&self) {
        self.visits.fetch_add(1, Ordering::Relaxed);
    }

    /// A count that changes when a leader comes by.
    pub(crate) fn visits(&self) -> u64 {
        self.visits.load(Ordering::Relaxed)
    }

    /// Looks on before a sleep, in the ways of which experience says that they pay; `spins` if the
    /// first may be one that keeps the processor. `look` says whether what the leader waits for is
    /// there; `None`: it is not likely to come soon.
    pub(crate) fn linger(
        &self,
        what: LingersFor,
        spins: bool,
        look: impl Fn(Time) -> Option<bool>,
    ) {
        let Some(mut begun) = self.looks[what as usize].begin(spins) else {
            return;
        };
        let mut now = begun.since();
        loop {
            let seen = look(now);
            if seen != Some(false) {
                return begun.end(seen == Some(true));
            }
            if !begun.goes_on() {
                return;
            }
            now = clock::monotonic();
        }
    }

    /// Whether threads can wait as [`follow`](Self::follow) and leaders do.
    pub(crate) fn is_possible(&self) -> bool {
        self.waiter.is_some()
    }

    /// Whether a leader waits for the device's descriptors, so that it does what is to be done.
    pub(crate) fn waits(&self) -> bool {
        self.words.waits()
    }

    /// In the leader: waits for its event, or for work of the device. A cancellation point.
    pub(crate) fn wait(&self, event: RawFd, device: RawFd, timeout: Option<Duration>) -> Woken {
        let Some(waiter) = &self.waiter else {
            return Woken::Ready([true; 3]);
        };
        self.words.begin_wait();
        let end = |is_cancelled| {
            self.end_wait();
            if is_cancelled {
                self.give_back();
            }
        };
        let woken = waiter.wait([event, device, self.alarm.fd()], timeout, &end);
        self.alarm.up();
        if let Woken::Ready([_, _, true]) = woken {
            self.alarm.clear();
        }
        woken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_leads_and_none_of_several() {
        let lead = Lead::new().unwrap();
        let elsewhere = || std::thread::scope(|s| s.spawn(|| lead.take()).join().unwrap());
        assert!(lead.take());
        assert!(lead.take(), "it has left the wait by a jump");
        assert!(!elsewhere());
        lead.give_back();
        let event = EventFd::counter().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| lead.follow(event.as_raw_fd(), false));
            while !lead.has_followers() {
                std::thread::yield_now();
            }
            assert!(!lead.take(), "another thread waits as well");
            event.add(1).unwrap();
        });
        assert!(lead.take());
    }

    #[test]
    fn a_thread_that_waits_for_completions_gets_the_lead_of_one_that_waits_for_connections() {
        let lead = Lead::new().unwrap();
        let never = EventFd::counter().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(lead.take_until_followed());
                while !lead.has_followers() {
                    let _ = lead.wait(never.as_raw_fd(), never.as_raw_fd(), None);
                }
                lead.give_back();
            });
            while !lead.waits() {
                std::thread::yield_now();
            }
            assert!(!lead.take());
            while !lead.take() {
                let _ = lead.follow(never.as_raw_fd(), true);
            }
        });
        assert!(lead.take(), "still");
    }
}
