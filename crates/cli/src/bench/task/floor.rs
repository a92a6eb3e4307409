//! What ours is held against.

use serde::{Deserialize, Serialize};

use super::{Kind, Path, Waiting};

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
    /// As `VmWrite`, with 16 pieces of that size in each call.
    VmWriteList,
    /// As `VmRead`, with 16 pieces of that size in each call.
    VmReadList,
    /// A cache line between two processors and back.
    CacheLine,
    /// Bare UDP, there and back, both sides polling or both in `recv`.
    UdpPing,
    /// Bare UDP with segmentation offload; what the receiver got.
    UdpStream,
    /// A single TCP stream.
    TcpStream,
    /// An eventfd there and one back, both sides in `epoll_wait`.
    Eventfd,
    /// A Unix socket, there and back, both sides in `read`.
    UnixSocket,
    /// A TCP connection, there and back, both sides polling or both in `read`.
    TcpPing,
}

impl Floor {
    /// All of them.
    pub(crate) const ALL: [Self; 12] = [
        Self::Memcpy,
        Self::VmWrite,
        Self::VmRead,
        Self::VmWriteList,
        Self::VmReadList,
        Self::CacheLine,
        Self::UdpPing,
        Self::UdpStream,
        Self::TcpStream,
        Self::Eventfd,
        Self::UnixSocket,
        Self::TcpPing,
    ];
    /// Bytes of the longest datagram that is sent whole.
    const DATAGRAM: usize = 32768;

    /// Returns the name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memcpy => "memcpy",
            Self::VmWrite => "process_vm_writev",
            Self::VmRead => "process_vm_readv",
            Self::VmWriteList => "process_vm_writev, 16 pieces",
            Self::VmReadList => "process_vm_readv, 16 pieces",
            Self::CacheLine => "cache line",
            Self::UdpPing => "UDP ping-pong",
            Self::UdpStream => "UDP stream",
            Self::TcpStream => "TCP stream",
            Self::Eventfd => "eventfd",
            Self::UnixSocket => "Unix socket",
            Self::TcpPing => "TCP ping-pong",
        }
    }

    /// Pieces of memory that are moved by one call.
    pub(crate) fn pieces(self) -> usize {
        match self {
            Self::VmWriteList | Self::VmReadList => 16,
            _ => 1,
        }
    }

    /// Whether it reads the other process's memory.
    pub(crate) fn reads(self) -> bool {
        matches!(self, Self::VmRead | Self::VmReadList)
    }

    /// Whether it has a time for one.
    pub(crate) fn has(self, kind: Kind) -> bool {
        match self {
            Self::Memcpy | Self::VmWrite | Self::VmRead => true,
            Self::CacheLine | Self::UdpPing | Self::Eventfd | Self::UnixSocket | Self::TcpPing => {
                kind == Kind::Latency
            }
            Self::VmWriteList | Self::VmReadList | Self::UdpStream | Self::TcpStream => {
                kind == Kind::Stream
            }
        }
    }

    /// Whether it is measured with sides that wait so.
    pub(crate) fn waits(self, waiting: Waiting) -> bool {
        match self {
            Self::VmRead | Self::UdpPing | Self::TcpPing => true,
            Self::Eventfd | Self::UnixSocket => waiting == Waiting::Asleep,
            _ => waiting == Waiting::Polling,
        }
    }

    /// The path that it is under.
    pub(crate) fn path(self) -> Path {
        match self {
            Self::Memcpy
            | Self::VmWrite
            | Self::VmRead
            | Self::VmWriteList
            | Self::VmReadList
            | Self::CacheLine
            | Self::Eventfd
            | Self::UnixSocket => Path::Local,
            Self::UdpPing | Self::UdpStream | Self::TcpStream | Self::TcpPing => Path::Wire,
        }
    }

    /// Whether it is measured with that many bytes.
    pub(crate) fn takes(self, size: usize) -> bool {
        match self {
            Self::CacheLine | Self::Eventfd => size == 8,
            Self::UdpPing => size <= Self::DATAGRAM,
            // Longer ones are not slow for the number of calls.
            Self::VmWriteList | Self::VmReadList => size <= 4096,
            _ => true,
        }
    }
}
