//! What a queue pair counts with each message.
//!
//! A counter that all threads add to costs each message as much as the message itself, so each queue pair has its own. Only who
//! has its lock adds, with a load and a store; whoever wants to know the device's sum reads them all.

use std::sync::atomic::{AtomicU64, Ordering};

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
}

impl Tallied {
    const ALL: [Self; 6] = [
        Self::TxPackets,
        Self::TxBytes,
        Self::RxPackets,
        Self::RxBytes,
        Self::Sent,
        Self::Received,
    ];
}

/// The counters of one queue pair.
#[derive(Debug, Default)]
pub(crate) struct Tally([AtomicU64; Tallied::ALL.len()]);

impl Tally {
    /// Packets were given to a link. The caller has the queue pair's lock; so it is with all that adds.
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
        self.add(Tallied::Sent, sent.into());
        self.add(Tallied::Received, received.into());
    }

    pub(super) fn get(&self, what: Tallied) -> u64 {
        self.0[what as usize].load(Ordering::Relaxed)
    }

    /// Adds what another one has counted.
    pub(super) fn take_over(&self, other: &Self) {
        for what in Tallied::ALL {
            self.add(what, other.get(what));
        }
    }

    #[inline]
    fn add(&self, what: Tallied, more: u64) {
        let counter = &self.0[what as usize];
        counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }
}
