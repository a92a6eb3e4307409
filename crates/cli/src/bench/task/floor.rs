//! What ours is held against.

use serde::{Deserialize, Serialize};

use super::{Kind, Path};

/// What the machine does without RDMA: nothing built on it can be quicker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Floor {
    /// A copy within a process.
    Memcpy,
    /// A loop around `process_vm_writev` into another process.
    VmWrite,
    /// A loop around `process_vm_readv` from another process.
    VmRead,
    /// A cache line between two processors and back.
    CacheLine,
    /// Bare UDP, there and back, both sides polling.
    UdpPing,
    /// Bare UDP with segmentation offload; what the receiver got.
    UdpStream,
    /// A single TCP stream.
    TcpStream,
}

impl Floor {
    /// All of them.
    pub(crate) const ALL: [Self; 7] = [
        Self::Memcpy,
        Self::VmWrite,
        Self::VmRead,
        Self::CacheLine,
        Self::UdpPing,
        Self::UdpStream,
        Self::TcpStream,
    ];
    /// Bytes of the longest datagram that is sent whole.
    const DATAGRAM: usize = 32768;

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memcpy => "memcpy",
            Self::VmWrite => "process_vm_writev",
            Self::VmRead => "process_vm_readv",
            Self::CacheLine => "cache line",
            Self::UdpPing => "UDP ping-pong",
            Self::UdpStream => "UDP stream",
            Self::TcpStream => "TCP stream",
        }
    }

    /// Whether it has a time for one.
    pub(crate) fn has(self, kind: Kind) -> bool {
        match self {
            Self::Memcpy | Self::VmWrite | Self::VmRead => true,
            Self::CacheLine | Self::UdpPing => kind == Kind::Latency,
            Self::UdpStream | Self::TcpStream => kind == Kind::Stream,
        }
    }

    /// The path that it is under.
    pub(crate) fn path(self) -> Path {
        match self {
            Self::Memcpy | Self::VmWrite | Self::VmRead | Self::CacheLine => Path::Local,
            Self::UdpPing | Self::UdpStream | Self::TcpStream => Path::Wire,
        }
    }

    /// Whether it is measured with that many bytes.
    pub(crate) fn takes(self, size: usize) -> bool {
        match self {
            Self::CacheLine => size == 8,
            Self::UdpPing => size <= Self::DATAGRAM,
            _ => true,
        }
    }
}
