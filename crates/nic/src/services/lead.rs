//! The program's thread that does the device's work while it waits for an event.
//!
//! A message then costs one wake-up: of the thread that waits for it. While such a thread leads,
//! the device thread steps back (`engine/thread.rs`). It comes back when the leader has not made a
//! round for the time of a nap, so a leader that computes, or is gone, holds nothing up for longer.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::time::Duration;

use ferroce_os::clock;
use ferroce_os::eventfd::EventFd;
use ferroce_os::timer::TimerFd;
use ferroce_os::waiter::{SignalWatch, Woken};
use ferroce_proto::time::Time;

use super::alarm::Alarm;
use super::linger::{Habit, Patience, look_on};
use crate::base::sync::lock;

/// How long the device thread leaves everything to a leader that is away.
const PATIENCE: Duration = Duration::from_micros(50);

/// No thread leads.
const NOBODY: usize = 0;

thread_local! {
    /// A byte whose address tells a thread from all others that live.
    static HERE: u8 = const { 0 };
}

/// What tells the calling thread from all others that live.
pub(super) fn this_thread() -> usize {
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// The thread that leads, and how it sleeps.
#[derive(Debug)]
pub(crate) struct Lead {
    /// The thread that leads.
    owner: AtomicUsize,
    /// The leader waits, or is about to.
    waits: AtomicBool,
    /// The leader gives the lead back when another thread waits for completions.
    gives_way: AtomicBool,
    /// It has done so: that thread may take the lead.
    vacancy: EventFd,
    /// The device thread sleeps until a leader has been away for a while.
    relied_on: AtomicBool,
    /// Ends that sleep.
    patience: TimerFd,
    /// How often a thread that leads, or would, has come by: for an event, or for a round.
    visits: AtomicU64,
    /// Whether it pays to look on before a sleep, for completions and for connections.
    linger: [Mutex<Lingering>; 2],
    /// Threads that wait for completion events and do not lead.
    followers: AtomicUsize,
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

/// Whether it pays to look on, in each way.
#[derive(Debug, Default)]
struct Lingering {
    spinning: Habit,
    yielding: Habit,
}

impl Lead {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            owner: AtomicUsize::new(NOBODY),
            waits: AtomicBool::new(false),
            gives_way: AtomicBool::new(false),
            vacancy: EventFd::nonblocking_counter()?,
            relied_on: AtomicBool::new(false),
            patience: TimerFd::new()?,
            visits: AtomicU64::new(0),
            linger: Default::default(),
            followers: AtomicUsize::new(0),
            alarm: Alarm::new()?,
            waiter: SignalWatch::new().ok(),
        })
    }

    /// The calling thread leads from here on until it gives the lead back, unless another thread
    /// has it or waits for an event: of several waiting threads, none leads.
    pub(crate) fn take(&self) -> bool {
        if !self.is_possible() || self.has_followers() {
            return false;
        }
        let own = this_thread();
        let taken = self
            .owner
            .compare_exchange(NOBODY, own, Ordering::Acquire, Ordering::Relaxed);
        // A signal handler may have left the wait by a jump.
        taken.is_ok() || taken == Err(own)
    }

    /// As [`take`](Self::take), until another thread waits for completions: the leader looks
    /// whether there is one ([`has_followers`](Self::has_followers)) before each sleep, and is
    /// woken by it.
    pub(crate) fn take_until_followed(&self) -> bool {
        if !self.take() {
            return false;
        }
        self.gives_way.store(true, Ordering::Relaxed);
        // Orders this before the look for followers, as `follow` orders the two the other way
        // round.
        fence(Ordering::SeqCst);
        true
    }

    /// The thread that leads does not any more. If it has [given way](Self::take_until_followed),
    /// those that follow may take the lead.
    pub(crate) fn give_back(&self) {
        // Only the leader writes it: no locked instruction.
        let gave_way = self.gives_way.load(Ordering::Relaxed);
        self.gives_way.store(false, Ordering::Relaxed);
        self.owner.store(NOBODY, Ordering::Release);
        if !gave_way {
            return;
        }
        // Orders the end of the lead before the look, as `follow` orders the two the other way
        // round.
        fence(Ordering::SeqCst);
        if self.has_followers() {
            // It fails only if the count is at its maximum: then they wake anyway.
            let _ = self.vacancy.add(1);
        }
    }

    /// The leader does not wait any more. If the device thread relied on it, that looks after the
    /// device again in a while, unless a leader waits by then.
    fn end_wait(&self) {
        self.waits.store(false, Ordering::Relaxed);
        // Orders the end of the wait before the look, as `rely` orders the two the other way round.
        fence(Ordering::SeqCst);
        if self.relied_on.load(Ordering::Relaxed) && self.relied_on.swap(false, Ordering::Relaxed) {
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
        self.relied_on.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.waits() && !self.has_followers() {
            sleep();
        }
        self.relied_on.store(false, Ordering::Relaxed);
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
        let others = self.followers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if would_lead && others == 0 && !self.is_taken() {
            self.followers.fetch_sub(1, Ordering::Relaxed);
            return Woken::Ready([false; 3]);
        }
        if self.relied_on.swap(false, Ordering::Relaxed) {
            // If it cannot be set, nothing works.
            let _ = self.patience.set(Some(Duration::ZERO));
        }
        if self.gives_way.load(Ordering::Relaxed) {
            self.alarm.ring();
        }
        let end = |_| {
            self.followers.fetch_sub(1, Ordering::Relaxed);
        };
        let woken = waiter.wait([event, self.vacancy.as_raw_fd(), event], None, &end);
        if let Woken::Ready([_, true, _]) = woken {
            // Of several that wake, none leads.
            let _ = self.vacancy.try_take();
        }
        woken
    }

    /// Whether threads wait for completion events that the leader would have to wake.
    pub(crate) fn has_followers(&self) -> bool {
        self.followers.load(Ordering::Relaxed) > 0
    }

    /// Whether a thread leads.
    pub(crate) fn is_taken(&self) -> bool {
        self.owner.load(Ordering::Relaxed) != NOBODY
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
        let ended = Cell::new(false);
        let once = |now| {
            if ended.get() {
                return None;
            }
            let seen = look(now);
            ended.set(seen != Some(false));
            seen
        };
        let mut habits = lock(&self.linger[what as usize]);
        if spins && habits.spinning.tries() {
            let paid = look_on(Patience::Spinning, clock::monotonic, once);
            habits.spinning.learn(paid);
        }
        if !ended.get() && habits.yielding.tries() {
            let begun = clock::monotonic();
            let paid = look_on(Patience::Yielding, clock::monotonic, once);
            let lasted = clock::monotonic().since(begun);
            habits.yielding.learn_yielding(paid, lasted);
        }
    }

    /// Whether threads can wait as [`follow`](Self::follow) and leaders do.
    pub(crate) fn is_possible(&self) -> bool {
        self.waiter.is_some()
    }

    /// Whether a leader waits for the device's descriptors, so that it does what is to be done.
    pub(crate) fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    /// In the leader: waits for its event, or for work of the device. A cancellation point.
    pub(crate) fn wait(&self, event: RawFd, device: RawFd, timeout: Option<Duration>) -> Woken {
        let Some(waiter) = &self.waiter else {
            return Woken::Ready([true; 3]);
        };
        self.waits.store(true, Ordering::Relaxed);
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
