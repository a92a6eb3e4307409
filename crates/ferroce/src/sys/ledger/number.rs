//! The `wr_id` by which C knows work: the number of a slot, and a count that tells the slot's
//! tenants apart.
//!
//! Of a completion queue's own work it is tenant (32 bits), 0, slot (31 bits); of that of a shared
//! receive queue tenant (16 bits), the upper 16 bits of the ledger's number, 1, the lower 7 of
//! them, slot (24 bits). So the next tenant is found by an addition.

/// Set in the `wr_id` of work of a shared receive queue.
const OF_SHARED: u64 = 1 << 31;
/// Numbers of the ledgers of shared receive queues: 23 bits.
pub(super) const SHARED_NUMBERS: u32 = (1 << 23) - 1;
/// Slots of such a ledger: more than any device's queue holds.
const SHARED_SLOTS: u32 = (1 << 24) - 1;
/// Bits of such a ledger's number that stand beside the slot.
const BESIDE: u32 = 7;
/// The last slot of a completion queue's own ledger.
pub(super) const LAST: u32 = (1 << 31) - 1;

/// The `wr_id` of the first tenant of a slot, in the ledger of a shared receive queue if it has
/// that number.
pub(super) fn first(ledger: Option<u32>, slot: u32) -> u64 {
    match ledger {
        None => u64::from(slot),
        Some(ledger) => {
            let (above, beside) = (ledger >> BESIDE, ledger & ((1 << BESIDE) - 1));
            OF_SHARED | u64::from(above) << 32 | u64::from(beside << 24 | slot & SHARED_SLOTS)
        }
    }
}

/// The `wr_id` of the next tenant of the same slot.
#[inline(always)]
pub(super) fn next(id: u64) -> u64 {
    if id & OF_SHARED == 0 {
        own_next(id)
    } else {
        id.wrapping_add(1 << 48)
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
        let (above, beside) = (low(id >> 32) & 0xffff, low(id) >> 24 & ((1 << BESIDE) - 1));
        above << BESIDE | beside
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
    use super::{LAST, SHARED_NUMBERS, SHARED_SLOTS, first, ledger, next, own_slot, slot};

    #[test]
    fn tenants_change_and_nothing_else_does() {
        for (of, place) in [
            (None, 0),
            (None, LAST),
            (Some(0), 7),
            (Some(0x12_3456), 0xab_cdef),
            (Some(SHARED_NUMBERS), SHARED_SLOTS),
        ] {
            let mut id = first(of, place);
            for _ in 0..100_000 {
                assert_eq!((ledger(id), slot(id)), (of, place));
                assert_eq!(own_slot(id) > LAST, of.is_some());
                let before = id;
                id = next(id);
                assert_ne!(id, before);
            }
        }
    }

    #[test]
    fn the_last_tenant_is_followed_by_the_first() {
        let own = first(None, 5);
        assert_eq!(next(own | 0xffff_ffff << 32), own);
        let shared = first(Some(SHARED_NUMBERS), 5);
        assert_eq!(next(shared | 0xffff << 48), shared);
    }
}
