//! One round of work: what came in, what is due, whose turn it is. The device thread and polling
//! programs run it, one at a time.

mod answers;
mod held_up;
mod hot;
mod receive;
mod unwanted;

use std::time::Duration;

use ferroce_os::clock;
use ferroce_os::linger::Habit;
use ferroce_os::poll::Readiness;
use ferroce_proto::ids::Qpn;
use ferroce_proto::time::Time;

use self::answers::{lock_soon, look};
use self::held_up::HeldUp;
use self::hot::Hot;
use self::unwanted::Unwanted;
use super::dispatch::Dispatch;
use crate::Nic;
use crate::base::token::Token;
use crate::link::local::Incoming;
use crate::objects::cq::DirectDelivery;
use crate::objects::qp::WatchedShortRings;
use crate::services::poll_policy::{PolledRounds, TimedPoll};

/// Deadlines and turns per round.
const TURN_BUDGET: usize = 64;
/// While rings are watched, the time from one look of a polling program at the descriptors to the
/// next: that is a system call.
const DESCRIPTORS_EVERY: Duration = Duration::from_micros(25);

/// Time for another thread's round to end that this one needs the next of. Rounds take
/// microseconds, but their thread may have lost its processor.
const PATIENCE: Duration = Duration::from_secs(1);

/// What only one round at a time uses.
#[derive(Debug)]
pub(super) struct RoundState {
    incoming: Incoming,
    dispatch: Dispatch,
    short_rings: WatchedShortRings,
    due: Vec<Qpn>,
    /// For what TCP connections bring; empty until there is one.
    stream_room: Vec<u8>,
    /// Processes that have made themselves known: perhaps others have had their slots before.
    newcomers: Vec<NewProcess>,
    /// The timer of links that have said no hello.
    silence_ends: Option<Time>,
    /// When new links are accepted again, after some were refused.
    listener_opens: Option<Time>,
    /// For rounds that no sleep came before.
    polled: Vec<Readiness>,
    hot: Hot,
    /// What experience says of looks for the answer to what a program has sent.
    answers: Habit,
    unwanted: Unwanted,
    held_up: HeldUp,
    /// When a polling program looked at the descriptors last.
    looked: Time,
    /// Rounds that had something to do.
    served: u64,
    polls: PolledRounds,
}

/// A process that has made itself known.
#[derive(Clone, Copy, Debug)]
struct NewProcess {
    slot: u16,
    /// The process is another user's.
    is_foreign: bool,
}

impl RoundState {
    pub(super) fn new(incoming: Incoming) -> Self {
        Self {
            incoming,
            dispatch: Dispatch::default(),
            short_rings: WatchedShortRings::default(),
            due: Vec::new(),
            stream_room: Vec::new(),
            newcomers: Vec::new(),
            silence_ends: None,
            listener_opens: None,
            polled: Vec::new(),
            hot: Hot::default(),
            answers: Habit::default(),
            unwanted: Unwanted::default(),
            held_up: HeldUp::default(),
            looked: Time(0),
            served: 0,
            polls: PolledRounds::new(),
        }
    }

    /// Makes a round, with the events that the poller reported.
    pub(super) fn run(&mut self, nic: &Nic, events: &[Readiness], now: Time) {
        self.run_delivering(nic, events, now, &mut DirectDelivery::default());
    }

    /// As [`run`](Self::run), for a program that polls.
    fn run_delivering(
        &mut self,
        nic: &Nic,
        events: &[Readiness],
        now: Time,
        delivery: &mut DirectDelivery<'_>,
    ) {
        self.served += 1;
        // What joins the list in this round has its turn in the next one.
        let turns = nic.services.ready.len().min(TURN_BUDGET);
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
            self.short_rings.accept(&nic.services, &offer, now);
        }
        self.short_rings.run(&nic.services, now, delivery);
        // Before the messages are acknowledged.
        nic.services.settle();
        if nic.services.sleeper.naps() {
            self.dispatch.give_polled_turns(now);
        } else {
            self.dispatch.give_turns(now);
        }
        if nic.next_due().is_some_and(|due| due <= now) {
            self.on_deadlines(nic, now);
        }
        for _ in 0..turns {
            let Some(qp) = nic.services.ready.pop() else {
                break;
            };
            qp.on_turn(now);
        }
        for id in self.dispatch.take_questions() {
            self.incoming.tell(id, &nic.survey());
        }
    }

    /// A poll without a round, which is most of what an empty one would cost. Only what is in short
    /// rings is taken. Returns false if there is more to do.
    #[inline]
    fn run_silently(&mut self, nic: &Nic, delivery: &mut DirectDelivery<'_>) -> bool {
        let may = self.polls.may_be_silent()
            && self.watches_rings()
            && !self.has_hot_socket()
            && nic.services.new_short_rings.is_empty()
            && nic.services.ready.is_empty();
        if !may {
            return false;
        }
        let seen = self.polls.seen();
        let served = self.short_rings.run_some(&nic.services, seen, delivery);
        if !served && self.incoming.look() {
            return false;
        }
        let polls = nic.services.sleeper.polls();
        self.polls.on_silent_poll(polls, served, clock::monotonic);
        true
    }

    /// Makes a round without a sleep before it.
    fn run_polled(&mut self, nic: &Nic, now: Time, delivery: &mut DirectDelivery<'_>) {
        let any = self.run_without_sleep(nic, now, delivery);
        self.polls.on_round(any, self.watches_rings());
    }

    /// A round that looks everywhere, whatever is busy. Returns whether there was anything to do.
    pub(super) fn run_everywhere(&mut self, nic: &Nic, now: Time) -> bool {
        self.hot.rounds = 0;
        self.looked = Time(0);
        self.run_without_sleep(nic, now, &mut DirectDelivery::default())
    }

    /// Makes a round of a program's thread that waits for an event. Returns whether there was
    /// anything to do.
    pub(super) fn run_awaited(
        &mut self,
        nic: &Nic,
        now: Time,
        delivery: &mut DirectDelivery<'_>,
    ) -> bool {
        self.looked = Time(0);
        let mut any = self.run_without_sleep(nic, now, delivery);
        if !any && self.hot.hides_connections() {
            // Another descriptor has woken the thread.
            any = self.run_around(nic, now, false, delivery);
        }
        if any {
            self.polls.on_served();
        }
        any
    }

    fn run_without_sleep(
        &mut self,
        nic: &Nic,
        now: Time,
        delivery: &mut DirectDelivery<'_>,
    ) -> bool {
        let due = nic.next_due().is_some_and(|due| due <= now);
        let ringing = self.look(nic, !delivery.leaves_acks());
        if !ringing && let Some(socket) = self.hot.next() {
            let any = self.receive_hot(nic, socket, now) || due;
            if any {
                self.run_delivering(nic, &[], now, delivery);
            }
            return any;
        }
        self.run_around(nic, now, ringing || due, delivery)
    }

    /// Makes a round that asks for all descriptors. If `has_work`, the round is made even if no
    /// descriptor is ready. Returns whether there was anything to do.
    fn run_around(
        &mut self,
        nic: &Nic,
        now: Time,
        has_work: bool,
        delivery: &mut DirectDelivery<'_>,
    ) -> bool {
        let mut events = std::mem::take(&mut self.polled);
        events.clear();
        if self.incoming.watched() == 0 || now.since(self.looked) >= DESCRIPTORS_EVERY {
            self.looked = now;
            self.sleep(nic, Some(now), true);
            if let Err(e) = nic.services.poller.wait(&mut events, Some(Duration::ZERO)) {
                tracing::warn!(target: "ferroce::device", "looking for work failed: {e}");
            }
        }
        let any = has_work || !events.is_empty();
        if any {
            self.run_delivering(nic, &events, now, delivery);
        }
        self.polled = events;
        any
    }

    /// Wakes peers for what was put into short rings while the thread napped.
    pub(super) fn wake_late(&mut self, nic: &Nic) {
        self.short_rings.wake_late(&nic.services);
    }

    /// The thread is about to sleep: rings need wake-ups. Returns false if there is a record
    /// already.
    pub(super) fn sleep_rings(&mut self, nic: &Nic) -> bool {
        // A ring that a program put to sleep may still hold an acknowledgement, which no other
        // thread is left to send.
        self.sleep(nic, None, true) && !self.short_rings.owe_looks()
    }

    /// As [`sleep_rings`](Self::sleep_rings), for a program that may still answer what it has
    /// received: what it has not acknowledged is no reason to stay awake.
    pub(super) fn rest_rings(&mut self, nic: &Nic) -> bool {
        !self.watches_rings() || self.sleep(nic, None, false)
    }

    /// Puts rings to sleep that have been idle for long `now`, or all of them.
    fn sleep(&mut self, nic: &Nic, now: Option<Time>, acks: bool) -> bool {
        self.short_rings.wake_late(&nic.services);
        self.short_rings
            .take_served(|slot| self.incoming.keep_awake(slot));
        let short_rings = &self.short_rings;
        let any = &mut |slot| short_rings.has_news_of(&nic.services, slot, acks);
        self.incoming.sleep(now, any)
    }

    /// Whether a watched ring or a short ring has something.
    fn look(&mut self, nic: &Nic, acks: bool) -> bool {
        self.incoming.look() | self.short_rings.look(&nic.services, acks)
    }

    /// Whether any ring is watched.
    pub(super) fn watches_rings(&self) -> bool {
        self.incoming.watched() > 0
    }

    /// Whether traffic comes by a socket.
    pub(super) fn has_hot_socket(&self) -> bool {
        self.hot.rounds > 0
    }

    /// If a watched ring has a record, or while a socket is hot any descriptor something: how many
    /// rounds there were so far, and packets [sent](Self::sent).
    pub(super) fn waiting(&mut self, nic: &Nic) -> Option<[u64; 2]> {
        let waits = self.look(nic, true) || (self.has_hot_socket() && self.has_events(nic));
        waits.then(|| [self.served, self.sent()])
    }

    /// Packets that queue pairs with short rings have sent: while the number grows, their program
    /// posts.
    pub(super) fn sent(&self) -> u64 {
        self.short_rings.sent()
    }

    /// Whether a watched ring has a record, or a descriptor something.
    pub(super) fn has_work(&mut self, nic: &Nic) -> bool {
        self.look(nic, true) || self.has_events(nic)
    }

    /// Whether a descriptor has something.
    fn has_events(&mut self, nic: &Nic) -> bool {
        self.polled.clear();
        // If it cannot be asked, the round that comes next says so.
        nic.services
            .poller
            .wait(&mut self.polled, Some(Duration::ZERO))
            .is_err()
            || !self.polled.is_empty()
    }

    /// Makes a look of a leader that lingers, and a round if there is something. `None`: nothing is
    /// likely to come soon.
    pub(super) fn run_lingering(
        &mut self,
        nic: &Nic,
        now: Time,
        delivery: &mut DirectDelivery<'_>,
    ) -> Option<()> {
        if self.has_hot_socket() {
            self.run_without_sleep(nic, now, delivery);
            return Some(());
        }
        self.run_ringing(nic, now, delivery).map(drop)
    }

    /// Looks on at the connection that little comes by, until something has come.
    ///
    /// Over TCP a WRITE completes when TCP has it. A program that polls for that, and then watches
    /// its memory for the peer's answer, would make no round: the device thread would have to be
    /// woken for each answer, perhaps on the processor that the program spins on.
    fn await_answer(&mut self, nic: &Nic) {
        if !self.hot.hides_connections() {
            nic.services.sleeper.polls().expect_answers(false);
            return;
        }
        let paid = self.answers.tries() && self.look_for_answer(nic);
        if !paid {
            // The program may make no round until the answer has come.
            nic.services.sleeper.end_visits();
        }
    }

    /// Makes rounds until one has something to do. Returns false if nothing comes soon.
    fn look_for_answer(&mut self, nic: &Nic) -> bool {
        let polls = nic.services.sleeper.polls();
        polls.on_round();
        let paid = look(clock::monotonic, |now| {
            polls.on_slow_poll(now);
            self.run_without_sleep(nic, now, &mut DirectDelivery::default())
        });
        self.answers.learn(paid);
        paid
    }

    /// Makes a round for what is in watched rings, and what else is due. Returns whether rings had
    /// anything; `None`: none is watched.
    pub(super) fn run_ringing(
        &mut self,
        nic: &Nic,
        now: Time,
        delivery: &mut DirectDelivery<'_>,
    ) -> Option<bool> {
        let ringing = self.look(nic, true);
        if !ringing && !self.watches_rings() {
            return None;
        }
        if ringing || nic.next_due().is_some_and(|due| due <= now) {
            self.run_delivering(nic, &[], now, delivery);
        }
        Some(ringing)
    }
}

/// Does what `Engine::poll` says.
pub(super) fn poll(nic: &Nic, sleeps_soon: bool, delivery: &mut DirectDelivery<'_>) {
    let Some(mut progress) = nic.progress.try_lock() else {
        // Counted also if the thread is at it just now, or it would never learn that it may
        // nap.
        if !sleeps_soon {
            nic.services
                .sleeper
                .polls()
                .on_slow_poll(clock::monotonic());
        }
        // The thread that does the round may wait for this very processor.
        give_way(nic);
        return;
    };
    if sleeps_soon {
        delivery.leave_acks();
    }
    if sleeps_soon || !progress.run_silently(nic, delivery) {
        let now = clock::monotonic();
        let poll = match sleeps_soon {
            true => TimedPoll::BeforeSleep,
            false if progress.hot.is_connection() => TimedPoll::OverTcp,
            false => TimedPoll::Plain,
        };
        let polls = nic.services.sleeper.polls();
        progress.polls.on_timed_poll(polls, poll, now);
        progress.run_polled(nic, now, delivery);
    }
    // One that sleeps soon gives it away then.
    if !sleeps_soon && progress.polls.gives_way() {
        drop(progress);
        let lasted = give_way(nic);
        if let Some(mut progress) = nic.progress.try_lock() {
            progress.polls.on_back(lasted);
        }
    }
}

/// Yields the processor of a program that polls. It still polls meanwhile: the device thread would
/// put the rings to sleep otherwise, and a peer that runs instead would make a system call for each
/// message. Returns how long that lasted.
#[cold]
fn give_way(nic: &Nic) -> Duration {
    let (polls, begun) = (nic.services.sleeper.polls(), clock::monotonic());
    let is_poll = polls.begin_errand(begun);
    std::thread::yield_now();
    let end = clock::monotonic();
    if is_poll {
        polls.end_errand(end);
    }
    end.since(begun)
}

/// Does what `Engine::await_answer` says.
pub(super) fn await_answer(nic: &Nic) {
    let polls = nic.services.sleeper.polls();
    // Beside a thread that polls all the time, others need not wait for its rounds.
    if !polls.expects_answers() || !polls.are_own() {
        return;
    }
    match lock_soon(&nic.progress, clock::monotonic) {
        Some(mut progress) => progress.await_answer(nic),
        None => nic.services.sleeper.end_visits(),
    }
}

/// Does what `Engine::hear` says.
pub(super) fn hear(nic: &Nic) {
    let until = clock::monotonic() + PATIENCE;
    loop {
        if let Some(mut progress) = nic.progress.try_lock() {
            progress.run_everywhere(nic, clock::monotonic());
            return;
        }
        if clock::monotonic() >= until {
            return;
        }
        std::thread::yield_now();
    }
}
