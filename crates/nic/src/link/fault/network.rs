//! The bad network itself: frames in, frames out, and a generator of chance.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

use ferroce_proto::time::Time;

use super::{Chance, LinkFault};
use crate::base::addressing::Addressing;

/// Packets that are held back at most; what comes on top is lost, as in a router whose queue is
/// full.
pub(super) const MAX_HELD: usize = 8192;
/// A reordered packet comes later than it should by up to this time.
const REORDER_BY: Duration = Duration::from_micros(1000);

/// A datagram on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NetworkFrame {
    /// Where it goes.
    pub(crate) addressing: Addressing,
    /// The private port that it leaves in.
    pub(crate) private_port: Option<u8>,
    /// BTH through ICRC.
    pub(crate) bytes: Vec<u8>,
}

/// A frame that is held back. Ordered by time, then by the order of sending.
#[derive(Debug)]
struct DelayedPacket {
    due: Time,
    number: u64,
    frame: NetworkFrame,
}

impl DelayedPacket {
    const fn key(&self) -> (Time, u64) {
        (self.due, self.number)
    }
}

impl PartialEq for DelayedPacket {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl Eq for DelayedPacket {}
impl PartialOrd for DelayedPacket {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for DelayedPacket {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// A bad network: frames go in, and come out late, twice, changed or not at all.
#[derive(Debug)]
pub(crate) struct Network {
    fault: LinkFault,
    random: u64,
    held: BinaryHeap<Reverse<DelayedPacket>>,
    number: u64,
}

impl Network {
    /// An empty one.
    pub(crate) const fn new(fault: LinkFault) -> Self {
        Self {
            fault,
            random: fault.seed,
            held: BinaryHeap::new(),
            number: 0,
        }
    }

    /// Sends a frame through it.
    pub(crate) fn admit(&mut self, now: Time, mut frame: NetworkFrame) {
        if self.loses() {
            return;
        }
        if self.happens(self.fault.duplicate) {
            let twin = frame.clone();
            self.hold(now, twin);
        }
        if self.happens(self.fault.corrupt) {
            self.corrupt(&mut frame.bytes);
        }
        self.hold(now, frame);
    }

    /// Whether all that it does to packets is to lose some.
    pub(crate) fn only_loses(&self) -> bool {
        let others = LinkFault {
            drop: Chance::default(),
            seed: 0,
            ..self.fault
        };
        others == LinkFault::default()
    }

    /// Whether the next packet gets lost.
    pub(crate) fn loses(&mut self) -> bool {
        self.happens(self.fault.drop)
    }

    fn hold(&mut self, now: Time, frame: NetworkFrame) {
        let mut due = now + self.fault.delay;
        if self.happens(self.fault.reorder) {
            due = due + REORDER_BY.mul_f64(self.fraction());
        }
        self.number += 1;
        if self.held.len() < MAX_HELD {
            self.held.push(Reverse(DelayedPacket {
                due,
                number: self.number,
                frame,
            }));
        }
    }

    /// Changes up to four bits.
    fn corrupt(&mut self, bytes: &mut [u8]) {
        if bytes.is_empty() {
            return;
        }
        let flips = 1 + self.below(4);
        for _ in 0..flips {
            let at = self.below(bytes.len());
            bytes[at] ^= 1 << self.below(8);
        }
    }

    /// The next frame that has arrived by `now`.
    pub(crate) fn arrived(&mut self, now: Time) -> Option<NetworkFrame> {
        if self.next_arrival()? > now {
            return None;
        }
        self.held.pop().map(|Reverse(held)| held.frame)
    }

    /// When the next frame arrives, if there is one.
    pub(crate) fn next_arrival(&self) -> Option<Time> {
        self.held.peek().map(|Reverse(held)| held.due)
    }

    /// Puts back a frame that could not be sent: it arrives before all others that are due at `at`.
    pub(crate) fn put_back(&mut self, at: Time, frame: NetworkFrame) {
        self.held.push(Reverse(DelayedPacket {
            due: at,
            number: 0,
            frame,
        }));
    }

    fn happens(&mut self, chance: Chance) -> bool {
        chance.0 != 0 && self.next_random() >> 32 < chance.0
    }

    /// A number below `bound`, which is not 0.
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next_random() % bound as u64).expect("invariant: below a usize")
    }

    /// A number between 0 and 1.
    fn fraction(&mut self) -> f64 {
        f64::from(u32::try_from(self.next_random() >> 32).expect("invariant: 32 bits are left"))
            / 2_f64.powi(32)
    }

    /// The `SplitMix64` generator.
    const fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}
