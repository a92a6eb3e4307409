//! The responder: takes the peer's requests in their order, once each, and answers them.
//!
//! The module [`execute`](super::execute) carries requests out. The order of the checks is that of
//! the specification: PSN, sequence of opcodes, what the queue pair allows, receive work request or
//! READ/atomic resources, lengths, key; then the request is executed, completed and acknowledged.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::config::QpShared;
use super::fault::{Fault, Reject};
use super::message::PartialMessage;
use super::reorder::{Kept, ReorderBuffer};
use super::reply::Replies;
use super::requester::failed;
use super::target::HeldReceive;
use super::{Cx, Noted};
use crate::ids::{Msn, Psn};
use crate::time::Time;
use crate::verbs::{QpEvent, QpState, RecvWr, Wc, WcFlags, WcOpcode, WcStatus};
use crate::wire::{NakCode, Operation, Packet, Syndrome};

/// Most packets that a requester has unacknowledged over the wire, beside what answered requests
/// account for: a Ferroce's window in packets without payload.
const MAX_UNACKNOWLEDGED: i32 = 4096;

/// Why a request that came in order was not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// No receive is posted; the requester has to come again.
    NotReady,
    /// Whether one is posted only another process knows, which is asked.
    Asked,
    /// The bytes of a rendezvous cannot be fetched: they are to come by packets.
    NotFetched,
    /// The queue pair ends.
    Reject(Reject),
}

impl From<Reject> for Stop {
    fn from(reject: Reject) -> Self {
        Self::Reject(reject)
    }
}

/// Responder half of a queue pair.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    pub(super) recv: VecDeque<RecvWr>,
    /// Receive work request that was taken for the message in work.
    pub(crate) held: Option<HeldReceive>,
    /// Message of which not all packets have come.
    pub(crate) message: Option<PartialMessage>,
    /// PSN of the next request.
    pub(crate) expected: Psn,
    /// Messages completed.
    pub(super) msn: Msn,
    /// The requester was told to go back to `expected`; it is told once.
    gap_reported: bool,
    /// Packets that came behind a gap.
    pub(super) reorder: ReorderBuffer,
    /// The gap is a request for which there was no receive: the requester comes again with it and
    /// what follows.
    halted: bool,
    /// A requester waits for a receive.
    not_ready_sent: bool,
    /// A requester waits for another process's answer.
    asked: bool,
    comm_established: bool,
    /// PSN of the last rendezvous that was refused.
    pub(super) not_fetched: Option<Psn>,
    pub(super) replies: Replies,
}

impl Responder {
    /// Starts when the queue pair moves to RTR. Receives that were posted in INIT stay.
    pub(crate) fn start(&mut self, shared: &QpShared) {
        *self = Self {
            recv: core::mem::take(&mut self.recv),
            expected: shared.attr.rq_psn,
            ..Self::default()
        };
    }

    /// PSN of the next request.
    pub(crate) fn expected(&self) -> Psn {
        self.expected
    }

    /// Whether a program that waits in RTR has heard of its peer.
    pub(super) fn is_established(&self) -> bool {
        self.comm_established
    }

    /// Receive work requests in the queue.
    pub(crate) fn queued(&self) -> usize {
        self.recv.len()
    }

    pub(crate) fn post(&mut self, wr: RecvWr) {
        self.recv.push_back(wr);
        self.on_recv_available();
    }

    /// A receive can be taken: a requester that was refused may come again.
    pub(super) fn on_recv_available(&mut self) -> bool {
        let waits = core::mem::take(&mut self.not_ready_sent);
        if waits {
            // RNR NAKs make the requester wait. This saves the rest of the wait where it knows the
            // sign.
            self.replies.owe_resume();
        }
        waits
    }

    /// The process that was asked for a receive has answered. The request that waits for it comes
    /// again: at once if there is something for it, or else as one whose receiver is not ready.
    pub(super) fn on_recv_answer(&mut self, shared: &QpShared, there: bool) {
        if !core::mem::take(&mut self.asked) {
            return;
        }
        self.gap_reported = true;
        self.not_ready_sent = !there;
        let syndrome = if there {
            Syndrome::Nak(NakCode::Sequence)
        } else {
            Syndrome::RnrNak(shared.attr.min_rnr_timer)
        };
        self.replies.owe_nak(syndrome, self.expected);
    }

    pub(super) fn wants_transmit(&self) -> bool {
        self.replies.pending()
    }

    pub(super) fn owes_only_ack(&self) -> bool {
        self.replies.owes_only_ack()
    }

    /// Whether an acknowledgement or a NAK is what it sends next.
    pub(super) fn owes_word(&self) -> bool {
        self.replies.owes_word()
    }

    /// See [`RcQp::owe_parting_ack`](super::RcQp::owe_parting_ack).
    pub(super) fn owe_parting_ack(&mut self, shared: &QpShared) {
        // Behind a receiver-not-ready NAK it would say that a receive has come.
        if self.expected != shared.attr.rq_psn && !self.not_ready_sent {
            self.replies.owe_ack();
        }
    }

    /// Appends the next answer to `out`, if one is owed.
    pub(super) fn transmit(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool, Reject> {
        let (expected, msn) = (self.expected, self.msn);
        self.replies
            .transmit(shared, cx, expected, msn, &self.reorder, out)
    }

    /// A request packet.
    pub(super) fn on_request(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), Reject> {
        self.reorder.expire(shared.mtu(), cx.now);
        match packet.bth.psn.distance(self.expected) {
            0 => {}
            1.. => {
                cx.sink.note(Noted::OutOfSequenceRequest);
                // IBTA volume 1, chapter 9: one NAK for a gap, with the PSN that is expected.
                if self.keep(shared, packet, cx.now) {
                    self.report_gap();
                }
                return Ok(());
            }
            _ => {
                cx.sink.note(Noted::DuplicateRequest);
                self.on_duplicate(shared, packet);
                if !self.reorder.is_empty() {
                    // Our word about the gap was lost.
                    self.report_gap();
                }
                return Ok(());
            }
        }
        self.begin_in_turn();
        self.report_established(shared, cx);
        if !self.reorder.meet(packet, shared.mtu()) {
            self.report_gap();
            return Ok(());
        }
        self.take(shared, cx, packet)?;
        if !self.reorder.is_empty() {
            self.take_reordered(shared, cx, packet.bth.is_vouched())?;
        }
        Ok(())
    }

    /// Keeps a packet behind a gap, if the peer is a Ferroce. Returns whether the requester is to
    /// hear of it: there is another gap, or it asks.
    fn keep(&mut self, shared: &QpShared, packet: &Packet<'_>, now: Time) -> bool {
        if !shared.selective_repeat() || self.halted {
            return !self.gap_reported;
        }
        let (mtu, reads) = (shared.mtu(), shared.attr.max_dest_rd_atomic);
        match self.reorder.keep(packet, self.expected, mtu, reads, now) {
            Kept::News => true,
            Kept::Known => packet.bth.ack_req || !self.gap_reported,
            Kept::Refused => false,
        }
    }

    /// A request came in its turn: what was said about one that was missing is out of date.
    pub(super) fn begin_in_turn(&mut self) {
        self.gap_reported = false;
        self.asked = false;
        self.halted = false;
        self.replies.drop_nak();
    }

    /// Whether the next message is the first packet of all that comes, and finds the receives of
    /// the queue pair's own.
    #[inline]
    pub(super) fn is_between(&self, shared: &QpShared) -> bool {
        self.message.is_none()
            && self.held.is_none()
            && self.reorder.is_empty()
            && !shared.config.takes_shared()
    }

    /// PSN and MSN that an acknowledgement has now.
    pub(super) fn acknowledged(&self) -> (Psn, Msn) {
        (self.expected.minus(1), self.msn)
    }

    /// Whether a requester waits for a receive.
    pub(super) fn is_waited_for(&self) -> bool {
        self.not_ready_sent
    }

    /// Executes the expected request.
    fn take(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), Reject> {
        match self.execute(shared, cx, packet) {
            Ok(()) => {
                // A requester that came again by itself takes no turn from those that wait.
                self.not_ready_sent = false;
                Ok(())
            }
            // An error of class B (IBTA): the NAK asks for a repetition, and the queue pair stays.
            Err(Stop::NotReady) => {
                // No receive is there for what follows either: it is dropped without a word.
                self.gap_reported = true;
                self.halted = true;
                self.not_ready_sent = true;
                cx.sink.note(Noted::NotReadySent);
                self.reorder.clear();
                let syndrome = Syndrome::RnrNak(shared.attr.min_rnr_timer);
                self.replies.owe_nak(syndrome, packet.bth.psn);
                Ok(())
            }
            Err(Stop::Asked) => {
                // It and what follows will be asked for again.
                self.gap_reported = true;
                self.halted = true;
                self.reorder.clear();
                self.asked = true;
                Ok(())
            }
            Err(Stop::NotFetched) => {
                // As for a receiver that is not ready, but it comes again at once.
                self.gap_reported = true;
                self.halted = true;
                self.reorder.clear();
                self.not_fetched = Some(packet.bth.psn);
                let syndrome = Syndrome::Nak(NakCode::NOT_FETCHED);
                self.replies.owe_nak(syndrome, packet.bth.psn);
                Ok(())
            }
            Err(Stop::Reject(reject)) => Err(reject),
        }
    }

    /// A packet came in its turn. If the requester `vouches` for the reorder buffer, executes what
    /// is in it, up to the next gap. What is missing then is reported.
    fn take_reordered(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        vouches: bool,
    ) -> Result<(), Reject> {
        let mut reorder = core::mem::take(&mut self.reorder);
        while !self.halted
            && vouches
            && let Some(taken) = reorder.take(self.expected, shared.mtu(), |packet| {
                self.take(shared, cx, packet)
            })
        {
            // The requester waits for a word about the gap, whatever the packets behind it ask for.
            self.replies.owe_ack();
            taken?;
        }
        if self.halted || reorder.is_empty() {
            return Ok(());
        }
        self.reorder = reorder;
        self.report_gap();
        Ok(())
    }

    /// Tells the requester that the expected packet is missing. (IBTA: an error of class B.)
    fn report_gap(&mut self) {
        self.gap_reported = true;
        let syndrome = Syndrome::Nak(NakCode::Sequence);
        self.replies.owe_nak(syndrome, self.expected);
    }

    /// The first packet that came in order tells a program that waits in RTR that its peer is
    /// there.
    pub(crate) fn report_established(&mut self, shared: &QpShared, cx: &mut Cx<'_>) {
        if shared.attr.qp_state == QpState::Rtr && !self.comm_established {
            self.comm_established = true;
            cx.sink.event(QpEvent::CommEstablished);
        }
    }

    /// A request that was taken before: our answer was lost or is late. Nothing is executed again.
    /// (IBTA C9-105.)
    fn on_duplicate(&mut self, shared: &QpShared, packet: &Packet<'_>) {
        if is_answered(packet) {
            self.replies.resources.repeat(packet, shared.mtu());
        } else {
            // No resource was taken for a SEND or WRITE. The PSN of the acknowledgement covers it.
            self.replies.owe_ack();
        }
    }

    /// Whether a request is one that the requester may send now. That is the expected one, or one
    /// that it does not know to be taken, as the acknowledgement or answer may be lost.
    pub(super) fn may_be_sent_now(&self, shared: &QpShared, packet: &Packet<'_>) -> bool {
        match packet.bth.psn.distance(self.expected) {
            0 => true,
            1.. => false,
            // A READ or atomic that was taken long ago has lost its place among the resources.
            _ if is_answered(packet) => self.replies.resources.knows(packet, shared.mtu()),
            behind => -behind <= MAX_UNACKNOWLEDGED,
        }
    }

    /// The queue pair went to ERR because of a request: the peer is told, after the answers to
    /// earlier requests.
    pub(super) fn end_with(&mut self, reject: &Reject) {
        match reject.nak {
            Some((code, psn)) => self.replies.end_with_nak(code, psn),
            None => self.replies.end(),
        }
    }

    /// A READ response may not be sent any more: it and what follows is replaced by the NAK.
    pub(super) fn cut_responses(&mut self) {
        self.replies.resources.clear();
    }

    /// Ends after the queue pair went to ERR for another reason.
    pub(super) fn end(&mut self) {
        self.replies.end();
    }

    /// A request that came in ERR. Returns whether it is answered.
    pub(super) fn on_late_request(&mut self, psn: Psn) -> bool {
        self.replies.on_late_request(psn)
    }

    /// Completes all receives in error: the one in hand with `first` if that is given, the others
    /// as flushed.
    pub(crate) fn flush(&mut self, shared: &QpShared, cx: &mut Cx<'_>, first: Option<Fault>) {
        if let Some(recv) = self.held.take() {
            let fault = first.unwrap_or(Fault::FLUSHED);
            let wc = failed(recv_completion(shared, &recv.wr), fault);
            // An error counts as solicited (ibv_req_notify_cq(3)).
            recv.complete(cx, wc, true);
        }
        flush_recvs(&mut self.recv, shared, cx);
        self.message = None;
        self.reorder.clear();
        self.not_ready_sent = false;
    }
}

/// Whether a request is answered by more than an acknowledgement.
fn is_answered(packet: &Packet<'_>) -> bool {
    let operation = packet.bth.opcode.info().map(|info| info.operation);
    matches!(
        operation,
        Some(
            Operation::ReadRequest
                | Operation::CompareSwap
                | Operation::FetchAdd
                | Operation::AtomicWrite
                | Operation::Flush
        )
    )
}

/// Completes receives as flushed.
pub(crate) fn flush_recvs(all: &mut VecDeque<RecvWr>, shared: &QpShared, cx: &mut Cx<'_>) {
    for recv in all.drain(..) {
        let wc = failed(recv_completion(shared, &recv), Fault::FLUSHED);
        // An error counts as solicited (ibv_req_notify_cq(3)).
        cx.sink.recv_completion(wc, true);
    }
}

/// A successful completion of a receive.
pub(crate) fn recv_completion(shared: &QpShared, recv: &RecvWr) -> Wc {
    Wc {
        wr_id: recv.wr_id,
        status: WcStatus::Success,
        opcode: WcOpcode::Recv,
        vendor_err: 0,
        byte_len: 0,
        imm: None,
        qp_num: shared.config.qpn,
        src_qp: shared.attr.dest_qp_num,
        sl: 0,
        flags: WcFlags::empty(),
    }
}
