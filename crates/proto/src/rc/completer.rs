//! The completer: what answers of the peer mean for posted work.
//!
//! Work requests complete strictly in order. A SEND or WRITE is done when it or anything later is
//! acknowledged. A READ or atomic is done only by its own response, so an answer that passes it
//! over says that the response was lost.

use super::config::QpShared;
use super::fault::{Cause, Fault, SendFault};
use super::requester::{Probe, Requester};
use super::scatter;
use super::send_queue::CompletedBy;
use super::{Cx, Noted};
use crate::time::Time;
use crate::verbs::WcStatus;
use crate::wire::{NakCode, Operation, Packet, Position, Syndrome, rnr_timer};

/// A response packet, and what its opcode says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Response<'p, 'b> {
    pub(super) packet: &'p Packet<'b>,
    pub(super) operation: Operation,
    pub(super) position: Position,
}

impl Requester {
    /// A response packet.
    pub(super) fn on_response(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        response: Response<'_, '_>,
    ) -> Result<(), SendFault> {
        let packet = response.packet;
        let sequence = match self.flight.sequence_of(packet.bth.psn) {
            Ok(sequence) => sequence,
            Err(_) if self.takes_all(packet) => {
                return self.acknowledge(shared, cx, self.flight.limit()).map(drop);
            }
            Err(distance) => {
                self.on_stale(packet, distance);
                return Ok(());
            }
        };
        match response.operation {
            Operation::Acknowledge => self.on_acknowledge(shared, cx, packet, sequence),
            Operation::ReadResponse | Operation::AtomicAcknowledge => {
                self.on_answer(shared, cx, response, sequence)
            }
            // `on_packet` passes responses only.
            _ => Ok(()),
        }
    }

    /// Whether a NAK says that what was never sent is missing: something forged came ahead of it.
    /// All that was sent has arrived.
    fn takes_all(&self, packet: &Packet<'_>) -> bool {
        let gap = Syndrome::Nak(NakCode::Sequence);
        self.flight.outstanding()
            && packet.ext.aeth.is_some_and(|aeth| aeth.syndrome == gap)
            && packet.bth.psn == self.flight.psn(self.flight.limit())
    }

    /// Takes an answer to nothing that is outstanding: a duplicate, or from before a reset. Only a
    /// repeated last acknowledgement has a meaning: the peer sends it when a receive is posted
    /// after an RNR NAK.
    fn on_stale(&mut self, packet: &Packet<'_>, distance: i32) {
        let is_ack = packet
            .ext
            .aeth
            .is_some_and(|aeth| matches!(aeth.syndrome, Syndrome::Ack(_)));
        if distance == -1 && is_ack {
            self.retry.end_rnr_wait();
        }
    }

    fn on_acknowledge(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        sequence: u64,
    ) -> Result<(), SendFault> {
        // The parser gives every acknowledgement an AETH.
        let Some(aeth) = packet.ext.aeth else {
            return Ok(());
        };
        match aeth.syndrome {
            // The credit count is not used: a responder without a receive sends an RNR NAK.
            Syndrome::Ack(_) => self.acknowledge(shared, cx, sequence + 1).map(drop),
            Syndrome::RnrNak(code) => {
                cx.sink.note(Noted::NotReadyHeard);
                // A NAK acknowledges all packets before its own (Linux's `qib` has it so, too).
                if self.acknowledge_or_go_back(shared, cx, sequence)? {
                    self.on_rnr_nak(shared, cx, code)?;
                }
                Ok(())
            }
            Syndrome::Nak(NakCode::Sequence) => {
                cx.sink.note(Noted::SequenceErrorHeard);
                if packet.payload.is_empty() || !shared.selective_repeat() {
                    if self.acknowledge_or_go_back(shared, cx, sequence)? {
                        self.on_implied_nak(shared);
                    }
                    return Ok(());
                }
                // The report of a gap says what becomes of the packets behind the probe.
                self.probe = Probe::Idle;
                self.acknowledge(shared, cx, sequence)?;
                self.on_gap(shared, sequence, packet.payload);
                Ok(())
            }
            Syndrome::Nak(code) => {
                if self.acknowledge_or_go_back(shared, cx, sequence)? {
                    self.on_nak(shared, code)?;
                }
                Ok(())
            }
            // IBTA reserves this syndrome: it neither acknowledges nor refuses.
            Syndrome::Reserved(_) => Ok(()),
        }
    }

    /// Takes everything before `to` as acknowledged, since acknowledgements coalesce (IBTA
    /// 9.7.5.1.2). Answers that come before that and are not here were lost. Returns false if there
    /// are any.
    pub(super) fn acknowledge(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        to: u64,
    ) -> Result<bool, SendFault> {
        if self.advance(shared, cx, to)? {
            return Ok(true);
        }
        if shared.selective_repeat() {
            self.acknowledged_to = self.acknowledged_to.max(to);
            self.ask_for_answers(shared, to);
        } else {
            self.on_implied_nak(shared);
        }
        Ok(false)
    }

    /// As [`acknowledge`](Self::acknowledge), for what refuses the packet `to`: if answers were
    /// lost everything from there on is sent again, that packet too.
    fn acknowledge_or_go_back(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        to: u64,
    ) -> Result<bool, SendFault> {
        let complete = self.advance(shared, cx, to)?;
        if !complete {
            self.on_implied_nak(shared);
        }
        Ok(complete)
    }

    /// Takes everything before `to` as acknowledged. Returns false if a READ or atomic in between
    /// has no answer.
    fn advance(&mut self, shared: &QpShared, cx: &mut Cx<'_>, to: u64) -> Result<bool, SendFault> {
        let from = self.flight.oldest();
        let mut bytes = 0;
        let mut complete = true;
        let mut outcome = Ok(());
        while self.flight.oldest() < to && outcome.is_ok() {
            let Some(wqe) = self.queue.front() else {
                break;
            };
            // Only its own response completes a READ or an atomic.
            if wqe.answer() != CompletedBy::Ack {
                complete = false;
                break;
            }
            let end = wqe.end();
            bytes += self.flight.on_acknowledged(shared, wqe, to.min(end));
            if self.flight.oldest() == end {
                outcome = self.retire(shared, cx);
            }
        }
        if self.flight.oldest() > from {
            self.on_progress(shared, cx.now, bytes);
        }
        outcome.map(|()| complete)
    }

    /// Packets were acknowledged for the first time.
    pub(super) fn on_progress(&mut self, shared: &QpShared, now: Time, bytes: u64) {
        let oldest = self.flight.oldest();
        let outstanding = self.flight.outstanding();
        self.window.on_progress(bytes);
        self.retry.on_progress(shared, now, oldest, outstanding);
        self.went_back = false;
        if !self.selective_repeat.is_at_rest() {
            self.selective_repeat.on_progress(oldest);
        }
        match self.probe {
            Probe::Idle => {}
            Probe::Wanted => self.probe = Probe::Idle,
            Probe::Sent { until, limit } if oldest >= until => {
                self.probe = Probe::Idle;
                // More than the probe: the responder was only late, and is still at it; or its
                // reorder buffer has kept packets.
                if oldest == until && oldest < limit && self.reorder.is_empty() {
                    self.on_loss(shared);
                }
            }
            Probe::Sent { .. } => {}
        }
    }

    /// An answer passed over the oldest packet's. Further ones say the same until there is
    /// progress, and nothing new to a requester that waits for a receiver anyway.
    pub(super) fn on_implied_nak(&mut self, shared: &QpShared) {
        if !self.went_back && !self.retry.waits_for_receiver() {
            self.went_back = true;
            self.on_loss(shared);
        }
    }

    fn on_rnr_nak(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        timer_code: u8,
    ) -> Result<(), SendFault> {
        // The NAK repeats one that was counted: `rnr_retry` counts waits.
        if self.retry.waits_for_receiver() {
            return Ok(());
        }
        self.go_back();
        // What is sent after the wait may be lost again.
        self.went_back = false;
        // `rnr_retry` of ibv_modify_qp(3) is used up otherwise.
        if self.retry.on_rnr_nak(shared, cx.now, rnr_timer(timer_code)) {
            if self.retry.waits_long(cx.now) {
                cx.sink.waits_for_receiver();
            }
            Ok(())
        } else {
            Err(Fault::new(WcStatus::RnrRetryExcErr, Cause::NotReady).into())
        }
    }

    /// A NAK about the oldest packet, which is not about a gap.
    fn on_nak(&mut self, shared: &QpShared, code: NakCode) -> Result<(), SendFault> {
        // The statuses are those of ibv_poll_cq(3) for the NAK codes of IBTA volume 1, chapter 9.
        let fault = match code {
            NakCode::NOT_FETCHED => {
                self.on_not_fetched(shared);
                return Ok(());
            }
            NakCode::InvalidRequest => (WcStatus::RemInvReqErr, Cause::NakInvalidRequest),
            NakCode::RemoteAccess => (WcStatus::RemAccessErr, Cause::NakRemoteAccess),
            NakCode::RemoteOperational => (WcStatus::RemOpErr, Cause::NakRemoteOperational),
            // The caller has dealt with a gap. Code 4 is for reliable datagrams, and IBTA reserves
            // the others.
            NakCode::Sequence | NakCode::Other(_) => return Ok(()),
        };
        Err(Fault::new(fault.0, fault.1).into())
    }

    /// The answer to a READ or atomic.
    fn on_answer(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        answer: Response<'_, '_>,
        sequence: u64,
    ) -> Result<(), SendFault> {
        if shared.selective_repeat() && !self.is_asked_for(shared, answer, sequence) {
            return Ok(());
        }
        self.reorder.expire(shared.mtu(), cx.now);
        let before = self.flight.oldest()..sequence;
        if shared.selective_repeat() && self.flight.requests_in(before).next().is_some() {
            // Nor does it acknowledge what was sent before the one that is missing: it may be
            // forged.
            self.keep_answer(shared, answer.packet, sequence, cx.now);
        } else if self.advance(shared, cx, sequence)? {
            if !self.reorder.meet(answer.packet, shared.mtu()) {
                self.ask_for_answers(shared, sequence + 1);
                return Ok(());
            }
            self.take_answer(shared, cx, answer, sequence)?;
            if !self.reorder.is_empty() || self.acknowledged_to > self.flight.oldest() {
                self.take_reordered(shared, cx, answer.packet.bth.is_vouched())?;
            }
        } else {
            self.on_implied_nak(shared);
        }
        Ok(())
    }

    /// The answer to the oldest packet.
    fn take_answer(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        answer: Response<'_, '_>,
        sequence: u64,
    ) -> Result<(), SendFault> {
        if answer.operation == Operation::AtomicAcknowledge {
            self.take_result(shared, cx, answer.packet, sequence)
        } else {
            self.take_read_response(shared, cx, answer.packet, answer.position, sequence)
        }
    }

    /// Whether a request that was sent asks for an answer of this kind and length with this PSN.
    /// Between two Ferroces another one is forged.
    fn is_asked_for(&self, shared: &QpShared, answer: Response<'_, '_>, sequence: u64) -> bool {
        let wqe = self
            .flight
            .request_at(sequence)
            .and_then(|_| self.queue.find(sequence));
        let Some(wqe) = wqe else {
            return false;
        };
        let (mtu, len) = (shared.mtu(), answer.packet.payload.len());
        let is_read = answer.operation == Operation::ReadResponse;
        match wqe.answer() {
            CompletedBy::Read => {
                let expected = wqe.offset(sequence + 1, mtu) - wqe.offset(sequence, mtu);
                is_read && len == expected as usize
            }
            CompletedBy::Empty => is_read && len == 0,
            CompletedBy::Atomic => !is_read && answer.packet.ext.atomic_ack.is_some(),
            CompletedBy::Ack | CompletedBy::Local => false,
        }
    }

    /// Takes what was acknowledged behind an answer. If the responder `vouches` for the answers in
    /// the reorder buffer, takes those too, up to the next one that is missing.
    fn take_reordered(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        vouches: bool,
    ) -> Result<(), SendFault> {
        while let Some(psn) = self.reorder.first() {
            let known = self.flight.sequence_of(psn);
            if let (Ok(sequence), false) = (known, vouches) {
                self.advance(shared, cx, self.acknowledged_to.min(sequence))?;
                self.ask_for_next_answer(sequence);
                return Ok(());
            }
            if let Ok(sequence) = known
                && !self.advance(shared, cx, sequence)?
            {
                return Ok(());
            }
            // What was answered in the meantime is not wanted any longer.
            if let (Some(reorder), Ok(sequence)) = (self.reorder.pop(shared.mtu()), known)
                && let packet = reorder.packet()
                && let Some(info) = packet.bth.opcode.info()
            {
                let answer = Response {
                    packet: &packet,
                    operation: info.operation,
                    position: info.position,
                };
                self.take_answer(shared, cx, answer, sequence)?;
            }
        }
        self.advance(shared, cx, self.acknowledged_to).map(drop)
    }

    /// The READ response to the oldest packet.
    fn take_read_response(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        position: Position,
        sequence: u64,
    ) -> Result<(), SendFault> {
        let Some(wqe) = self.queue.front() else {
            return Ok(());
        };
        let offset = self.check_read_response(shared, packet, position, sequence)?;
        let (pd, sges) = (shared.config.pd, wqe.sges());
        scatter::scatter(cx, pd, sges, u64::from(offset), packet.payload)
            .map_err(|_| Fault::LOCAL_KEY)?;
        self.on_answered(shared, cx, sequence)
    }

    /// The result of the atomic that is the oldest packet.
    fn take_result(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        sequence: u64,
    ) -> Result<(), SendFault> {
        let Some(wqe) = self.queue.front() else {
            return Ok(());
        };
        let Some(original) = packet
            .ext
            .atomic_ack
            .filter(|_| wqe.answer() == CompletedBy::Atomic)
        else {
            return Err(Fault::BAD_RESPONSE.into());
        };
        // The result is a number of this host; on the wire it is big-endian.
        let (pd, sges) = (shared.config.pd, wqe.sges());
        scatter::scatter(cx, pd, sges, 0, &original.to_ne_bytes()).map_err(|_| Fault::LOCAL_KEY)?;
        self.on_answered(shared, cx, sequence)
    }

    /// The oldest packet, of a READ or atomic, has its answer.
    fn on_answered(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        sequence: u64,
    ) -> Result<(), SendFault> {
        let Some(wqe) = self.queue.front() else {
            return Ok(());
        };
        let ended = sequence + 1 == wqe.end();
        let jumped = sequence >= self.flight.next();
        let bytes = self.flight.on_acknowledged(shared, wqe, sequence + 1);
        if jumped {
            // It went back, and an answer came all the same: from here it may be asked for in the
            // middle.
            self.mark_repeated();
        }
        let outcome = if ended {
            self.retire(shared, cx)
        } else {
            Ok(())
        };
        self.on_progress(shared, cx.now, bytes);
        outcome
    }

    /// Checks a READ response to the oldest packet against the request. Returns where in the
    /// message its payload belongs.
    fn check_read_response(
        &self,
        shared: &QpShared,
        packet: &Packet<'_>,
        position: Position,
        sequence: u64,
    ) -> Result<u32, Fault> {
        let (Some(wqe), Some(request)) = (self.queue.front(), self.flight.request_at(sequence))
        else {
            return Err(Fault::BAD_RESPONSE);
        };
        if !matches!(wqe.answer(), CompletedBy::Read | CompletedBy::Empty) {
            return Err(Fault::BAD_RESPONSE);
        }
        let (starts, ends) = (sequence == request.start, sequence + 1 == request.end);
        let is_part = self.selective_repeat.may_be_part(sequence);
        // The responder cuts a repeated READ anew: its first response may be in the middle of the
        // message.
        let starts = starts || (wqe.repeated || is_part) && position.starts();
        let ends = ends || is_part && position.ends();
        let accepted = packet
            .ext
            .aeth
            .is_none_or(|aeth| matches!(aeth.syndrome, Syndrome::Ack(_)));
        let offset = wqe.offset(sequence, shared.mtu());
        let expected = match wqe.answer() {
            CompletedBy::Empty => 0,
            _ => (wqe.offset(sequence + 1, shared.mtu()) - offset) as usize,
        };
        // Too many bytes are a local length error (as in Linux's `qib`), anything else is a bad
        // response.
        if packet.payload.len() > expected {
            return Err(Fault::new(WcStatus::LocLenErr, Cause::ResponseTooLong));
        }
        if position != Position::from_ends(starts, ends)
            || !accepted
            || packet.payload.len() != expected
        {
            return Err(Fault::BAD_RESPONSE);
        }
        Ok(offset)
    }
}
