//! Packets in flight.

use alloc::collections::VecDeque;
use core::ops::Range;

use super::config::QpShared;
use super::send_queue::Wqe;
use crate::ids::Psn;

/// Most PSNs between the oldest unacknowledged packet and the next: less than half of what the
/// receiver can tell apart.
const MAX_PSNS: u64 = 1 << 22;

/// The responses that a READ or atomic request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) start: u64,
    /// After the last one.
    pub(super) end: u64,
}

/// Sequences: `oldest <= next <= limit`. After going back, `next .. limit` was sent before and may
/// still be acknowledged.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// PSN of sequence 0.
    base: Psn,
    /// Oldest unacknowledged packet.
    oldest: u64,
    /// Next to be sent.
    next: u64,
    /// After the last that was ever sent.
    limit: u64,
    /// Cost of `oldest .. next`.
    bytes: u64,
    /// READ and atomic requests that were ever sent and are not answered in full, in order. They
    /// keep their bounds when they are sent again: the responder knows them by these.
    requests: VecDeque<Request>,
}

impl Flight {
    pub(super) fn new(base: Psn) -> Self {
        Self {
            base,
            ..Self::default()
        }
    }

    pub(super) fn oldest(&self) -> u64 {
        self.oldest
    }

    pub(super) fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// READ and atomic requests that were sent and not yet answered in full.
    pub(super) fn requests(&self) -> usize {
        self.requests.len()
    }

    /// The READ or atomic request that was sent for a packet.
    pub(super) fn request_at(&self, sequence: u64) -> Option<Request> {
        let mut covering = self.requests.iter().filter(|r| sequence < r.end);
        covering.next().copied().filter(|r| r.start <= sequence)
    }

    /// The parts of a range that wait for READ responses and results of atomics.
    pub(super) fn requests_in(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let parts = self.requests.iter().map(move |request| {
            request.start.max(range.start).max(self.oldest)..request.end.min(range.end)
        });
        parts.filter(|part| !part.is_empty())
    }

    /// Whether a READ or atomic before the next packet waits for its answer.
    pub(super) fn answer_due(&self) -> bool {
        self.requests.front().is_some_and(|r| r.start < self.next)
    }

    /// Whether anything that was ever sent waits for an acknowledgement.
    pub(super) fn outstanding(&self) -> bool {
        self.oldest < self.limit
    }

    /// The PSN of a packet.
    pub(super) fn psn(&self, sequence: u64) -> Psn {
        let low = u32::try_from(sequence & 0x00ff_ffff).expect("invariant: masked to 24 bits");
        self.base.plus(low)
    }

    /// The unacknowledged packet that an answer with this PSN is about; `Err` with the distance if
    /// there is none.
    pub(super) fn sequence_of(&self, psn: Psn) -> Result<u64, i32> {
        let distance = psn.distance(self.psn(self.oldest));
        u64::try_from(distance)
            .ok()
            .map(|ahead| self.oldest + ahead)
            .filter(|&sequence| sequence < self.limit)
            .ok_or(distance)
    }

    /// Cost of what is in flight.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the packets up to `to` may be in flight too, at this cost and window. One request is
    /// always allowed if there is a window at all, and one that was sent before even then.
    pub(super) fn has_room(&self, to: u64, cost: u64, window: u64) -> bool {
        let may_be_first = window > 0 || self.next < self.limit;
        self.bytes == 0 && may_be_first
            || (self.bytes + cost <= window && to - self.oldest <= MAX_PSNS)
    }

    /// A request was sent that accounts for the packets up to `to`. READs and atomics are noted,
    /// the first time.
    pub(super) fn on_sent(&mut self, to: u64, cost: u64, noted: bool) {
        if noted && self.next >= self.limit {
            self.requests.push_back(Request {
                start: self.next,
                end: to,
            });
        }
        self.next = to;
        self.limit = self.limit.max(to);
        self.bytes += cost;
    }

    /// The packets of `wqe` (the oldest work request) up to `to` are acknowledged. Returns their
    /// cost.
    pub(super) fn on_acknowledged(&mut self, shared: &QpShared, wqe: &Wqe, to: u64) -> u64 {
        let cost = wqe.cost(self.oldest, to, shared.mtu());
        self.oldest = to;
        while self.requests.front().is_some_and(|r| r.end <= to) {
            self.requests.pop_front();
        }
        if to > self.next {
            // An answer to what was sent before going back: no need to send that again.
            self.rewind();
        } else {
            self.bytes -= cost;
        }
        cost
    }

    /// The oldest packets, those of a message, are acknowledged, and nothing is sent again.
    #[inline]
    pub(super) fn on_message_acknowledged(&mut self, packets: u32, cost: u64) {
        self.oldest += u64::from(packets);
        self.bytes -= cost;
    }

    /// Passes over the next `packets`, which were done without packets, while nothing was
    /// outstanding: their sequences are used up, their PSNs are not.
    pub(super) fn pass_over(&mut self, packets: u32) {
        debug_assert!(!self.outstanding() && self.next == self.oldest);
        self.base = self.base.minus(packets);
        self.next += u64::from(packets);
        (self.oldest, self.limit) = (self.next, self.next);
    }

    /// Nothing is outstanding any more: the queue was flushed.
    pub(super) fn abandon(&mut self) {
        self.rewind();
        self.limit = self.oldest;
        self.requests.clear();
    }

    /// Goes back to the oldest unacknowledged packet.
    pub(super) fn rewind(&mut self) {
        self.next = self.oldest;
        self.bytes = 0;
    }
}
