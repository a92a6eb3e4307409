//! Programs that sleep on both sides until a message wakes them.

use super::probe::{Number, Probe};
use super::table::{Aim, Limit};
use crate::system::Place;

const fn asleep(
    work: &'static str,
    place: Place,
    ours: Probe,
    theirs: Probe,
    limit: Option<Limit>,
) -> Aim {
    Aim {
        work,
        place,
        number: Number::Latency,
        ours,
        theirs,
        limit,
        all_rounds: true,
    }
}

/// `ferroce bench`'s own measurement of sleepers.
const fn bench(name: &'static str, size: &'static str) -> Probe {
    Probe::Bench {
        name,
        size,
        asleep: true,
    }
}

const HERE: Place = Place::Loopback;
const FAR: Place = Place::Wire(1500);
const SEND_8: Probe = Probe::Perftest(&["ib_send_lat", "-e", "-s", "8", "-n", "20000"]);
const SEND_4K: Probe = Probe::Perftest(&["ib_send_lat", "-e", "-s", "4096", "-n", "20000"]);
const SEND_64K: Probe = Probe::Perftest(&["ib_send_lat", "-e", "-s", "65536", "-n", "20000"]);

/// All of them. A READ waits for nobody: its floor is the copy itself.
pub(super) const ASLEEP: &[Aim] = &[
    asleep(
        "SEND 8 B, both asleep",
        HERE,
        SEND_8,
        bench("UCX posix latency", "8"),
        Some(Limit::AtMost(1.0)),
    ),
    asleep(
        "SEND 8 B, both asleep",
        HERE,
        SEND_8,
        bench("eventfd", "8"),
        Some(Limit::AtMost(1.2)),
    ),
    asleep(
        "SEND 8 B, both asleep",
        HERE,
        SEND_8,
        bench("Unix socket", "8"),
        None,
    ),
    asleep(
        "SEND 4 KiB, both asleep",
        HERE,
        SEND_4K,
        bench("TCP ping-pong", "4K"),
        Some(Limit::AtMost(1.0)),
    ),
    asleep(
        "SEND 4 KiB, both asleep",
        HERE,
        SEND_4K,
        bench("UCX posix+cma latency", "4K"),
        Some(Limit::AtMost(1.0)),
    ),
    asleep(
        "SEND 64 KiB, both asleep",
        HERE,
        SEND_64K,
        bench("TCP ping-pong", "64K"),
        Some(Limit::AtMost(1.0)),
    ),
    asleep(
        "SEND 64 KiB, both asleep",
        HERE,
        SEND_64K,
        bench("UCX posix+cma latency", "64K"),
        Some(Limit::AtMost(1.0)),
    ),
    asleep(
        "WRITE with immediate, 8 B, both asleep",
        HERE,
        bench("local WRITE_IMM latency", "8"),
        bench("local SEND latency", "8"),
        Some(Limit::AtMost(1.3)),
    ),
    asleep(
        "READ 8 B, both asleep",
        HERE,
        bench("local READ latency", "8"),
        bench("process_vm_readv", "8"),
        Some(Limit::AtMost(1.3)),
    ),
    asleep(
        "fetch-and-add, both asleep, against one way of two",
        HERE,
        bench("local FETCH_ADD latency", "8"),
        bench("local SEND latency", "8"),
        Some(Limit::AtMost(2.6)),
    ),
    asleep(
        "SEND 8 B, both asleep",
        FAR,
        SEND_8,
        Probe::Qperf("tcp_lat"),
        Some(Limit::AtMost(1.0)),
    ),
    asleep(
        "SEND 8 B, both asleep",
        FAR,
        SEND_8,
        Probe::Qperf("udp_lat"),
        None,
    ),
];
