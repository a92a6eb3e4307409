//! Leaving: what a process still does for its peers and for the other processes of its host when it
//! exits in an orderly way.
//!
//! - Peers are told that connections have ended. For a program with hardware the kernel does that.
//! - The UDP port is left to the others. What has come here for them in the meantime is passed on:
//!   it would be lost with the socket, and a message of the connection manager may be one that
//!   nobody sends again.
//! - TCP connections stay open until peers have what was sent last, those of other makes until they
//!   have noticed what they sent last.
//!
//! The device thread does it, and the exiting thread waits for that, but not for ever: it may hold
//! a lock that the other one needs.

use std::process;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use ferroce_os::clock;

use super::summary;
use crate::Nic;
use crate::base::sync::lock;
use crate::link::stream::DELIVERED_WITHIN;

/// How long an exit waits for it at most: as long as a busy machine may keep a thread from its
/// processor. What is not said by then is lost, as an acknowledgement that waits for the program's
/// answer is, and the peer takes for failed what was received. Only an exit with a lock in hand,
/// from a signal handler, waits so long for nothing: it cannot tell that from a busy machine.
const PATIENCE: Duration = Duration::from_secs(2);
/// Rounds of work for what has already come.
const ROUNDS: usize = 64;
/// How long full links have to take what was kept for them, and how often they are asked.
const LINGER: (Duration, Duration) = (Duration::from_millis(50), Duration::from_micros(100));

/// How far the leave is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaveStage {
    Staying,
    Asked,
    Left,
}

/// A leave that one thread asks for and another takes.
#[derive(Debug)]
pub(super) struct Leaving {
    /// The process that has the device thread. A child that came to be without a word to the C
    /// library has our memory, and not the thread.
    process: u32,
    has_thread: bool,
    /// Whether what the process did is printed.
    summarises: bool,
    stage: Mutex<LeaveStage>,
    changed: Condvar,
}

impl Leaving {
    /// Leave of this process. Without a device thread nobody would take it.
    pub(super) fn new(has_thread: bool) -> Self {
        let stage = if has_thread {
            LeaveStage::Staying
        } else {
            LeaveStage::Left
        };
        Self {
            process: process::id(),
            has_thread,
            summarises: summary::is_wanted(),
            stage: Mutex::new(stage),
            changed: Condvar::new(),
        }
    }

    /// Whether the device thread works.
    pub(super) fn has_thread(&self) -> bool {
        self.has_thread
    }

    /// In the device thread: takes the leave that was asked for, if one was.
    pub(super) fn take_leave(&self, nic: &Nic) {
        if *lock(&self.stage) != LeaveStage::Asked {
            return;
        }
        nic.say_goodbye();
        if self.summarises {
            nic.print_summary();
        }
        *lock(&self.stage) = LeaveStage::Left;
        self.changed.notify_all();
    }
}

impl Nic {
    /// Ends all use of the device, in the exiting thread.
    pub(super) fn leave(&self) {
        if self.leaving.process != process::id() {
            return;
        }
        let mut stage = lock(&self.leaving.stage);
        if *stage == LeaveStage::Staying {
            *stage = LeaveStage::Asked;
            self.services.sleeper.leave();
        }
        // Whether it was done in time makes no difference to an exit.
        drop(
            self.leaving
                .changed
                .wait_timeout_while(stage, PATIENCE, |s| *s != LeaveStage::Left),
        );
    }

    fn say_goodbye(&self) {
        self.cm().end();
        if let Ok(wire) = &self.services.wire {
            wire.leave();
        }
        for qp in self.services.qps.all() {
            qp.speak_up(clock::monotonic());
            qp.send_parting_ack(clock::monotonic());
        }
        let mut progress = self.progress.lock();
        for _ in 0..ROUNDS {
            if !progress.run_everywhere(self, clock::monotonic()) {
                break;
            }
        }
        let qps = self.services.qps.all();
        let streams = qps.iter().filter_map(|qp| qp.stream_stays_until());
        if let Some(until) = streams.chain(self.cm().refused_stay_until()).max() {
            std::thread::sleep(until.since(clock::monotonic()));
        }
        let until = clock::monotonic() + LINGER.0;
        while self.services.peer_processes.flush() && clock::monotonic() < until {
            std::thread::sleep(LINGER.1);
        }
        let until = clock::monotonic() + DELIVERED_WITHIN;
        let is_under_way =
            || self.services.has_partings() || qps.iter().any(|qp| qp.is_stream_under_way());
        // A peer may wait for its bytes to be read here before it reads.
        while is_under_way() && clock::monotonic() < until {
            progress.run_everywhere(self, clock::monotonic());
            std::thread::sleep(LINGER.1);
        }
    }
}
