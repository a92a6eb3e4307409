//! What a queue pair counts with each message.
//!
//! A counter that all threads add to costs each message as much as the message itself, so each
//! queue pair has its own. Only the holder of the queue pair's lock adds, with a load and a store.
//! The device's sum is made by reading them all.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::counters::DirectWay;
use crate::base::carrier::Carrier;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tallied {
    /// Packets given to a link.
    TxPackets,
    /// Their bytes.
    TxBytes,
    /// Packets that it took.
    RxPackets,
    /// Their bytes.
    RxBytes,
    /// SENDs that are done.
    Sent,
    /// SENDs received.
    Received,
    /// Work carried out without packets, by [`DirectWay`].
    Direct(DirectWay),
    /// Its bytes.
    DirectBytes(DirectWay),
    /// How much of this was done in memory of the peer that is mapped here.
    DirectMapped,
}

/// Counters of a queue pair.
const COUNTERS: usize = 7 + 2 * DirectWay::ALL.len();
/// No carrier so far.
const NONE: usize = Carrier::ALL.len();

impl Tallied {
    #[inline]
    const fn index(self) -> usize {
        match self {
            Self::TxPackets => 0,
            Self::TxBytes => 1,
            Self::RxPackets => 2,
            Self::RxBytes => 3,
            Self::Sent => 4,
            Self::Received => 5,
            Self::DirectMapped => 6,
            Self::Direct(way) => 7 + way as usize,
            Self::DirectBytes(way) => 7 + DirectWay::ALL.len() + way as usize,
        }
    }
}

/// The counters of one queue pair.
#[derive(Debug)]
pub(crate) struct Tally {
    counts: [AtomicU64; COUNTERS],
    /// Bytes of packets, both ways, by what carried them. Those since the last change of the
    /// carrier are not in it yet.
    carried: [AtomicU64; NONE + 1],
    /// What carries now, as an index of `carried`, and the bytes of packets before it did.
    carrier: AtomicUsize,
    before: AtomicU64,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            counts: [const { AtomicU64::new(0) }; COUNTERS],
            carried: [const { AtomicU64::new(0) }; NONE + 1],
            carrier: AtomicUsize::new(NONE),
            before: AtomicU64::new(0),
        }
    }
}

impl Tally {
    /// Counts packets that were given to a link. The caller has the queue pair's lock; so it is
    /// with all that adds.
    #[inline]
    pub(crate) fn count_tx(&self, packets: usize, bytes: usize) {
        self.add(Tallied::TxPackets, packets as u64);
        self.add(Tallied::TxBytes, bytes as u64);
    }

    /// Counts packets that were taken.
    #[inline]
    pub(crate) fn count_rx(&self, packets: usize, bytes: usize) {
        self.add(Tallied::RxPackets, packets as u64);
        self.add(Tallied::RxBytes, bytes as u64);
    }

    /// SENDs are done, and were received.
    #[inline]
    pub(crate) fn count_sends(&self, sent: u32, received: u32) {
        if sent > 0 {
            self.add(Tallied::Sent, sent.into());
        }
        if received > 0 {
            self.add(Tallied::Received, received.into());
        }
    }

    /// Work was carried out without packets.
    pub(crate) fn count_direct(&self, way: DirectWay, bytes: usize, is_mapped: bool) {
        self.count_direct_run(way, 1, bytes);
        self.add(Tallied::DirectMapped, is_mapped.into());
    }

    /// As [`count_direct`](Self::count_direct), of several work requests, none of them in memory
    /// that is mapped here.
    pub(crate) fn count_direct_run(&self, way: DirectWay, requests: usize, bytes: usize) {
        self.add(Tallied::Direct(way), requests as u64);
        self.add(Tallied::DirectBytes(way), bytes as u64);
    }

    /// From here packets go another way. Seldom, so a message need not count by the way.
    pub(crate) fn change_carrier(&self, to: Carrier) {
        let (now, bytes) = (self.carrier.load(Ordering::Relaxed), self.packet_bytes());
        let since = bytes.saturating_sub(self.before.load(Ordering::Relaxed));
        // What came before the first packet went out came the same way.
        let of = if now == NONE { to as usize } else { now };
        self.carried[of].fetch_add(since, Ordering::Relaxed);
        self.before.store(bytes, Ordering::Relaxed);
        self.carrier.store(to as usize, Ordering::Relaxed);
    }

    /// Bytes of packets by what carried them, in the order of [`Carrier::ALL`], and last those of
    /// queue pairs that have sent nothing.
    pub(crate) fn carried(&self) -> [u64; NONE + 1] {
        let now = self.carrier.load(Ordering::Relaxed);
        let since = self
            .packet_bytes()
            .saturating_sub(self.before.load(Ordering::Relaxed));
        std::array::from_fn(|i| {
            let more = if i == now { since } else { 0 };
            self.carried[i].load(Ordering::Relaxed) + more
        })
    }

    fn packet_bytes(&self) -> u64 {
        self.get(Tallied::TxBytes) + self.get(Tallied::RxBytes)
    }

    pub(crate) fn get(&self, what: Tallied) -> u64 {
        self.counts[what.index()].load(Ordering::Relaxed)
    }

    /// Adds what another one has counted.
    pub(crate) fn take_over(&self, other: &Self) {
        for (own, bytes) in self.carried.iter().zip(other.carried()) {
            own.fetch_add(bytes, Ordering::Relaxed);
        }
        for (own, other) in self.counts.iter().zip(&other.counts) {
            own.fetch_add(other.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        // They are all in `carried`.
        self.before.store(self.packet_bytes(), Ordering::Relaxed);
    }

    #[inline]
    fn add(&self, what: Tallied, more: u64) {
        let counter = &self.counts[what.index()];
        counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_for_what_carried_them() {
        let (one, two, sum) = (Tally::default(), Tally::default(), Tally::default());
        one.count_rx(1, 5);
        one.change_carrier(Carrier::Ring);
        one.count_tx(2, 100);
        one.change_carrier(Carrier::ShortRing);
        one.count_rx(1, 7);
        two.count_rx(1, 30);
        for tally in [&one, &two] {
            sum.take_over(tally);
        }
        assert_eq!(one.carried(), [7, 105, 0, 0, 0, 0]);
        assert_eq!(two.carried(), [0, 0, 0, 0, 0, 30]);
        assert_eq!(sum.carried(), [7, 105, 0, 0, 0, 30]);
        one.count_tx(1, 1);
        assert_eq!(one.carried(), [8, 105, 0, 0, 0, 0]);
    }
}
