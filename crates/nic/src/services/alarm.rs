//! The sleep of one thread that does the device's work, and what ends it.
//!
//! Nothing is lost because both sides write before they look. The thread announces until when it
//! will sleep and then looks once more for work. A thread that makes work publishes it and then
//! looks whether the first one sleeps past it. Sequentially consistent fences order the two.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering;

use ferroce_os::eventfd::EventFd;
use ferroce_proto::time::Time;

use crate::base::atomics::{Atomic as _, Atomics, Machine};

/// Not sleeping: nobody needs to wake it.
const AWAKE: u64 = 0;

/// When a thread will wake up by itself, and what wakes it before.
#[derive(Debug)]
pub(crate) struct Alarm {
    bell: EventFd,
    until: Until,
}

/// Until when a thread sleeps, [`AWAKE`] while it is up. A model checker runs it on a word of its
/// own.
#[derive(Debug, Default)]
pub(super) struct Until<M: Atomics = Machine>(M::Long);

/// Until when a thread has said that it will sleep.
#[derive(Debug)]
#[must_use]
pub(crate) struct Announced(Option<Time>);

impl Announced {
    /// When the sleep must end, from what is `due` by now: what was published before the
    /// announcement woke nobody. A deadline that has been taken back since prolongs nothing,
    /// because a thread that sets the next one goes by what was announced.
    pub(crate) fn end(self, due: Option<Time>) -> Option<Time> {
        Time::sooner(self.0, due)
    }
}

impl<M: Atomics> Until<M> {
    /// As [`Alarm::announce`].
    pub(super) fn announce(&self, until: Option<Time>) -> Announced {
        let word = until.map_or(u64::MAX, |t| t.0.max(1));
        self.0.store(word, Ordering::Relaxed);
        M::fence();
        Announced(until)
    }

    /// Whether the thread would sleep past `at`: the caller wakes it then. No other caller is told
    /// so.
    pub(super) fn is_past(&self, at: Time) -> bool {
        self.0.load(Ordering::Relaxed) > at.0 && self.0.swap(AWAKE, Ordering::Relaxed) > at.0
    }

    /// The thread is up.
    pub(super) fn up(&self) {
        self.0.store(AWAKE, Ordering::Relaxed);
    }
}

impl Alarm {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            bell: EventFd::counter()?,
            until: Until::default(),
        })
    }

    /// The descriptor that the thread's sleep must watch.
    pub(crate) fn fd(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    /// Work was published that must be done at `at`: wakes the thread if it would sleep longer. A
    /// sequentially consistent fence comes between the two.
    pub(crate) fn wake_for(&self, at: Time) {
        if self.until.is_past(at) {
            self.ring();
        }
    }

    /// Announces a sleep until `until` (`None`: without end). The thread must look for work once
    /// more before it sleeps.
    pub(crate) fn announce(&self, until: Option<Time>) -> Announced {
        self.until.announce(until)
    }

    /// The thread is up again (or decided not to sleep).
    pub(crate) fn up(&self) {
        self.until.up();
    }

    /// Wakes the thread, whatever it sleeps for.
    pub(crate) fn ring(&self) {
        // It fails only if the count is at its maximum: then the thread wakes anyway.
        let _ = self.bell.add(1);
    }

    /// Takes back a wake-up that has arrived. Returns whether there was one.
    pub(crate) fn clear(&self) -> bool {
        self.bell.try_take().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sleep_that_would_be_too_long_is_ended() {
        let alarm = Alarm::new().unwrap();
        alarm.wake_for(Time(5));
        assert!(!alarm.clear(), "the thread is up");
        let _ = alarm.announce(Some(Time(100)));
        alarm.wake_for(Time(100));
        alarm.wake_for(Time(200));
        assert!(!alarm.clear(), "it wakes in time by itself");
        alarm.wake_for(Time(99));
        assert!(alarm.clear());
        alarm.wake_for(Time(98));
        assert!(!alarm.clear(), "once is enough");
        let _ = alarm.announce(None);
        alarm.wake_for(Time(u64::MAX - 1));
        assert!(alarm.clear());
    }
}
