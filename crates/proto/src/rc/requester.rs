//! The requester: keeps posted work and what is in flight of it, goes back when packets were lost,
//! retires what is done.
//!
//! Sending is in [`transmit`](super::transmit), answers are dealt with in
//! [`completer`](super::completer).

use super::back_off::BackOff;
use super::config::{PACKET_COST, QpShared};
use super::direct::Moved;
use super::fault::{Cause, Fault, SendFault};
use super::flight::Flight;
use super::rendezvous::RendezvousSender;
use super::reorder::ReorderBuffer;
use super::retry::{Due, Retry};
use super::selective_repeat::SelectiveRepeat;
use super::send_queue::{CompletedBy, SendQueue};
use super::window::SendWindow;
use super::{Cx, LocalCx, Noted, Sink};
use crate::ids::Psn;
use crate::time::Time;
use crate::verbs::{QpState, SendFlags, SendOp, SendWr, Wc, WcFlags, WcOpcode, WcStatus};

/// An early question about packets that nobody answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    /// None under way.
    Idle,
    /// The oldest packet is to be sent once more.
    Wanted,
    /// The probe was sent. Once `until` is acknowledged, packets before `limit` that were sent
    /// before the probe and are not acknowledged are lost. The responder answers in order.
    Sent { until: u64, limit: u64 },
}

/// Requester half of a queue pair.
#[derive(Debug)]
pub(super) struct Requester {
    pub(super) queue: SendQueue,
    pub(super) flight: Flight,
    pub(super) window: SendWindow,
    /// Bounds what is in flight besides the window.
    pub(super) allowance: u64,
    pub(super) retry: Retry,
    pub(super) probe: Probe,
    /// Went back already because of a NAK or a response passed over; not again before there is
    /// progress.
    pub(super) went_back: bool,
    /// Gaps that the peer reported. Only these packets are sent again.
    pub(super) selective_repeat: SelectiveRepeat,
    /// READ responses that came before one that is missing.
    pub(super) reorder: ReorderBuffer,
    /// The peer has taken everything before this sequence, it said while answers were missing.
    pub(super) acknowledged_to: u64,
    /// The next packet cannot be built. Earlier work requests are completed first.
    pub(super) stuck: Option<Fault>,
    /// Cost of what was sent since the last packet with AckReq.
    pub(super) unasked: u64,
    pub(super) peer_gone: bool,
    /// Progress of the oldest work request without packets.
    pub(super) moved: Moved,
    pub(super) rendezvous: RendezvousSender,
    /// Whether WRITEs and READs wait for what is in flight, to go without packets then.
    pub(super) waiting: BackOff,
}

impl Requester {
    pub(super) fn new() -> Self {
        Self {
            queue: SendQueue::default(),
            flight: Flight::default(),
            window: SendWindow::default(),
            allowance: u64::MAX,
            retry: Retry::default(),
            probe: Probe::Idle,
            went_back: false,
            selective_repeat: SelectiveRepeat::default(),
            reorder: ReorderBuffer::default(),
            acknowledged_to: 0,
            stuck: None,
            unasked: 0,
            peer_gone: false,
            moved: Moved::default(),
            rendezvous: RendezvousSender::default(),
            waiting: BackOff::default(),
        }
    }

    /// Starts when the queue pair moves to RTS for the first time.
    pub(super) fn start(&mut self, shared: &QpShared) {
        self.flight = Flight::new(shared.attr.sq_psn);
        self.acknowledged_to = 0;
        self.window = SendWindow::new(shared.link.max_in_flight, shared.mtu() + PACKET_COST);
    }

    /// The link's traits changed.
    pub(super) fn on_link_change(&mut self, shared: &QpShared) {
        self.window.set_limit(shared.link.max_in_flight);
        self.peer_gone = false;
        // Only a process of this host can fetch the bytes, and the new link leads to another one.
        if !shared.link.lossless && self.rendezvous.token.take().is_some() {
            self.send_by_packets(shared);
        }
        if self.flight.outstanding() {
            self.retry.on_link_change();
        }
        // What was on the old link may be lost without a word: the answer to a probe tells.
        if self.flight.next() > self.flight.oldest() && !self.retry.waits_for_receiver() {
            self.probe = Probe::Wanted;
        }
    }

    /// Retries had run out, and the alternate path is the path: everything that is not acknowledged
    /// is sent again, with all retries.
    pub(super) fn on_migrated(&mut self) {
        self.retry = Retry::default();
        self.went_back = false;
        self.go_back();
    }

    /// Queues a work request that passed the checks.
    #[inline]
    pub(super) fn post(&mut self, shared: &QpShared, wr: SendWr) -> Result<(), SendFault> {
        let rendezvous = self.rendezvous.token_for(&wr);
        self.queue.push(wr, shared, rendezvous);
        // The request is in the queue already, so it fails with its own completion, in its order.
        if self.peer_gone && !self.wants_local(shared) {
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
    pub(super) fn on_dropped(&mut self, shared: &QpShared, now: Time) {
        if self.flight.outstanding() {
            self.retry.on_dropped(shared, now, self.flight.limit());
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
    #[inline]
    pub(super) fn deadline(&self) -> Option<Time> {
        self.retry.deadline()
    }

    /// Whether every started message is done and acknowledged.
    pub(super) fn drained(&self) -> bool {
        self.queue
            .front()
            .is_none_or(|wqe| wqe.start >= self.flight.limit())
    }

    /// Goes back to the oldest unacknowledged packet.
    pub(super) fn go_back(&mut self) {
        self.flight.rewind();
        self.queue.rewind_cursor();
        self.retry.on_resend();
        self.probe = Probe::Idle;
        self.selective_repeat.restart();
        // The READs are sent again, and their answers come once more.
        self.reorder.clear();
        // The packet that could not be built is tried again when its turn comes.
        self.stuck = None;
        self.unasked = 0;
        self.mark_repeated();
    }

    /// Takes note that the oldest packet is sent again.
    pub(super) fn mark_repeated(&mut self) {
        if let Some(wqe) = self.queue.front_mut() {
            wqe.repeated = true;
        }
    }

    /// Goes back because packets were lost, and makes the window smaller.
    pub(super) fn on_loss(&mut self, shared: &QpShared) {
        // A lossless link drops a packet only where its queue pair is missing or not ready. That is
        // no sign of a full path.
        if !shared.link.lossless {
            self.window
                .on_loss(self.flight.oldest(), self.flight.limit());
        }
        self.go_back();
    }

    /// Does what is due by `now`: resends, probes, or gives up.
    pub(super) fn on_deadline(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
    ) -> Result<(), SendFault> {
        match self.retry.on_deadline(shared, cx.now) {
            Due::Nothing => {}
            Due::Probe if self.flight.next() > self.flight.oldest() => self.ask_again(),
            // After a rewind the oldest packet is still to be sent, so there is none to repeat.
            Due::Probe => {}
            Due::Resend => {
                cx.sink.note(Noted::Resent);
                self.went_back = false;
                self.on_loss(shared);
            }
            // `retry_cnt` of ibv_modify_qp(3) is used up.
            Due::Exhausted => {
                return Err(Fault::new(WcStatus::RetryExcErr, Cause::NoAnswer).into());
            }
        }
        Ok(())
    }

    /// Sends the oldest packet once more, as nobody answers. What selective repeat has sent may
    /// have been lost again.
    fn ask_again(&mut self) {
        self.probe = Probe::Wanted;
        self.selective_repeat.restart();
    }

    /// Takes the oldest work request, which is done, off the queue.
    pub(super) fn retire(&mut self, shared: &QpShared, cx: &mut Cx<'_>) -> Result<(), SendFault> {
        self.retire_one(shared, cx.sink)?;
        // Completions are in order: the error of a packet comes when nothing is left before it.
        match self.stuck {
            Some(fault) if self.queue.cursor_is_front() => Err(fault.into()),
            _ => Ok(()),
        }
    }

    fn retire_one(&mut self, shared: &QpShared, sink: &mut dyn Sink) -> Result<(), SendFault> {
        let Some(wqe) = self.queue.front() else {
            return Ok(());
        };
        let (was_rendezvous, is_send) = (wqe.rendezvous.is_some(), wqe.wr.op.is_send());
        let signalled = shared.config.sq_sig_all || wqe.wr.flags.contains(SendFlags::SIGNALED);
        // Only READs and atomics bring bytes. The length of what was sent is the program's own.
        let byte_len = match wqe.answer() {
            CompletedBy::Read | CompletedBy::Atomic => wqe.length,
            CompletedBy::Ack | CompletedBy::Empty | CompletedBy::Local => 0,
        };
        let wc = signalled.then(|| Wc {
            byte_len,
            ..completion(shared, &wqe.wr)
        });
        self.queue.drop_front();
        self.moved = Moved::default();
        if was_rendezvous {
            self.rendezvous.on_taken();
        }
        if wc.is_some_and(|wc| !sink.send_completion(wc, false)) {
            return Err(SendFault::CqOverflow);
        }
        if is_send {
            sink.note(Noted::Sent);
        }
        Ok(())
    }

    /// Whether the oldest work request is a local operation, which waits for nothing any more.
    pub(super) fn wants_local(&self, shared: &QpShared) -> bool {
        shared.attr.qp_state == QpState::Rts
            && self
                .queue
                .front()
                .is_some_and(|wqe| wqe.answer() == CompletedBy::Local)
    }

    /// The local operation that is due.
    pub(super) fn next_local(&self, shared: &QpShared) -> Option<SendOp> {
        let wqe = self.queue.front().filter(|_| self.wants_local(shared));
        wqe.map(|wqe| wqe.wr.op)
    }

    /// Runs the local operation at the head of the queue: it waits for everything before it, and
    /// what follows for it.
    pub(super) fn run_local(
        &mut self,
        shared: &QpShared,
        cx: &mut LocalCx<'_>,
    ) -> Result<(), SendFault> {
        if let Some(op) = self.next_local(shared) {
            run_one_local(shared, cx, &op)?;
            self.retire_one(shared, cx.sink)?;
        }
        // The local operation was the last that needs no peer.
        if self.peer_gone && self.queue.len() > 0 && !self.wants_local(shared) {
            return Err(Fault::PEER_GONE.into());
        }
        Ok(())
    }

    /// Completes everything in error: the oldest work request with `first` if that is given, the
    /// others as flushed.
    pub(super) fn flush(&mut self, shared: &QpShared, cx: &mut Cx<'_>, first: Option<Fault>) {
        // The peer must not fetch memory that the flush gives back to the program.
        self.rendezvous.token = None;
        let all = core::iter::from_fn(|| self.queue.pop().map(|wqe| wqe.wr));
        flush_sends(all, shared, cx, first);
        self.flight.abandon();
        self.retry = Retry::default();
        self.probe = Probe::Idle;
        self.selective_repeat = SelectiveRepeat::default();
        self.reorder.clear();
        self.stuck = None;
        self.moved = Moved::default();
    }
}

/// Completes work requests in error: the first with `first` if that is given, the others as
/// flushed. A full CQ loses completions; its owner raises the CQ error, and the queue pair is in
/// ERR already.
pub(crate) fn flush_sends(
    all: impl Iterator<Item = SendWr>,
    shared: &QpShared,
    cx: &mut Cx<'_>,
    first: Option<Fault>,
) {
    let mut fault = first.unwrap_or(Fault::FLUSHED);
    for wr in all {
        let wc = failed(completion(shared, &wr), fault);
        cx.sink.send_completion(wc, true);
        fault = Fault::FLUSHED;
    }
}

/// Carries out a local operation.
pub(crate) fn run_one_local(
    shared: &QpShared,
    cx: &mut LocalCx<'_>,
    op: &SendOp,
) -> Result<(), Fault> {
    let by = shared.accessor();
    let done = match op {
        SendOp::BindWindow(bind) => cx.rights.bind(by, bind).map_err(|_| Cause::BindFailed),
        SendOp::LocalInvalidate(key) => cx
            .rights
            .invalidate(*key, by)
            .map_err(|_| Cause::InvalidateFailed),
        _ => Ok(()),
    };
    done.map_err(|cause| Fault::new(WcStatus::MwBindErr, cause))
}

/// A successful completion of a send work request.
pub(crate) fn completion(shared: &QpShared, wr: &SendWr) -> Wc {
    Wc {
        wr_id: wr.wr_id,
        status: WcStatus::Success,
        opcode: opcode(wr.op),
        vendor_err: 0,
        byte_len: 0,
        imm: None,
        qp_num: shared.config.qpn,
        src_qp: shared.attr.dest_qp_num,
        sl: 0,
        flags: WcFlags::empty(),
    }
}

/// A completion as a failure. It comes for unsignalled work, too. (IBTA 10.7.3.1.)
pub(crate) fn failed(wc: Wc, fault: Fault) -> Wc {
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
        SendOp::BindWindow(_) => WcOpcode::BindMw,
        SendOp::AtomicWrite(_) => WcOpcode::AtomicWrite,
        SendOp::Flush(_) => WcOpcode::Flush,
    }
}
