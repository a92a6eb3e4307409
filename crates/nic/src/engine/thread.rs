//! The device thread: answers peers while the program computes or sleeps.

use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use ferroce_os::clock;
use ferroce_os::linger::{Habit, Patience, look_on};
use ferroce_os::poll::Readiness;
use ferroce_os::thread::{spawn_quiet, uncancellable};
use ferroce_proto::time::Time;

use crate::Nic;
use crate::base::token::Token;
use crate::objects::cq::DirectDelivery;
use crate::services::alarm::Announced;
use crate::services::poll_policy::{
    LONGEST_NAP_WITHIN_HOST, NapFor, Naps, SHORT_NAP, Shown, VisitedNaps,
};

/// Pause after the poller failed, which it should never do.
const PAUSE: Duration = Duration::from_millis(10);
/// Starts it. It ends with the process. Peers find the process's memory by its number, so there is
/// one that only sleeps if it is to do nothing.
pub(super) fn spawn(nic: Arc<Nic>, works: bool) -> io::Result<()> {
    let (begun, begin) = mpsc::channel();
    spawn_quiet("ferroce", move || {
        nic.services.boards.set_thread();
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
    let (mut deserted, mut visits, mut is_left) = (false, 0, false);
    loop {
        // A program that polls does the same work: leave the processor and the lock to it.
        nap_while_polled(nic, &mut trust, &mut events);
        nap_while_visited(nic, &mut trust, &mut events);
        let sent = sleep(nic, &mut events);
        let woken = clock::monotonic();
        // The leader was woken for the same. If it does nothing, it is this thread's work.
        let seen = std::mem::replace(&mut visits, nic.services.sleeper.lead().visits());
        if !deserted && is_led(nic, &events, seen) {
            deserted = !rest_while_led(nic, &mut events);
            visits = nic.services.sleeper.lead().visits();
            continue;
        }
        deserted = false;
        is_left = !is_left && leave_to_poller(nic, &mut trust, &mut events);
        if is_left {
            continue;
        }
        run_woken(nic, &events, sent, &mut trust, woken);
        if nic.is_busy_with_rings() && linger.tries() {
            let look = |now| nic.look_at_rings(now);
            linger.learn(look_on(Patience::Spinning, clock::monotonic, look));
        }
        let polls = nic.services.sleeper.polls();
        polls.on_thread_worked(woken, clock::monotonic());
        nic.leaving.take_leave(nic);
    }
}

/// Makes the round for which this thread has slept until `now`. `sent`: packets before it slept.
fn run_woken(nic: &Nic, events: &[Readiness], sent: u64, trust: &mut Habit, now: Time) {
    let is_away = !events.is_empty() && nic.services.sleeper.polls().is_away(now);
    let mut progress = nic.progress.lock();
    if is_away && progress.sent() == sent {
        // A nap would have left this undone.
        trust.learn(false);
    }
    progress.run(nic, events, now);
}

/// Gives a program that polls at this moment a nap's time to do what has come: it sees the same,
/// and would wait for this thread's round in place of making its own. Returns false if none polls.
fn leave_to_poller(nic: &Nic, trust: &mut Habit, events: &mut Vec<Readiness>) -> bool {
    let polls = nic.services.sleeper.polls();
    if events.is_empty() || is_woken(events) || !polls.is_at_it(clock::monotonic()) {
        return false;
    }
    nap_beside_poller(nic, Naps::of(NapFor::Polling).length(), trust, events);
    true
}

/// Whether this thread was woken for something that only it does.
fn is_woken(events: &[Readiness]) -> bool {
    let is_wake = |event: &Readiness| Token::from_raw(event.token()) == Some(Token::Wake);
    events.iter().any(is_wake)
}

/// Whether what has come is the leader's to do: a leader waits, or has come by since the count of
/// `visits`, or a program is woken for it as well.
fn is_led(nic: &Nic, events: &[Readiness], visits: u64) -> bool {
    let lead = nic.services.sleeper.lead();
    let comes =
        lead.is_taken() || lead.visits() != visits || nic.services.sleeper.doors().any_open();
    comes && !lead.has_followers() && !events.is_empty() && !is_woken(events)
}

/// Leaves the work to leaders for as long as one comes by, or waits, but for deadlines. Returns
/// false if none does.
fn rest_while_led(nic: &Nic, events: &mut Vec<Readiness>) -> bool {
    let lead = nic.services.sleeper.lead();
    let (mut naps, mut any) = (Naps::of(NapFor::Leader), false);
    loop {
        let before = lead.visits();
        take_nap(nic, NapFor::Leader, naps.length(), events);
        keep_deadlines(nic);
        let sleeper = &nic.services.sleeper;
        if sleeper.polls().leaves() || lead.has_followers() {
            return any;
        }
        let visits = lead.visits().wrapping_sub(before);
        if visits > 0 {
            // A leader that is away at this moment comes back as it did before. If it computes
            // instead, the end of the next nap shows that.
            match repeats_nothing(nic) {
                true => naps.grow_within_host(visits),
                false => naps.grow(),
            }
        } else if lead.waits() {
            doze(nic, events);
            naps.restart();
        } else {
            return any;
        }
        any = true;
    }
}

/// Whether all comes from processes of this host, and no deadline is soon.
fn repeats_nothing(nic: &Nic) -> bool {
    let long = clock::monotonic() + LONGEST_NAP_WITHIN_HOST;
    nic.services.sleeper.polls().are_within_host() && nic.next_due().is_none_or(|due| due > long)
}

/// Sleeps while a leader waits, until a deadline at most.
fn doze(nic: &Nic, events: &mut Vec<Readiness>) {
    let announced = nic.services.sleeper.announce(nic.next_due());
    nic.services.sleeper.doze(nic.time_left(announced), events);
    nic.services.sleeper.up();
    keep_deadlines(nic);
}

/// Does what is due, and what was left to the end of a nap (`Services::looks_again`).
fn keep_deadlines(nic: &Nic) {
    let mut progress = nic.progress.lock();
    progress.wake_late(nic);
    let now = clock::monotonic();
    if nic.next_due().is_some_and(|due| due <= now) {
        progress.run(nic, &[], now);
    }
}

/// Naps for as long as a program polls, and a little longer.
///
/// A program that polls until its own WRITE is complete, and watches its memory for the peer's
/// then, leaves that one undone. Two such programs would wait for each other's naps in turn: their
/// polls last longer for that, which makes the next nap.
fn nap_while_polled(nic: &Nic, trust: &mut Habit, events: &mut Vec<Readiness>) {
    let sleeper = &nic.services.sleeper;
    let polls = sleeper.polls();
    let mut naps = Naps::of(NapFor::Polling);
    while polls.is_polled(clock::monotonic()) && trust.tries() {
        let before = polls.rounds();
        if nap_beside_poller(nic, naps.length(), trust, events) {
            return;
        }
        // A thread that sleeps for events of its own relies on the device thread.
        let is_alone = !sleeper.lead().has_followers() && !sleeper.doors().any_open();
        match is_alone && repeats_nothing(nic) {
            true => naps.grow_within_host(polls.rounds().wrapping_sub(before)),
            false => naps.grow(),
        }
    }
}

/// Naps once while a program polls, and learns whether that paid. Returns whether the program has
/// gone away and left something undone.
fn nap_beside_poller(
    nic: &Nic,
    length: Duration,
    trust: &mut Habit,
    events: &mut Vec<Readiness>,
) -> bool {
    let sleeper = &nic.services.sleeper;
    nap(nic, NapFor::Polling, length, events);
    let is_away = sleeper.polls().is_away(clock::monotonic());
    let is_undone = is_away && nic.progress.lock().has_work(nic) && !goes_on(nic, events);
    trust.learn(!is_undone);
    is_undone
}

/// Naps, and pays then what was owed meanwhile.
fn take_nap(nic: &Nic, what: NapFor, length: Duration, events: &mut Vec<Readiness>) {
    nic.services.sleeper.nap(what, length, events);
    nic.services.owing_channels.pay();
}

/// Naps once. A program that found completions in its queue at each poll meanwhile has made no
/// round: what waits is done here then. Returns whether a program has polled.
fn nap(nic: &Nic, what: NapFor, length: Duration, events: &mut Vec<Readiness>) -> bool {
    let sleeper = &nic.services.sleeper;
    let (last, rounds) = (sleeper.polls().last(), sleeper.polls().rounds());
    take_nap(nic, what, length, events);
    // Visits may have ended as well.
    let is_polled = sleeper.polls().last() > last;
    if is_polled && sleeper.polls().rounds() == rounds {
        let now = clock::monotonic();
        nic.progress.lock().run_everywhere(nic, now);
    }
    is_polled
}

/// Whether a program that has not polled for a while posts meanwhile: 100 messages in a row, say,
/// between two polls. It comes back to what has come.
fn goes_on(nic: &Nic, events: &mut Vec<Readiness>) -> bool {
    let sleeper = &nic.services.sleeper;
    let done = || (sleeper.polls().last(), nic.progress.lock().sent());
    let before = done();
    take_nap(nic, NapFor::Visits, SHORT_NAP, events);
    done() != before
}

/// Naps for as long as a program that polls now and then (after some messages that it posts, say)
/// leaves nothing undone. What waits at the end of a nap must be gone, or at least fewer, at the
/// end of the next.
fn nap_while_visited(nic: &Nic, trust: &mut Habit, events: &mut Vec<Readiness>) {
    let sleeper = &nic.services.sleeper;
    let mut naps = VisitedNaps::new();
    while sleeper.polls().was_polled(clock::monotonic())
        && (naps.was_visited() || nic.is_busy())
        && trust.tries()
    {
        // A program that makes a round has the progress lock for itself.
        let visited = nap(nic, NapFor::Visits, naps.length(), events);
        match naps.on_end(visited, || nic.progress.lock().waiting(nic)) {
            Shown::Visit => {
                trust.learn(true);
                nap_while_polled(nic, trust, events);
            }
            Shown::NothingWaits => trust.learn(true),
            Shown::SomethingWaits => {}
            Shown::Undone => return trust.learn(false),
        }
    }
}

/// Waits until something is ready or due. Returns how many packets had been sent before that.
fn sleep(nic: &Nic, events: &mut Vec<Readiness>) -> u64 {
    let announced = nic.services.sleeper.announce(nic.next_due());
    let mut progress = nic.progress.lock();
    let (quiet, sent) = (progress.sleep_rings(nic), progress.sent());
    drop(progress);
    let timeout = if quiet {
        nic.time_left(announced)
    } else {
        Some(Duration::ZERO)
    };
    let (sleeper, device) = (&nic.services.sleeper, &nic.services.poller);
    let waited = sleeper.sleep(device, events, timeout);
    nic.services.sleeper.up();
    if let Err(e) = waited {
        tracing::warn!(target: "ferroce::device", "waiting for work failed: {e}");
        std::thread::sleep(PAUSE);
    }
    sent
}

impl Nic {
    /// Whether records have come through rings in the last round: they are watched from then on.
    pub(super) fn is_busy_with_rings(&self) -> bool {
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
        if self.services.sleeper.polls().is_polled(now) {
            return None;
        }
        let Some(mut progress) = self.progress.try_lock() else {
            return Some(false);
        };
        progress.run_ringing(self, now, &mut DirectDelivery::default())
    }

    /// How long a sleep that was announced may last, from now on.
    pub(super) fn time_left(&self, announced: Announced) -> Option<Duration> {
        let end = announced.end(self.next_due());
        end.map(|end| end.since(clock::monotonic()))
    }

    /// When there is work without an event on a descriptor: at once, at a deadline, or never.
    pub(crate) fn next_due(&self) -> Option<Time> {
        if !self.services.ready.is_empty() || self.services.has_ended_loans() {
            return Some(Time(0));
        }
        let wire = self.services.wire.as_ref().ok();
        let attempt = wire.and_then(|wire| wire.attempt_due());
        let held_up = wire.and_then(|wire| wire.held_up_until());
        [
            self.services.timers.next(),
            self.services.delays.next(),
            self.cm().deadline(),
            attempt,
            held_up,
        ]
        .into_iter()
        .fold(None, Time::sooner)
    }
}
