//! Counters of a device.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ferroce_proto::ids::Qpn;
use ferroce_proto::rc::Noted;

use super::denials::{Asker, Denial, Denials};
use super::stream_ends::StreamEnd;
use super::sync::lock;
use super::tally::{Tallied, Tally};
use crate::base::refusal::Refusal;

/// Why a packet that came in was thrown away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// Not a packet: too short, unknown opcode, bad ICRC.
    Malformed,
    /// No queue pair has the destination's number.
    NoQp,
    /// The addresses are not those of the queue pair's path.
    Address,
    /// The packet came another way than by the queue pair's path, from another process of this host
    /// than the peer's, or with a source address of another place than it came from.
    Origin,
    /// The partition key is not the default one.
    Pkey,
    /// The queue key is not that of the destination.
    Qkey,
    /// The queue pair's state does not take it.
    State,
    /// The packet belongs to another process, and the way there was full or is gone.
    Forward,
    /// The packet came over the wire without a valid tag, where a key is set.
    Unauthenticated,
}

impl DropReason {
    /// All reasons, in the order of the counters.
    pub const ALL: [Self; 9] = [
        Self::Malformed,
        Self::NoQp,
        Self::Address,
        Self::Origin,
        Self::Pkey,
        Self::Qkey,
        Self::State,
        Self::Forward,
        Self::Unauthenticated,
    ];
}

/// Which way bytes went that moved without packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DirectWay {
    /// To the peer's memory: WRITEs.
    Out,
    /// From the peer's memory: READs, and long SENDs that are fetched.
    In,
    /// Atomics on a word of the peer's.
    Atomic,
}

impl DirectWay {
    /// All, in the order of the counters.
    pub const ALL: [Self; 3] = [Self::Out, Self::In, Self::Atomic];
}

/// A counter of work within the host that is done without packets, or should have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DirectCounter {
    /// Work done, or parts of long work.
    Done(DirectWay),
    /// How much of it was done in memory of the peer that this process has mapped.
    Mapped,
    /// Work that went by packets.
    Refused(Refusal),
}

/// Counters of one device, or of what belongs to none. They only grow.
#[derive(Debug, Default)]
pub struct Counters {
    tallies: Mutex<Tallies>,
    opened: AtomicU64,
    timeouts: AtomicU64,
    forwarded: AtomicU64,
    direct_refused: [AtomicU64; Refusal::ALL.len()],
    dropped: [AtomicU64; DropReason::ALL.len()],
    noted: [AtomicU64; Noted::ALL.len()],
    port_errors: AtomicU64,
    pub(super) stream_ends: [AtomicU64; StreamEnd::COUNT],
    denials: Denials,
}

/// What queue pairs count themselves.
#[derive(Debug, Default)]
struct Tallies {
    open: HashMap<Qpn, Arc<Tally>>,
    /// Queue pairs that there were, with those that are open.
    made: u64,
    /// The sum of those of queue pairs that are gone.
    closed: Tally,
}

impl Tallies {
    fn sum(&self) -> Tally {
        let sum = Tally::default();
        for tally in self.open.values().map(Arc::as_ref).chain([&self.closed]) {
            sum.take_over(tally);
        }
        sum
    }
}

impl Counters {
    /// What was carried out without packets, and why the rest within the host was not: names, as
    /// under `hw_counters`, and counters.
    pub const DIRECT: [(&'static str, DirectCounter); 11] = [
        ("direct_writes", DirectCounter::Done(DirectWay::Out)),
        ("direct_reads", DirectCounter::Done(DirectWay::In)),
        ("direct_atomics", DirectCounter::Done(DirectWay::Atomic)),
        ("direct_mapped", DirectCounter::Mapped),
        (
            "direct_refused_unacquainted",
            DirectCounter::Refused(Refusal::Unacquainted),
        ),
        (
            "direct_refused_unreachable",
            DirectCounter::Refused(Refusal::Unreachable),
        ),
        ("direct_refused_busy", DirectCounter::Refused(Refusal::Busy)),
        (
            "direct_refused_not_granted",
            DirectCounter::Refused(Refusal::NotGranted),
        ),
        (
            "direct_refused_own_memory",
            DirectCounter::Refused(Refusal::OwnMemory),
        ),
        (
            "direct_refused_failed",
            DirectCounter::Refused(Refusal::Failed),
        ),
        (
            "direct_refused_not_shared",
            DirectCounter::Refused(Refusal::NotShared),
        ),
    ];

    /// Packets given to a link.
    #[must_use]
    pub fn tx_packets(&self) -> u64 {
        self.tallied(Tallied::TxPackets)
    }

    /// Their bytes, from the transport header to the pad.
    #[must_use]
    pub fn tx_bytes(&self) -> u64 {
        self.tallied(Tallied::TxBytes)
    }

    /// Packets that reached a queue pair and that it took.
    #[must_use]
    pub fn rx_packets(&self) -> u64 {
        self.tallied(Tallied::RxPackets)
    }

    /// Their bytes, from the transport header to the pad.
    #[must_use]
    pub fn rx_bytes(&self) -> u64 {
        self.tallied(Tallied::RxBytes)
    }

    /// How often the device was opened.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Queue pairs that were made, and what they have counted.
    pub(crate) fn queue_pairs(&self) -> (u64, Tally) {
        let tallies = lock(&self.tallies);
        (tallies.made, tallies.sum())
    }

    /// Timers of queue pairs that ran out: resends, probes, ends of waits.
    #[must_use]
    pub fn timeouts(&self) -> u64 {
        self.timeouts.load(Ordering::Relaxed)
    }

    /// Packets that came to this process and went on to the one that they belong to.
    #[must_use]
    pub fn forwarded(&self) -> u64 {
        self.forwarded.load(Ordering::Relaxed)
    }

    /// WRITEs ([`DirectWay::Out`]), READs and SENDs received ([`DirectWay::In`]), or parts of long
    /// ones, and atomics ([`DirectWay::Atomic`]) that were carried out without packets.
    #[must_use]
    pub fn direct(&self, way: DirectWay) -> u64 {
        self.tallied(Tallied::Direct(way))
    }

    /// Their bytes.
    #[must_use]
    pub fn direct_bytes(&self, way: DirectWay) -> u64 {
        self.tallied(Tallied::DirectBytes(way))
    }

    /// How many of these were done in memory of the peer that this process has mapped, without a
    /// system call.
    #[must_use]
    pub fn direct_mapped(&self) -> u64 {
        self.tallied(Tallied::DirectMapped)
    }

    /// WRITEs, READs, atomics and SENDs received within this host that went by packets since the
    /// direct way was not open to them.
    #[must_use]
    pub fn direct_refused(&self) -> u64 {
        let refused = Refusal::ALL.iter().map(|why| self.direct_refused_for(*why));
        refused.sum()
    }

    /// Refusals of the direct way for one reason.
    #[must_use]
    pub fn direct_refused_for(&self, why: Refusal) -> u64 {
        self.direct_refused[why as usize].load(Ordering::Relaxed)
    }

    /// Value of one of [`DIRECT`](Self::DIRECT).
    #[must_use]
    pub fn direct_counter(&self, counter: DirectCounter) -> u64 {
        self.direct_with(counter, |what| self.tallied(what))
    }

    /// All of [`DIRECT`](Self::DIRECT), as they are at one moment.
    #[must_use]
    pub fn all_direct(&self) -> [(&'static str, u64); Self::DIRECT.len()] {
        let sum = lock(&self.tallies).sum();
        Self::DIRECT.map(|(name, counter)| {
            let value = self.direct_with(counter, |what| sum.get(what));
            (name, value)
        })
    }

    fn direct_with(&self, counter: DirectCounter, tallied: impl Fn(Tallied) -> u64) -> u64 {
        match counter {
            DirectCounter::Done(way) => tallied(Tallied::Direct(way)),
            DirectCounter::Mapped => tallied(Tallied::DirectMapped),
            DirectCounter::Refused(why) => self.direct_refused_for(why),
        }
    }

    /// Packets thrown away for a reason.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize].load(Ordering::Relaxed)
    }

    /// What was denied to a party for a reason.
    #[must_use]
    pub fn denied(&self, asker: Asker, why: Denial) -> u64 {
        self.denials.get(asker, why)
    }

    /// Returns how often queue pairs noted `what`.
    #[must_use]
    pub fn noted(&self, what: Noted) -> u64 {
        let tallied = match what {
            Noted::Sent => self.tallied(Tallied::Sent),
            Noted::Received => self.tallied(Tallied::Received),
            _ => 0,
        };
        tallied + self.noted[what as usize].load(Ordering::Relaxed)
    }

    /// How often the port went down.
    #[must_use]
    pub fn port_errors(&self) -> u64 {
        self.port_errors.load(Ordering::Relaxed)
    }

    pub(crate) fn count_noted(&self, what: Noted, times: u32) {
        self.noted[what as usize].fetch_add(times.into(), Ordering::Relaxed);
    }

    pub(crate) fn count_port_error(&self) {
        self.port_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// The tally of a new queue pair.
    pub(crate) fn open_tally(&self, qpn: Qpn) -> Arc<Tally> {
        let tally = Arc::new(Tally::default());
        let mut tallies = lock(&self.tallies);
        tallies.made += 1;
        tallies.open.insert(qpn, Arc::clone(&tally));
        tally
    }

    /// Ends the tally of a queue pair that is gone.
    pub(crate) fn close_tally(&self, qpn: Qpn) {
        let mut tallies = lock(&self.tallies);
        if let Some(tally) = tallies.open.remove(&qpn) {
            tallies.closed.take_over(&tally);
        }
    }

    fn tallied(&self, what: Tallied) -> u64 {
        let tallies = lock(&self.tallies);
        let open = tallies.open.values().map(|tally| tally.get(what));
        tallies.closed.get(what) + open.sum::<u64>()
    }

    pub(crate) fn count_direct_refused(&self, why: Refusal) {
        self.direct_refused[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_opened(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_timeout(&self) {
        self.timeouts.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_forwarded(&self) {
        self.forwarded.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_denied(&self, asker: Asker, why: Denial) {
        self.denials.count(asker, why);
    }

    pub(crate) fn count_dropped(&self, reason: DropReason) {
        self.dropped[reason as usize].fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_those_of_open_and_closed_queue_pairs() {
        let counters = Counters::default();
        let [gone, open] = [1, 2].map(|number| counters.open_tally(Qpn::new(number)));
        gone.count_direct(DirectWay::Out, 8, true);
        counters.close_tally(Qpn::new(1));
        open.count_direct(DirectWay::Out, 8, false);
        open.count_direct(DirectWay::In, 8, false);
        counters.count_direct_refused(Refusal::Busy);
        let all = counters.all_direct();
        for ((name, value), (named, counter)) in all.into_iter().zip(Counters::DIRECT) {
            assert_eq!(name, named);
            assert_eq!(value, counters.direct_counter(counter), "{name}");
        }
        let values = all.map(|(_, value)| value);
        assert_eq!(values, [2, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0]);
    }
}
