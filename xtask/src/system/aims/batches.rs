//! Work in lists, and on many queue pairs at once.

use super::Probe;
use super::probe::Number;
use super::table::{Aim, Limit};
use crate::system::Place;

const fn batch(
    work: &'static str,
    ours: &'static [&'static str],
    theirs: Probe,
    least: f64,
) -> Aim {
    Aim {
        work,
        place: Place::Loopback,
        number: Number::Rate,
        ours: Probe::Perftest(ours),
        theirs,
        limit: Some(Limit::AtLeast(least)),
        all_rounds: true,
    }
}

/// Lists of 16, against calls of the kernel with as many pieces, and against the same posted
/// singly: an operation, its program, the call; and each size.
macro_rules! lists {
    ($($op:literal $program:literal $call:literal $name:literal $size:literal $bytes:literal),* $(,)?) => {
        &[$(
            batch(
                concat!($op, " ", $name, " in lists of 16"),
                &[$program, "-s", $bytes, "-n", "320000", "-l", "16"],
                Probe::Bench { name: concat!($call, ", 16 pieces"), size: $size, asleep: false },
                0.9,
            ),
            batch(
                concat!($op, " ", $name, " in lists of 16, against singly"),
                &[$program, "-s", $bytes, "-n", "320000", "-l", "16"],
                Probe::Perftest(&[$program, "-s", $bytes, "-n", "320000"]),
                2.0,
            ),
        )*]
    };
}

/// WRITEs and READs in lists.
pub(super) const LISTS: &[Aim] = lists![
    "WRITE" "ib_write_bw" "process_vm_writev" "8 B" "8" "8",
    "WRITE" "ib_write_bw" "process_vm_writev" "256 B" "256" "256",
    "WRITE" "ib_write_bw" "process_vm_writev" "4 KiB" "4K" "4096",
    "READ" "ib_read_bw" "process_vm_readv" "8 B" "8" "8",
    "READ" "ib_read_bw" "process_vm_readv" "256 B" "256" "256",
    "READ" "ib_read_bw" "process_vm_readv" "4 KiB" "4K" "4096",
];

/// So many queue pairs, against one: how many, messages of each, bytes, and the least ratio.
macro_rules! many {
    ($($queue_pairs:literal $each:literal $bytes:literal $least:literal),* $(,)?) => {
        &[$(
            batch(
                concat!("SEND ", $bytes, " bytes on ", $queue_pairs, " queue pairs, against one"),
                &["ib_send_bw", "-s", $bytes, "-n", $each, "-q", $queue_pairs],
                Probe::Perftest(&["ib_send_bw", "-s", $bytes, "-n", "500000"]),
                $least,
            ),
        )*]
    };
}

/// Many queue pairs.
pub(super) const MANY: &[Aim] = many![
    "8" "60000" "64" 1.0,
    "64" "8000" "64" 0.8,
    "512" "1000" "64" 0.5,
    "8" "60000" "4096" 1.0,
    "64" "8000" "4096" 0.8,
    "512" "1000" "4096" 0.5,
];
