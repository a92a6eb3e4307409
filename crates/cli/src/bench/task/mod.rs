//! What can be measured: the names of all lines in the tables and curves.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use super::peer::Peer;
use serde::{Deserialize, Serialize};

/// The way that the queue pairs of a measurement take (`FERROCE_PATH`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Path {
    /// Within the host.
    Local,
    /// `RoCEv2` over UDP.
    Wire,
}

impl Path {
    /// The value of `FERROCE_PATH`, and its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Wire => "wire",
        }
    }
}

/// The transport of a measurement's queue pairs.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Transport {
    /// Reliable connection: all operations.
    Rc,
    /// Unreliable connection: SEND and WRITE; what is lost is counted.
    Uc,
    /// Unreliable datagrams: SENDs of one packet; what is lost is counted.
    Ud,
}

impl Transport {
    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
        }
    }

    /// Whether it has an operation.
    pub(crate) fn has(self, verb: Verb) -> bool {
        match self {
            Self::Rc => true,
            Self::Uc => verb.is_one_way(),
            Self::Ud => verb == Verb::Send,
        }
    }

    /// Whether messages may get lost.
    pub(crate) fn may_lose(self) -> bool {
        self != Self::Rc
    }
}

/// An operation of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verb {
    /// SEND.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA WRITE with immediate, of which the peer is told by a receive.
    WriteImmediate,
    /// RDMA READ.
    Read,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
}

impl Verb {
    /// All of them.
    pub(crate) const ALL: [Self; 6] = [
        Self::Send,
        Self::Write,
        Self::WriteImmediate,
        Self::Read,
        Self::CompareSwap,
        Self::FetchAdd,
    ];

    /// Atomics have 8 bytes.
    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// Whether it brings bytes to the peer. (The others bring some back.)
    pub(crate) fn is_one_way(self) -> bool {
        matches!(self, Self::Send | Self::Write | Self::WriteImmediate)
    }

    /// Whether the peer is told of it by a receive.
    pub(crate) fn takes_receive(self) -> bool {
        matches!(self, Self::Send | Self::WriteImmediate)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Send => "SEND",
            Self::Write => "WRITE",
            Self::WriteImmediate => "WRITE_IMM",
            Self::Read => "READ",
            Self::CompareSwap => "CAS",
            Self::FetchAdd => "FETCH_ADD",
        }
    }
}

/// One thing at a time, or as many as possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Time of one: half a round trip for SEND, WRITE (with and without immediate) and the bare pings, from post to completion for READ and atomics.
    Latency,
    /// A window of them under way: bandwidth and message rate.
    Stream,
}

impl Kind {
    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Stream => "stream",
        }
    }
}

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

/// A line of the tables, and a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Series {
    /// Ours.
    Verbs(Path, Transport, Verb, Kind),
    /// The machine's.
    Floor(Floor),
    /// Another program's.
    Peer(Peer),
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verbs(path, .., kind) => {
                write!(f, "{} {} {}", path.name(), self.short(), kind.name())
            }
            Self::Floor(floor) => f.write_str(floor.name()),
            Self::Peer(peer) => write!(f, "{} {}", peer.name(), peer.kind().name()),
        }
    }
}

impl Series {
    /// Its name among the lines of one path and kind.
    pub(crate) fn short(self) -> Cow<'static, str> {
        match self {
            Self::Verbs(_, Transport::Rc, verb, _) => verb.name().into(),
            Self::Verbs(_, transport, verb, _) => {
                format!("{} {}", transport.name(), verb.name()).into()
            }
            Self::Floor(floor) => floor.name().into(),
            Self::Peer(peer) => peer.name().into(),
        }
    }

    /// The transport of ours.
    pub(crate) fn transport(self) -> Option<Transport> {
        match self {
            Self::Verbs(_, transport, ..) => Some(transport),
            Self::Floor(_) | Self::Peer(_) => None,
        }
    }

    /// The path under which it is reported.
    pub(crate) fn path(self) -> Path {
        match self {
            Self::Verbs(path, ..) => path,
            Self::Floor(floor) => floor.path(),
            Self::Peer(peer) => peer.path(),
        }
    }

    /// Whether it has numbers of this kind.
    pub(crate) fn has(self, kind: Kind) -> bool {
        match self {
            Self::Verbs(.., own) => own == kind,
            Self::Floor(floor) => floor.has(kind),
            Self::Peer(peer) => peer.kind() == kind,
        }
    }

    /// Whether it is measured with that many bytes.
    pub(crate) fn takes(self, size: usize) -> bool {
        match self {
            Self::Verbs(_, _, verb, _) => size == 8 || !verb.is_atomic(),
            Self::Floor(floor) => floor.takes(size),
            Self::Peer(peer) => peer.takes(size),
        }
    }

    /// What it is held against at a size: the floor, the size at which that is measured, and how often it is done for one of ours.
    pub(crate) fn floor(self, size: usize) -> Option<(Floor, usize, f64)> {
        let Self::Verbs(path, _, verb, kind) = self else {
            return None;
        };
        let floor = match (path, kind) {
            (Path::Wire, Kind::Latency) => Floor::UdpPing,
            (Path::Wire, Kind::Stream) => Floor::TcpStream,
            (Path::Local, Kind::Latency) if verb.is_atomic() => Floor::CacheLine,
            (Path::Local, Kind::Latency) if verb.takes_receive() && size <= Self::LINE => {
                Floor::CacheLine
            }
            (Path::Local, Kind::Stream) if verb.is_atomic() => return None,
            (Path::Local, _) if verb == Verb::Read => Floor::VmRead,
            (Path::Local, _) => Floor::VmWrite,
        };
        // An answer from another host travels as far as the question.
        let both_ways = floor == Floor::UdpPing && !verb.is_one_way();
        let measured_at = if floor == Floor::CacheLine { 8 } else { size };
        floor
            .takes(measured_at)
            .then_some((floor, measured_at, if both_ways { 2.0 } else { 1.0 }))
    }

    /// Bytes of a cache line.
    const LINE: usize = 64;
}

/// One measurement.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    /// What.
    pub(crate) series: Series,
    /// Bytes of each operation: a multiple of 8.
    pub(crate) size: usize,
    /// How long, without the time to warm up.
    pub(crate) time: Duration,
    /// Where the passive side is reached.
    pub(crate) address: IpAddr,
    /// Makes the bytes of this measurement unlike those of the one before.
    pub(crate) seed: u64,
    /// The memory that operations go to is shared: processes of this host map it.
    pub(crate) shared: bool,
}

impl Task {
    /// Bytes of the longest operation.
    pub(crate) const MAX_SIZE: usize = 1 << 26;
    /// Bytes that are under way at most, if an operation has less.
    const WINDOW_BYTES: usize = 4 << 20;

    /// The transport of our queue pairs.
    pub(crate) fn transport(&self) -> Transport {
        self.series.transport().unwrap_or(Transport::Rc)
    }

    /// Operations under way at once. Few large ones: what is measured is not how slow memory is that fits no cache.
    pub(crate) fn window(&self) -> usize {
        (Self::WINDOW_BYTES / self.size.max(1)).clamp(4, 128)
    }

    /// Time before anything is counted.
    pub(crate) fn warm_up(&self) -> Duration {
        self.time / 5
    }
}

#[cfg(test)]
mod tests {
    use super::{Floor, Kind, Path, Series, Transport, Verb};

    #[test]
    fn floors_are_of_the_same_path_and_kind() {
        for path in [Path::Local, Path::Wire] {
            for verb in Verb::ALL {
                for kind in [Kind::Latency, Kind::Stream] {
                    let floor = Series::Verbs(path, Transport::Rc, verb, kind).floor(8);
                    if path == Path::Local && kind == Kind::Stream && verb.is_atomic() {
                        assert_eq!(floor, None, "nothing comes near it");
                        continue;
                    }
                    let (floor, size, _) = floor.unwrap();
                    assert!(floor.path() == path && floor.has(kind) && size == 8);
                }
            }
        }
        assert_eq!(Series::Floor(Floor::Memcpy).floor(8), None);
        let ping = Series::Verbs(Path::Wire, Transport::Rc, Verb::Read, Kind::Latency);
        assert_eq!(ping.floor(8), Some((Floor::UdpPing, 8, 2.0)));
        assert_eq!(ping.floor(1 << 20), None, "no datagram is as long");
    }

    #[test]
    fn transports_have_names_and_operations() {
        let name = |transport| Series::Verbs(Path::Wire, transport, Verb::Send, Kind::Stream);
        assert_eq!(name(Transport::Rc).to_string(), "wire SEND stream");
        assert_eq!(name(Transport::Ud).to_string(), "wire UD SEND stream");
        let count = |transport: Transport| {
            let has = Verb::ALL.into_iter().filter(|&verb| transport.has(verb));
            has.count()
        };
        let counts = [Transport::Rc, Transport::Uc, Transport::Ud].map(count);
        assert_eq!(counts, [6, 3, 1]);
    }

    #[test]
    fn atomics_have_eight_bytes() {
        let atomic = Series::Verbs(Path::Local, Transport::Rc, Verb::FetchAdd, Kind::Stream);
        assert!(atomic.takes(8) && !atomic.takes(64));
    }
}
