//! The aims.

use super::Probe;
use super::probe::Number;
use crate::system::Place;

/// Which ratios meet an aim.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    AtLeast(f64),
    AtMost(f64),
    /// The ratio is at most that, or else our own number is.
    EitherAtMost {
        ratio: f64,
        ours: f64,
    },
}

impl Limit {
    /// Whether a ratio meets it, and our number, of which `step` is the last digit.
    pub(super) fn holds(self, ratio: f64, ours: f64, step: f64) -> bool {
        match self {
            Self::AtLeast(limit) => ratio >= limit,
            Self::AtMost(limit) => ratio * (ours - step) <= limit * ours,
            Self::EitherAtMost {
                ratio: limit,
                ours: enough,
            } => ratio <= limit || ours <= enough,
        }
    }
}

/// An aim: ours divided by theirs.
#[derive(Debug)]
pub(super) struct Aim {
    pub(super) work: &'static str,
    pub(super) place: Place,
    pub(super) number: Number,
    pub(super) ours: Probe,
    pub(super) theirs: Probe,
    /// `None`: measured to be known, not to be met.
    pub(super) limit: Option<Limit>,
    /// Whether a few rounds are measured, which all count, in whatever state the machine is.
    pub(super) all_rounds: bool,
}

impl Aim {
    /// What it is called: no two aims have the same.
    pub(super) fn name(&self) -> String {
        let place = match self.place {
            Place::Wire(mtu) => format!("veth {mtu}"),
            _ => "same host".into(),
        };
        format!("{place}: {} / {}", self.work, self.theirs.name())
    }

    /// The last digit of our number, as it is printed, in its unit.
    pub(super) fn step(&self) -> f64 {
        match (&self.ours, self.number) {
            (Probe::Perftest(_), Number::Latency | Number::Mean | Number::Tail) => 0.01,
            _ => 0.0,
        }
    }

    /// Whether it is decided by how long a cache line takes from one processor to the other: short
    /// messages by shared memory on both sides.
    pub(super) fn depends_on_line(&self) -> bool {
        let is_shared = matches!(self.theirs, Probe::Bench { name, .. } if name.starts_with("UCX"));
        is_shared && !self.all_rounds && !matches!(self.number, Number::Bandwidth)
    }
}

const HERE: Place = Place::Loopback;
const WRITEV: &str = "process_vm_writev";

/// Unmodified perftest against something on the same host.
const fn here(
    work: &'static str,
    number: Number,
    ours: &'static [&'static str],
    theirs: Probe,
    limit: Option<Limit>,
) -> Aim {
    Aim {
        work,
        place: HERE,
        number,
        ours: Probe::Perftest(ours),
        theirs,
        limit,
        all_rounds: false,
    }
}

/// Unmodified perftest between two namespaces, against a TCP stream there.
const fn stream(work: &'static str, mtu: u32, ours: &'static [&'static str]) -> Aim {
    Aim {
        work,
        place: Place::Wire(mtu),
        number: Number::Bandwidth,
        ours: Probe::Perftest(ours),
        theirs: Probe::Iperf3,
        limit: Some(Limit::AtLeast(1.0)),
        all_rounds: false,
    }
}

/// Unmodified perftest between two namespaces, against UDP there and back.
const fn ping(work: &'static str, mtu: u32, ours: &'static [&'static str], theirs: Probe) -> Aim {
    Aim {
        work,
        place: Place::Wire(mtu),
        number: Number::Latency,
        ours: Probe::Perftest(ours),
        theirs,
        limit: Some(Limit::AtMost(1.2)),
        all_rounds: false,
    }
}

/// Unmodified perftest between two namespaces where so many of a thousand packets are lost, against
/// itself where none is.
const fn loss(work: &'static str, ours: &'static [&'static str], lost: u32) -> Aim {
    Aim {
        work,
        place: Place::Wire(1500),
        number: Number::Bandwidth,
        ours: Probe::Lossy(ours, lost),
        theirs: Probe::Perftest(ours),
        limit: Some(Limit::AtLeast(0.5)),
        all_rounds: false,
    }
}

/// A connection of the RDMA connection manager that is made and ended.
const fn connection(work: &'static str, place: Place, theirs: Probe, most: f64) -> Aim {
    Aim {
        work,
        place,
        number: Number::Latency,
        ours: Probe::ConnectRate("cm"),
        theirs,
        limit: Some(Limit::AtMost(most)),
        all_rounds: true,
    }
}

/// `ferroce bench`'s own measurement of something else.
const fn bench(name: &'static str, size: &'static str) -> Probe {
    Probe::Bench {
        name,
        size,
        asleep: false,
    }
}

// Each runs for as long as what it is measured against, some tenths of a second: a program finds
// its pace in the first ten milliseconds.
const WRITE: &[&str] = &["ib_write_bw", "-s", "65536", "-n", "20000"];
const READ: &[&str] = &["ib_read_bw", "-s", "65536", "-n", "20000"];
const SEND: &[&str] = &["ib_send_bw", "-s", "65536", "-n", "20000"];
const WRITE_1M: &[&str] = &["ib_write_bw", "-s", "1048576", "-n", "3000"];
const READ_1M: &[&str] = &["ib_read_bw", "-s", "1048576", "-n", "3000"];
const SEND_RATE: &[&str] = &["ib_send_bw", "-s", "64", "-n", "4000000"];
const SEND_LAT: &[&str] = &["ib_send_lat", "-s", "8", "-n", "500000"];
const WRITE_LAT: &[&str] = &["ib_write_lat", "-s", "8", "-n", "100000"];
const ATOMIC_LAT: &[&str] = &["ib_atomic_lat", "-n", "100000"];
const FAR_SEND_LAT: &[&str] = &["ib_send_lat", "-s", "8", "-n", "30000"];
const FAR_WRITE_LAT: &[&str] = &["ib_write_lat", "-s", "8", "-n", "30000"];
const FAR_SEND_LAT_4K: &[&str] = &["ib_send_lat", "-s", "4096", "-n", "20000"];
const FAR_WRITE_LAT_4K: &[&str] = &["ib_write_lat", "-s", "4096", "-n", "20000"];
const FAR_SEND_LAT_64K: &[&str] = &["ib_send_lat", "-s", "65536", "-n", "10000"];
const FAR_WRITE_LAT_64K: &[&str] = &["ib_write_lat", "-s", "65536", "-n", "10000"];

/// All of them.
pub(super) const AIMS: &[Aim] = &[
    here(
        "WRITE 64 KiB",
        Number::Bandwidth,
        WRITE,
        bench(WRITEV, "64K"),
        Some(Limit::AtLeast(0.95)),
    ),
    here(
        "WRITE 64 KiB",
        Number::Bandwidth,
        WRITE,
        bench("UCX posix+cma stream", "64K"),
        Some(Limit::AtLeast(1.0)),
    ),
    here(
        "WRITE 1 MiB",
        Number::Bandwidth,
        WRITE_1M,
        bench(WRITEV, "1M"),
        Some(Limit::AtLeast(0.95)),
    ),
    here(
        "WRITE 1 MiB",
        Number::Bandwidth,
        WRITE_1M,
        bench("UCX posix+cma stream", "1M"),
        Some(Limit::AtLeast(1.0)),
    ),
    here(
        "READ 64 KiB",
        Number::Bandwidth,
        READ,
        bench(WRITEV, "64K"),
        Some(Limit::AtLeast(0.95)),
    ),
    here(
        "READ 64 KiB",
        Number::Bandwidth,
        READ,
        bench("UCX posix+cma stream", "64K"),
        Some(Limit::AtLeast(1.0)),
    ),
    here(
        "READ 1 MiB",
        Number::Bandwidth,
        READ_1M,
        bench(WRITEV, "1M"),
        Some(Limit::AtLeast(0.95)),
    ),
    here(
        "READ 1 MiB",
        Number::Bandwidth,
        READ_1M,
        bench("UCX posix+cma stream", "1M"),
        Some(Limit::AtLeast(1.0)),
    ),
    here(
        "SEND 64 KiB",
        Number::Bandwidth,
        SEND,
        bench(WRITEV, "64K"),
        None,
    ),
    here(
        "SEND 8 B latency",
        Number::Latency,
        SEND_LAT,
        bench("UCX posix latency", "8"),
        Some(Limit::AtMost(1.0)),
    ),
    here(
        "SEND 8 B latency",
        Number::Latency,
        SEND_LAT,
        bench("UCX sysv latency", "8"),
        Some(Limit::AtMost(1.0)),
    ),
    here(
        "WRITE 8 B latency",
        Number::Latency,
        WRITE_LAT,
        bench(WRITEV, "8"),
        Some(Limit::AtMost(1.3)),
    ),
    here(
        "fetch-and-add latency",
        Number::Latency,
        ATOMIC_LAT,
        bench(WRITEV, "8"),
        None,
    ),
    here(
        "64 B SEND rate",
        Number::Rate,
        SEND_RATE,
        bench("UCX posix stream", "64"),
        Some(Limit::AtLeast(1.0)),
    ),
    stream("WRITE 64 KiB", 1500, WRITE),
    stream("READ 64 KiB", 1500, READ),
    stream("SEND 64 KiB", 1500, SEND),
    stream("WRITE 64 KiB", 9000, WRITE),
    stream("READ 64 KiB", 9000, READ),
    stream("SEND 64 KiB", 9000, SEND),
    ping("SEND 8 B latency", 1500, FAR_SEND_LAT, Probe::Sockperf),
    ping(
        "SEND 8 B latency",
        1500,
        FAR_SEND_LAT,
        Probe::Qperf("udp_lat"),
    ),
    ping("WRITE 8 B latency", 1500, FAR_WRITE_LAT, Probe::Sockperf),
    ping("SEND 8 B latency", 9000, FAR_SEND_LAT, Probe::Sockperf),
    // A program that waits for a WRITE looks at its memory, and not at its queue.
    ping(
        "WRITE 4 KiB latency",
        1500,
        FAR_WRITE_LAT_4K,
        Probe::Perftest(FAR_SEND_LAT_4K),
    ),
    ping(
        "WRITE 64 KiB latency",
        1500,
        FAR_WRITE_LAT_64K,
        Probe::Perftest(FAR_SEND_LAT_64K),
    ),
    loss("WRITE 64 KiB, 0.1 % lost", WRITE, 1),
    loss("READ 64 KiB, 0.1 % lost", READ, 1),
    loss("SEND 64 KiB, 0.1 % lost", SEND, 1),
    loss("WRITE 64 KiB, 1 % lost", WRITE, 10),
    loss("READ 64 KiB, 1 % lost", READ, 10),
    loss("SEND 64 KiB, 1 % lost", SEND, 10),
    Aim {
        work: "set-up per connection, 10,000 against 1,000",
        place: HERE,
        number: Number::Latency,
        ours: Probe::Connections("10000"),
        theirs: Probe::Connections("1000"),
        limit: Some(Limit::AtMost(1.2)),
        all_rounds: false,
    },
    connection(
        "a connection, made and ended, both asleep, against 200 µs",
        HERE,
        Probe::Given(200.0),
        1.0,
    ),
    connection(
        "a connection, made and ended, both asleep, against TCP's",
        Place::Wire(1500),
        Probe::ConnectRate("tcp"),
        3.0,
    ),
    Aim {
        work: "resident bytes per idle, connected RC queue pair of 10,000, against 4 KiB",
        place: HERE,
        number: Number::Latency,
        ours: Probe::Pairs("10000"),
        theirs: Probe::Given(4096.0),
        limit: Some(Limit::AtMost(1.0)),
        all_rounds: false,
    },
    Aim {
        work: "processor time of an open, idle device, against 1 ms per second",
        place: HERE,
        number: Number::Latency,
        ours: Probe::Idle,
        theirs: Probe::Given(1.0),
        limit: Some(Limit::AtMost(1.0)),
        all_rounds: false,
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Limit;

    #[test]
    fn names_are_unique() {
        let all = super::super::all;
        let names: BTreeSet<String> = all().map(super::Aim::name).collect();
        assert_eq!(names.len(), all().count());
    }

    #[test]
    fn limits_hold_on_their_own_side() {
        let holds = |limit: Limit, ratio| limit.holds(ratio, 10.0, 0.0);
        assert!(holds(Limit::AtLeast(0.95), 1.0) && !holds(Limit::AtLeast(0.95), 0.9));
        assert!(holds(Limit::AtMost(1.2), 1.2) && !holds(Limit::AtMost(1.2), 1.3));
        let (ratio, ours) = (1.2, 1.3);
        let either = Limit::EitherAtMost { ratio, ours };
        assert!(either.holds(2.0, 1.3, 0.0) && either.holds(1.2, 2.0, 0.0));
        assert!(!either.holds(2.0, 2.0, 0.0));
    }

    #[test]
    fn a_printed_step_is_no_miss() {
        // 0.13 and 0.11 µs, printed to two digits.
        assert!(Limit::AtMost(1.1).holds(0.13 / 0.11, 0.13, 0.01));
        assert!(!Limit::AtMost(1.1).holds(0.14 / 0.11, 0.14, 0.01));
    }
}
