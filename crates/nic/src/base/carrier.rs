//! What carries packets.

use std::fmt;

/// What carries packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// A short ring: memory that both processes share, for this queue pair alone.
    ShortRing,
    /// A ring in memory that both processes share.
    Ring,
    /// A Unix socket between two processes of the host.
    Socket,
    /// UDP 4791.
    Wire,
    /// A TCP connection, on iWARP.
    Tcp,
}

impl Carrier {
    /// All, in the order of the counters.
    pub(crate) const ALL: [Self; 5] = [
        Self::ShortRing,
        Self::Ring,
        Self::Socket,
        Self::Wire,
        Self::Tcp,
    ];
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ShortRing => "short-ring",
            Self::Ring => "shared ring",
            Self::Socket => "Unix socket",
            Self::Wire => "wire",
            Self::Tcp => "TCP",
        })
    }
}
