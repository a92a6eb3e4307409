//! The `wr_id` by which C knows work: the number of a slot, and a count that tells the slot's tenants apart.
//!
//! Of a completion queue's own work it is tenant (31 bits), slot (32 bits); of that of a shared receive queue
//! 1, ledger (23 bits), tenant (16 bits), slot (24 bits).

/// Set in the `wr_id` of work of a shared receive queue.
const OF_SHARED: u64 = 1 << 63;
/// Numbers of the ledgers of shared receive queues.
pub(super) const SHARED_NUMBERS: u32 = (1 << 23) - 1;
/// Slots of such a ledger: more than any device's queue holds.
const SHARED_SLOTS: u32 = (1 << 24) - 1;
/// Where the tenants of such a slot are counted.
const SHARED_TENANTS: u64 = 0xffff << 24;

/// The `wr_id` of the first tenant of a slot, in the ledger of a shared receive queue if it has that number.
pub(super) fn first(ledger: Option<u32>, slot: u32) -> u64 {
    match ledger {
        None => u64::from(slot),
        Some(ledger) => OF_SHARED | u64::from(ledger) << 40 | u64::from(slot & SHARED_SLOTS),
    }
}

/// The `wr_id` of the next tenant of the same slot.
#[inline(always)]
pub(super) fn next(id: u64) -> u64 {
    if id & OF_SHARED == 0 {
        id.wrapping_add(1 << 32) & !OF_SHARED
    } else {
        id & !SHARED_TENANTS | id.wrapping_add(1 << 24) & SHARED_TENANTS
    }
}

/// The number of the shared receive queue's ledger, if it is of one.
#[inline(always)]
pub(super) fn ledger(id: u64) -> Option<u32> {
    (id & OF_SHARED != 0).then(|| low(id >> 40) & SHARED_NUMBERS)
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
    use super::{SHARED_NUMBERS, SHARED_SLOTS, first, ledger, next, slot};

    #[test]
    fn tenants_change_and_nothing_else_does() {
        for (of, place) in [
            (None, u32::MAX - 1),
            (Some(0), 7),
            (Some(SHARED_NUMBERS), SHARED_SLOTS),
        ] {
            let mut id = first(of, place);
            for _ in 0..100_000 {
                assert_eq!((ledger(id), slot(id)), (of, place));
                let before = id;
                id = next(id);
                assert_ne!(id, before);
            }
        }
    }

    #[test]
    fn the_last_tenant_is_followed_by_the_first() {
        let first = first(None, 5);
        assert_eq!(next(first | !(1 << 63) & !0xffff_ffff), first);
    }
}
