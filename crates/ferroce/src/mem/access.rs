//! What memory and queue pairs allow.

use std::fmt;
use std::ops::BitOr;

use ferroce_abi::types::{
    IBV_ACCESS_FLUSH_GLOBAL, IBV_ACCESS_FLUSH_PERSISTENT, IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_MW_BIND, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE,
};

/// What may be done with a memory region, besides sending from it (`enum ibv_access_flags`;
/// `ibv_reg_mr(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Nothing.
    LocalRead,
    /// Receiving into it, and reading into it from peers.
    LocalWrite,
    /// What [`LocalWrite`](Self::LocalWrite) allows, and READs by peers.
    RemoteRead,
    /// Everything: READ, WRITE and atomics by peers.
    Remote,
    /// What [`LocalWrite`](Self::LocalWrite) allows, and what these say by peers.
    Peers(RemoteAccess),
    /// What [`LocalWrite`](Self::LocalWrite) allows; peers reach it through [memory
    /// windows](crate::mem::MemoryWindow) only.
    Windows,
}

impl Access {
    pub(crate) fn flags(self) -> i32 {
        let flags = match self {
            Self::LocalRead => 0,
            Self::LocalWrite => IBV_ACCESS_LOCAL_WRITE,
            Self::RemoteRead => IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ,
            Self::Remote => {
                IBV_ACCESS_LOCAL_WRITE
                    | IBV_ACCESS_REMOTE_READ
                    | IBV_ACCESS_REMOTE_WRITE
                    | IBV_ACCESS_REMOTE_ATOMIC
            }
            Self::Peers(access) => IBV_ACCESS_LOCAL_WRITE | access.flags(),
            Self::Windows => IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND,
        };
        flags.cast_signed()
    }
}

/// What a peer may do with memory that both a key and the queue pair open to it:
/// `IBV_ACCESS_REMOTE_*` of `ibv_reg_mr(3)` and of `qp_access_flags` in `ibv_modify_qp(3)`.
///
/// The rights are added up:
///
/// ```
/// use ferroce::mem::{Access, RemoteAccess};
/// let rights = RemoteAccess::READ | RemoteAccess::ATOMIC;
/// assert!(rights.read && rights.atomic && !rights.write);
/// let access = Access::Peers(rights); // for `MemoryRegion::new`
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct RemoteAccess {
    /// RDMA READ.
    pub read: bool,
    /// RDMA WRITE, ATOMIC WRITE.
    pub write: bool,
    /// Compare and swap, fetch and add.
    pub atomic: bool,
    /// FLUSH to [where all see it](crate::qp::FlushPlacement::Global). Devices without FLUSH refuse
    /// it.
    pub flush_global: bool,
    /// FLUSH to [memory that keeps it](crate::qp::FlushPlacement::Persistent). Devices without
    /// FLUSH refuse it.
    pub flush_persistent: bool,
}

impl RemoteAccess {
    /// Nothing.
    pub const NONE: Self = Self {
        read: false,
        write: false,
        atomic: false,
        flush_global: false,
        flush_persistent: false,
    };
    /// READ.
    pub const READ: Self = Self {
        read: true,
        ..Self::NONE
    };
    /// WRITE.
    pub const WRITE: Self = Self {
        write: true,
        ..Self::NONE
    };
    /// Compare and swap, fetch and add.
    pub const ATOMIC: Self = Self {
        atomic: true,
        ..Self::NONE
    };
    /// FLUSH to [where all see it](crate::qp::FlushPlacement::Global).
    pub const FLUSH_GLOBAL: Self = Self {
        flush_global: true,
        ..Self::NONE
    };
    /// FLUSH to [memory that keeps it](crate::qp::FlushPlacement::Persistent).
    pub const FLUSH_PERSISTENT: Self = Self {
        flush_persistent: true,
        ..Self::NONE
    };
    /// READ, WRITE and atomics.
    pub const ALL: Self = Self {
        read: true,
        write: true,
        atomic: true,
        ..Self::NONE
    };

    /// `IBV_ACCESS_REMOTE_*`
    pub(crate) fn flags(self) -> u32 {
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        flag(self.read, IBV_ACCESS_REMOTE_READ)
            | flag(self.write, IBV_ACCESS_REMOTE_WRITE)
            | flag(self.atomic, IBV_ACCESS_REMOTE_ATOMIC)
            | flag(self.flush_global, IBV_ACCESS_FLUSH_GLOBAL)
            | flag(self.flush_persistent, IBV_ACCESS_FLUSH_PERSISTENT)
    }

    pub(crate) fn from_flags(flags: u32) -> Self {
        Self {
            read: flags & IBV_ACCESS_REMOTE_READ != 0,
            write: flags & IBV_ACCESS_REMOTE_WRITE != 0,
            atomic: flags & IBV_ACCESS_REMOTE_ATOMIC != 0,
            flush_global: flags & IBV_ACCESS_FLUSH_GLOBAL != 0,
            flush_persistent: flags & IBV_ACCESS_FLUSH_PERSISTENT != 0,
        }
    }
}

/// What either of them allows: `RemoteAccess::READ | RemoteAccess::WRITE`.
impl BitOr for RemoteAccess {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self::from_flags(self.flags() | other.flags())
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peers = match self {
            Self::LocalRead => return f.pad("local read"),
            Self::LocalWrite => return f.pad("local write"),
            Self::Windows => return f.pad("local write, memory windows"),
            Self::RemoteRead => RemoteAccess::READ,
            Self::Remote => RemoteAccess::ALL,
            Self::Peers(access) => *access,
        };
        f.pad(&format!("local write, remote {peers}"))
    }
}

/// The rights, with commas.
impl fmt::Display for RemoteAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rights = [
            (self.read, "read"),
            (self.write, "write"),
            (self.atomic, "atomic"),
            (self.flush_global, "flush global"),
            (self.flush_persistent, "flush persistent"),
        ];
        let given = rights.iter().filter(|(given, _)| *given);
        let given: Vec<_> = given.map(|(_, name)| *name).collect();
        match &given[..] {
            [] => f.pad("none"),
            given => f.pad(&given.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Access, RemoteAccess};

    #[test]
    fn rights_are_listed() {
        assert_eq!(RemoteAccess::NONE.to_string(), "none");
        assert_eq!(RemoteAccess::ALL.to_string(), "read, write, atomic");
        let flushed = RemoteAccess::WRITE | RemoteAccess::FLUSH_GLOBAL;
        assert_eq!(flushed.to_string(), "write, flush global");
        assert_eq!(Access::LocalRead.to_string(), "local read");
        let access = Access::RemoteRead.to_string();
        assert_eq!(access, "local write, remote read");
        let access = Access::Peers(flushed).to_string();
        assert_eq!(access, "local write, remote write, flush global");
        assert_eq!(format!("{:>5}", RemoteAccess::READ), " read");
    }
}
