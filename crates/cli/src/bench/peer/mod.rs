//! Other programs that move bytes, where they are installed: what people use today.

mod read;
mod run;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::measured::Measured;
use super::task::{Kind, Path, Task, Waiting};
use crate::connection::Outcome;
use run::Session;

/// A way of UCX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum UcxTransport {
    /// POSIX shared memory.
    Posix,
    /// System V shared memory.
    Sysv,
    /// The kernel copies large messages; small ones go through shared memory.
    Cma,
    /// TCP.
    Tcp,
}

impl UcxTransport {
    /// The value of `UCX_TLS`.
    fn value(self) -> &'static str {
        match self {
            Self::Posix => "posix",
            Self::Sysv => "sysv",
            Self::Cma => "posix,cma",
            Self::Tcp => "tcp",
        }
    }
}

/// A measurement by another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Peer {
    /// `ucx_perftest`, tagged messages.
    Ucx(UcxTransport, Kind),
    /// iperf3, a single TCP stream.
    Iperf3,
    /// qperf, a TCP stream.
    QperfTcp,
    /// qperf, UDP there and back.
    QperfUdp,
    /// qperf, TCP there and back.
    QperfTcpPing,
    /// sockperf, UDP there and back.
    Sockperf,
    /// libfabric's `fi_pingpong` over its TCP provider.
    FiPingpong,
}

/// All of them.
pub(crate) const ALL: [Peer; 14] = [
    Peer::Ucx(UcxTransport::Posix, Kind::Latency),
    Peer::Ucx(UcxTransport::Sysv, Kind::Latency),
    Peer::Ucx(UcxTransport::Cma, Kind::Latency),
    Peer::Ucx(UcxTransport::Tcp, Kind::Latency),
    Peer::Ucx(UcxTransport::Posix, Kind::Stream),
    Peer::Ucx(UcxTransport::Sysv, Kind::Stream),
    Peer::Ucx(UcxTransport::Cma, Kind::Stream),
    Peer::Ucx(UcxTransport::Tcp, Kind::Stream),
    Peer::Iperf3,
    Peer::QperfTcp,
    Peer::QperfUdp,
    Peer::QperfTcpPing,
    Peer::Sockperf,
    Peer::FiPingpong,
];

/// Bytes of the longest datagram that is sent whole.
const DATAGRAM: usize = 32768;
/// These programs count whole seconds.
const SECOND: &str = "1";

impl Peer {
    /// Returns the name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ucx(UcxTransport::Posix, _) => "UCX posix",
            Self::Ucx(UcxTransport::Sysv, _) => "UCX sysv",
            Self::Ucx(UcxTransport::Cma, _) => "UCX posix+cma",
            Self::Ucx(UcxTransport::Tcp, _) => "UCX tcp",
            Self::Iperf3 => "iperf3 TCP",
            Self::QperfTcp => "qperf tcp_bw",
            Self::QperfUdp => "qperf udp_lat",
            Self::QperfTcpPing => "qperf tcp_lat",
            Self::Sockperf => "sockperf UDP",
            Self::FiPingpong => "fi_pingpong tcp",
        }
    }

    /// Returns the kind of measurement.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Ucx(_, kind) => kind,
            Self::Iperf3 | Self::QperfTcp => Kind::Stream,
            Self::QperfUdp | Self::QperfTcpPing | Self::Sockperf | Self::FiPingpong => {
                Kind::Latency
            }
        }
    }

    /// Whether its sides can wait so. Those of qperf and sockperf sleep, whatever ours do.
    pub(crate) fn waits(self, waiting: Waiting) -> bool {
        match self {
            Self::QperfTcpPing => waiting == Waiting::Asleep,
            Self::Ucx(_, Kind::Latency) | Self::QperfUdp | Self::Sockperf => true,
            _ => waiting == Waiting::Polling,
        }
    }

    /// The path that it is comparable with.
    pub(crate) fn path(self) -> Path {
        match self {
            Self::Ucx(UcxTransport::Tcp, _) => Path::Wire,
            Self::Ucx(..) => Path::Local,
            _ => Path::Wire,
        }
    }

    /// Whether it is measured with that many bytes.
    pub(crate) fn takes(self, size: usize) -> bool {
        match self {
            Self::QperfUdp | Self::Sockperf => size <= DATAGRAM,
            _ => true,
        }
    }

    /// Its program, and the Debian package that brings it.
    fn program(self) -> (&'static str, &'static str) {
        match self {
            Self::Ucx(..) => ("ucx_perftest", "ucx-utils"),
            Self::Iperf3 => ("iperf3", "iperf3"),
            Self::QperfTcp | Self::QperfUdp | Self::QperfTcpPing => ("qperf", "qperf"),
            Self::Sockperf => ("sockperf", "sockperf"),
            Self::FiPingpong => ("fi_pingpong", "libfabric-bin"),
        }
    }

    /// If it is not installed: what installs it.
    pub(crate) fn missing(self) -> Option<String> {
        let (program, package) = self.program();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let present = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
        (!present).then(|| format!("{program} is not installed: sudo apt-get install {package}"))
    }

    /// Runs it.
    pub(crate) fn measure(self, task: &Task) -> Outcome<Measured> {
        let program = self.program().0;
        let session = Session::new(program, task.address)?;
        let port = session.port();
        let port = port.as_str();
        let address = task.address.to_string();
        let size = task.size.to_string();
        match self {
            Self::Ucx(transport, kind) => {
                let session = session.env("UCX_TLS", transport.value());
                self.ucx(&session, task, kind)
            }
            Self::Iperf3 => {
                session.serve(&["-s", "-1", "-p", port])?;
                read::iperf3(
                    &session.run(&["-c", &address, "-p", port, "-J", "-l", &size, "-t", SECOND])?,
                )
            }
            Self::QperfTcp | Self::QperfUdp | Self::QperfTcpPing => {
                let test = match self {
                    Self::QperfTcp => "tcp_bw",
                    Self::QperfUdp => "udp_lat",
                    _ => "tcp_lat",
                };
                session.serve(&["-lp", port])?;
                let client = [&address, "-lp", port, "-t", SECOND, "-m", &size, test];
                read::qperf(&session.run(&client)?)
            }
            Self::Sockperf => {
                let size = task.size.max(14).to_string();
                session.serve_udp(&["sr", "-i", &address, "-p", port])?;
                let client = ["pp", "-i", &address, "-p", port, "-t", SECOND, "-m", &size];
                read::sockperf(&session.run(&client)?)
            }
            Self::FiPingpong => {
                let count = self.count(task).to_string();
                session.serve(&[
                    "-p", "tcp", "-e", "rdm", "-I", &count, "-S", &size, "-B", port,
                ])?;
                let client = [
                    "-p", "tcp", "-e", "rdm", "-I", &count, "-S", &size, "-P", port, &address,
                ];
                read::fi_pingpong(&session.run(&client)?)
            }
        }
        .map_err(|e| format!("{program}: {e}"))
    }

    fn ucx(self, session: &Session, task: &Task, kind: Kind) -> Outcome<Measured> {
        let test = if kind == Kind::Latency {
            "tag_lat"
        } else {
            "tag_bw"
        };
        let mode = match task.waiting {
            Waiting::Polling => "poll",
            Waiting::Asleep => "sleep",
        };
        let port = session.port();
        session.serve(&["-p", &port, "-E", mode])?;
        let (address, size) = (task.address.to_string(), task.size.to_string());
        let (count, warm_up) = (self.count(task), self.count(task) / 5);
        let client = [
            &address, "-p", &port, "-f", "-t", test, "-s", &size, "-E", mode,
        ];
        let counts = ["-n", &count.to_string(), "-w", &warm_up.to_string()];
        read::ucx(&session.run(&[&client[..], &counts].concat())?, kind)
    }

    /// Number of operations of a measurement, so that it takes about as long as the other
    /// measurements: these programs count, they do not look at the clock.
    fn count(self, task: &Task) -> u64 {
        let one = match self.kind() {
            Kind::Latency if task.waiting == Waiting::Asleep => Duration::from_micros(25),
            // More than it takes on an idle machine: on a busy one it takes much more.
            Kind::Latency if self.path() == Path::Local => Duration::from_micros(3),
            Kind::Latency => Duration::from_micros(15),
            Kind::Stream => Duration::from_micros(1),
        };
        let copy = task.size as f64 / 3e9;
        let count = task.time.as_secs_f64() / (one.as_secs_f64() + copy);
        // Between 20 and a thousand million, so it fits.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "bounded"
        )]
        let count = count.clamp(20.0, 1e9) as u64;
        count
    }
}

#[cfg(test)]
mod tests {
    use super::{ALL, Peer};

    #[test]
    fn what_is_missing_comes_with_the_line_that_installs_it() {
        for peer in ALL {
            if let Some(reason) = peer.missing() {
                assert!(reason.contains("apt-get install"), "{reason}");
            }
        }
        assert_eq!(Peer::Sockperf.program().1, "sockperf");
    }
}
