//! Posted work and answers to FPDUs. Messages are packed one after the other: segments of two
//! messages never interleave, since siw takes that as an error where both are tagged.

use super::end::StreamStop;
use super::messages::{
    pack_atomic, pack_atomic_response, pack_data, pack_immediate, pack_read, pack_response,
};
use super::sends::{AwaitedAnswer, WorkFault};
use super::serve::Serve;
use super::{Gate, IwQp};
use crate::iwarp::rdmap::AtomicOp;
use crate::rc::Cx;
use crate::verbs::{SendFlags, SendOp};

/// Kind of the message that the next FPDUs carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Work,
    ResponseKind,
}

/// Which message is packed, and how far.
#[derive(Debug)]
pub(super) struct Turn {
    /// A message has begun.
    current: Option<What>,
    /// An answer goes next if both want to.
    answer_next: bool,
    /// Bytes of the message that were packed.
    pub(super) offset: u32,
    /// WRITE with immediate: the WRITE was packed.
    pub(super) wrote: bool,
    /// Number of the next message of each untagged queue (RFC 5041, 5.2: from 1).
    msn: [u32; 4],
}

impl Default for Turn {
    fn default() -> Self {
        Self {
            current: None,
            answer_next: false,
            offset: 0,
            wrote: false,
            msn: [1; 4],
        }
    }
}

impl Turn {
    pub(super) const fn msn(&self, queue: u32) -> u32 {
        self.msn[queue as usize]
    }

    /// Whether the last message that began has ended.
    pub(super) const fn is_between_messages(&self) -> bool {
        self.current.is_none()
    }

    /// The number of a message of one segment.
    pub(super) const fn take_msn(&mut self, queue: u32) -> u32 {
        let msn = self.msn(queue);
        self.msn[queue as usize] = msn.wrapping_add(1);
        msn
    }
}

impl IwQp {
    /// Whether there is a segment that may be packed.
    pub(super) fn wants_pack(&self) -> bool {
        let may = self.ended.is_none() && !self.is_closing;
        let stream = self.stream.as_ref().filter(|_| may);
        stream.is_some_and(|stream| {
            stream.gate == Gate::Open && (self.serves.front().is_some() || self.work_is_ready())
        })
    }

    /// Whether the next work request may be packed: a fence waits for all answers (RFC 5040, 5.5),
    /// a request for a place among those that the peer can hold.
    fn work_is_ready(&self) -> bool {
        let asked = self.sends.asked.len();
        let ord = usize::from(self.shared.attr.max_rd_atomic);
        self.sends.at_cursor().is_some_and(|(_, wqe)| {
            let fenced = wqe.wr.flags.contains(SendFlags::FENCE) && asked > 0;
            let full = wqe.wants_answer() && asked >= ord;
            !wqe.is_local() && (self.turn.current == Some(What::Work) || !fenced && !full)
        })
    }

    /// Packs until `budget` bytes wait for TCP.
    pub(super) fn pack(&mut self, cx: &mut Cx<'_>, budget: usize) {
        while self.wants_pack() {
            let left = self.stream.as_ref().map_or(budget, |s| s.outgoing.left());
            if left >= budget {
                return;
            }
            let outcome = match self.next() {
                What::Work => self.pack_work(cx).map_err(StreamStop::Send),
                What::ResponseKind => self.pack_answer(cx),
            };
            if let Err(stop) = outcome {
                return self.stop(cx, stop);
            }
        }
    }

    /// What is packed next: the rest of a message, else work and answers by turns.
    fn next(&mut self) -> What {
        let (work, answer) = (self.work_is_ready(), self.serves.front().is_some());
        let next = match self.turn.current {
            Some(what) => what,
            None if answer && (self.turn.answer_next || !work) => What::ResponseKind,
            None => What::Work,
        };
        self.turn.answer_next = next == What::Work;
        self.turn.current = Some(next);
        next
    }

    /// The message that was packed has ended.
    fn end_message(&mut self) {
        (self.turn.current, self.turn.offset, self.turn.wrote) = (None, 0, false);
    }

    fn pack_work(&mut self, cx: &Cx<'_>) -> Result<(), WorkFault> {
        let (Some((serial, wqe)), Some(stream)) = (self.sends.at_cursor(), &mut self.stream) else {
            return Ok(());
        };
        let turn = &mut self.turn;
        let (ends, asked) = match wqe.wr.op {
            SendOp::Read(source) => (true, Some(pack_read(stream, turn, wqe, source))),
            SendOp::CompareSwap {
                remote,
                compare,
                swap,
            } => {
                let op = AtomicOp::CompareSwap { compare, swap };
                (true, Some(pack_atomic(stream, turn, remote, op)))
            }
            SendOp::FetchAdd { remote, add } => {
                let op = AtomicOp::FetchAdd { add };
                (true, Some(pack_atomic(stream, turn, remote, op)))
            }
            SendOp::WriteImm(_, data) if turn.wrote => {
                pack_immediate(stream, turn, serial, wqe, data);
                (true, None)
            }
            _ => {
                let pd = self.shared.config.pd;
                (pack_data(stream, turn, cx, pd, serial, wqe)?, None)
            }
        };
        if let Some(answer) = asked {
            let serial = Some(serial);
            self.sends.asked.push_back(AwaitedAnswer { answer, serial });
        }
        if ends {
            self.sends.advance();
            self.end_message();
        }
        Ok(())
    }

    fn pack_answer(&mut self, cx: &Cx<'_>) -> Result<(), StreamStop> {
        let by = self.accessor();
        let (Some(serve), Some(stream)) = (self.serves.front(), &mut self.stream) else {
            return Ok(());
        };
        let ends = match *serve {
            Serve::Atomic(response) => {
                pack_atomic_response(stream, &mut self.turn, response);
                true
            }
            Serve::Read(request) => pack_response(stream, &mut self.turn, cx, by, &request)?,
        };
        if ends {
            self.serves.pop();
            self.end_message();
        }
        Ok(())
    }
}
