//! How the device thread sleeps, what may wake it, and when it naps because the program does its
//! work: by polling, or while it waits for events ([`lead`](super::lead)).

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use ferroce_os::clock;
use ferroce_os::poll::{Interest, Poller, Readiness};
use ferroce_proto::time::Time;

use super::alarm::{Alarm, Announced};
use super::doors::Doors;
use super::lead::Lead;
use super::poll_policy::{NapFor, Polls};
use crate::base::token::Token;

/// The sleep of the device thread.
#[derive(Debug)]
pub(crate) struct Sleeper {
    alarm: Alarm,
    /// Watches `alarm` and the device's poller. Programs that are woken for the device's work watch
    /// that poller alone: only the thread takes `alarm` back, and until it has a processor for that
    /// they would wake up again and again.
    all: Poller,
    /// Watches nothing but `alarm`.
    nap: Poller,
    /// Watches what ends a sleep that relies on the leader.
    doze: Poller,
    lead: Lead,
    doors: Doors,
    napping: AtomicBool,
    polls: Polls,
}

impl Sleeper {
    pub(crate) fn new() -> io::Result<Self> {
        let (alarm, all, nap) = (Alarm::new()?, Poller::new()?, Poller::new()?);
        all.add(alarm.fd(), Token::Wake.raw(), Interest::READ)?;
        nap.add(alarm.fd(), 0, Interest::READ)?;
        let (doze, lead) = (Poller::new()?, Lead::new()?);
        doze.add(alarm.fd(), 0, Interest::READ)?;
        doze.add(lead.patience_fd(), 0, Interest::READ)?;
        Ok(Self {
            alarm,
            all,
            nap,
            doze,
            lead,
            doors: Doors::new(),
            napping: AtomicBool::new(false),
            polls: Polls::new(),
        })
    }

    /// Lets the thread's sleep end for what the device's poller watches.
    pub(crate) fn watch(&self, device: &Poller) -> io::Result<()> {
        let token = Token::Device.raw();
        self.all.add(device.as_raw_fd(), token, Interest::READ)
    }

    /// Sleeps until something wakes the thread, or the device's poller has something, which is in
    /// `events` then. It has announced the sleep.
    ///
    /// # Errors
    /// As [`Poller::wait`].
    pub(crate) fn sleep(
        &self,
        device: &Poller,
        events: &mut Vec<Readiness>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        self.all.wait(events, timeout)?;
        let ready = [events.first().copied(), events.get(1).copied()];
        if ready.iter().flatten().any(is_device) {
            device.wait(events, Some(Duration::ZERO))?;
            // The thread must learn that there was work, even if a program has done it since.
            events.extend(ready.into_iter().flatten());
        }
        Ok(())
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
    pub(crate) fn announce(&self, until: Option<Time>) -> Announced {
        self.alarm.announce(until)
    }

    /// The thread is up again (or decided not to sleep).
    pub(crate) fn up(&self) {
        self.alarm.up();
    }

    /// In a nap: takes back what has ended it. The wake-up of an exit stays for the sleep that
    /// follows.
    fn clear_nap(&self) {
        self.alarm.clear();
        if self.polls.leaves() {
            self.alarm.ring();
        }
    }

    /// Takes back a wake-up that has arrived.
    pub(crate) fn clear_wake(&self) {
        self.alarm.clear();
    }

    /// What is known of the polls of programs.
    pub(crate) fn polls(&self) -> &Polls {
        &self.polls
    }

    /// A program is about to sleep where it leads: that is its own round, and a nap of the thread
    /// need not end for it.
    pub(crate) fn end_streak(&self) {
        self.polls.end_streak();
    }

    /// A program is about to sleep: the thread looks after everything again.
    pub(crate) fn end_polling(&self) {
        self.end_streak();
        self.end_nap();
    }

    /// Ends a nap of the thread, if it takes one.
    pub(crate) fn end_nap(&self) {
        fence(Ordering::SeqCst);
        if self.napping.swap(false, Ordering::Relaxed) {
            self.alarm.ring();
        }
    }

    /// A program has looked for something in vain, and polls no more for now: the thread looks
    /// after it.
    pub(crate) fn end_visits(&self) {
        self.polls.end_visits();
        self.end_nap();
    }

    /// The process exits: the thread leaves nothing to programs any more, and wakes for its last
    /// work.
    pub(crate) fn leave(&self) {
        self.polls.leave();
        self.end_polling();
        self.alarm.ring();
    }

    /// Naps once, if what it naps for allows it.
    pub(crate) fn nap(&self, what: NapFor, length: Duration, events: &mut Vec<Readiness>) {
        self.napping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.polls.allow(what, clock::monotonic()) {
            let _ = self.nap.wait(events, Some(length));
            if !events.is_empty() {
                self.clear_nap();
            }
        }
        self.napping.store(false, Ordering::Relaxed);
    }

    /// Sleeps until the leader that waits has been away for a while, the time is over, or something
    /// wakes the thread. It has announced the sleep.
    pub(crate) fn doze(&self, timeout: Option<Duration>, events: &mut Vec<Readiness>) {
        self.lead.rely(|| {
            if !self.polls.leaves() {
                // If it fails, the thread works on.
                let _ = self.doze.wait(events, timeout);
                self.clear_nap();
            }
        });
    }

    /// Whether the thread leaves the work to a program that polls, for the length of a nap at
    /// most.
    #[inline]
    pub(crate) fn naps(&self) -> bool {
        self.napping.load(Ordering::Relaxed)
    }
}

fn is_device(event: &Readiness) -> bool {
    event.token() == Token::Device.raw()
}

#[cfg(test)]
mod tests {
    use ferroce_os::eventfd::EventFd;

    use super::*;

    fn woken(sleeper: &Sleeper) -> bool {
        sleeper.alarm.clear()
    }

    #[test]
    fn the_end_of_polls_wakes_a_thread_that_naps_only() {
        let s = Sleeper::new().unwrap();
        s.end_polling();
        assert!(!woken(&s), "the thread does not nap");
        s.leave();
        assert!(woken(&s), "an exit is for the thread in any case");
    }

    #[test]
    fn a_wake_up_of_the_thread_is_for_nobody_else() {
        let (s, device, work) = (
            Sleeper::new().unwrap(),
            Poller::new().unwrap(),
            EventFd::counter().unwrap(),
        );
        device.add(work.as_raw_fd(), 7, Interest::READ).unwrap();
        s.watch(&device).unwrap();
        let now = Some(Duration::ZERO);
        let slept = || {
            let mut events = Vec::new();
            s.sleep(&device, &mut events, now).unwrap();
            events.iter().map(Readiness::token).collect::<Vec<_>>()
        };
        s.alarm.ring();
        let mut events = Vec::new();
        device.wait(&mut events, now).unwrap();
        assert!(events.is_empty(), "a program does not wake up");
        assert_eq!(slept(), [Token::Wake.raw()]);
        s.clear_wake();
        assert!(slept().is_empty());
        work.add(1).unwrap();
        assert_eq!(slept(), [7, Token::Device.raw()]);
    }

    #[test]
    fn a_nap_ends_when_the_program_goes_to_sleep() {
        let s = std::sync::Arc::new(Sleeper::new().unwrap());
        let hour = Duration::from_secs(3600);
        let napper = {
            let s = std::sync::Arc::clone(&s);
            std::thread::spawn(move || s.nap(NapFor::Leader, hour, &mut Vec::new()))
        };
        while !s.napping.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        s.end_polling();
        napper.join().unwrap();
    }
}
