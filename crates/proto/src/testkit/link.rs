//! One direction of a link that loses, repeats, delays and disorders packets.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use super::Rng;
use crate::time::Time;

/// What goes wrong on a link, in packets of 1000.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Lost, which is also what becomes of a packet whose ICRC is wrong.
    pub drop: u32,
    /// Delivered twice.
    pub duplicate: u32,
    /// Held back for up to 20 times the normal delay, so that later packets overtake.
    pub reorder: u32,
}

/// Normal time from one end to the other.
pub(super) const DELAY: Duration = Duration::from_micros(20);

/// One direction.
#[derive(Debug, Default)]
pub(super) struct Channel {
    pub(super) faults: Faults,
    /// Packets under way by time of arrival and order of sending.
    flying: BTreeMap<(Time, u64), Vec<u8>>,
    sent: u64,
    /// Nothing is delivered while this is set.
    pub(super) paused: bool,
    /// Every packet is lost while this is set.
    pub(super) cut: bool,
}

impl Channel {
    pub(super) fn new(faults: Faults) -> Self {
        Self {
            faults,
            ..Self::default()
        }
    }

    pub(super) fn send(&mut self, now: Time, rng: &mut Rng, packet: &[u8]) {
        if self.cut || rng.per_mille(self.faults.drop) {
            return;
        }
        let copies = 1 + u32::from(rng.per_mille(self.faults.duplicate));
        for _ in 0..copies {
            let mut at = now + DELAY;
            if rng.per_mille(self.faults.reorder) {
                at = at + DELAY * rng.below32(20);
            }
            self.sent += 1;
            self.flying.insert((at, self.sent), packet.to_vec());
        }
    }

    /// When the next packet arrives.
    pub(super) fn next(&self) -> Option<Time> {
        let first = self.flying.first_key_value().filter(|_| !self.paused)?;
        Some(first.0.0)
    }

    /// A packet that has arrived.
    pub(super) fn receive(&mut self, now: Time) -> Option<Vec<u8>> {
        self.next().filter(|&at| at <= now)?;
        self.flying.pop_first().map(|(_, packet)| packet)
    }

    /// Forgets what is under way.
    pub(super) fn clear(&mut self) {
        self.flying.clear();
    }
}
