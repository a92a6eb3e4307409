//! The Rust interface beside perftest and beside eventfds: `side_by_side`, a program of the crate.

use std::path::Path;

use super::probe::{Number, Probe, unread};
use super::table::{Aim, Limit};
use crate::system::{Place, Side, Stage};
use crate::workspace::Workspace;
use crate::{programs, sh};

/// The program.
const NAME: &str = "side_by_side";

/// What it measures: a case, and one of its ways.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    case: &'static str,
    way: &'static str,
}

impl Measured {
    fn words(self) -> [&'static str; 3] {
        ["--only", self.case, self.way]
    }

    /// What it is called.
    pub(super) fn name(self) -> String {
        format!("{NAME} {}", self.way)
    }

    /// The command line, for people.
    pub(super) fn command(self) -> String {
        format!("{NAME} --only '{}' {}", self.case, self.way)
    }

    /// Measures once: microseconds, or million messages per second.
    pub(super) fn measure(self, stage: &Stage, number: Number) -> Result<f64, String> {
        let program = stage.built(NAME);
        let words = [&[program.as_str()], &self.words()[..]].concat();
        let mut process = stage.bare(Side::A, &words).start()?;
        process.succeed()?;
        let output = process.output();
        let nanoseconds: f64 = output.trim().parse().map_err(|_| unread(NAME))?;
        Ok(match number {
            Number::Rate => 1e3 / nanoseconds,
            _ => nanoseconds / 1e3,
        })
    }
}

/// Builds the program, and puts it beside the others.
pub(super) fn build(workspace: &Workspace, bin: &Path) -> Result<(), String> {
    let words = ["--package=ferroce", "--features=tokio"];
    let program = programs::bench(workspace, &words, NAME)?;
    let [from, to] = [&program, &bin.join(NAME)].map(|path| path.to_string_lossy().into_owned());
    sh::output("install", &["--mode=755", &from, &to]).map(drop)
}

const fn by(case: &'static str, way: &'static str) -> Probe {
    Probe::Rust(Measured { case, way })
}

const fn aim(
    work: &'static str,
    number: Number,
    ours: Probe,
    theirs: Probe,
    limit: Option<Limit>,
) -> Aim {
    Aim {
        work,
        place: Place::Loopback,
        number,
        ours,
        theirs,
        limit,
        all_rounds: true,
    }
}

/// All of them.
pub(super) const RUST: &[Aim] = &[
    aim(
        "Rust, SEND 64 B, polled",
        Number::Latency,
        by("ping-pong 64 B", "crate"),
        Probe::Perftest(&["ib_send_lat", "-s", "64", "-n", "50000"]),
        Some(Limit::AtMost(1.25)),
    ),
    aim(
        "Rust, SEND 64 B, polled",
        Number::Latency,
        by("ping-pong 64 B", "crate"),
        by("ping-pong 64 B", "C"),
        Some(Limit::AtMost(1.25)),
    ),
    aim(
        "Rust, SEND 4 KiB, polled",
        Number::Latency,
        by("ping-pong 4 KiB", "crate"),
        Probe::Perftest(&["ib_send_lat", "-s", "4096", "-n", "50000"]),
        Some(Limit::AtMost(1.25)),
    ),
    aim(
        "Rust, SEND 64 B, stream",
        Number::Rate,
        by("stream 64 B", "crate"),
        Probe::Perftest(&["ib_send_bw", "-s", "64", "-n", "200000"]),
        Some(Limit::AtLeast(0.8)),
    ),
    aim(
        "Rust, SEND 64 B, tokio, both asleep",
        Number::Latency,
        by("asleep 64 B", "crate"),
        by("asleep 64 B", "eventfd"),
        Some(Limit::AtMost(1.1)),
    ),
    aim(
        "Rust, SEND 64 B, tokio, both asleep",
        Number::Latency,
        by("asleep 64 B", "crate"),
        Probe::Perftest(&["ib_send_lat", "-e", "-s", "64", "-n", "20000"]),
        Some(Limit::AtMost(1.4)),
    ),
];
