//! The requester: turns posted work into request packets, within window, depth and fence, and sends again what was lost.
//!
//! Answers are dealt with in [`completer`](super::completer).

use alloc::vec::Vec;

use super::Cx;
use super::config::{PACKET_COST, Shared};
use super::fault::{Cause, Fault, SendFault};
use super::flight::Flight;
use super::retry::{Due, Retry};
use super::scatter;
use super::segment::{Segment, segment};
use super::send_queue::{Answer, SendQueue, Wqe};
use super::window::Window;
use crate::ids::Psn;
use crate::time::Time;
use crate::verbs::{QpState, SendFlags, SendOp, SendWr, Wc, WcFlags, WcOpcode, WcStatus};
use crate::wire::{Bth, Packet, padded_len};

/// An early question about packets that nobody answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    /// None under way.
    Idle,
    /// The oldest packet is to be sent once more.
    Wanted,
    /// It was. Once `until` is acknowledged, what else was sent before the probe (up to `limit`) and is not acknowledged by
    /// then is lost: the responder answers in order.
    Sent { until: u64, limit: u64 },
}

/// Requester half of a queue pair.
#[derive(Debug)]
pub(super) struct Requester {
    pub(super) queue: SendQueue,
    pub(super) flight: Flight,
    pub(super) window: Window,
    pub(super) retry: Retry,
    pub(super) probe: Probe,
    /// Went back already because of a NAK or a response passed over; not again before there is progress.
    pub(super) went_back: bool,
    /// The next packet cannot be built. Earlier work requests are completed first.
    pub(super) stuck: Option<Fault>,
    /// Cost of what was sent since the last packet with AckReq.
    unasked: u64,
    pub(super) peer_gone: bool,
}

impl Requester {
    pub(super) fn new() -> Self {
        Self {
            queue: SendQueue::default(),
            flight: Flight::default(),
            window: Window::default(),
            retry: Retry::default(),
            probe: Probe::Idle,
            went_back: false,
            stuck: None,
            unasked: 0,
            peer_gone: false,
        }
    }

    /// The queue pair moves to RTS for the first time.
    pub(super) fn start(&mut self, shared: &Shared) {
        self.flight = Flight::new(shared.attr.sq_psn);
        self.window = Window::new(shared.link.max_in_flight, shared.mtu() + PACKET_COST);
    }

    /// The link's traits changed.
    pub(super) fn on_link_change(&mut self, shared: &Shared) {
        self.window.set_limit(shared.link.max_in_flight);
        self.peer_gone = false;
        if self.flight.outstanding() {
            self.retry.on_link_change();
        }
    }

    /// Queues a work request that passed the checks.
    pub(super) fn post(
        &mut self,
        shared: &Shared,
        cx: &mut Cx<'_>,
        wr: SendWr,
    ) -> Result<(), SendFault> {
        self.queue.push(wr, shared);
        self.run_local(shared, cx)?;
        if self.peer_gone && self.queue.len() > 0 {
            return Err(Fault::PEER_GONE.into());
        }
        Ok(())
    }

    /// The peer's process is gone.
    pub(super) fn on_peer_gone(&mut self) -> Result<(), SendFault> {
        self.peer_gone = true;
        if self.queue.len() > 0 {
            return Err(Fault::PEER_GONE.into());
        }
        Ok(())
    }

    /// The lossless link dropped a packet.
    pub(super) fn on_dropped(&mut self, shared: &Shared, now: Time) {
        if self.flight.outstanding() {
            self.retry.on_dropped(shared, now);
        }
    }

    /// Work requests in the queue.
    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// PSN of the next packet.
    pub(super) fn next_psn(&self) -> Psn {
        self.flight.psn(self.flight.next())
    }

    /// When [`on_deadline`](Self::on_deadline) is due.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.retry.deadline()
    }

    /// Whether every started message is done and acknowledged.
    pub(super) fn drained(&self) -> bool {
        self.queue
            .front()
            .is_none_or(|wqe| wqe.start >= self.flight.limit())
    }

    /// Whether [`transmit`](Self::transmit) would send a packet (or find that it cannot be built).
    pub(super) fn wants_transmit(&self, shared: &Shared) -> bool {
        !self.retry.waits_for_receiver()
            && (self.probe == Probe::Wanted || self.next_request(shared).is_some())
    }

    /// The work request whose packet is next, if that may go out now.
    fn next_request(&self, shared: &Shared) -> Option<&Wqe> {
        let wqe = self.queue.at_cursor().filter(|_| self.stuck.is_none())?;
        let flight = &self.flight;
        let may_start = match shared.attr.qp_state {
            QpState::Rts => true,
            QpState::Sqd => wqe.start < flight.limit(),
            _ => return None,
        };
        let at_start = flight.next() == wqe.start;
        let waits = match wqe.answer() {
            Answer::Local => true,
            Answer::Ack => false,
            Answer::Read | Answer::Atomic => {
                flight.requests() >= u32::from(shared.attr.max_rd_atomic)
            }
        };
        if waits || at_start && (!may_start || wqe.fenced() && flight.requests() > 0) {
            return None;
        }
        let to = wqe.request_end(flight.next());
        let cost = wqe.cost(flight.next(), to, shared.mtu());
        flight
            .has_room(to, cost, self.window.current())
            .then_some(wqe)
    }

    /// Appends the next request packet to `out`, if there is one that may go out.
    pub(super) fn transmit(
        &mut self,
        shared: &Shared,
        cx: &mut Cx<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool, SendFault> {
        if self.retry.waits_for_receiver() {
            return Ok(false);
        }
        if self.probe == Probe::Wanted {
            return self.transmit_probe(shared, cx, out).map(|()| true);
        }
        let Some(wqe) = self.next_request(shared) else {
            return Ok(false);
        };
        let sequence = self.flight.next();
        let to = wqe.request_end(sequence);
        let cost = wqe.cost(sequence, to, shared.mtu());
        let counts = matches!(wqe.answer(), Answer::Read | Answer::Atomic);
        let ask = self.must_ask(shared, cost);
        let asked = match self.emit(shared, cx, (wqe, sequence, ask), out) {
            Ok(asked) => asked,
            Err(fault) if self.queue.cursor_is_front() => return Err(fault.into()),
            Err(fault) => {
                self.stuck = Some(fault);
                return Ok(false);
            }
        };
        let ended = to == wqe.end();
        let is_new = sequence >= self.flight.limit();
        self.unasked = if asked { 0 } else { self.unasked + cost };
        self.flight.on_sent(to, cost, counts);
        if ended {
            self.queue.advance_cursor();
        }
        self.retry
            .on_sent(shared, cx.now, (is_new && asked).then_some(sequence));
        Ok(true)
    }

    /// Whether a packet of this cost must ask for an acknowledgement although its message goes on.
    fn must_ask(&self, shared: &Shared, cost: u64) -> bool {
        let window = self.window.current();
        let next = self.flight.next() + 2;
        let full = u64::from(shared.mtu() + PACKET_COST);
        self.unasked + cost >= window / 4 || !self.flight.has_room(next, cost + full, window)
    }

    /// Sends the oldest unacknowledged packet once more, with AckReq.
    fn transmit_probe(
        &mut self,
        shared: &Shared,
        cx: &mut Cx<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), SendFault> {
        let sequence = self.flight.oldest();
        self.probe = Probe::Idle;
        let Some(wqe) = self.queue.front() else {
            return Ok(());
        };
        let until = wqe.request_end(sequence);
        self.emit(shared, cx, (wqe, sequence, true), out)?;
        self.mark_restarted();
        self.probe = Probe::Sent {
            until,
            limit: self.flight.next(),
        };
        Ok(())
    }

    /// Appends one packet. Returns whether it asks for an acknowledgement. On error `out` is as it was.
    fn emit(
        &self,
        shared: &Shared,
        cx: &Cx<'_>,
        (wqe, sequence, ask): (&Wqe, u64, bool),
        out: &mut Vec<u8>,
    ) -> Result<bool, Fault> {
        let Some(segment) = segment(wqe, sequence, shared.mtu()) else {
            return Ok(false);
        };
        let Segment { offset, len, .. } = segment;
        let ack_req = ask || segment.ends;
        let bth = Bth {
            solicited: segment.solicited,
            ack_req,
            ..Bth::new(
                segment.opcode,
                shared.attr.dest_qp_num,
                self.flight.psn(sequence),
            )
        };
        let begin = out.len();
        let payload_len = len as usize;
        Packet::emit_headers(&bth, &segment.ext, payload_len, out);
        let end = out.len() + padded_len(payload_len);
        let gathered = scatter::gather(cx, shared.config.pd, &wqe.wr.payload, (offset, len), out);
        if gathered.is_err() {
            out.truncate(begin);
            return Err(Fault::LOCAL_KEY);
        }
        out.resize(end, 0);
        Ok(ack_req)
    }

    /// Goes back to the oldest unacknowledged packet.
    pub(super) fn go_back(&mut self) {
        self.flight.rewind();
        self.queue.rewind_cursor();
        self.retry.on_resend();
        self.probe = Probe::Idle;
        self.stuck = None;
        self.unasked = 0;
        self.mark_restarted();
    }

    /// The oldest packet is sent again: if it is in the middle of a READ, a response may start there.
    fn mark_restarted(&mut self) {
        if let Some(wqe) = self.queue.front_mut() {
            wqe.restarted = true;
        }
    }

    /// Goes back because packets were lost, and makes the window smaller.
    pub(super) fn on_loss(&mut self, shared: &Shared) {
        if !shared.link.lossless {
            self.window
                .on_loss(self.flight.oldest(), self.flight.limit());
        }
        self.go_back();
    }

    /// What is due now.
    pub(super) fn on_deadline(&mut self, shared: &Shared, cx: &Cx<'_>) -> Result<(), SendFault> {
        match self.retry.on_deadline(shared, cx.now) {
            Due::Nothing => {}
            Due::Probe if self.flight.next() > self.flight.oldest() => self.probe = Probe::Wanted,
            Due::Probe => {}
            Due::Resend => {
                self.went_back = false;
                self.on_loss(shared);
            }
            Due::Exhausted => {
                return Err(Fault::new(WcStatus::RetryExcErr, Cause::NoAnswer).into());
            }
        }
        Ok(())
    }

    /// Takes the oldest work request, which is done, off the queue.
    pub(super) fn retire(&mut self, shared: &Shared, cx: &mut Cx<'_>) -> Result<(), SendFault> {
        self.retire_one(shared, cx)?;
        self.run_local(shared, cx)?;
        match self.stuck {
            Some(fault) if self.queue.cursor_is_front() => Err(fault.into()),
            _ => Ok(()),
        }
    }

    fn retire_one(&mut self, shared: &Shared, cx: &mut Cx<'_>) -> Result<(), SendFault> {
        let Some(wqe) = self.queue.pop() else {
            return Ok(());
        };
        let signalled = shared.config.sq_sig_all || wqe.wr.flags.contains(SendFlags::SIGNALED);
        let byte_len = match wqe.answer() {
            Answer::Read | Answer::Atomic => wqe.length,
            Answer::Ack | Answer::Local => 0,
        };
        let wc = Wc {
            byte_len,
            ..completion(shared, &wqe.wr)
        };
        if signalled && !cx.sink.send_completion(wc, false) {
            return Err(SendFault::CqOverflow);
        }
        Ok(())
    }

    /// Runs local operations at the head of the queue: they wait for everything before them, and what follows for them.
    pub(super) fn run_local(&mut self, shared: &Shared, cx: &mut Cx<'_>) -> Result<(), SendFault> {
        while shared.attr.qp_state == QpState::Rts
            && let Some(Wqe {
                wr:
                    SendWr {
                        op: SendOp::LocalInvalidate(key),
                        ..
                    },
                ..
            }) = self.queue.front()
        {
            if cx.rights.invalidate(*key, shared.config.pd).is_err() {
                let fault = Fault::new(WcStatus::MwBindErr, Cause::InvalidateFailed);
                return Err(fault.into());
            }
            self.retire_one(shared, cx)?;
        }
        Ok(())
    }

    /// Completes everything in error: the oldest work request with `first` if that is given, the others as flushed.
    pub(super) fn flush(&mut self, shared: &Shared, cx: &mut Cx<'_>, first: Option<Fault>) {
        let mut fault = first.unwrap_or(Fault::FLUSHED);
        while let Some(wqe) = self.queue.pop() {
            let wc = failed(completion(shared, &wqe.wr), fault);
            // A full CQ loses the completion; the owner raises the CQ error and the queue pair is in ERR already.
            cx.sink.send_completion(wc, true);
            fault = Fault::FLUSHED;
        }
        self.flight.abandon();
        self.retry = Retry::default();
        self.probe = Probe::Idle;
        self.stuck = None;
    }
}

/// A successful completion of a send work request.
fn completion(shared: &Shared, wr: &SendWr) -> Wc {
    Wc {
        wr_id: wr.wr_id,
        status: WcStatus::Success,
        opcode: opcode(wr.op),
        vendor_err: 0,
        byte_len: 0,
        imm: None,
        qp_num: shared.config.qpn,
        src_qp: shared.attr.dest_qp_num,
        flags: WcFlags::empty(),
    }
}

/// The same completion as a failure.
pub(super) fn failed(wc: Wc, fault: Fault) -> Wc {
    Wc {
        status: fault.status,
        vendor_err: fault.cause as u32,
        ..wc
    }
}

const fn opcode(op: SendOp) -> WcOpcode {
    match op {
        SendOp::Send | SendOp::SendImm(_) | SendOp::SendInvalidate(_) => WcOpcode::Send,
        SendOp::Write(_) | SendOp::WriteImm(..) => WcOpcode::RdmaWrite,
        SendOp::Read(_) => WcOpcode::RdmaRead,
        SendOp::CompareSwap { .. } => WcOpcode::CompSwap,
        SendOp::FetchAdd { .. } => WcOpcode::FetchAdd,
        SendOp::LocalInvalidate(_) => WcOpcode::LocalInv,
    }
}
