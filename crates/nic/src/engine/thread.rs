//! The device thread: answers peers while the program computes or sleeps.

use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use ferroce_os::clock;
use ferroce_os::poll::Event;
use ferroce_os::thread::{spawn_quiet, uncancellable};
use ferroce_proto::time::Time;

use crate::Nic;
use crate::services::linger::{Habit, look_on};

/// Pause after the poller failed, which it should never do.
const PAUSE: Duration = Duration::from_millis(10);
/// How long the thread leaves a program alone that polls now and then, at first.
const FIRST_NAP: Duration = Duration::from_micros(50);
/// The same, once it has found nothing undone.
const SERVED_NAP: Duration = Duration::from_micros(200);

/// Starts it. It ends with the process. Peers find the process's memory by its number, so there is
/// one that only sleeps if it is to do nothing.
pub(super) fn spawn(nic: Arc<Nic>, works: bool) -> io::Result<()> {
    let (begun, begin) = mpsc::channel();
    spawn_quiet("ferroce", move || {
        nic.boards().set_thread();
        let _ = begun.send(());
        if works {
            run(&nic)
        }
        loop {
            std::thread::park();
        }
    })?;
    // No peer may see a board without the number.
    uncancellable(|| begin.recv()).map_err(|_| io::ErrorKind::Other.into())
}

fn run(nic: &Nic) -> ! {
    let mut events = Vec::new();
    let (mut linger, mut trust) = (Habit::default(), Habit::default());
    loop {
        // A program that polls does the same work: leave the processor and the lock to it.
        nic.sleeper.nap_while_polled(&mut events);
        nap_while_served(nic, &mut trust, &mut events);
        sleep(nic, &mut events);
        nic.progress.lock().run(nic, &events, clock::monotonic());
        if nic.is_busy_with_rings() && linger.tries() {
            linger.learn(look_on(clock::monotonic, |now| nic.look_at_rings(now)));
        }
        nic.leaving.take_leave(nic);
    }
}

/// Naps for as long as a program that polls now and then (after some messages that it posts, say)
/// leaves nothing undone: what waits at the end of a nap is gone, or at least fewer, at the end of
/// the next.
fn nap_while_served(nic: &Nic, trust: &mut Habit, events: &mut Vec<Event>) {
    let (mut nap, mut waiting, mut served) = (FIRST_NAP, None, false);
    while nic.sleeper.was_polled(clock::monotonic()) && (served || nic.is_busy()) && trust.tries() {
        let before = nic.sleeper.last_poll();
        nic.sleeper.nap(nap, events);
        nap = (nap * 2).min(SERVED_NAP);
        // Who has made a round meanwhile has the progress lock for himself.
        served = nic.sleeper.last_poll() != before;
        if served {
            trust.learn(true);
            waiting = None;
            // It may poll all the time by now.
            nic.sleeper.nap_while_polled(events);
            continue;
        }
        let waits = nic.progress.lock().waiting(nic);
        if waits.is_some() && waits == waiting {
            return trust.learn(false);
        }
        if waits.is_none() {
            trust.learn(true);
        }
        waiting = waits;
    }
}

/// Waits until something is ready or due.
fn sleep(nic: &Nic, events: &mut Vec<Event>) {
    nic.sleeper.announce(nic.next_due());
    let quiet = nic.progress.lock().sleep_rings(nic);
    // What was published before the announcement woke nobody: look again.
    let timeout = if quiet {
        nic.next_due().map(|due| due.since(clock::monotonic()))
    } else {
        Some(Duration::ZERO)
    };
    let waited = nic.poller.wait(events, timeout);
    nic.sleeper.up();
    if let Err(e) = waited {
        tracing::warn!(target: "ferroce::device", "waiting for work failed: {e}");
        std::thread::sleep(PAUSE);
    }
}

impl Nic {
    /// Whether records have come through rings in the last round: they are watched from then on.
    fn is_busy_with_rings(&self) -> bool {
        self.progress.lock().watches_rings()
    }

    /// Whether something has come lately, through rings or by a socket that a program has looked at
    /// since.
    fn is_busy(&self) -> bool {
        let progress = self.progress.lock();
        progress.watches_rings() || progress.has_hot_socket()
    }

    /// A look of the thread that lingers, and a round if there is something. `None`: a program does
    /// the work now, or there is work of another kind.
    fn look_at_rings(&self, now: Time) -> Option<bool> {
        if self.sleeper.is_polled(now) {
            return None;
        }
        let Some(mut progress) = self.progress.try_lock() else {
            return Some(false);
        };
        progress.run_ringing(self, now)
    }

    /// When there is work without an event on a descriptor: at once, at a deadline, or never.
    pub(super) fn next_due(&self) -> Option<Time> {
        if !self.ready.is_empty() {
            return Some(Time(0));
        }
        let wire = self.wire.as_ref().ok();
        let attempt = wire.and_then(|wire| wire.attempt_due());
        let held_up = wire.and_then(|wire| wire.held_up_until());
        [
            self.timers.next(),
            self.delays.next(),
            self.cm().deadline(),
            attempt,
            held_up,
        ]
        .into_iter()
        .fold(None, Time::sooner)
    }
}
