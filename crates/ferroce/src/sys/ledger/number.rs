//! The `wr_id` by which C knows work: the number of a slot, and a count that tells the slot's tenants apart.

/// The `wr_id` of a completion queue's own work: tenant (31 bits), slot (32 bits).
#[inline]
pub(super) fn own(tenant: u32, slot: u32) -> u64 {
    u64::from(tenant & !(1 << 31)) << 32 | u64::from(slot)
}

/// Set in the `wr_id` of work of a shared receive queue.
const OF_SHARED: u64 = 1 << 63;
/// Numbers of the ledgers of shared receive queues: 23 bits.
pub(super) const SHARED_NUMBERS: u32 = (1 << 23) - 1;
/// Slots of such a ledger: 24 bits, more than any device's queue holds.
const SHARED_SLOTS: u32 = (1 << 24) - 1;
/// Tenants of such a slot: 16 bits.
const SHARED_TENANTS: u32 = (1 << 16) - 1;

/// The `wr_id` of work of a shared receive queue.
#[inline]
pub(super) fn shared(number: u32, tenant: u32, slot: u32) -> u64 {
    OF_SHARED
        | u64::from(number) << 40
        | u64::from(tenant & SHARED_TENANTS) << 24
        | u64::from(slot & SHARED_SLOTS)
}

/// The number of the shared receive queue's ledger, if it is of one.
#[inline]
pub(super) fn ledger(id: u64) -> Option<u32> {
    (id & OF_SHARED != 0).then(|| low(id >> 40) & SHARED_NUMBERS)
}

/// The bits of a tenant that are in a `wr_id`.
#[inline]
pub(super) fn tenant_mask(id: u64) -> u32 {
    if id & OF_SHARED == 0 {
        !(1 << 31)
    } else {
        SHARED_TENANTS
    }
}

/// Tenant and slot of a `wr_id`.
#[inline]
pub(super) fn parts(id: u64) -> (u32, u32) {
    if id & OF_SHARED == 0 {
        (low(id >> 32), low(id))
    } else {
        (low(id >> 24) & SHARED_TENANTS, low(id) & SHARED_SLOTS)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a part of a number")]
fn low(number: u64) -> u32 {
    number as u32
}
