//! What a round reads: links, rings and sockets, and deadlines; and the end of processes that links
//! lead to.

use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::Duration;

use ferroce_os::clock;
use ferroce_os::poll::{Interest, Readiness};
use ferroce_os::unix::{SeqListener, discard};
use ferroce_proto::ids::Qpn;
use ferroce_proto::time::Time;

use super::held_up::Held;
use super::hot::HotSocket;
use super::unwanted::{Brought, LISTENER, USERS, Unwanted};
use super::{NewProcess, RoundState, TURN_BUDGET};
use crate::Nic;
use crate::base::counters::DropReason;
use crate::base::numbers::LinkId;
use crate::base::token::Token;
use crate::base::waiter::Waiter;
use crate::link::local::{Accepted, LinkRead};
use crate::link::stream::StreamTurn;
use crate::objects::cq::DirectDelivery;
use crate::services::timers::{IDLE_SHORT_RINGS, PARTINGS, SILENT_LINKS};

/// Frames of one link per round.
const LINK_BUDGET: usize = 256;
/// Datagrams per round, or 256 KiB of long ones: they are acknowledged before more is received, so
/// that the sender goes on meanwhile.
const WIRE_BUDGET: usize = 256;
/// Bytes that one read takes from a TCP connection, at most.
const STREAM_ROOM: usize = 256 << 10;
/// New links per round.
const ACCEPT_BUDGET: usize = 256;
/// Records of a process that is gone that are still read, at most: more than its socket can hold.
const LAST_WORDS: usize = 4096;
/// New links that are taken before that, at most: those that can wait when the look begins.
const LAST_CALLERS: usize = SeqListener::MOST_WAITING;
/// New links of other users in one look at the listener, whose hellos are read at once: no more
/// than one user's may be silent.
const STRANGERS_BUDGET: usize = 16;

/// Links refused in one look at the listener. Strangers cause a look every 20 ms even when their
/// share of the time is used up, so that look is short: some 0.5 ms.
const REFUSAL_BUDGET: usize = 64;

/// After a link was refused, others wait for so long.
const REFUSAL_PAUSE: Duration = Duration::from_millis(1);

impl RoundState {
    pub(super) fn on_event(&mut self, nic: &Nic, token: Token, event: Readiness, now: Time) {
        match token {
            Token::Wake => nic.services.sleeper.clear_wake(),
            // The events of the device's poller are in the same list.
            Token::Device => {}
            Token::Listener => drop(self.accept(nic, ACCEPT_BUDGET, now)),
            Token::In(id) => drop(self.receive(nic, id, now)),
            Token::Out(id) if event.hangup() => self.on_hangup(nic, id, now),
            Token::Out(id) => {
                if event.readable() {
                    nic.services.peer_processes.take_answers(id);
                }
                if let Some(egress) = nic.services.peer_processes.find(id) {
                    give_queued_turns(&egress.on_writable(), now);
                }
            }
            Token::Wire(number) => self.on_wire(nic, number, event, now),
            Token::Cm(number) => self.receive_requests(nic, number, now),
            Token::Network => nic.on_network_change(),
            Token::Setup(number) => nic.cm().on_stream_event(number, event),
            Token::Stream(number) => {
                let ready = Interest {
                    readable: event.readable() || event.hangup(),
                    writable: event.writable(),
                };
                self.receive_stream(nic, number, ready, now);
            }
        }
        while let Some(NewProcess { slot, is_foreign }) = self.newcomers.pop() {
            if is_foreign {
                // If a predecessor's links are still to be accepted, only the stranger is harmed.
                self.finish_predecessors(nic, slot, now);
            } else {
                self.end_predecessors(nic, slot, false, now);
            }
        }
        self.time_silence(nic);
        self.discard_poisoned(nic);
    }

    fn on_wire(&mut self, nic: &Nic, number: u32, event: Readiness, now: Time) {
        let Ok(wire) = &nic.services.wire else { return };
        if event.writable()
            && let Some(egress) = wire.find(number)
        {
            give_queued_turns(&egress.on_writable(), now);
        }
        if event.readable() || event.hangup() {
            self.receive_wire(nic, number, now);
        }
    }

    /// Reads the socket that traffic comes by. Returns whether there was something.
    pub(super) fn receive_hot(&mut self, nic: &Nic, socket: HotSocket, now: Time) -> bool {
        match socket {
            HotSocket::Wire(number) => self.receive_wire(nic, number, now),
            HotSocket::Stream(number) => self.receive_stream(nic, number, Interest::READ, now),
        }
    }

    /// Serves the TCP connection of a queue pair. Returns whether something has come.
    fn receive_stream(&mut self, nic: &Nic, number: u32, ready: Interest, now: Time) -> bool {
        let Some(qp) = nic.services.qps.find(Qpn::new(number)) else {
            return false;
        };
        self.stream_room.resize(STREAM_ROOM, 0);
        let came = qp.serve_stream(ready, &mut self.stream_room, now);
        if came != StreamTurn::Nothing {
            let in_bulk = came == StreamTurn::Much;
            let polls = nic.services.sleeper.polls();
            polls.on_wire();
            self.hot.heat(HotSocket::Stream(number), in_bulk);
            polls.expect_answers(self.hot.hides_connections());
        }
        came != StreamTurn::Nothing
    }

    /// Reads a socket of the wire. Returns whether there was something.
    fn receive_wire(&mut self, nic: &Nic, number: u32, now: Time) -> bool {
        let Ok(wire) = &nic.services.wire else {
            return false;
        };
        if wire.is_held_up(number) {
            return false;
        }
        let begun = Unwanted::counts(number).then(clock::monotonic);
        let (taken, passed_on) = (self.dispatch.taken(), self.dispatch.passed_on());
        let wanted = self.dispatch.wanted();
        let (dispatch, mut came) = (&mut self.dispatch, 0);
        wire.recv(number, WIRE_BUDGET, &mut |run| {
            came += run.map_or(1, |run| run.packets.len());
            nic.services.take_completed_early(now);
            match run {
                Some(run) => dispatch.on_inbound_run(nic, &run, now),
                None => nic.counters().count_dropped(DropReason::Malformed),
            }
        });
        if self.dispatch.taken() > taken {
            nic.services.sleeper.polls().on_wire();
            self.hot.heat(HotSocket::Wire(number), false);
        }
        let passed_on = self.dispatch.passed_on() - passed_on;
        let wanted = self.dispatch.wanted() - wanted;
        let unwanted = came - wanted + self.dispatch.take_returned(passed_on);
        if let Some(begun) = begun.filter(|_| unwanted > 0)
            && let Some(until) = self.unwanted.charge(
                number,
                Brought {
                    unwanted,
                    all: came,
                },
                begun,
            )
        {
            nic.hold_up_wire(wire, number, until);
        }
        came > 0
    }

    /// Accepts new links, `most` at most. Returns their number; if it is not 0 there may be more.
    fn accept(&mut self, nic: &Nic, most: usize, now: Time) -> usize {
        let (begun, mut refused, mut strangers, mut all) = (clock::monotonic(), 0, 0, 0);
        while all < most && refused < REFUSAL_BUDGET && strangers < STRANGERS_BUDGET {
            for id in self.incoming.late_hellos() {
                self.receive(nic, id, now);
                strangers += 1;
            }
            match self.incoming.accept(now) {
                Accepted::New(id) => {
                    self.watch_link(nic, id);
                    // Only links whose hello is still to come count as silent. A crowd of one
                    // user's processes would be refused where this thread is late. One that has
                    // said hello and ended gives its descriptor back at once.
                    if self.incoming.is_foreign(id) {
                        self.receive(nic, id, now);
                        strangers += 1;
                    }
                    // The first read takes the hello only; this one finds the end.
                    if self.incoming.is_foreign(id) {
                        self.receive(nic, id, now);
                    }
                }
                Accepted::Refused => refused += 1,
                Accepted::Nothing => break,
            }
            all += 1;
        }
        if refused > 0 {
            self.hold_up_listener(
                nic,
                Brought {
                    unwanted: refused,
                    all,
                },
                begun,
                now,
            );
        }
        all
    }

    fn watch_link(&self, nic: &Nic, id: LinkId) {
        let Some(fd) = self.incoming.fd(id) else {
            return;
        };
        if let Err(e) = nic
            .services
            .poller
            .add(fd, Token::In(id).raw(), Interest::READ)
        {
            tracing::warn!(target: "ferroce::local", "cannot watch a new link: {e}");
        }
    }

    /// Keeps new links waiting after links were refused or cut since `begun`, so that a stranger
    /// that connects again and again neither wakes this thread each time nor takes more than a part
    /// of its time.
    fn hold_up_listener(&mut self, nic: &Nic, refused: Brought, begun: Time, now: Time) {
        if self.listener_opens.is_none() {
            self.watch_listener(nic, Interest::HANGUP);
        }
        let until = self.unwanted.charge(LISTENER, refused, begun);
        self.listener_opens = until.or(Some(now + REFUSAL_PAUSE));
    }

    fn open_listener(&mut self, nic: &Nic, now: Time) {
        if self.listener_opens.is_some_and(|at| at <= now) {
            self.listener_opens = None;
            self.watch_listener(nic, Interest::READ);
        }
    }

    fn watch_listener(&self, nic: &Nic, interest: Interest) {
        let fd = self.incoming.listener_fd();
        if let Err(e) = nic
            .services
            .poller
            .modify(fd, Token::Listener.raw(), interest)
        {
            tracing::warn!(target: "ferroce::local", "cannot watch for new links: {e}");
        }
    }

    /// Reads a socket that claims a port.
    fn receive_requests(&mut self, nic: &Nic, number: u32, now: Time) {
        let begun = clock::monotonic();
        let heard = nic
            .cm()
            .on_readable(number.into(), &mut |slot, is_foreign| {
                self.end_predecessors(nic, slot, is_foreign, now);
            });
        if heard.of_others > 0 {
            let brought = Brought {
                unwanted: heard.of_others,
                all: heard.all,
            };
            if let Some(until) = self.unwanted.charge(USERS, brought, begun) {
                self.hold_up(nic, Held::Port(number), until);
            }
        }
    }

    /// Reads a link. Returns whether it is still open and may have more now.
    fn receive(&mut self, nic: &Nic, id: LinkId, now: Time) -> bool {
        let begun = self.incoming.is_foreign(id).then(clock::monotonic);
        let unwanted = self.dispatch.unwanted();
        let (dispatch, watched) = (&mut self.dispatch, self.incoming.watched());
        let mut came = 0;
        let received = self.incoming.recv(id, LINK_BUDGET, &mut |frame| {
            came += 1;
            nic.services.take_completed_early(now);
            dispatch.on_local(nic, frame, now);
        });
        let unwanted = self.dispatch.unwanted() - unwanted;
        if self.incoming.watched() > watched {
            // Somebody must look at the ring from here on, and the program that makes this round
            // may never make another one.
            nic.services.sleeper.wake_for(Time(0));
        }
        let is_more = self.on_received(nic, id, received, now);
        if let Some(begun) = begun {
            match received {
                // Hello and end of a link take longer than to accept it.
                LinkRead::Greeted(_) | LinkRead::Cut(_) | LinkRead::Closed(_) => {
                    self.hold_up_listener(nic, Brought::STRAY, begun, now);
                }
                LinkRead::Drained | LinkRead::Answered | LinkRead::More => {
                    self.charge_link(
                        nic,
                        id,
                        Brought {
                            unwanted,
                            all: came,
                        },
                        begun,
                    );
                }
            }
        }
        is_more
    }

    /// Charges another user's link for what it brought that nobody wants.
    fn charge_link(&mut self, nic: &Nic, id: LinkId, brought: Brought, begun: Time) {
        if brought.unwanted > 0
            && let Some(until) = self.unwanted.charge(USERS, brought, begun)
        {
            self.hold_up(nic, Held::Link(id), until);
        }
    }

    /// Reads a watched ring.
    pub(super) fn receive_ring(&mut self, nic: &Nic, index: usize, now: Time) {
        let (dispatch, id) = (&mut self.dispatch, self.incoming.watched_id(index));
        let received = self.incoming.recv_ring(index, LINK_BUDGET, &mut |frame| {
            nic.services.take_completed_early(now);
            dispatch.on_local(nic, frame, now);
        });
        if let Some(id) = id {
            self.on_received(nic, id, received, now);
        }
    }

    fn on_received(&mut self, nic: &Nic, id: LinkId, received: LinkRead, now: Time) -> bool {
        match received {
            LinkRead::Greeted(slot) => self.newcomers.push(NewProcess {
                slot,
                is_foreign: self.incoming.is_foreign(id),
            }),
            LinkRead::Cut(None) => self.hold_up_listener(nic, Brought::STRAY, now, now),
            _ => {}
        }
        if let LinkRead::Closed(slot) | LinkRead::Cut(slot) = received {
            self.short_rings
                .run(&nic.services, now, &mut DirectDelivery::default());
            nic.services.boards.on_link_end(id);
            // What it said before that comes first.
            self.dispatch.give_turns(now);
            if let Some(slot) = slot {
                nic.on_link_end(slot, matches!(received, LinkRead::Cut(_)), now);
            }
        }
        matches!(received, LinkRead::More | LinkRead::Answered)
    }

    /// The process that a way out leads to is gone.
    fn on_hangup(&mut self, nic: &Nic, out: u32, now: Time) {
        self.meet_strangers(nic, nic.services.peer_processes.is_foreign(out), now);
        self.end_links(nic, out, now);
    }

    /// Ends the links of a process that is gone, of which the slot is known. What it sent before is
    /// still to be read.
    fn end_links(&mut self, nic: &Nic, out: u32, now: Time) {
        let Some((slot, pid)) = nic.services.peer_processes.whose(out) else {
            return;
        };
        for id in self.incoming.links_of(slot, pid) {
            self.receive_all(nic, id, now);
        }
        self.short_rings
            .run(&nic.services, now, &mut DirectDelivery::default());
        self.dispatch.give_turns(now);
        nic.on_egress_gone(out, now);
    }

    /// A process that has this slot is heard of. Of those that had it before it, the end may not
    /// have been noticed yet: it comes first, or it would end what begins now.
    fn end_predecessors(&mut self, nic: &Nic, slot: u16, is_foreign: bool, now: Time) {
        self.meet_strangers(nic, is_foreign, now);
        self.finish_predecessors(nic, slot, now);
    }

    /// As [`end_predecessors`](Self::end_predecessors), as far as links were accepted.
    fn finish_predecessors(&mut self, nic: &Nic, slot: u16, now: Time) {
        for out in nic.services.peer_processes.hung_up(slot) {
            self.end_links(nic, out, now);
        }
        for id in self.incoming.ended_links_of(slot) {
            self.receive_all(nic, id, now);
        }
    }

    /// Learns whose the links are that are new, or wait to be accepted: events do not come in the
    /// order in which things happened.
    ///
    /// `is_foreign`: because of a process of another user. That gives strangers no more of the time
    /// than the listener's part: there is one look, and none while the listener is held up. If a
    /// predecessor's links wait longer, only the stranger is harmed.
    fn meet_strangers(&mut self, nic: &Nic, is_foreign: bool, now: Time) {
        if !is_foreign {
            let mut left = LAST_CALLERS;
            while left > 0 {
                match self.accept(nic, left.min(ACCEPT_BUDGET), now) {
                    0 => break,
                    taken => left -= taken,
                }
            }
        } else if self.listener_opens.is_none() {
            self.accept(nic, ACCEPT_BUDGET, now);
        }
        for id in self.incoming.strangers() {
            self.receive(nic, id, now);
        }
    }

    /// Reads the link of a process that is gone to its end.
    fn receive_all(&mut self, nic: &Nic, id: LinkId, now: Time) {
        for _ in 0..LAST_WORDS {
            if !self.receive(nic, id, now) {
                break;
            }
        }
    }

    pub(super) fn on_deadlines(&mut self, nic: &Nic, now: Time) {
        if nic.cm().deadline().is_some_and(|at| at <= now) {
            nic.cm().on_deadline(now);
        }
        if let Ok(wire) = &nic.services.wire
            && wire.attempt_due().is_some_and(|at| at <= now)
        {
            wire.take_port(now);
        }
        if let Ok(wire) = &nic.services.wire
            && wire.held_up_until().is_some_and(|at| at <= now)
        {
            wire.go_on(now);
        }
        for cq in nic.services.delays.due(now, TURN_BUDGET) {
            cq.on_turn(now);
        }
        nic.services.timers.due(now, TURN_BUDGET, &mut self.due);
        if self.due.contains(&SILENT_LINKS) {
            self.incoming.end_silence(now);
            self.open_listener(nic, now);
            self.go_on(nic, now);
            self.time_silence(nic);
            self.discard_poisoned(nic);
        }
        if self.due.contains(&IDLE_SHORT_RINGS) {
            self.short_rings.look_for_idle(&nic.services);
        }
        if self.due.contains(&PARTINGS) {
            nic.services.look_at_partings(now);
        }
        for qpn in self.due.drain(..) {
            if let Some(qp) = nic.services.qps.find(qpn) {
                qp.on_timer(now);
            }
        }
    }
}

fn give_queued_turns(waiters: &[Arc<dyn Waiter>], now: Time) {
    for waiter in waiters {
        waiter.on_turn(now);
    }
}

impl RoundState {
    /// Closes strangers' sockets in which descriptors wait. The poller would go on reporting them
    /// while another thread has them.
    fn discard_poisoned(&mut self, nic: &Nic) {
        let poisoned = self.incoming.take_poisoned();
        if poisoned.is_empty() {
            return;
        }
        for socket in &poisoned {
            // A link that was refused is not watched.
            let _ = nic.services.poller.remove(socket.as_raw_fd());
        }
        discard(poisoned);
    }

    /// Keeps the timer of links that have said no hello.
    fn time_silence(&mut self, nic: &Nic) {
        let ends = Time::sooner(self.incoming.silence_ends(), self.listener_opens);
        let ends = Time::sooner(ends, self.held_up.ends());
        nic.services
            .set_timer(SILENT_LINKS, self.silence_ends, ends);
        self.silence_ends = ends;
    }
}

impl Nic {
    /// The process that a way out leads to is gone.
    fn on_egress_gone(&self, out: u32, now: Time) {
        self.expect_port(now);
        let Some(egress) = self.services.peer_processes.remove(out) else {
            return;
        };
        let waited = egress.kill();
        tracing::debug!(target: "ferroce::local", slot = egress.slot(), "a process is gone");
        for qp in self.services.qps.all() {
            qp.on_process_gone(now);
        }
        give_queued_turns(&waited, now);
        if let Some(slot) = egress.slot() {
            self.cm().on_process_gone(slot);
            self.services.end_domains_with(slot);
        }
    }

    /// The process of a slot has no link to this one any more. If it was `cut` off, no conversation
    /// with it can go on; if not, it is gone, but another process may have its slot by now.
    fn on_link_end(&self, slot: u16, cut: bool, now: Time) {
        self.expect_port(now);
        match self.services.peer_processes.id_of(slot) {
            Some(out) if cut || self.services.peer_processes.has_hung_up(out) => {
                self.on_egress_gone(out, now)
            }
            Some(_) => {}
            None => {
                self.cm().on_process_gone(slot);
                self.services.end_domains_with(slot);
            }
        }
    }

    /// Expects UDP port 4791 after a process has ended: it may be free, if another user had it.
    fn expect_port(&self, now: Time) {
        if let Ok(wire) = &self.services.wire
            && let Some(attempt) = wire.on_process_gone(now)
        {
            self.services.wake_for(attempt);
        }
    }
}
