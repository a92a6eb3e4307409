//! Posted work: what of it was packed, what TCP has, what waits for an answer.

use alloc::collections::VecDeque;

use crate::ids::Key;
use crate::rc::config::QpShared;
use crate::rc::direct::Moved;
use crate::rc::fault::Fault;
use crate::rc::requester::{completion, failed, run_one_local};
use crate::rc::send_queue::payload_len;
use crate::rc::{Cx, LocalCx, Noted, Sink};
use crate::verbs::{SendFlags, SendOp, SendWr, Wc};

/// Why posted work cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkFault {
    /// The work request with this number failed.
    Of(u64, Fault),
    /// The send queue's CQ overflowed.
    CqOverflow,
}

/// A posted send work request.
#[derive(Debug)]
pub(super) struct Wqe {
    pub(super) wr: SendWr,
    /// Bytes of the message; READ: to be read.
    pub(super) length: u32,
    is_done: bool,
}

impl Wqe {
    pub(super) const fn is_local(&self) -> bool {
        matches!(
            self.wr.op,
            SendOp::LocalInvalidate(_) | SendOp::BindWindow(_)
        )
    }

    /// Whether an answer of the peer completes it.
    pub(super) const fn wants_answer(&self) -> bool {
        matches!(
            self.wr.op,
            SendOp::Read(_) | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }
        )
    }
}

/// Kind of answer that a request must get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseKind {
    /// READ responses for this place; so many bytes have come.
    Read {
        stag: Key,
        to: u64,
        length: u32,
        received: u32,
    },
    /// An atomic response with this number.
    Atomic { id: u32 },
}

/// A request whose answer is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AwaitedAnswer {
    pub(super) answer: ResponseKind,
    /// The work request; `None` is the first message of an initiator.
    pub(super) serial: Option<u64>,
}

/// Posted work requests that have not completed, oldest first.
#[derive(Debug, Default)]
pub(super) struct PostedSends {
    queue: VecDeque<Wqe>,
    /// Number of the oldest.
    first: u64,
    /// Place of the one that is packed next.
    cursor: usize,
    /// What became of the oldest without FPDUs.
    pub(super) moved: Moved,
    /// Requests that wait for an answer, in the order in which they were sent.
    pub(super) asked: VecDeque<AwaitedAnswer>,
}

impl PostedSends {
    /// Work requests in the queue.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Queues a work request that passed the checks.
    pub(super) fn push(&mut self, wr: SendWr) {
        let length = u32::try_from(payload_len(&wr.payload))
            .expect("invariant: messages are checked against the largest length when posted");
        self.queue.push_back(Wqe {
            wr,
            length,
            is_done: false,
        });
    }

    /// The work request that is packed next, and its number.
    pub(super) fn at_cursor(&self) -> Option<(u64, &Wqe)> {
        let wqe = self.queue.get(self.cursor)?;
        Some((self.first + self.cursor as u64, wqe))
    }

    /// The oldest work request and its number, if nothing of it was packed.
    pub(super) fn untouched(&self) -> Option<(u64, &Wqe)> {
        let wqe = self.queue.front().filter(|_| self.cursor == 0)?;
        Some((self.first, wqe))
    }

    /// All of the work request at the cursor was packed.
    pub(super) fn advance(&mut self) {
        self.cursor += 1;
        self.moved = Moved::default();
    }

    /// The work request with this number.
    pub(super) fn get(&self, serial: u64) -> Option<&Wqe> {
        let at = serial.checked_sub(self.first)?;
        self.queue.get(usize::try_from(at).ok()?)
    }

    /// The local operation that is due: it waits for everything before it.
    pub(super) fn next_local(&self) -> Option<SendOp> {
        let wqe = self.queue.front().filter(|_| self.cursor == 0)?;
        wqe.is_local().then_some(wqe.wr.op)
    }

    /// Runs the local operation that is due.
    pub(super) fn run_local(
        &mut self,
        shared: &QpShared,
        cx: &mut LocalCx<'_>,
    ) -> Result<(), WorkFault> {
        let (Some(op), serial) = (self.next_local(), self.first) else {
            return Ok(());
        };
        run_one_local(shared, cx, &op).map_err(|fault| WorkFault::Of(serial, fault))?;
        self.cursor = 1;
        self.done(shared, cx.sink, serial)
    }

    /// A work request is done. It completes when those before it have (RFC 5040, 5.5).
    pub(super) fn done(
        &mut self,
        shared: &QpShared,
        sink: &mut dyn Sink,
        serial: u64,
    ) -> Result<(), WorkFault> {
        let at = serial.checked_sub(self.first).map(usize::try_from);
        if let Some(wqe) = at.and_then(|at| self.queue.get_mut(at.ok()?)) {
            wqe.is_done = true;
        }
        while self.queue.front().is_some_and(|wqe| wqe.is_done)
            && let Some(wqe) = self.queue.pop_front()
        {
            self.first += 1;
            self.cursor = self.cursor.saturating_sub(1);
            let signalled = shared.config.sq_sig_all || wqe.wr.flags.contains(SendFlags::SIGNALED);
            if wqe.wr.op.is_send() {
                sink.note(Noted::Sent);
            }
            let byte_len = if wqe.wants_answer() { wqe.length } else { 0 };
            let wc = Wc {
                byte_len,
                ..completion(shared, &wqe.wr)
            };
            if signalled && !sink.send_completion(wc, false) {
                return Err(WorkFault::CqOverflow);
            }
        }
        Ok(())
    }

    /// Completes everything in error: the work request of `fault` with that, the others as flushed.
    pub(super) fn flush(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        fault: Option<(u64, Fault)>,
    ) {
        for wqe in self.queue.drain(..) {
            let of_this = fault.filter(|&(serial, _)| serial == self.first);
            let fault = of_this.map_or(Fault::FLUSHED, |(_, fault)| fault);
            // A full CQ loses it; its owner raises the CQ error.
            cx.sink
                .send_completion(failed(completion(shared, &wqe.wr), fault), true);
            self.first += 1;
        }
        self.cursor = 0;
        self.asked.clear();
    }
}
