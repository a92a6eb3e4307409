//! Access flags.

bitflags::bitflags! {
    /// `enum ibv_access_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
    #[expect(missing_docs, reason = "the names are those of ibv_reg_mr(3)")]
    pub struct Access: u32 {
        const LOCAL_WRITE = 1;
        const REMOTE_WRITE = 1 << 1;
        const REMOTE_READ = 1 << 2;
        const REMOTE_ATOMIC = 1 << 3;
        const MW_BIND = 1 << 4;
        const ZERO_BASED = 1 << 5;
        const ON_DEMAND = 1 << 6;
        const HUGETLB = 1 << 7;
        const FLUSH_GLOBAL = 1 << 8;
        const FLUSH_PERSISTENT = 1 << 9;
        const RELAXED_ORDERING = 1 << 20;
    }
}
