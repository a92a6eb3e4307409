//! Numbers that no other process of this network namespace gives out: each carries this process's
//! slot.

use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_os::random;
use ferroce_proto::ids::{Key, PdId, Qpn};

/// Bits of a queue pair number below the slot.
const INDEX_BITS: u32 = 14;
/// Bits of a memory key or a CM communication id below the slot.
const RANDOM_BITS: u32 = 22;

/// The highest bit below the slot tells windows' keys from regions'.
const WINDOW_BIT: u32 = 1 << (RANDOM_BITS - 1);

/// The slot that gave out a queue pair number.
pub(crate) fn slot_of(qpn: Qpn) -> u16 {
    u16::try_from(qpn.get() >> INDEX_BITS).expect("invariant: 24 - 14 bits")
}

/// What this process gives out.
#[derive(Debug)]
pub(crate) struct Numbers {
    slot: u16,
    pd: AtomicU32,
}

impl Numbers {
    pub(crate) fn new(slot: u16) -> Self {
        Self {
            slot,
            pd: AtomicU32::new(0),
        }
    }

    pub(crate) fn slot(&self) -> u16 {
        self.slot
    }

    /// The queue pair number with the given index; only the index's low bits count.
    pub(crate) fn qpn(&self, index: u32) -> Qpn {
        Qpn::new(u32::from(self.slot) << INDEX_BITS | index & ((1 << INDEX_BITS) - 1))
    }

    /// A protection domain's number.
    pub(crate) fn next_pd(&self) -> PdId {
        PdId(self.pd.fetch_add(1, Ordering::Relaxed))
    }

    /// An unpredictable key for a memory region; it may be in use.
    pub(crate) fn random_key(&self) -> Key {
        Key(u32::from(self.slot) << RANDOM_BITS | random::u32() & (WINDOW_BIT - 1))
    }

    /// An unpredictable first key for a memory window; the window may be in use. The low 8 bits
    /// change with each bind, so windows have numbers of their own.
    pub(crate) fn random_window_key(&self) -> Key {
        Key(self.random_key().0 | WINDOW_BIT)
    }
}

/// Number of an accepted link between processes, unlike that of any other open one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LinkId(pub(crate) u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_carry_the_slot() {
        let numbers = Numbers::new(1023);
        assert_eq!(numbers.qpn(0x4001), Qpn::new(0x00ff_c001));
        assert_eq!(slot_of(numbers.qpn(7)), 1023);
        assert_eq!(numbers.random_key().0 >> RANDOM_BITS, 1023);
        assert_eq!(numbers.random_window_key().0 >> RANDOM_BITS, 1023);
        assert_eq!(numbers.random_key().0 & WINDOW_BIT, 0);
        assert_ne!(numbers.random_window_key().0 & WINDOW_BIT, 0);
        assert_ne!(numbers.next_pd(), numbers.next_pd());
    }
}
