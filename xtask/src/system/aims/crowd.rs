//! One server that sleeps, and a crowd of clients: `crowd` of the system tests, against the same by
//! epoll over TCP.

use super::Probe;
use super::probe::{Number, both_ends, unread};
use super::table::{Aim, Limit};
use crate::system::{Place, Stage};

/// What the clients do: connections, bytes of a request, and requests a second ("0": as many as are
/// answered).
#[derive(Clone, Copy, Debug)]
pub(super) struct Crowd {
    by: &'static str,
    connections: &'static str,
    size: &'static str,
    rate: &'static str,
}

const SECONDS: &str = "1";

impl Crowd {
    /// What it is called.
    pub(super) fn name(&self) -> String {
        format!("crowd {}", self.by)
    }

    /// The command line of the client, for people.
    pub(super) fn command(&self) -> String {
        let Self {
            by,
            connections,
            size,
            rate,
        } = self;
        let launch = if *by == "tcp" { "" } else { "ferroce run -- " };
        format!("{launch}crowd {by} client {size} {connections} {SECONDS} {rate} SERVER PORT")
    }

    /// Measures once: requests in a microsecond ([`Number::Rate`]), or the server's processor time
    /// for each in microseconds.
    pub(super) fn measure(&self, stage: &Stage, number: Number) -> Result<f64, String> {
        let load = [self.size, self.connections, SECONDS, self.rate];
        let (client, server) = both_ends(stage, ["crowd", self.by], &[self.size], &load)?;
        let (program, column, unit) = match number {
            Number::Rate => (client, 0, 1e-6),
            _ => (server, 1, 1.0),
        };
        let output = program.output();
        let columns = output.lines().last().map(str::split_whitespace);
        let word = columns.and_then(|mut words| words.nth(column));
        let number: Option<f64> = word.and_then(|word| word.parse().ok());
        number
            .map(|number| number * unit)
            .ok_or_else(|| unread("crowd"))
    }
}

const fn by(by: &'static str, [connections, size, rate]: [&'static str; 3]) -> Probe {
    Probe::Crowd(Crowd {
        by,
        connections,
        size,
        rate,
    })
}

const fn crowd(work: &'static str, ours: &'static str, load: [&'static str; 3]) -> Aim {
    Aim {
        work,
        place: Place::Loopback,
        number: Number::Latency,
        ours: by(ours, load),
        theirs: by("tcp", load),
        limit: Some(Limit::AtMost(1.0)),
        all_rounds: true,
    }
}

/// As [`crowd`], of what is answered when all ask again at once.
const fn answered(work: &'static str, load: [&'static str; 3]) -> Aim {
    Aim {
        number: Number::Rate,
        limit: Some(Limit::AtLeast(1.0)),
        ..crowd(work, "cm", load)
    }
}

/// Makes the aims of servers, each with a number of connections and of bytes in a request. Measured
/// are the requests answered in a second when all clients ask again at once, and the server's
/// processor time for one request, at that rate and at some tenth and hundredth of it.
macro_rules! crowds {
    ($($connections:literal $bytes:literal),* $(,)?) => {
        &[$(
            answered(
                concat!("requests of ", $bytes, " bytes by ", $connections, " clients, asleep"),
                [$connections, $bytes, "0"],
            ),
            crowds!("server's processor for one", "cm", $connections, $bytes, "0"),
            crowds!("the same at 20,000/s", "cm", $connections, $bytes, "20000"),
            crowds!("the same at 2,000/s", "cm", $connections, $bytes, "2000"),
            crowds!(
                "the same at 20,000/s, blocking descriptors",
                "cm-blocking", $connections, $bytes, "20000"
            ),
        )*]
    };
    ($what:literal, $ours:literal, $connections:literal, $bytes:literal, $rate:literal) => {
        crowd(
            concat!($what, ", ", $bytes, " bytes, ", $connections, " clients"),
            $ours,
            [$connections, $bytes, $rate],
        )
    };
}

/// All of them.
pub(super) const CROWDS: &[Aim] = crowds!["100" "8", "100" "1024", "1000" "8", "1000" "1024"];
