//! The bad network itself: frames in, frames out, and a generator of chance.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

use ferroce_proto::time::Time;

use super::LinkFault;
use super::random::{Chance, FaultRandom};
use crate::base::addressing::Addressing;

/// Packets that are held back at most; what comes on top is lost, as in a router whose queue is
/// full.
pub(super) const MAX_HELD: usize = 8192;
/// A reordered packet comes later than it should by up to this time.
const REORDER_BY: Duration = Duration::from_micros(1000);

/// A datagram on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NetworkFrame {
    /// Where the frame goes.
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
    random: FaultRandom,
    held: BinaryHeap<Reverse<DelayedPacket>>,
    number: u64,
}

impl Network {
    /// An empty one.
    pub(crate) const fn new(fault: LinkFault) -> Self {
        Self {
            fault,
            random: FaultRandom::new(fault.seed),
            held: BinaryHeap::new(),
            number: 0,
        }
    }

    /// Sends a frame through it.
    pub(crate) fn admit(&mut self, now: Time, mut frame: NetworkFrame) {
        if self.loses() {
            return;
        }
        if self.random.happens(self.fault.duplicate) {
            let twin = frame.clone();
            self.hold(now, twin);
        }
        if self.random.happens(self.fault.corrupt) {
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
        self.random.happens(self.fault.drop)
    }

    fn hold(&mut self, now: Time, frame: NetworkFrame) {
        let mut due = now + self.fault.delay;
        if self.random.happens(self.fault.reorder) {
            due = due + REORDER_BY.mul_f64(self.random.fraction());
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
        let flips = 1 + self.random.below(4);
        for _ in 0..flips {
            let (at, bit) = self.random.bit_of(bytes.len());
            bytes[at] ^= bit;
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
}
