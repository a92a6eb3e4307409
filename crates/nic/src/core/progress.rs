//! One round of work: what came in, what is due, whose turn it is. The device thread and polling programs run it, one at a
//! time.

use std::sync::Arc;
use std::time::Duration;

use ferroce_os::clock;
use ferroce_os::poll::{Event, Interest};
use ferroce_proto::ids::Qpn;
use ferroce_proto::time::Time;

use super::dispatch::Dispatch;
use super::lanes::Lanes;
use super::token::Token;
use super::{DropReason, Nic};
use crate::Qp;
use crate::cq::Catch;
use crate::link::local::{Incoming, LinkId, Received};

/// Frames of one link per round.
const LINK_BUDGET: usize = 256;
/// Datagrams per round, or 256 KiB of long ones: they are acknowledged before more is received, so that the sender goes on meanwhile.
const WIRE_BUDGET: usize = 256;
/// New links per round.
const ACCEPT_BUDGET: usize = 64;
/// Deadlines and turns per round.
const TURN_BUDGET: usize = 64;
/// While rings are watched, the time from one look of a polling program at the descriptors to the next: that is a system call.
const DESCRIPTORS_EVERY: Duration = Duration::from_micros(25);
/// Close polls between two looks at the clock.
const SILENT_POLLS: u32 = 31;
/// Rounds of a polling program without anything to do after which it gives way now and then: some 20 µs.
const IDLE_ROUNDS: u32 = 1024;
/// Rounds from there to the next time.
const ROUNDS_AGAIN: u32 = 128;
/// What a round with a system call counts as: it takes as long as so many without.
const CALL_ROUNDS: u32 = 8;
/// Records of a process that is gone that are still read, at most: more than its socket can hold.
const LAST_WORDS: usize = 4096;
/// Times that [`ACCEPT_BUDGET`] of new links are taken before that: as many as can wait.
const LAST_CALLERS: usize = 64;

/// Rounds without a packet after which a socket is as any other.
const HOT_ROUNDS: u32 = 256;
/// Of so many rounds of a polling program one asks for all descriptors.
const LOOK_AROUND: u32 = 8;

/// What only one round at a time uses.
#[derive(Debug)]
pub(super) struct Progress {
    incoming: Incoming,
    dispatch: Dispatch,
    lanes: Lanes,
    due: Vec<Qpn>,
    /// For rounds that no sleep came before.
    polled: Vec<Event>,
    hot: Hot,
    /// When a polling program looked at the descriptors last.
    looked: Time,
    /// Those since the last one that had something to do.
    idle: u32,
    /// Rounds that had something to do.
    served: u64,
    /// Polls since the clock was looked at, and how many there may be.
    silent: u32,
    may_be_silent: u32,
    /// When a poll looked at the clock last.
    seen: Time,
}

/// The socket that traffic comes by while a program polls: looking there directly is cheaper than to ask which socket has
/// something.
#[derive(Debug, Default)]
struct Hot {
    /// Number of the socket's token.
    number: u32,
    /// Rounds that look there first, from now on.
    rounds: u32,
    /// Rounds so far: every few of them look around, however busy the socket is.
    turn: u32,
}

impl Hot {
    /// Something came by a socket.
    fn heat(&mut self, number: u32) {
        (self.number, self.rounds) = (number, HOT_ROUNDS);
    }

    /// The socket to look at in this round; `None`: ask for all.
    fn next(&mut self) -> Option<u32> {
        self.turn = self.turn.wrapping_add(1);
        self.rounds = self.rounds.checked_sub(1)?;
        (!self.turn.is_multiple_of(LOOK_AROUND)).then_some(self.number)
    }
}

impl Progress {
    pub(super) fn new(incoming: Incoming) -> Self {
        Self {
            incoming,
            dispatch: Dispatch::default(),
            lanes: Lanes::default(),
            due: Vec::new(),
            polled: Vec::new(),
            hot: Hot::default(),
            looked: Time(0),
            idle: 0,
            served: 0,
            silent: 0,
            may_be_silent: 0,
            seen: Time(0),
        }
    }

    /// A round, with the events that the poller reported.
    pub(super) fn run(&mut self, nic: &Nic, events: &[Event], now: Time) {
        self.run_catching(nic, events, now, &mut Catch::default());
    }

    /// As [`run`](Self::run), for a program that polls.
    fn run_catching(&mut self, nic: &Nic, events: &[Event], now: Time, catch: &mut Catch<'_>) {
        self.served += 1;
        // What joins the list in this round has its turn in the next one.
        let turns = nic.ready.len().min(TURN_BUDGET);
        for event in events {
            match Token::from_raw(event.token()) {
                Some(token) => self.on_event(nic, token, *event, now),
                None => tracing::warn!(target: "ferroce::device", ?event, "an event for nothing"),
            }
        }
        for index in (0..self.incoming.watched()).rev() {
            self.receive_ring(nic, index, now);
        }
        for offer in self.dispatch.take_offers() {
            self.lanes.accept(nic, &offer);
        }
        self.run_lanes(nic, now, catch);
        // Before the messages are acknowledged.
        nic.settle();
        if nic.sleeper.naps() {
            self.dispatch.give_polled_turns(now);
        } else {
            self.dispatch.give_turns(now);
        }
        if nic.next_due().is_some_and(|due| due <= now) {
            self.on_deadlines(nic, now);
        }
        for _ in 0..turns {
            let Some(qp) = nic.ready.pop() else { break };
            qp.on_queued_turn(now);
        }
        for id in self.dispatch.take_questions() {
            self.incoming.tell(id, &nic.survey());
        }
    }

    /// A poll without a look at the clock, which is most of what an empty one would cost: the last ones were close to each other, so nothing
    /// that is due has to wait for long. Only what is in lanes is taken. Returns false if there is more to do.
    #[inline]
    fn run_silently(&mut self, nic: &Nic, catch: &mut Catch<'_>) -> bool {
        let may = self.silent < self.may_be_silent
            && self.watches_rings()
            && !self.has_hot_socket()
            && nic.ready.is_empty();
        if !may {
            return false;
        }
        if self.lanes.look_closely(nic) && self.run_lanes(nic, self.seen, catch) {
            self.idle = 0;
        } else if self.incoming.look() {
            return false;
        } else {
            self.idle += 1;
        }
        self.silent += 1;
        true
    }

    /// The clock is looked at: tells how close this poll and the silent ones before it were.
    fn count_polls(&mut self, nic: &Nic, sleeps_soon: bool, now: Time) {
        let polls = std::mem::take(&mut self.silent) + 1;
        let close = !sleeps_soon && nic.sleeper.on_polls(polls, now);
        self.may_be_silent = if close { SILENT_POLLS } else { 0 };
    }

    /// A round without a sleep before it.
    fn run_polled(&mut self, nic: &Nic, now: Time, catch: &mut Catch<'_>) {
        let any = self.run_without_sleep(nic, now, catch);
        self.idle = match (any, self.watches_rings()) {
            (true, _) => 0,
            (false, true) => self.idle + 1,
            (false, false) => self.idle + CALL_ROUNDS,
        };
    }

    /// Whether a program that polls has found nothing for so long that its peer may well wait for this processor.
    fn gives_way(&mut self) -> bool {
        let gives_way = self.idle >= IDLE_ROUNDS;
        if gives_way {
            self.idle -= ROUNDS_AGAIN;
        }
        gives_way
    }

    /// A round that looks everywhere, whatever is busy. Returns whether there was anything to do.
    pub(super) fn run_everywhere(&mut self, nic: &Nic, now: Time) -> bool {
        self.hot.rounds = 0;
        self.looked = Time(0);
        self.run_without_sleep(nic, now, &mut Catch::default())
    }

    fn run_without_sleep(&mut self, nic: &Nic, now: Time, catch: &mut Catch<'_>) -> bool {
        let due = nic.next_due().is_some_and(|due| due <= now);
        let ringing = self.look(nic);
        if !ringing && let Some(number) = self.hot.next() {
            let any = self.receive_wire(nic, number, now) || due;
            if any {
                self.run_catching(nic, &[], now, catch);
            }
            return any;
        }
        let mut events = std::mem::take(&mut self.polled);
        events.clear();
        if self.incoming.watched() == 0 || now.since(self.looked) >= DESCRIPTORS_EVERY {
            self.looked = now;
            self.sleep(nic, false);
            if let Err(e) = nic.poller.wait(&mut events, Some(Duration::ZERO)) {
                tracing::warn!(target: "ferroce::device", "looking for work failed: {e}");
            }
        }
        // It is for the device thread, to look at the deadlines anew: taken from it here, it would sleep on.
        events.retain(|event| Token::from_raw(event.token()) != Some(Token::Wake));
        let any = ringing || !events.is_empty() || due;
        if any {
            self.run_catching(nic, &events, now, catch);
        }
        self.polled = events;
        any
    }

    /// The thread is about to sleep: rings need wake-ups. Returns false if there is a record already.
    pub(super) fn sleep_rings(&mut self, nic: &Nic) -> bool {
        self.sleep(nic, true)
    }

    fn sleep(&mut self, nic: &Nic, all: bool) -> bool {
        self.lanes.wake_late(nic);
        let lanes = &self.lanes;
        let any = &mut |slot| lanes.has_news_of(nic, slot);
        self.incoming.sleep(all, any)
    }

    /// Whether a watched ring or a lane has something. Counts as a round.
    fn look(&mut self, nic: &Nic) -> bool {
        self.incoming.look() | self.lanes.look(nic)
    }

    /// Lets queue pairs take what is in their lanes. Returns whether there was anything.
    #[inline]
    fn run_lanes(&mut self, nic: &Nic, now: Time, catch: &mut Catch<'_>) -> bool {
        let incoming = &mut self.incoming;
        self.lanes
            .run(nic, (now, catch), |slot| incoming.keep_awake(slot))
    }

    /// Whether any ring is watched.
    pub(super) fn watches_rings(&self) -> bool {
        self.incoming.watched() > 0
    }

    /// Whether traffic comes by a socket.
    pub(super) fn has_hot_socket(&self) -> bool {
        self.hot.rounds > 0
    }

    /// If a watched ring has a record, or while a socket is hot any descriptor something: how many rounds there were so far.
    pub(super) fn waiting(&mut self, nic: &Nic) -> Option<u64> {
        let waits = self.look(nic) || (self.has_hot_socket() && self.has_events(nic));
        waits.then_some(self.served)
    }

    /// Whether a descriptor has something.
    fn has_events(&mut self, nic: &Nic) -> bool {
        self.polled.clear();
        // If it cannot be asked, the round that comes next says so.
        nic.poller
            .wait(&mut self.polled, Some(Duration::ZERO))
            .is_err()
            || !self.polled.is_empty()
    }

    /// A round for what is in watched rings, and what else is due. Returns whether rings had anything; `None`: none is watched.
    pub(super) fn run_ringing(&mut self, nic: &Nic, now: Time) -> Option<bool> {
        let ringing = self.look(nic);
        if !ringing && !self.watches_rings() {
            return None;
        }
        if ringing || nic.next_due().is_some_and(|due| due <= now) {
            self.run(nic, &[], now);
        }
        Some(ringing)
    }

    fn on_event(&mut self, nic: &Nic, token: Token, event: Event, now: Time) {
        match token {
            Token::Wake => nic.sleeper.clear_wake(),
            Token::Listener => drop(self.accept(nic)),
            Token::In(id) => drop(self.receive(nic, id, now)),
            Token::Out(id) if event.hangup() => self.on_hangup(nic, id, now),
            Token::Out(id) => {
                if event.readable() {
                    nic.neighbours.take_answers(id);
                }
                if let Some(egress) = nic.neighbours.find(id) {
                    give_queued_turns(&egress.on_writable(), now);
                }
            }
            Token::Wire(number) => self.on_wire(nic, number, event, now),
            Token::Cm(number) => nic.cm().on_readable(number.into()),
            Token::Network => nic.on_network_change(),
        }
    }

    fn on_wire(&mut self, nic: &Nic, number: u32, event: Event, now: Time) {
        let Ok(wire) = &nic.wire else { return };
        if event.writable()
            && let Some(egress) = wire.find(number)
        {
            give_queued_turns(&egress.on_writable(), now);
        }
        if event.readable() || event.hangup() {
            self.receive_wire(nic, number, now);
        }
    }

    /// Reads a socket of the wire. Returns whether there was something.
    fn receive_wire(&mut self, nic: &Nic, number: u32, now: Time) -> bool {
        let Ok(wire) = &nic.wire else { return false };
        let (dispatch, mut any) = (&mut self.dispatch, false);
        wire.recv(number, WIRE_BUDGET, &mut |run| {
            any = true;
            match run {
                Some(run) => dispatch.on_inbound_run(nic, &run, now),
                None => nic.counters().count_dropped(DropReason::Malformed),
            }
        });
        if any {
            self.hot.heat(number);
        }
        any
    }

    /// Accepts new links. Returns whether there may be more.
    fn accept(&mut self, nic: &Nic) -> bool {
        for _ in 0..ACCEPT_BUDGET {
            let Some(id) = self.incoming.accept() else {
                return false;
            };
            let Some(fd) = self.incoming.fd(id) else {
                continue;
            };
            if let Err(e) = nic.poller.add(fd, Token::In(id).raw(), Interest::READ) {
                tracing::warn!(target: "ferroce::local", "cannot watch a new link: {e}");
            }
        }
        true
    }

    /// Reads a link. Returns whether it is still open and may have more.
    fn receive(&mut self, nic: &Nic, id: LinkId, now: Time) -> bool {
        let (dispatch, watched) = (&mut self.dispatch, self.incoming.watched());
        let received = self.incoming.recv(id, LINK_BUDGET, &mut |frame| {
            dispatch.on_local(nic, frame, now);
        });
        if self.incoming.watched() > watched {
            // Somebody must look at the ring from here on, and the program that makes this round may never make another one.
            nic.sleeper.wake_for(Time(0));
        }
        self.on_received(nic, id, received, now)
    }

    /// Reads a watched ring.
    fn receive_ring(&mut self, nic: &Nic, index: usize, now: Time) {
        let (dispatch, id) = (&mut self.dispatch, self.incoming.watched_id(index));
        let received = self.incoming.recv_ring(index, LINK_BUDGET, &mut |frame| {
            dispatch.on_local(nic, frame, now);
        });
        if let Some(id) = id {
            self.on_received(nic, id, received, now);
        }
    }

    fn on_received(&mut self, nic: &Nic, id: LinkId, received: Received, now: Time) -> bool {
        if let Received::Closed(slot) | Received::Cut(slot) = received {
            self.run_lanes(nic, now, &mut Catch::default());
            nic.boards().on_link_end(id);
            // What it said before that comes first.
            self.dispatch.give_turns(now);
            if let Some(slot) = slot {
                nic.on_link_end(slot, matches!(received, Received::Cut(_)), now);
            }
        }
        received == Received::More
    }

    /// The process that a way out leads to is gone. What it sent before is still to be read.
    fn on_hangup(&mut self, nic: &Nic, out: u32, now: Time) {
        let Some(slot) = nic.neighbours.find(out).and_then(|egress| egress.slot()) else {
            return;
        };
        // Its own link may be younger than ours to it, and wait to be accepted: events do not come in the order in which things happened.
        for _ in 0..LAST_CALLERS {
            if !self.accept(nic) {
                break;
            }
        }
        for id in self.incoming.links_of(slot) {
            for _ in 0..LAST_WORDS {
                if !self.receive(nic, id, now) {
                    break;
                }
            }
        }
        self.run_lanes(nic, now, &mut Catch::default());
        self.dispatch.give_turns(now);
        nic.on_egress_gone(out, now);
    }

    fn on_deadlines(&mut self, nic: &Nic, now: Time) {
        if nic.cm().deadline().is_some_and(|at| at <= now) {
            nic.cm().on_deadline(now);
        }
        for cq in nic.delays.due(now, TURN_BUDGET) {
            cq.on_due(now);
        }
        nic.timers.due(now, TURN_BUDGET, &mut self.due);
        for qpn in self.due.drain(..) {
            if let Some(qp) = nic.qps.find(qpn) {
                qp.on_timer(now);
            }
        }
    }
}

fn give_queued_turns(qps: &[Arc<Qp>], now: Time) {
    for qp in qps {
        qp.on_queued_turn(now);
    }
}

impl Nic {
    /// A program found a completion queue empty: does a round for it, unless somebody else is at it. `sleeps_soon` if it polls
    /// a queue that it will sleep on. Some of what completes to it may be in `catch` then.
    pub(crate) fn poll_inline(&self, sleeps_soon: bool, catch: &mut Catch<'_>) {
        let Some(mut progress) = self.progress.try_lock() else {
            // Counted also if the thread is at it just now, or it would never learn that it may nap.
            if !sleeps_soon {
                self.sleeper.on_polls(1, clock::monotonic());
            }
            // Whoever does the round may wait for this very processor.
            std::thread::yield_now();
            return;
        };
        if sleeps_soon || !progress.run_silently(self, catch) {
            let now = clock::monotonic();
            progress.seen = now;
            progress.count_polls(self, sleeps_soon, now);
            progress.run_polled(self, now, catch);
        }
        if progress.gives_way() {
            drop(progress);
            std::thread::yield_now();
        }
    }

    /// A program is about to sleep.
    pub(crate) fn end_inline(&self) {
        self.sleeper.end_polling();
    }

    /// The process that a way out leads to is gone.
    fn on_egress_gone(&self, out: u32, now: Time) {
        let Some(egress) = self.neighbours.remove(out) else {
            return;
        };
        let waited = egress.kill();
        tracing::debug!(target: "ferroce::local", slot = egress.slot(), "a process is gone");
        for qp in self.qps.all() {
            qp.on_process_gone(now);
        }
        give_queued_turns(&waited, now);
        if let Some(slot) = egress.slot() {
            self.cm().on_process_gone(slot);
            self.end_domains_with(slot);
        }
    }

    /// The process of a slot has no link to this one any more. If it was `cut` off, no conversation with it can go on; if not,
    /// it is gone, but another process may have its slot by now.
    fn on_link_end(&self, slot: u16, cut: bool, now: Time) {
        match self.neighbours.id_of(slot) {
            Some(out) if cut || self.neighbours.has_hung_up(out) => self.on_egress_gone(out, now),
            Some(_) => {}
            None => {
                self.cm().on_process_gone(slot);
                self.end_domains_with(slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_socket_does_not_hide_the_others() {
        let mut hot = Hot::default();
        assert_eq!(hot.next(), None);
        let mut around = 0;
        for _ in 0..10 * LOOK_AROUND {
            hot.heat(1);
            match hot.next() {
                Some(number) => assert_eq!(number, 1),
                None => around += 1,
            }
        }
        assert_eq!(around, 10);
    }

    #[test]
    fn a_silent_socket_is_as_any_other() {
        let mut hot = Hot::default();
        hot.heat(1);
        let first = (0..HOT_ROUNDS).filter(|_| hot.next().is_some()).count();
        assert!(first > 0);
        assert!((0..100).all(|_| hot.next().is_none()));
    }
}
