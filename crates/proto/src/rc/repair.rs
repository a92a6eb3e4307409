//! Repairing a loss.
//!
//! A NAK names the first packet that is missing. The rule is to go back to it and to send everything from there again. A peer of our
//! kind keeps what came behind the gap ([`early`]) and says so: its NAK carries a report of all gaps, as payload. Then
//! only what is missing is sent again.

use alloc::collections::VecDeque;
use core::ops::Range;

use super::Cx;
use super::config::Shared;
use super::early;
use super::fault::SendFault;
use super::requester::Requester;
use super::send_queue::{Answer, Wqe};

/// What is to be sent again.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    /// Sequences, in order.
    due: VecDeque<Range<u64>>,
    /// What was missing before this one was sent again already; a report that comes meanwhile does not know.
    done_to: u64,
}

impl Repairs {
    pub(super) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// Everything from `oldest` on may be reported anew.
    pub(super) fn restart(&mut self, oldest: u64) {
        self.due.clear();
        self.done_to = oldest;
    }

    /// What is before `oldest` has arrived.
    pub(super) fn on_progress(&mut self, oldest: u64) {
        while self.due.front().is_some_and(|range| range.end <= oldest) {
            self.due.pop_front();
        }
    }

    /// These are missing, as far as they were not sent again already. Returns how many are new.
    fn add(&mut self, missing: Range<u64>) -> u64 {
        let missing = missing.start.max(self.done_to)..missing.end;
        if missing.is_empty() {
            return 0;
        }
        self.done_to = missing.end;
        self.due.push_back(missing.clone());
        missing.end - missing.start
    }
}

impl Requester {
    /// A NAK says that the oldest packet is missing, with the report of a peer that has kept what came behind.
    pub(super) fn on_gap(&mut self, shared: &Shared, report: &[u8]) {
        if report.is_empty() || shared.link.lossless {
            self.on_implied_nak(shared);
            return;
        }
        let (oldest, next) = (self.flight.oldest(), self.flight.next());
        let mut missing = 0;
        for (at, len) in early::read_report(report) {
            let from = oldest + u64::from(at);
            missing += self.repairs.add(from..next.min(from + u64::from(len)));
        }
        if missing > 0 {
            self.window.on_gaps(missing);
            self.retry.on_resend();
        }
    }

    /// Appends the next packet that is to be sent again. Returns false if there is none after all.
    pub(super) fn transmit_repair(
        &mut self,
        shared: &Shared,
        cx: &Cx<'_>,
        out: &mut alloc::vec::Vec<u8>,
    ) -> Result<bool, SendFault> {
        while let Some(range) = self.repairs.due.front().cloned() {
            let sequence = range.start.max(self.flight.oldest());
            let Some(wqe) = self.queue.find(sequence).filter(|_| sequence < range.end) else {
                self.repairs.due.pop_front();
                continue;
            };
            let to = self.request_end(shared, wqe, sequence);
            let ask = to >= range.end && self.repairs.due.len() == 1;
            let emitted = if self.begins(wqe, sequence) {
                self.emit(shared, cx, (wqe, (sequence, to), ask), out)
                    .map(|_| true)
            } else {
                Ok(false)
            };
            if let Some(first) = self.repairs.due.front_mut() {
                first.start = to;
            }
            match emitted {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(fault) if self.flight.oldest() == sequence => return Err(fault.into()),
                // It is found out when its turn comes.
                Err(_) => self.repairs.due.clear(),
            }
        }
        Ok(false)
    }

    /// Whether a request packet was sent with this sequence: a READ is missing as a whole, or is not.
    fn begins(&self, wqe: &Wqe, sequence: u64) -> bool {
        match self.flight.request_at(sequence) {
            Some(request) => request.start == sequence,
            None => wqe.answer() == Answer::Ack,
        }
    }
}
