//! The reliable connected transport: one [`RcQp`] is a queue pair with its requester, responder and
//! completer. XRC is the same with a header more, and with each half in a queue pair of its own
//! (IBTA annex A14).
//!
//! The owner (the device, or a test) drives it:
//! 1. inputs: [`modify`](RcQp::modify), [`post_send`](RcQp::post_send),
//!    [`post_recv`](RcQp::post_recv), [`on_packet`](RcQp::on_packet),
//!    [`on_deadline`](RcQp::on_deadline), [`on_dropped`](RcQp::on_dropped),
//!    [`on_peer_dead`](RcQp::on_peer_dead);
//! 2. after any input, outputs: completions and events went to the [`Cx`]'s sink; while
//!    [`wants_local`](RcQp::wants_local), call [`run_local`](RcQp::run_local); then call
//!    [`poll_transmit`](RcQp::poll_transmit) until it says there is nothing (or the link is full:
//!    keep [`wants_transmit`](RcQp::wants_transmit) in mind), then take
//!    [`deadline`](RcQp::deadline).
//!
//! Answers coalesce between polls: hand in all packets that have arrived before polling, and hand
//! them in before deadlines.
//!
//! | module | holds |
//! |---|---|
//! | `requester`, `transmit`, `segment`, `send_queue`, `flight`, `window` | posted work to request packets |
//! | `fast::short` | the same at once, for a short message and nothing else |
//! | `fast::send` | the same in one with posting, for a SEND among SENDs |
//! | `direct` | WRITEs and READs that are carried out without packets |
//! | `rendezvous` | long SENDs whose bytes the responder fetches |
//! | `completer` | response packets to completions |
//! | `fast::receive` | the short way of short messages |
//! | `fast::receive_batch` | the short way of the middle of a long message |
//! | `selective_repeat`, `reorder` | losses between two of our kind |
//! | `budget` | what the queue pairs of a process have in flight to another one together |
//! | `retry` | local ACK timer, probes, receiver-not-ready wait |
//! | `responder`, `execute`, `message` | request packets to memory and receive completions |
//! | `resources`, `reply` | READ responses, atomic results, NAKs, acknowledgements |
//! | `target` | shared receive queues and XRC: whose keys and receives a request uses |
//! | `migration` | which packets of a peer that has migrated count |
//! | `modify`, `post`, `config`, `fault`, `scatter` | attributes, checks, settings, failures, byte moving |

mod back_off;
mod budget;
mod completer;
pub(crate) mod config;
mod cx;
pub(crate) mod direct;
pub(crate) mod execute;
mod fast;
pub(crate) mod fault;
mod flight;
mod message;
mod migration;
pub(crate) mod modify;
pub(crate) mod post;
mod rendezvous;
mod reorder;
mod reply;
pub(crate) mod requester;
mod resources;
pub(crate) mod responder;
mod retry;
pub(crate) mod scatter;
pub(crate) mod segment;
mod selective_repeat;
pub(crate) mod send_queue;
mod target;
mod transmit;
mod window;

use alloc::vec::Vec;

use crate::ids::Msn;
use crate::time::Time;
use crate::verbs::{PostError, QpEvent, QpState, QpType, RecvWr, SendOp, SendWr};
use crate::wire::Packet;

pub use self::fast::cut::cut;
pub use self::fast::long::{LongBody, LongMessage};
pub use self::fast::send::{FastHead, FastOutcome};
pub use self::fast::short::MAX_SHORT;
pub use self::rendezvous::{MAX_RENDEZVOUS, MIN_RENDEZVOUS, Rendezvous};
pub use budget::{Budget, Stake};
pub use config::{LinkTraits, MAX_MESSAGE, MAX_RD_ATOMIC, ModifyError, PACKET_COST, RcConfig};
pub use cx::{Cx, LocalCx, Noted, SharedRecv, Sink, Taken};
pub use direct::{Direct, DirectOp, DirectRun, Grant};
pub use fault::Cause;
pub use retry::MIN_ACK_TIMEOUT;
pub use scatter::{place, total};

use completer::Response;
use config::QpShared;
use fault::{Fault, Reject, SendFault};
use requester::Requester;
use responder::Responder;

/// A reliable connected queue pair.
#[derive(Debug)]
pub struct RcQp {
    shared: QpShared,
    requester: Requester,
    responder: Responder,
    /// The requester sends next if both halves want to.
    requester_turn: bool,
    /// Packets of a message that go before the acknowledgement that is owed.
    ahead_of_ack: u32,
    /// The end of draining was reported since the move to SQD.
    drain_reported: bool,
    /// The queue pair has migrated by itself, and its owner does not know.
    migrated: bool,
}

impl RcQp {
    /// A queue pair in RESET.
    #[must_use]
    pub fn new(config: RcConfig) -> Self {
        Self {
            shared: QpShared::new(config),
            requester: Requester::new(),
            responder: Responder::default(),
            requester_turn: false,
            ahead_of_ack: 0,
            drain_reported: false,
            migrated: false,
        }
    }

    /// Current state.
    #[inline]
    #[must_use]
    pub fn state(&self) -> QpState {
        self.shared.attr.qp_state
    }

    /// Fixed properties.
    #[must_use]
    pub fn config(&self) -> &RcConfig {
        &self.shared.config
    }

    /// Sets the traits of the path's link. Call it before the move to RTR and when the path
    /// changes: the peer then counts as alive again.
    pub fn set_link(&mut self, link: LinkTraits) {
        self.shared.link = link;
        self.requester.on_link_change(&self.shared);
    }

    /// The peer is a Ferroce, too: what comes behind a gap is kept, and the peer is told what is
    /// missing. Towards others the rule holds: it is dropped.
    pub fn meet_ferroce_peer(&mut self) {
        self.shared.is_ferroce_peer = true;
    }

    /// Queues a send work request. In ERR it is accepted and flushed.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued.
    #[inline]
    pub fn post_send(&mut self, cx: &mut Cx<'_>, wr: SendWr) -> Result<(), PostError> {
        post::check_send(&self.shared, &wr, self.requester.queued())?;
        let outcome = self.requester.post(&self.shared, wr);
        if self.state() == QpState::Err {
            self.requester.flush(&self.shared, cx, None);
        } else if outcome.is_err() {
            self.settle_send(cx, outcome);
        }
        Ok(())
    }

    /// Whether all of these send work requests, one after the other, would be accepted now.
    ///
    /// # Errors
    /// Why the first that would not is refused.
    pub fn check_sends(&self, wrs: &[SendWr]) -> Result<(), PostError> {
        let queued = self.requester.queued();
        wrs.iter()
            .enumerate()
            .try_for_each(|(i, wr)| post::check_send(&self.shared, wr, queued + i))
    }

    /// Whether local operations (bind, local invalidate) are due: [`run_local`](Self::run_local)
    /// must be called before [`poll_transmit`](Self::poll_transmit).
    #[must_use]
    pub fn wants_local(&self) -> bool {
        self.requester.wants_local(&self.shared)
    }

    /// Returns the bind or local invalidate that is due.
    #[must_use]
    pub fn next_local(&self) -> Option<SendOp> {
        self.requester.next_local(&self.shared)
    }

    /// Runs the local operation that is due; another one may be due then.
    pub fn run_local(&mut self, cx: &mut LocalCx<'_>) {
        let outcome = self.requester.run_local(&self.shared, cx);
        self.settle_send(&mut cx.shared(), outcome);
    }

    /// Queues a receive work request. In ERR it is accepted and flushed.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued.
    pub fn post_recv(&mut self, cx: &mut Cx<'_>, wr: RecvWr) -> Result<(), PostError> {
        post::check_recv(&self.shared, wr.sges.len(), self.responder.queued())?;
        self.responder.post(wr);
        if self.state() == QpState::Err {
            self.responder.flush(&self.shared, cx, None);
        }
        Ok(())
    }

    /// A shared receive queue that this queue pair uses got work requests (ends a
    /// receiver-not-ready wait early). Returns whether a requester waits for that.
    pub fn on_recv_available(&mut self) -> bool {
        self.responder.on_recv_available()
    }

    /// The process that [was asked](Taken::Asked) for a receive has answered: whether there is
    /// something for the message now. That it has no such queue is something too.
    pub fn on_recv_answer(&mut self, there: bool) {
        self.responder.on_recv_answer(&self.shared, there);
    }

    /// A packet for this queue pair whose addresses, `P_Key` and ICRC were right. Returns false if
    /// the packet was dropped: the state does not allow it, or its completion found no room. A
    /// lossless link then tells the sender.
    pub fn on_packet(&mut self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> bool {
        if packet.bth.opcode.service() != Some(self.shared.config.service()) {
            // Another service's packet cannot come from our peer.
            return true;
        }
        self.arm_by(packet);
        let taken = match (packet.bth.opcode.info(), self.shared.config.qp_type) {
            // What only the other half of XRC would have asked for cannot come from our peer
            // either.
            (Some(info), QpType::XrcRecv) if info.operation.is_response() => true,
            (Some(info), _) if info.operation.is_response() => self.on_response(
                cx,
                Response {
                    packet,
                    operation: info.operation,
                    position: info.position,
                },
            ),
            // An XRC initiator has no responder.
            (_, QpType::XrcSend) => true,
            _ => self.on_request(cx, packet),
        };
        self.report_drained(cx);
        taken
    }

    fn on_response(&mut self, cx: &mut Cx<'_>, response: Response<'_, '_>) -> bool {
        // IBTA volume 1, 10.3: before RTS nothing was sent; in SQD the packets that were sent are
        // still answered.
        let taken = matches!(self.state(), QpState::Rts | QpState::Sqd);
        if taken {
            let outcome = self.requester.on_response(&self.shared, cx, response);
            self.settle_send(cx, outcome);
        }
        taken
    }

    fn on_request(&mut self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> bool {
        match self.state() {
            QpState::Rtr | QpState::Rts | QpState::Sqd => {
                let outcome = self.responder.on_request(&self.shared, cx, packet);
                // Nobody will answer it: a lossless link has to tell.
                let lost = matches!(&outcome, Err(reject) if reject.nak.is_none());
                self.settle_request(cx, outcome);
                !lost
            }
            // The NAK that ended the queue pair may be lost. A peer that asks again gets it again.
            QpState::Err => self.responder.on_late_request(packet.bth.psn),
            QpState::Reset | QpState::Init | QpState::Sqe => false,
        }
    }

    /// Appends the next packet (BTH through pad) to `out`, if there is one and the window allows
    /// it.
    ///
    /// Also in ERR there can be one: the NAK that the queue pair ended with, or an acknowledgement
    /// that was owed.
    pub fn poll_transmit(&mut self, cx: &mut Cx<'_>, out: &mut Vec<u8>) -> bool {
        // At most one turn of each half, and answers that a failure of the first brought.
        for _ in 0..3 {
            // A word goes first: the program has seen what it acknowledges, and its next request
            // may well be the end of the peer.
            let goes_ahead = self.ahead_of_ack > 0 && self.responder.owes_only_ack();
            let requester_first = goes_ahead
                || !self.responder.owes_word()
                    && (self.requester_turn || !self.responder.wants_transmit());
            if requester_first && self.transmit_request(cx, out) {
                self.requester_turn = false;
                self.ahead_of_ack = self.ahead_of_ack.saturating_sub(1);
                return true;
            }
            self.ahead_of_ack = 0;
            self.requester_turn = true;
            let sent = self.transmit_answer(cx, out);
            if sent || !self.wants_transmit() {
                return sent;
            }
        }
        false
    }

    fn transmit_request(&mut self, cx: &mut Cx<'_>, out: &mut Vec<u8>) -> bool {
        match self.requester.transmit(&self.shared, cx, out) {
            Ok(sent) => sent,
            Err(fault) => {
                self.settle_send(cx, Err(fault));
                false
            }
        }
    }

    fn transmit_answer(&mut self, cx: &mut Cx<'_>, out: &mut Vec<u8>) -> bool {
        match self.responder.transmit(&self.shared, cx, out) {
            Ok(sent) => sent,
            Err(reject) => {
                self.responder.cut_responses();
                self.settle_request(cx, Err(reject));
                false
            }
        }
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) would produce a packet now. (It may instead
    /// find that local memory is no longer registered; then this is false afterwards.)
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        self.responder.wants_transmit() || self.requester.wants_transmit(&self.shared)
    }

    /// The cost of what is in flight. Each packet that is not acknowledged, and each that a READ
    /// has asked for, costs its payload and [`PACKET_COST`].
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.requester.flight.bytes()
    }

    /// Bounds what may be in flight besides its own window, until it is called again. The bound is
    /// what other queue pairs leave of a buffer that they share. One packet of what was sent before
    /// may always be sent again, since its time runs.
    pub fn set_allowance(&mut self, most: u64) {
        self.requester.allowance = most;
    }

    /// Whether it has a request packet that its own window allows.
    #[must_use]
    pub fn wants_request(&self) -> bool {
        self.requester.wants_request(&self.shared)
    }

    /// Whether all that [`poll_transmit`](Self::poll_transmit) has to send is an acknowledgement of
    /// what came in order. It may wait a little for something that goes the same way.
    #[must_use]
    pub fn owes_only_ack(&self) -> bool {
        self.responder.owes_only_ack() && !self.requester.wants_transmit(&self.shared)
    }

    /// Requests of the peer that were taken to their ends, as acknowledgements count them.
    #[must_use]
    pub fn msn(&self) -> Msn {
        self.responder.msn
    }

    /// Whether the last packet that was taken ended a message.
    #[must_use]
    pub fn is_between_messages(&self) -> bool {
        self.responder.message.is_none()
    }

    /// Payload bytes of a full packet.
    #[must_use]
    #[inline]
    pub fn mtu(&self) -> u32 {
        self.shared.mtu()
    }

    /// Whether answers to the peer's requests are to be sent.
    #[must_use]
    pub fn owes_answers(&self) -> bool {
        self.responder.wants_transmit()
    }

    /// Whether something that it has sent waits for an answer.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        self.requester.flight.outstanding()
    }

    /// Whether no work request finds a place in the send queue until one is acknowledged.
    #[must_use]
    #[inline]
    pub fn is_send_queue_full(&self) -> bool {
        self.requester.queue.len() >= self.shared.config.cap.max_send_wr as usize
    }

    /// If a short message, or a WRITE, and an acknowledgement are all that there is to send, the
    /// message goes first, once. On the wire a short one makes one run with the acknowledgement,
    /// since the last packet of a run may be the shorter one. The receiver of that run looks at the
    /// acknowledgement first. A longer SEND goes second: its receiver would have the completion of
    /// the answer before that of its own request.
    pub fn let_ack_follow(&mut self) {
        self.ahead_of_ack = 0;
        if !self.shared.link.lossless && self.responder.owes_only_ack() {
            self.ahead_of_ack = self.requester.packets_ahead_of_ack();
        }
    }

    /// Produces the acknowledgement or NAK that the responder owes, unless READ responses go before
    /// it. It does so whatever the requester has to send: for a queue pair whose end is near.
    /// Returns whether it did.
    pub fn poll_last_word(&mut self, cx: &mut Cx<'_>, out: &mut Vec<u8>) -> bool {
        self.responder.owes_word() && self.transmit_answer(cx, out)
    }

    /// Owes the acknowledgement of the last request once more, if it may be lost: for a queue pair
    /// that is about to be destroyed. The program has seen the request complete, and nothing would
    /// answer a peer that missed the acknowledgement.
    pub fn owe_parting_ack(&mut self) {
        let receives = !matches!(self.state(), QpState::Reset | QpState::Init | QpState::Err);
        if receives && !self.shared.link.lossless {
            self.responder.owe_parting_ack(&self.shared);
        }
    }

    /// When [`on_deadline`](Self::on_deadline) must be called, if ever.
    #[inline]
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.requester.deadline()
    }

    /// The deadline has passed (calling it early does nothing).
    pub fn on_deadline(&mut self, cx: &mut Cx<'_>) {
        let outcome = self.requester.on_deadline(&self.shared, cx);
        let silent = matches!(&outcome, Err(SendFault::Oldest(f)) if f.cause == Cause::NoAnswer);
        if silent && self.is_armed() {
            self.migrate(cx);
            self.requester.on_migrated();
            self.migrated = true;
            return;
        }
        self.settle_send(cx, outcome);
    }

    /// The lossless link says that the peer dropped a packet of ours (no such queue pair, or not
    /// ready). From here the local ACK timer runs as on a lossy link until there is progress.
    pub fn on_dropped(&mut self, cx: &mut Cx<'_>) {
        self.requester.on_dropped(&self.shared, cx.now);
    }

    /// The lossless link says that the peer's process is gone: outstanding work fails with
    /// `RetryExcErr`, and so does work posted later.
    pub fn on_peer_dead(&mut self, cx: &mut Cx<'_>) {
        if self.is_armed() {
            // The alternate path ends in the same process.
            cx.sink.event(QpEvent::MigrationFailed);
        }
        let outcome = self.requester.on_peer_gone();
        self.settle_send(cx, outcome);
    }

    /// A completion queue that it uses has overflowed, by whatever queue pair: goes to ERR, unless
    /// it is in RESET.
    pub fn on_cq_overflow(&mut self, cx: &mut Cx<'_>) {
        if !matches!(self.state(), QpState::Reset | QpState::Err) {
            self.settle_send(cx, Err(SendFault::CqOverflow));
        }
    }

    /// The one place where a failure of the requester becomes completions and a state.
    fn settle_send(&mut self, cx: &mut Cx<'_>, outcome: Result<(), SendFault>) {
        let first = match outcome {
            Ok(()) => return,
            Err(SendFault::Oldest(fault)) => Some(fault),
            Err(SendFault::CqOverflow) => {
                // No completion can tell that the queue pair has ended.
                cx.sink.event(QpEvent::Fatal);
                None
            }
        };
        self.responder.end();
        self.flush(cx, first, None);
    }

    /// The one place where a failure of the responder becomes a NAK, an event, completions and a
    /// state.
    fn settle_request(&mut self, cx: &mut Cx<'_>, outcome: Result<(), Reject>) {
        let Err(reject) = outcome else {
            return;
        };
        self.responder.end_with(&reject);
        if let Some(event) = reject.event {
            cx.sink.event(event);
        }
        self.flush(cx, None, reject.recv);
    }

    /// `ibv_modify_qp` to ERR.
    fn enter_error(&mut self, cx: &mut Cx<'_>) {
        self.responder.end();
        self.flush(cx, None, None);
    }

    /// Goes to ERR: `send` and `recv` are how the oldest work requests fail, all others are
    /// flushed.
    fn flush(&mut self, cx: &mut Cx<'_>, send: Option<Fault>, recv: Option<Fault>) {
        let first_time = self.state() != QpState::Err;
        self.shared.attr.qp_state = QpState::Err;
        if first_time {
            cx.sink.end_grant();
        }
        self.requester.flush(&self.shared, cx, send);
        self.responder.flush(&self.shared, cx, recv);
        if self.shared.config.takes_shared() && first_time {
            cx.sink.event(QpEvent::LastWqeReached);
        }
    }

    /// Goes to RESET: everything is forgotten without completions.
    fn reset(&mut self) {
        self.shared.reset();
        self.requester = Requester::new();
        self.responder = Responder::default();
        self.ahead_of_ack = 0;
    }

    /// Tells the program once that the send queue has drained after a move to SQD.
    fn report_drained(&mut self, cx: &mut Cx<'_>) {
        if self.state() == QpState::Sqd && !self.drain_reported && self.requester.drained() {
            self.drain_reported = true;
            if self.shared.attr.en_sqd_async_notify {
                cx.sink.event(QpEvent::SqDrained);
            }
        }
    }
}
