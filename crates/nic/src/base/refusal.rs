//! Why a WRITE, READ or atomic within this host, or a long SEND, goes by packets.

use std::fmt;

/// Why a work request that could be carried out by the initiator was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The peer's process has not offered a board, or does not look at ours: it has the direct way
    /// off, is another user's, or the links between the two are younger than this work request.
    Unacquainted,
    /// The kernel does not let this process at the memory of the other one (`ptrace_scope`, a
    /// filter of system calls, another PID namespace), or that has ended.
    Unreachable,
    /// As many threads as there are hazards are at it.
    Busy,
    /// The peer does not grant it: a key, a range, a right, a state, or packets that are still to
    /// be answered. Its responder will say which.
    NotGranted,
    /// A key of this process does not open its own memory.
    OwnMemory,
    /// The copy failed half way.
    Failed,
    /// An atomic on memory that the peer does not share, or that could not be mapped here.
    NotShared,
}

impl Refusal {
    /// All of them, in the order of the counters.
    pub const ALL: [Self; 7] = [
        Self::Unacquainted,
        Self::Unreachable,
        Self::Busy,
        Self::NotGranted,
        Self::OwnMemory,
        Self::Failed,
        Self::NotShared,
    ];
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unacquainted => "the other process offers no direct way, or not yet",
            Self::Unreachable => "the kernel does not let this process at the other one's memory",
            Self::Busy => "too many copies at the same time",
            Self::NotGranted => "the peer does not grant it now",
            Self::OwnMemory => "a local key does not open it",
            Self::Failed => "the copy failed",
            Self::NotShared => "the memory is not shared with this process",
        })
    }
}
