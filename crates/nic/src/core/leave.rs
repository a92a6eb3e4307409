//! Leaving: what a process still does for its peers and for the other processes of its host when it exits in an orderly way.
//!
//! - Peers are told that connections have ended. For a program with hardware the kernel does that.
//! - The UDP port is left to the others. What has come here for them in the meantime is passed on: it would be lost with the socket,
//!   and a message of the connection manager may be one that nobody sends again.
//!
//! The device thread does it, and the exiting thread waits for a moment only: it may hold a lock that the other one needs.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use ferroce_os::clock;

use super::Nic;
use super::sync::lock;

/// How long an exit waits for it.
const PATIENCE: Duration = Duration::from_millis(100);
/// Rounds of work for what has already come.
const ROUNDS: usize = 64;
/// How long full links have to take what was kept for them, and how often they are asked.
const LINGER: (Duration, Duration) = (Duration::from_millis(50), Duration::from_micros(100));

/// How far the leave is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Staying,
    Asked,
    Left,
}

/// A leave that one thread asks for and another takes.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    stage: Mutex<Stage>,
    changed: Condvar,
}

impl Leaving {
    /// In the device thread: takes the leave that was asked for, if one was.
    pub(super) fn take_leave(&self, nic: &Nic) {
        if *lock(&self.stage) != Stage::Asked {
            return;
        }
        nic.say_goodbye();
        *lock(&self.stage) = Stage::Left;
        self.changed.notify_all();
    }
}

impl Nic {
    /// In the exiting thread.
    pub(super) fn leave(&self) {
        let mut stage = lock(&self.leaving.stage);
        if *stage == Stage::Staying {
            *stage = Stage::Asked;
            self.sleeper.end_polling();
            self.sleeper.wake();
        }
        // Whether it was done in time makes no difference to an exit.
        drop(
            self.leaving
                .changed
                .wait_timeout_while(stage, PATIENCE, |s| *s != Stage::Left),
        );
    }

    fn say_goodbye(&self) {
        self.cm().end();
        if let Ok(wire) = &self.wire {
            wire.leave();
        }
        for qp in self.qps.all() {
            qp.speak_up(clock::monotonic());
        }
        let mut progress = self.progress.lock();
        for _ in 0..ROUNDS {
            if !progress.run_everywhere(self, clock::monotonic()) {
                break;
            }
        }
        let until = clock::monotonic() + LINGER.0;
        while self.neighbours.flush() && clock::monotonic() < until {
            std::thread::sleep(LINGER.1);
        }
    }
}
