//! SENDs of every size: latency and bandwidth at each power of two, in runs of usual length.

use super::Probe;
use super::probe::Number;
use super::table::{Aim, Limit};
use crate::system::Place;

const fn send(
    work: &'static str,
    number: Number,
    ours: &'static [&'static str],
    theirs: Probe,
    limit: Limit,
) -> Aim {
    Aim {
        work,
        place: Place::Loopback,
        number,
        ours: Probe::Perftest(ours),
        theirs,
        limit: Some(limit),
        all_rounds: true,
    }
}

/// Both rows of a size: its name, as `ferroce bench` has it, its bytes, and how many messages are
/// 20,000 or 1 GiB.
macro_rules! sends {
    ($($size:literal $bytes:literal $count:literal),* $(,)?) => {
        &[$(
            send(
                concat!("SEND ", $bytes, " bytes, one way"),
                Number::Latency,
                &["ib_send_lat", "-s", $bytes, "-n", $count],
                Probe::Bench { name: "UCX posix+cma latency", size: $size, asleep: false },
                Limit::AtMost(1.1),
            ),
            send(
                concat!("SEND ", $bytes, " bytes, stream"),
                Number::Bandwidth,
                &["ib_send_bw", "-s", $bytes, "-n", $count],
                Probe::Bench { name: "UCX posix+cma stream", size: $size, asleep: false },
                Limit::AtLeast(0.9),
            ),
        )*]
    };
}

/// Every power of two.
pub(super) const SIZES: &[Aim] = sends![
    "8" "8" "20000",
    "16" "16" "20000",
    "32" "32" "20000",
    "64" "64" "20000",
    "128" "128" "20000",
    "256" "256" "20000",
    "512" "512" "20000",
    "1K" "1024" "20000",
    "2K" "2048" "20000",
    "4K" "4096" "20000",
    "8K" "8192" "20000",
    "16K" "16384" "20000",
    "32K" "32768" "20000",
    "64K" "65536" "16384",
    "128K" "131072" "8192",
    "256K" "262144" "4096",
    "512K" "524288" "2048",
    "1M" "1048576" "1024",
    "2M" "2097152" "512",
    "4M" "4194304" "256",
    "8M" "8388608" "128",
];
