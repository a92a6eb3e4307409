//! Posted work to packets.

use alloc::vec::Vec;

use super::UcQp;
use crate::ids::Psn;
use crate::rc::config::QpShared;
use crate::rc::fault::{Fault, SendFault};
use crate::rc::requester::{completion, flush_sends, run_one_local};
use crate::rc::scatter;
use crate::rc::scatter::Extent;
use crate::rc::segment::segment;
use crate::rc::send_queue::{CompletedBy, SendQueue};
use crate::rc::{Cx, LocalCx, Noted, Sink};
use crate::verbs::{QpState, SendFlags, SendOp, SendWr};
use crate::wire::{Bth, Packet, padded_len};

/// Posted work, and which packet is next.
#[derive(Debug, Default)]
pub(super) struct Sends {
    queue: SendQueue,
    /// PSN of sequence 0.
    base: Psn,
    /// Sequence of the next packet.
    next: u64,
}

impl Sends {
    /// Starts when the queue pair moves to RTS for the first time.
    pub(super) fn start(&mut self, base: Psn) {
        *self = Self {
            base,
            ..Self::default()
        };
    }

    /// Work requests in the queue.
    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Queues a work request that passed the checks.
    pub(super) fn push(&mut self, wr: SendWr, shared: &QpShared) {
        self.queue.push(wr, shared, None);
    }

    /// Whether the oldest work request is a local operation.
    pub(super) fn local_is_next(&self) -> bool {
        self.queue
            .front()
            .is_some_and(|w| w.answer() == CompletedBy::Local)
    }

    /// What the oldest work request asks for.
    pub(super) fn next_local(&self) -> Option<SendOp> {
        self.queue.front().map(|wqe| wqe.wr.op)
    }

    /// Whether some but not all packets of the oldest work request were handed out.
    pub(super) fn in_message(&self) -> bool {
        self.queue.front().is_some_and(|wqe| self.next > wqe.start)
    }

    /// PSN of the next packet.
    pub(super) fn next_psn(&self) -> Psn {
        let low = u32::try_from(self.next & 0x00ff_ffff).expect("invariant: masked to 24 bits");
        self.base.plus(low)
    }

    /// Appends the next packet to `out`. Returns whether its message ends there. On error `out` is
    /// as it was.
    fn emit(&self, shared: &QpShared, cx: &Cx<'_>, out: &mut Vec<u8>) -> Result<bool, Fault> {
        let range = self.next..self.next + 1;
        let Some((wqe, part)) = self
            .queue
            .front()
            .and_then(|wqe| Some((wqe, segment(wqe, range, shared.mtu())?)))
        else {
            return Ok(false);
        };
        let bth = Bth {
            solicited: part.solicited,
            ..shared.bth(part.opcode, self.next_psn())
        };
        let (begin, len) = (out.len(), part.len as usize);
        Packet::emit_headers(&bth, &part.ext, len, out);
        let end = out.len() + padded_len(len);
        let bytes = Extent {
            offset: part.offset,
            len: part.len,
        };
        let gathered = scatter::gather(cx, shared.config.pd, &wqe.wr.payload, bytes, out);
        if gathered.is_err() {
            out.truncate(begin);
            return Err(Fault::LOCAL_KEY);
        }
        out.resize(end, 0);
        Ok(part.ends)
    }

    /// Appends the next packet to `out`; with its last packet a work request is done.
    fn transmit(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), SendFault> {
        let ends = self.emit(shared, cx, out)?;
        self.next += 1;
        if ends {
            self.retire(shared, cx.sink)
        } else {
            Ok(())
        }
    }

    /// Runs the local operation that is the oldest work request.
    pub(super) fn run_one_local(
        &mut self,
        shared: &QpShared,
        cx: &mut LocalCx<'_>,
    ) -> Result<(), SendFault> {
        if let Some(wqe) = self.queue.front() {
            run_one_local(shared, cx, &wqe.wr.op)?;
        }
        self.retire(shared, cx.sink)
    }

    /// Takes the oldest work request, which is done, off the queue.
    fn retire(&mut self, shared: &QpShared, sink: &mut dyn Sink) -> Result<(), SendFault> {
        let Some(wqe) = self.queue.pop() else {
            return Ok(());
        };
        let signalled = shared.config.sq_sig_all || wqe.wr.flags.contains(SendFlags::SIGNALED);
        if signalled && !sink.send_completion(completion(shared, &wqe.wr), false) {
            return Err(SendFault::CqOverflow);
        }
        if wqe.wr.op.is_send() {
            sink.note(Noted::Sent);
        }
        Ok(())
    }

    /// Completes everything in error: the oldest work request with `first` if that is given, the
    /// others as flushed.
    pub(super) fn flush(&mut self, shared: &QpShared, cx: &mut Cx<'_>, first: Option<Fault>) {
        let all = core::iter::from_fn(|| {
            let wqe = self.queue.pop()?;
            // A later message must not look like the rest of one that was broken off.
            self.next = wqe.end();
            Some(wqe.wr)
        });
        flush_sends(all, shared, cx, first);
    }
}

impl UcQp {
    /// Whether [`poll_transmit`](Self::poll_transmit) would produce a packet now, or find that it
    /// cannot be built. In SQD only a message that was begun goes on.
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        match self.state() {
            QpState::Rts => self.sends.queued() > 0 && !self.sends.local_is_next(),
            QpState::Sqd => self.sends.in_message(),
            _ => false,
        }
    }

    /// Appends the next packet (BTH through pad) to `out`. Returns false if there is none, or if it
    /// cannot be built: the send queue is in SQE then.
    pub fn poll_transmit(&mut self, cx: &mut Cx<'_>, out: &mut Vec<u8>) -> bool {
        if !self.wants_transmit() {
            return false;
        }
        let before = out.len();
        let outcome = self.sends.transmit(&self.shared, cx, out);
        self.settle_send(cx, outcome);
        self.report_drained(cx);
        out.len() > before
    }
}
