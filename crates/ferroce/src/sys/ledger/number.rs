//! The `wr_id` by which C knows work: the number of a slot, and a count that tells the slot's
//! tenants apart.
//!
//! Of a completion queue's own work it is tenant (32 bits), 0, slot (31 bits); of that of a shared
//! receive queue tenant (25 bits), the upper 7 bits of the ledger's number, 1, the lower 9 of them,
//! slot (22 bits). So the next tenant is found by an addition.

/// Set in the `wr_id` of work of a shared receive queue.
const OF_SHARED: u64 = 1 << 31;
/// Numbers of the ledgers of shared receive queues: 16 bits.
pub(super) const SHARED_NUMBERS: u32 = (1 << 16) - 1;
/// Slots of such a ledger: more than any device's queue holds.
const SHARED_SLOTS: u32 = (1 << SLOT_BITS) - 1;
const SLOT_BITS: u32 = 22;
/// Bits of such a ledger's number that stand beside the slot.
const BESIDE: u32 = 9;
/// The first bit of the tenant of such work.
const TENANT: u32 = 39;
/// The last slot of a completion queue's own ledger.
const LAST: u32 = (1 << 31) - 1;

/// The ledger that slots are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// A completion queue's own.
    Own,
    /// That of a shared receive queue.
    Shared {
        number: u32,
        /// Of its slots. Those of the ledger that had the number before began with another one.
        first_tenant: u64,
    },
}

impl Family {
    /// Of a new shared receive queue, when so many were made before.
    pub(super) fn of_shared(made: u64) -> Self {
        Self::Shared {
            number: low(made) & SHARED_NUMBERS,
            // Odd, so that it takes all values; large, so that the next one is far away.
            first_tenant: (made >> 16).wrapping_mul(0x9e_3779),
        }
    }

    /// The ledger's number, of a shared receive queue.
    pub(super) fn number(self) -> u32 {
        match self {
            Self::Own => 0,
            Self::Shared { number, .. } => number,
        }
    }

    /// The last slot.
    pub(super) fn last(self) -> u32 {
        match self {
            Self::Own => LAST,
            Self::Shared { .. } => SHARED_SLOTS,
        }
    }

    /// The `wr_id` of the first tenant of a slot.
    pub(super) fn first(self, slot: u32) -> u64 {
        match self {
            Self::Own => u64::from(slot),
            Self::Shared {
                number,
                first_tenant,
            } => {
                let (above, beside) = (number >> BESIDE, number & ((1 << BESIDE) - 1));
                first_tenant << TENANT
                    | OF_SHARED
                    | u64::from(above) << 32
                    | u64::from(beside << SLOT_BITS | slot & SHARED_SLOTS)
            }
        }
    }
}

/// The `wr_id` of the next tenant of the same slot.
#[inline(always)]
pub(super) fn next(id: u64) -> u64 {
    if id & OF_SHARED == 0 {
        own_next(id)
    } else {
        id.wrapping_add(1 << TENANT)
    }
}

/// [`next`] in a completion queue's own ledger.
#[inline(always)]
pub(super) fn own_next(id: u64) -> u64 {
    id.wrapping_add(1 << 32)
}

/// The number of the shared receive queue's ledger, if it is of one.
#[inline(always)]
pub(super) fn ledger(id: u64) -> Option<u32> {
    (id & OF_SHARED != 0).then(|| {
        let above = low(id >> 32) & (SHARED_NUMBERS >> BESIDE);
        above << BESIDE | low(id) >> SLOT_BITS & ((1 << BESIDE) - 1)
    })
}

/// The slot of work of a completion queue's own; more than any slot for other work.
#[inline(always)]
pub(super) fn own_slot(id: u64) -> u32 {
    low(id)
}

/// The slot.
#[inline(always)]
pub(super) fn slot(id: u64) -> u32 {
    if id & OF_SHARED == 0 {
        low(id)
    } else {
        low(id) & SHARED_SLOTS
    }
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "a part of a number")]
fn low(number: u64) -> u32 {
    number as u32
}

#[cfg(test)]
mod tests {
    use super::{Family, LAST, SHARED_NUMBERS, SHARED_SLOTS, TENANT, ledger, next, own_slot, slot};

    fn shared(number: u32) -> Family {
        Family::Shared {
            number,
            first_tenant: 3,
        }
    }

    #[test]
    fn tenants_change_and_nothing_else_does() {
        const TENANTS: u32 = if cfg!(miri) { 100 } else { 100_000 };
        for (of, place) in [
            (Family::Own, 0),
            (Family::Own, LAST),
            (shared(0), 7),
            (shared(0x1234), 0x2b_cdef),
            (shared(SHARED_NUMBERS), SHARED_SLOTS),
        ] {
            let first = of.first(place);
            let number = (of != Family::Own).then(|| of.number());
            let mut id = first;
            for _ in 0..TENANTS {
                assert_eq!((ledger(id), slot(id)), (number, place));
                assert_eq!(own_slot(id) > LAST, number.is_some());
                id = next(id);
                assert_ne!(id, first);
            }
        }
    }

    #[test]
    fn the_last_tenant_is_followed_by_the_first() {
        let own = Family::Own.first(5);
        assert_eq!(next(own | 0xffff_ffff << 32), own);
        let last = u64::MAX << TENANT | shared(SHARED_NUMBERS).first(5);
        assert_eq!((slot(next(last)), next(last) >> TENANT), (5, 0));
    }

    #[test]
    fn a_number_that_comes_again_begins_elsewhere() {
        let [one, again] = [7, 7 + (1 << 16)].map(Family::of_shared);
        assert_eq!(one.number(), again.number());
        let (one, again) = (one.first(0) >> TENANT, again.first(0) >> TENANT);
        assert!(one.abs_diff(again) > 1 << 20, "{one:#x} {again:#x}");
    }
}
