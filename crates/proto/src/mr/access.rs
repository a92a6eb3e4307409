//! Access flags.

use crate::wire::Placement;

bitflags::bitflags! {
    /// `enum ibv_access_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
    pub struct Access: u32 {
        /// The local device may write (receives, READ results, atomics results).
        const LOCAL_WRITE = 1;
        /// Peers may write.
        const REMOTE_WRITE = 1 << 1;
        /// Peers may read.
        const REMOTE_READ = 1 << 2;
        /// Peers may run atomics.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound.
        const MW_BIND = 1 << 4;
        /// Addresses start at 0 instead of the region's virtual address.
        const ZERO_BASED = 1 << 5;
        /// On-demand paging.
        const ON_DEMAND = 1 << 6;
        /// The memory consists of huge pages.
        const HUGETLB = 1 << 7;
        /// Peers may flush to global visibility.
        const FLUSH_GLOBAL = 1 << 8;
        /// Peers may flush to persistence.
        const FLUSH_PERSISTENT = 1 << 9;
        /// Writes may be seen out of order; optional, so it may be ignored.
        const RELAXED_ORDERING = 1 << 20;
    }
}

impl Access {
    /// Right that a peer needs for a FLUSH to this placement.
    #[must_use]
    pub fn to_flush(placement: Placement) -> Self {
        let flag = |kind, access| {
            if placement.contains(kind) {
                access
            } else {
                Self::empty()
            }
        };
        flag(Placement::GLOBAL, Self::FLUSH_GLOBAL)
            | flag(Placement::PERSISTENT, Self::FLUSH_PERSISTENT)
    }
}
