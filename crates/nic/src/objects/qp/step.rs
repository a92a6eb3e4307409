//! The step: the only way into a queue pair's state. It holds the queue pair's lock and, while the
//! transport works, the read lock of the rights table; then it transmits what there is and keeps
//! the timer.

use std::time::Duration;

use ferroce_os::clock;
use ferroce_os::memory::RawMemory;
use ferroce_proto::ids::Key;
use ferroce_proto::mr::{Accessor, Rights};
use ferroce_proto::rc::{Cx, LocalCx};
use ferroce_proto::time::Time;
use ferroce_proto::verbs::{QpState, SendOp};

use super::Qp;
use super::guard::{General, TimerEntry};
use super::locked::Locked;
use super::results::Results;
use super::transport::Transport;
use crate::link::local::Frame;
use crate::link::path::{Path, Reach};
use crate::objects::cq::DirectDelivery;

/// Time until a bind or local invalidate that waits for somebody's copy is tried again: copies take
/// microseconds.
const CLOSE_AGAIN: Duration = Duration::from_micros(50);

/// The time, looked at when it is needed first.
#[derive(Debug, Default)]
pub(super) struct Now(Option<Time>);

impl Now {
    /// The time, if it was looked at.
    pub(super) fn known(&self) -> Option<Time> {
        self.0
    }

    pub(super) fn look(&mut self) -> Time {
        *self.0.get_or_insert_with(clock::monotonic)
    }
}

impl Qp {
    /// Runs one step for the program: `f`, then transmits, then keeps the timer.
    pub(super) fn step<R>(&self, f: impl FnOnce(&mut Locked, &mut Cx<'_>) -> R) -> R {
        self.step_with(true, |locked, now| self.with_cx(locked, now, f), |_| false)
    }

    /// As [`step`](Self::step), for a program that posts work to be sent.
    pub(super) fn step_sending<R>(&self, f: impl FnOnce(&mut Locked, &mut Cx<'_>) -> R) -> R {
        self.step_sending_in(self.lock(), f)
    }

    /// The lock, with what the peer has acknowledged taken if the send queue is full. A program
    /// that has the answer to a message knows that the message has arrived, and may count on its
    /// place; the acknowledgement may lie in a ring that nobody has looked at since.
    #[inline]
    fn with_room<'q>(&'q self, locked: General<'q>) -> General<'q> {
        if !locked.transport.is_send_queue_full() {
            return locked;
        }
        drop(locked);
        self.hear(clock::monotonic())
    }

    /// As [`step_sending`](Self::step_sending), with the lock.
    pub(super) fn step_sending_in<R>(
        &self,
        locked: General<'_>,
        f: impl FnOnce(&mut Locked, &mut Cx<'_>) -> R,
    ) -> R {
        let mut locked = self.with_room(locked);
        let mut now = Now::default();
        let owed = self.ack_that_may_wait(&locked);
        let waits = locked.delayed_ack.on_post(owed, || now.look());
        let by_short_ring = locked.short_rings.longest();
        if let Transport::Rc(rc) = &mut locked.transport {
            rc.set_rendezvous_threshold(by_short_ring);
        }
        let at = locked.time_of_post(&mut now);
        let (result, is_short) = self.with_sending_cx(&mut locked, at, |locked, cx| {
            let result = f(locked, cx);
            let is_short = self.build_short(locked, cx);
            if !is_short {
                self.move_posted(locked, cx, &mut now);
            }
            (result, is_short)
        });
        if waits {
            locked.transport.let_ack_follow();
        }
        if is_short {
            self.send_short(&mut locked, &mut now);
        } else {
            self.transmit(&mut locked, now.look());
            self.keep_timer(&mut locked);
        }
        result
    }

    /// As [`step`](Self::step), for a program that makes room for the next message: its answer to
    /// the last one is still to come, and an acknowledgement that waits for it goes on waiting.
    pub(super) fn step_receiving<R>(&self, f: impl FnOnce(&mut Locked, &mut Cx<'_>) -> R) -> R {
        let run = |locked: &mut _, now| self.with_sending_cx(locked, now, f);
        self.step_with(false, run, |locked| {
            let holds = locked.holds_ack || locked.delayed_ack.due().is_some();
            holds && locked.transport.owes_only_ack()
        })
    }

    fn step_with<R>(
        &self,
        answers: bool,
        run: impl FnOnce(&mut Locked, Time) -> R,
        is_silent: impl FnOnce(&Locked) -> bool,
    ) -> R {
        let now = clock::monotonic();
        let mut locked = self.lock();
        if answers {
            locked.delayed_ack.on_post(None, || now);
        }
        let result = run(&mut locked, now);
        if !is_silent(&locked) {
            self.transmit(&mut locked, now);
        }
        self.keep_timer(&mut locked);
        result
    }

    /// Runs `f` with all that the transport needs. The rights table stays as it is meanwhile, and a
    /// deregistration waits.
    pub(super) fn with_cx<R>(
        &self,
        locked: &mut Locked,
        now: Time,
        f: impl FnOnce(&mut Locked, &mut Cx<'_>) -> R,
    ) -> R {
        let before = locked.transport.state();
        let result = self.run_with_cx(locked, now, f);
        self.publish_grant(locked);
        self.say_error(locked, before);
        result
    }

    /// As [`with_cx`](Self::with_cx), for what the program posts and for what is sent: that changes
    /// nothing of what the queue pair grants, unless it is its end.
    pub(super) fn with_sending_cx<R>(
        &self,
        locked: &mut Locked,
        now: Time,
        f: impl FnOnce(&mut Locked, &mut Cx<'_>) -> R,
    ) -> R {
        let before = locked.transport.state();
        let result = self.run_with_cx(locked, now, f);
        if locked.granted.is_none() || locked.transport.state() != before {
            self.publish_grant(locked);
            self.say_error(locked, before);
        }
        result
    }

    pub(super) fn run_with_cx<R>(
        &self,
        locked: &mut Locked,
        now: Time,
        f: impl FnOnce(&mut Locked, &mut Cx<'_>) -> R,
    ) -> R {
        self.run_delivering(locked, now, &mut DirectDelivery::default(), f)
    }

    /// As [`run_with_cx`](Self::run_with_cx), for a program that polls.
    pub(super) fn run_delivering<R>(
        &self,
        locked: &mut Locked,
        now: Time,
        delivery: &mut DirectDelivery<'_>,
        f: impl FnOnce(&mut Locked, &mut Cx<'_>) -> R,
    ) -> R {
        let rights = self.services().rights.read();
        locked.seen = now;
        locked.eligibility.end();
        f(
            locked,
            &mut Cx {
                now,
                rights: &rights,
                memory: &RawMemory,
                sink: &mut Results::new(self, delivery),
            },
        )
    }

    /// Tells a peer of this host that it is not answered any more, if the state has become ERR.
    pub(super) fn say_error(&self, locked: &mut Locked, before: QpState) {
        if before != QpState::Err && locked.transport.state() == QpState::Err {
            self.say_end(locked);
        }
    }

    /// Tells a peer of this host that it is not answered any more. What it has sent may have
    /// arrived without an acknowledgement having gone back, and then no packet of its is dropped
    /// that would tell it: on a lossless link it would wait for ever. What was taken from its short
    /// ring is said before that.
    pub(super) fn say_end(&self, locked: &mut Locked) {
        let Transport::Rc(_) = locked.transport else {
            return;
        };
        locked.short_rings.publish_delayed_ack();
        if let Some(Path {
            reach: Reach::Link(egress),
            ..
        }) = &locked.path
            && egress.slot().is_some()
        {
            let (qpn, by) = (locked.transport.dest(), self.qpn);
            egress.send_frame(&Frame::Dropped { qpn, by });
        }
    }

    /// Runs the binds and local invalidates that are due. They change what keys open, so they have
    /// the rights table alone: when one completes, no step of another queue pair is in the middle
    /// of a copy that was allowed before. One that takes back what another process is in the middle
    /// of using is tried again a little later.
    pub(super) fn run_local(&self, locked: &mut Locked, now: Time) {
        while let Some(op) = locked.transport.next_local().filter(|_| !locked.retired) {
            let before = locked.transport.state();
            let boards = &self.services().boards;
            let mut rights = self.services().rights.write();
            let closes = self.closes(&rights, &op);
            if closes.is_some_and(|key| !boards.close_window(key)) {
                locked.closes_at = Some(now + CLOSE_AGAIN);
                return;
            }
            locked.transport.run_local(&mut LocalCx {
                now,
                rights: &mut rights,
                memory: &RawMemory,
                sink: &mut Results::new(self, &mut DirectDelivery::default()),
            });
            if let SendOp::BindWindow(bind) = op
                && let Some(window) = rights.open_window(bind.window)
            {
                boards.open_window(&window);
            }
            drop(rights);
            if locked.transport.state() != before {
                self.publish_grant(locked);
            }
            self.say_error(locked, before);
        }
    }

    /// The key that peers of this host can use until a bind or local invalidate is done.
    fn closes(&self, rights: &Rights, op: &SendOp) -> Option<Key> {
        let by = Accessor {
            pd: self.pd.id(),
            qpn: self.qpn,
        };
        match op {
            SendOp::LocalInvalidate(key) => rights.may_invalidate(*key, by).then_some(*key),
            // One of type 2 is bound by a queue pair, and not bound again.
            SendOp::BindWindow(bind) => rights
                .open_window(bind.window)
                .filter(|window| window.qpn.is_none())
                .map(|window| window.key),
            _ => None,
        }
    }

    /// Makes sure that [`on_timer`](Self::on_timer) comes in time.
    pub(super) fn keep_timer(&self, locked: &mut Locked) {
        let Some(next) = locked.deadline().filter(|_| !locked.retired) else {
            return;
        };
        if locked.timer.is_none_or(|entry| next < entry) {
            self.services()
                .set_timer(self.qpn, locked.timer, Some(next));
            locked.timer = Some(next);
        }
    }

    /// Does what is due when the queue pair's entry in the table of timers is.
    pub(crate) fn on_timer(&self, now: Time) {
        let mut fast = self.lock_fast();
        match fast.entry(now) {
            TimerEntry::Waits => {}
            TimerEntry::Stale => fast.renew_timer(),
            TimerEntry::Due => {
                let mut locked = fast.into_general();
                self.on_due(&mut locked, now);
                self.renew_timer(&mut locked);
            }
        }
    }

    /// Puts the next entry in the place of one that is used up, even if it is later.
    pub(super) fn renew_timer(&self, locked: &mut Locked) {
        let next = locked.deadline();
        self.services().set_timer(self.qpn, locked.timer, next);
        locked.timer = next;
    }

    /// Something is due, or was until a moment ago.
    fn on_due(&self, locked: &mut Locked, now: Time) {
        self.take_short_ring_acks(locked, now, &mut DirectDelivery::default());
        if locked.transport.deadline().is_some_and(|at| at <= now) {
            if !matches!(locked.transport, Transport::Iwarp(_)) {
                // What iWARP waits for is no acknowledgement.
                self.pd.context().device().counters().count_timeout();
            }
            self.with_cx(locked, now, |locked, cx| locked.transport.on_deadline(cx));
            if locked.stream.is_some() {
                self.drive_stream(locked, now);
            }
            if locked.transport.take_migrated() {
                locked.use_alternate(self);
                self.change_account(locked);
            }
            self.transmit(locked, now);
        }
        let held = locked.stream.as_ref().and_then(|s| s.held_until());
        if held.is_some_and(|at| at <= now) {
            self.drive_stream(locked, now);
        }
        self.fail_if_due(locked, now);
        self.ask_if_due(locked, now);
        if locked.closes_at.is_some_and(|at| at <= now) {
            locked.closes_at = None;
            self.transmit(locked, now);
        }
        if locked.delayed_ack.ends(now) {
            self.transmit(locked, now);
        }
        self.end_wait(locked, now);
        self.end_pause(locked, now);
    }

    /// Ends everything. Returns false if that was done before. When it returns, no step is under
    /// way and none will come.
    pub(super) fn retire(&self) -> bool {
        // The program has seen completions whose acknowledgement the peer still waits for.
        self.speak_up(clock::monotonic());
        self.send_parting_ack(clock::monotonic());
        let mut locked = self.lock();
        if std::mem::replace(&mut locked.retired, true) {
            return false;
        }
        self.services()
            .set_timer(self.qpn, locked.timer.take(), None);
        self.services().release_early_completion(self.qpn);
        self.say_end(&mut locked);
        let parting = self.drop_stream(&mut locked);
        locked.set_path(self, None);
        self.change_account(&mut locked);
        drop(locked);
        if let Some(parting) = parting {
            self.services().part(parting);
        }
        true
    }
}
