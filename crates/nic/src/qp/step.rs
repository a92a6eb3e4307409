//! The step: the only way into a queue pair's state. It holds the queue pair's lock and, while the transport works, the read
//! lock of the rights table; then it transmits what there is and keeps the timer.

use std::sync::Arc;
use std::time::Duration;

use ferroce_os::clock;
use ferroce_os::lock::LockGuard;
use ferroce_os::memory::RawMemory;
use ferroce_os::ring::LONGEST_REST;
use ferroce_proto::ids::{Key, PdId, Qpn, Srqn};
use ferroce_proto::mr::{Accessor, Piece, Rights};
use ferroce_proto::rc::{Cx, LinkTraits, LocalCx, Noted, Offer, SharedRecv, Sink, Taken};
use ferroce_proto::time::Time;
use ferroce_proto::verbs::{QpEvent, QpState, QpType, SendOp, Wc, WcOpcode, WcStatus};

use super::Qp;
use super::calm::Calm;
use super::datagram::Known;
use super::lane::Lanes;
use super::paced::Paced;
use super::share::Share;
use super::talk::Talk;
use super::transport::Transport;
use crate::Srq;
use crate::core::QpMemo;
use crate::cq::Catch;
use crate::link::Batch;
use crate::link::local::Frame;
use crate::path::{Egress, Path, PathReport, Reach};

/// Time until a bind or local invalidate that waits for somebody's copy is tried again: copies take microseconds.
const CLOSE_AGAIN: Duration = Duration::from_micros(50);

/// What the lock of a queue pair guards.
#[derive(Debug)]
pub(super) struct Locked {
    pub(super) transport: Transport,
    /// Where packets go; known from RTR on.
    pub(super) path: Option<Path>,
    /// What the transport was told about it.
    pub(super) traits: Option<LinkTraits>,
    /// Its part of what may be in flight to its peer's process, of a reliable queue pair on the wire.
    pub(super) share: Option<Box<Share>>,
    /// The alternate path and its traits, once one is loaded.
    pub(super) alternate: Option<(Path, LinkTraits)>,
    /// When its state was last worked on.
    pub(super) seen: Time,
    /// The entry in the table of timers.
    pub(super) timer: Option<Time>,
    /// In the ready list, or waiting for its link: [`Qp::on_queued_turn`] will be called.
    pub(super) queued: bool,
    /// In the ready list for an acknowledgement that waits for something to go with.
    pub(super) holds_ack: bool,
    /// What short messages need not look at again.
    pub(super) calm: Calm,
    /// Which way its work went.
    pub(super) report: PathReport,
    /// Whether acknowledgements wait for the program's answers.
    pub(super) talk: Talk,
    /// Memory that it shares with its peer alone.
    pub(super) lanes: Lanes,
    /// Regions that short messages used last: to send from, and to receive into.
    pub(super) memos: [QpMemo; 2],
    /// Room for what is in a lane behind a header, on its way.
    pub(super) room: [u8; LONGEST_REST],
    /// Room for a short message, and an acknowledgement before it.
    pub(super) short: Batch,
    /// Where the last datagram went.
    pub(super) known: Option<Known>,
    /// Until when a datagram waits for its link, which is full.
    pub(super) waits_until: Option<(Time, Arc<Egress>)>,
    /// Until when it waits for an answer that opens the window of its receiver.
    pub(super) paused: Option<(Time, Paced)>,
    /// When work for a process that is gone fails.
    pub(super) fails_at: Option<Time>,
    /// When a bind or local invalidate is tried again.
    pub(super) closes_at: Option<Time>,
    /// Destroyed: nothing happens any more.
    pub(super) retired: bool,
    /// What peers of this host were told that it grants; none: they have to be told.
    pub(super) granted: Option<u64>,
}

impl Locked {
    pub(super) fn new(transport: Transport) -> Self {
        Self {
            transport,
            path: None,
            traits: None,
            share: None,
            alternate: None,
            seen: Time::default(),
            timer: None,
            queued: false,
            holds_ack: false,
            calm: Calm::default(),
            report: PathReport::default(),
            talk: Talk::default(),
            lanes: Lanes::default(),
            memos: Default::default(),
            room: [0; LONGEST_REST],
            short: Batch::default(),
            known: None,
            waits_until: None,
            paused: None,
            fails_at: None,
            closes_at: None,
            retired: false,
            granted: Some(0),
        }
    }

    /// Puts another path, or none, in the place of the one that it has.
    pub(super) fn set_path(&mut self, qpn: Qpn, path: Option<(Path, LinkTraits)>) {
        if let Some(Path {
            reach: Reach::Link(egress),
            ..
        }) = &self.path
        {
            // A link that is full may stay so for long: the new path must not wait for it.
            egress.leave(qpn);
            self.queued = false;
            if self.lanes.close() {
                egress.send_frame(&Qp::frame_of_end(self, qpn));
            }
        }
        if let Some((_, egress)) = self.waits_until.take() {
            egress.leave(qpn);
            self.queued = false;
        }
        if let Some((_, paced)) = self.paused.take() {
            paced.flow.leave(qpn);
            self.queued = false;
        }
        (self.path, self.traits) = path.unzip();
        // A grant names the path.
        self.granted = None;
    }

    /// The alternate path is the path from here.
    pub(super) fn use_alternate(&mut self, qpn: Qpn) {
        if let Some((path, traits)) = self.alternate.take() {
            tracing::debug!(target: "ferroce::qp", qpn = qpn.get(), to = %path.addressing.dst.ip(), "migrated to the alternate path");
            self.transport.set_link(traits);
            self.set_path(qpn, Some((path, traits)));
        }
    }

    /// The time for what the program posts to be sent. Where nothing depends on it, it is the time of the last step: to look at the clock
    /// costs more than anything else that a short message needs.
    fn time_of_post(&self, now: &mut Now) -> Time {
        if self.transport.needs_time_to_send() {
            now.look();
        }
        now.0.unwrap_or(self.seen)
    }

    #[inline]
    fn deadline(&self) -> Option<Time> {
        let wait = self.waits_until.as_ref().map(|(until, _)| *until);
        let pause = self.paused.as_ref().map(|(until, _)| *until);
        let others = [wait, pause, self.talk.due(), self.fails_at, self.closes_at];
        others
            .into_iter()
            .fold(self.transport.deadline(), Time::sooner)
    }
}

/// The time, looked at when it is needed first.
#[derive(Debug, Default)]
pub(super) struct Now(Option<Time>);

impl Now {
    pub(super) fn look(&mut self) -> Time {
        *self.0.get_or_insert_with(clock::monotonic)
    }
}

/// Takes what the transport has to say to the program.
pub(super) struct Results<'a, 'c> {
    qp: &'a Qp,
    catch: &'a mut Catch<'c>,
    /// What is noted often is counted once per step: SENDs done, and received.
    sent: u32,
    received: u32,
}

impl<'a, 'c> Results<'a, 'c> {
    pub(super) const fn new(qp: &'a Qp, catch: &'a mut Catch<'c>) -> Self {
        Self {
            qp,
            catch,
            sent: 0,
            received: 0,
        }
    }
    fn count(&self, what: Noted, times: u32) {
        if times > 0 {
            let counters = self.qp.pd.context().device().counters();
            counters.count_noted(what, times);
        }
    }
    fn count_received(&mut self, wc: &Wc) {
        let is_send = wc.opcode == WcOpcode::Recv && wc.status == WcStatus::Success;
        self.received += u32::from(is_send);
    }
    fn xrc(&self, srq: Srqn) -> Option<Arc<Srq>> {
        self.qp.queues.xrcd.as_ref()?.domain().srq(srq)
    }
}

impl Sink for Results<'_, '_> {
    #[inline]
    fn send_completion(&mut self, wc: Wc, solicited: bool) -> bool {
        match wc.status {
            WcStatus::RetryExcErr => self.count(Noted::RetryExceeded, 1),
            WcStatus::RnrRetryExcErr => self.count(Noted::NotReadyExceeded, 1),
            _ => {}
        }
        let cq = self.qp.queues.send_cq.as_ref();
        cq.is_none_or(|cq| cq.deliver(wc, solicited, self.catch))
    }
    #[inline]
    fn recv_completion(&mut self, wc: Wc, solicited: bool) -> bool {
        self.count_received(&wc);
        let cq = self.qp.queues.recv_cq.as_ref();
        cq.is_none_or(|cq| cq.deliver(wc, solicited, self.catch))
    }
    fn note(&mut self, what: Noted) {
        match what {
            Noted::Sent => self.sent += 1,
            what => self.count(what, 1),
        }
    }
    fn fetch(&mut self, offer: &Offer, to: &[Piece<'_>]) -> bool {
        self.qp.fetch(offer, to)
    }
    fn end_offers(&mut self) {
        self.qp.nic().boards().end_offers(self.qp.qpn);
    }
    fn invalidated(&mut self, key: Key) {
        // Who is at it all the same has not been granted it: its place is free when he has gone.
        let _ = self.qp.nic().boards().close_window(key);
    }
    fn event(&mut self, event: QpEvent) {
        self.qp.handles.push_async(event.into());
    }
    fn take_shared_recv(&mut self) -> Option<SharedRecv> {
        let waits = (self.qp.qp_type == QpType::Rc).then_some(self.qp);
        self.qp.queues.srq.as_ref()?.take(waits)
    }
    fn xrc_srq(&mut self, srq: Srqn) -> Option<PdId> {
        if let Some(found) = self.xrc(srq) {
            return Some(found.pd().id());
        }
        let xrcd = self.qp.queues.xrcd.as_ref()?;
        if self.qp.nic().may_borrow(self.qp, xrcd, srq) {
            // No memory is open to peers there.
            return Some(xrcd.pd().id());
        }
        tracing::warn!(target: "ferroce::xrc", qpn = self.qp.qpn.get(), srq = srq.get(),
            "a message for a shared receive queue that the target's domain does not have");
        None
    }
    fn take_xrc_recv(&mut self, srq: Srqn) -> Taken {
        match (self.xrc(srq), &self.qp.queues.xrcd) {
            (Some(own), _) => own.take(Some(self.qp)).into(),
            (None, Some(xrcd)) => self.qp.nic().borrow_recv(self.qp, xrcd, srq),
            (None, None) => Taken::Empty,
        }
    }
    fn xrc_completion(&mut self, srq: Srqn, wc: Wc, solicited: bool) -> bool {
        self.count_received(&wc);
        let Some(own) = self.xrc(srq) else {
            self.qp.nic().finish_borrowed(self.qp, srq, wc, solicited);
            return true;
        };
        own.complete(wc, solicited)
    }
}

impl Drop for Results<'_, '_> {
    fn drop(&mut self) {
        self.qp.tally.count_sends(self.sent, self.received);
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

    /// As [`step_sending`](Self::step_sending), with the lock.
    pub(super) fn step_sending_in<R>(
        &self,
        mut locked: LockGuard<'_, Locked>,
        f: impl FnOnce(&mut Locked, &mut Cx<'_>) -> R,
    ) -> R {
        let mut now = Now::default();
        let waits = locked.talk.on_post(|| now.look());
        let at = locked.time_of_post(&mut now);
        let (result, is_short) = self.with_sending_cx(&mut locked, at, |locked, cx| {
            (f(locked, cx), self.build_short(locked, cx))
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

    /// As [`step`](Self::step), for a program that makes room for the next message: its answer to the last one is still to come, and an
    /// acknowledgement that waits for it goes on waiting.
    pub(super) fn step_receiving<R>(&self, f: impl FnOnce(&mut Locked, &mut Cx<'_>) -> R) -> R {
        let run = |locked: &mut _, now| self.with_sending_cx(locked, now, f);
        self.step_with(false, run, |locked| {
            let holds = locked.holds_ack || locked.talk.due().is_some();
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
            locked.talk.on_post(|| now);
        }
        let result = run(&mut locked, now);
        if !is_silent(&locked) {
            self.transmit(&mut locked, now);
        }
        self.keep_timer(&mut locked);
        result
    }

    /// Runs `f` with all that the transport needs. The rights table stays as it is meanwhile, and a deregistration waits.
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

    /// As [`with_cx`](Self::with_cx), for what the program posts and for what is sent: that changes nothing of what the queue pair grants,
    /// unless it is its end.
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
        self.run_catching(locked, (now, &mut Catch::default()), f)
    }

    /// As [`run_with_cx`](Self::run_with_cx), for a program that polls.
    pub(super) fn run_catching<R>(
        &self,
        locked: &mut Locked,
        (now, catch): (Time, &mut Catch<'_>),
        f: impl FnOnce(&mut Locked, &mut Cx<'_>) -> R,
    ) -> R {
        let rights = self.nic().rights().read();
        locked.seen = now;
        locked.calm.end();
        f(
            locked,
            &mut Cx {
                now,
                rights: &rights,
                memory: &RawMemory,
                sink: &mut Results::new(self, catch),
            },
        )
    }

    /// Tells a peer of this host that it is not answered any more, if the state has become ERR.
    pub(super) fn say_error(&self, locked: &mut Locked, before: QpState) {
        if before != QpState::Err && locked.transport.state() == QpState::Err {
            self.say_end(locked);
        }
    }

    /// Tells a peer of this host that it is not answered any more. What it has sent may have arrived without an acknowledgement having
    /// gone back, and then no packet of its is dropped that would tell it: on a lossless link it would wait for ever. What was taken
    /// from its lane is said before that.
    pub(super) fn say_end(&self, locked: &mut Locked) {
        let Transport::Rc(_) = locked.transport else {
            return;
        };
        locked.lanes.publish_held();
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

    /// Runs the binds and local invalidates that are due. They change what keys open, so they have the rights table alone:
    /// when one completes, no step of another queue pair is in the middle of a copy that was allowed before. One that takes back
    /// what another process is in the middle of using is tried again a little later.
    pub(super) fn run_local(&self, locked: &mut Locked, now: Time) {
        while let Some(op) = locked.transport.next_local().filter(|_| !locked.retired) {
            let before = locked.transport.state();
            let boards = self.nic().boards();
            let mut rights = self.nic().rights().write();
            let closes = self.closes(&rights, &op);
            if closes.is_some_and(|key| !boards.close_window(key)) {
                locked.closes_at = Some(now + CLOSE_AGAIN);
                return;
            }
            locked.transport.run_local(&mut LocalCx {
                now,
                rights: &mut rights,
                memory: &RawMemory,
                sink: &mut Results::new(self, &mut Catch::default()),
            });
            if let SendOp::BindWindow(bind) = op
                && let Some(window) = rights.open_window(bind.window)
            {
                boards.open_window(&window);
            }
            drop(rights);
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
            self.nic().set_timer(self.qpn, locked.timer, Some(next));
            locked.timer = Some(next);
        }
    }

    /// Its entry in the table of timers is due.
    pub(crate) fn on_timer(&self, now: Time) {
        let mut locked = self.lock();
        if locked.timer.is_none_or(|entry| entry > now) {
            return;
        }
        self.take_lane_acks(&mut locked, (now, &mut Catch::default()));
        if locked.transport.deadline().is_some_and(|at| at <= now) {
            self.pd.context().device().counters().count_timeout();
            self.with_cx(&mut locked, now, |locked, cx| {
                locked.transport.on_deadline(cx)
            });
            if locked.transport.take_migrated() {
                locked.use_alternate(self.qpn);
                self.change_account(&mut locked);
            }
            self.transmit(&mut locked, now);
        }
        self.fail_if_due(&mut locked, now);
        if locked.closes_at.is_some_and(|at| at <= now) {
            locked.closes_at = None;
            self.transmit(&mut locked, now);
        }
        if locked.talk.ends(now) {
            self.transmit(&mut locked, now);
        }
        self.end_wait(&mut locked, now);
        self.end_pause(&mut locked, now);
        // The entry is used up: replace it, by a later one too.
        let next = locked.deadline();
        self.nic().set_timer(self.qpn, locked.timer, next);
        locked.timer = next;
    }

    /// Ends everything. Returns false if that was done before. When it returns, no step is under way and none will come.
    pub(super) fn retire(&self) -> bool {
        // The program has seen completions whose acknowledgement the peer still waits for.
        self.speak_up(clock::monotonic());
        let mut locked = self.lock();
        if std::mem::replace(&mut locked.retired, true) {
            return false;
        }
        self.nic().set_timer(self.qpn, locked.timer.take(), None);
        self.say_end(&mut locked);
        locked.set_path(self.qpn, None);
        self.change_account(&mut locked);
        true
    }
}
