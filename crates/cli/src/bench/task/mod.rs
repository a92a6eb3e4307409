//! What can be measured: the names of all lines in the tables and curves.

mod floor;
mod operation;

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use self::floor::Floor;
pub(crate) use self::operation::{Kind, Path, Transport, Verb, Waiting};
use super::peer::Peer;

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

    /// What it is held against at a size: the floor, the size at which that is measured, and how
    /// often it is done for one of ours.
    pub(crate) fn floor(self, size: usize, waiting: Waiting) -> Option<(Floor, usize, f64)> {
        let Self::Verbs(path, _, verb, kind) = self else {
            return None;
        };
        let floor = match (path, kind) {
            (Path::Wire | Path::Keyed, _) if waiting == Waiting::Asleep => Floor::TcpPing,
            (Path::Local, _) if waiting == Waiting::Asleep && verb != Verb::Read => Floor::Eventfd,
            (Path::Wire | Path::Keyed, Kind::Latency) => Floor::UdpPing,
            (Path::Wire | Path::Keyed, Kind::Stream) => Floor::TcpStream,
            (Path::Local, Kind::Latency) if verb.is_atomic() => Floor::CacheLine,
            (Path::Local, Kind::Latency) if verb.takes_receive() && size <= Self::LINE => {
                Floor::CacheLine
            }
            (Path::Local, Kind::Stream) if verb.is_atomic() => return None,
            (Path::Local, _) if verb == Verb::Read => Floor::VmRead,
            (Path::Local, _) => Floor::VmWrite,
        };
        // An answer from another process travels as far as the question.
        let is_one_way = matches!(floor, Floor::UdpPing | Floor::TcpPing | Floor::Eventfd);
        let both_ways = is_one_way && !verb.is_one_way();
        let is_word = matches!(floor, Floor::CacheLine | Floor::Eventfd);
        let measured_at = if is_word { 8 } else { size };
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
    /// Operation and path to measure.
    pub(crate) series: Series,
    /// Bytes of each operation: a multiple of 8.
    pub(crate) size: usize,
    /// Length of the measurement, without the time to warm up.
    pub(crate) time: Duration,
    /// Where the passive side is reached.
    pub(crate) address: IpAddr,
    /// Makes the bytes of this measurement unlike those of the one before.
    pub(crate) seed: u64,
    /// The memory that operations go to is shared: processes of this host map it.
    pub(crate) shared: bool,
    /// What both sides do until something comes.
    #[serde(default)]
    pub(crate) waiting: Waiting,
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

    /// Operations under way at once. Few large ones: what is measured is not how slow memory is
    /// that fits no cache.
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
    use super::{Floor, Kind, Path, Series, Transport, Verb, Waiting};

    #[test]
    fn floors_are_of_the_same_path_and_kind() {
        for path in [Path::Local, Path::Wire] {
            for verb in Verb::ALL {
                for kind in [Kind::Latency, Kind::Stream] {
                    let series = Series::Verbs(path, Transport::Rc, verb, kind);
                    let floor = series.floor(8, Waiting::Polling);
                    if path == Path::Local && kind == Kind::Stream && verb.is_atomic() {
                        assert_eq!(floor, None, "nothing comes near it");
                        continue;
                    }
                    let (floor, size, _) = floor.unwrap();
                    assert!(floor.path() == path && floor.has(kind) && size == 8);
                }
            }
        }
        let polling = Waiting::Polling;
        assert_eq!(Series::Floor(Floor::Memcpy).floor(8, polling), None);
        let ping = Series::Verbs(Path::Wire, Transport::Rc, Verb::Read, Kind::Latency);
        assert_eq!(ping.floor(8, polling), Some((Floor::UdpPing, 8, 2.0)));
        let long = ping.floor(1 << 20, polling);
        assert_eq!(long, None, "no datagram is as long");
    }

    #[test]
    fn a_sleeping_series_is_held_against_a_sleeping_floor() {
        for path in [Path::Local, Path::Wire] {
            let verbs = Verb::ALL.into_iter();
            for verb in verbs.filter(|&verb| Waiting::Asleep.has(verb)) {
                let series = Series::Verbs(path, Transport::Rc, verb, Kind::Latency);
                let (floor, ..) = series.floor(8, Waiting::Asleep).unwrap();
                assert!(
                    floor.waits(Waiting::Asleep) && floor.path() == path,
                    "{floor:?}"
                );
            }
        }
        let send = Series::Verbs(Path::Local, Transport::Rc, Verb::Send, Kind::Latency);
        let floor = send.floor(4096, Waiting::Asleep);
        assert_eq!(floor, Some((Floor::Eventfd, 8, 1.0)));
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
