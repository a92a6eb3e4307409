//! Why a peer rejected a connection.

use std::fmt;

/// Why a peer rejected a connection. Over RoCE and InfiniBand the reasons of a REJ (IBTA 1.5 volume
/// 1, 12.6.7.2); over iWARP a negative errno, as the kernel's iWARP connection manager gives it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RejectReason(pub i32);

impl RejectReason {
    /// The peer has no queue pair left.
    pub const NO_QUEUE_PAIR: Self = Self(1);
    /// The peer has not the resources.
    pub const NO_RESOURCES: Self = Self(3);
    /// The peer's answer took too long.
    pub const TIMEOUT: Self = Self(4);
    /// Nobody listens there.
    pub const NO_LISTENER: Self = Self(8);
    /// The queue pair is of an earlier connection that the peer still holds.
    pub const STALE: Self = Self(10);
    /// The peer's program decided so: `rdma_reject(3)`.
    pub const CONSUMER: Self = Self(28);
    /// Over iWARP: nobody listens there, or the peer's program decided so.
    pub const REFUSED: Self = Self(-libc::ECONNREFUSED);
    /// Over iWARP: the peer closed the connection.
    pub const RESET: Self = Self(-libc::ECONNRESET);

    fn meaning(self) -> Option<&'static str> {
        Some(match self {
            Self::NO_QUEUE_PAIR => "it has no queue pair left",
            Self::NO_RESOURCES => "it has not the resources",
            Self::TIMEOUT => "its answer took too long",
            Self::NO_LISTENER => "nobody listens there",
            Self::STALE => "an earlier connection of the queue pair is not over",
            Self::CONSUMER => "by its program",
            Self::REFUSED => "refused",
            Self::RESET => "it closed the connection",
            _ => return None,
        })
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.meaning() {
            Some(meaning) => write!(f, "{} ({meaning})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Debug for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
