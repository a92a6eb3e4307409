//! Which packets are in flight.

use super::config::Shared;
use super::send_queue::Wqe;
use crate::ids::Psn;

/// Most PSNs between the oldest unacknowledged packet and the next: less than half of what the receiver can tell apart.
const MAX_PSNS: u64 = 1 << 22;

/// Sequences: `oldest <= next <= limit`. After going back, `next .. limit` was sent before and may still be acknowledged.
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
    /// READ and atomic requests in `oldest .. next`.
    requests: u32,
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
    pub(super) fn requests(&self) -> u32 {
        self.requests
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

    /// The unacknowledged packet that an answer with this PSN is about; `Err` with the distance if there is none.
    pub(super) fn sequence_of(&self, psn: Psn) -> Result<u64, i32> {
        let distance = psn.distance(self.psn(self.oldest));
        u64::try_from(distance)
            .ok()
            .map(|ahead| self.oldest + ahead)
            .filter(|&sequence| sequence < self.limit)
            .ok_or(distance)
    }

    /// Whether the packets up to `to` may be in flight too, at this cost and window. One request is always allowed.
    pub(super) fn has_room(&self, to: u64, cost: u64, window: u64) -> bool {
        self.bytes == 0 || (self.bytes + cost <= window && to - self.oldest <= MAX_PSNS)
    }

    /// A request was sent that accounts for the packets up to `to`.
    pub(super) fn on_sent(&mut self, to: u64, cost: u64, counts: bool) {
        self.next = to;
        self.limit = self.limit.max(to);
        self.bytes += cost;
        self.requests += u32::from(counts);
    }

    /// The packets of `wqe` (the oldest work request) up to `to` are acknowledged. Returns their cost.
    pub(super) fn on_acknowledged(&mut self, shared: &Shared, wqe: &Wqe, to: u64) -> u64 {
        let mtu = shared.mtu();
        let cost = wqe.cost(self.oldest, to, mtu);
        if to > self.next {
            // An answer to what was sent before going back: no need to send that again.
            self.next = to;
            (self.bytes, self.requests) = (0, 0);
        } else {
            self.bytes -= cost;
            self.requests -= u32::from(wqe.request_answered(to));
        }
        self.oldest = to;
        cost
    }

    /// Nothing is outstanding any more: the queue was flushed.
    pub(super) fn abandon(&mut self) {
        self.rewind();
        self.limit = self.oldest;
    }

    /// Goes back to the oldest unacknowledged packet.
    pub(super) fn rewind(&mut self) {
        self.next = self.oldest;
        (self.bytes, self.requests) = (0, 0);
    }
}
