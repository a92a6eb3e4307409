//! What a queue pair counts with each message.
//!
//! A counter that all threads add to costs each message as much as the message itself, so each
//! queue pair has its own. Only who has its lock adds, with a load and a store; whoever wants to
//! know the device's sum reads them all.

use std::sync::atomic::{AtomicU64, Ordering};

use super::counters::Way;

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
    /// Work carried out without packets, by [`Way`].
    Direct(Way),
    /// Its bytes.
    DirectBytes(Way),
    /// How much of this was done in memory of the peer that is mapped here.
    DirectMapped,
}

/// Counters of a queue pair.
const COUNTERS: usize = 7 + 2 * Way::ALL.len();

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
            Self::DirectBytes(way) => 7 + Way::ALL.len() + way as usize,
        }
    }
}

/// The counters of one queue pair.
#[derive(Debug, Default)]
pub(crate) struct Tally([AtomicU64; COUNTERS]);

impl Tally {
    /// Packets were given to a link. The caller has the queue pair's lock; so it is with all that
    /// adds.
    #[inline]
    pub(crate) fn count_tx(&self, packets: usize, bytes: usize) {
        self.add(Tallied::TxPackets, packets as u64);
        self.add(Tallied::TxBytes, bytes as u64);
    }

    /// Packets were taken.
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
    pub(crate) fn count_direct(&self, way: Way, bytes: usize, is_mapped: bool) {
        self.add(Tallied::Direct(way), 1);
        self.add(Tallied::DirectBytes(way), bytes as u64);
        self.add(Tallied::DirectMapped, is_mapped.into());
    }

    pub(super) fn get(&self, what: Tallied) -> u64 {
        self.0[what.index()].load(Ordering::Relaxed)
    }

    /// Adds what another one has counted.
    pub(super) fn take_over(&self, other: &Self) {
        for (own, other) in self.0.iter().zip(&other.0) {
            own.fetch_add(other.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    #[inline]
    fn add(&self, what: Tallied, more: u64) {
        let counter = &self.0[what.index()];
        counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }
}
