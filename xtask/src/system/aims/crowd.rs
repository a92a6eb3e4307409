//! One server that sleeps, and a crowd of clients: `crowd` of the system tests, against the same by
//! epoll over TCP.

use super::Probe;
use super::probe::{Number, unread};
use super::table::{Aim, Limit};
use crate::system::family::port_of;
use crate::system::{Place, Side, Stage};

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
        let program = stage.built("crowd");
        let launch = |side, words: &[&str]| {
            let words = [&[&*program, self.by], words].concat();
            match self.by {
                "tcp" => stage.bare(side, &words).start(),
                _ => stage.start(side, &words),
            }
        };
        let mut server = launch(Side::A, &["server", self.size])?;
        let port = port_of(&mut server)?;
        let load = [self.size, self.connections, SECONDS, self.rate];
        let client = [&["client"], &load[..], &[stage.ipv4(), &port]].concat();
        let mut client = launch(Side::B, &client)?;
        client.succeed()?;
        server.succeed()?;
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

const fn crowd(work: &'static str, number: Number, limit: Limit, load: [&'static str; 3]) -> Aim {
    Aim {
        work,
        place: Place::Loopback,
        number,
        ours: by("cm", load),
        theirs: by("tcp", load),
        limit: Some(limit),
        all_rounds: true,
    }
}

/// As [`crowd`], on descriptors in blocking mode.
const fn blocking(work: &'static str, load: [&'static str; 3]) -> Aim {
    Aim {
        ours: by("cm-blocking", load),
        ..crowd(work, Number::Latency, Limit::AtMost(1.0), load)
    }
}

/// So many connections with requests of so many bytes: what is answered when all ask again at once,
/// and what the server's processor takes for one then, and at some hundredth and tenth of it.
macro_rules! crowds {
    ($($connections:literal $bytes:literal),* $(,)?) => {
        &[$(
            crowd(
                concat!("requests of ", $bytes, " bytes by ", $connections, " clients, asleep"),
                Number::Rate,
                Limit::AtLeast(1.0),
                [$connections, $bytes, "0"],
            ),
            crowd(
                concat!("server's processor for one of ", $bytes, " bytes, ", $connections, " clients"),
                Number::Latency,
                Limit::AtMost(1.0),
                [$connections, $bytes, "0"],
            ),
            crowd(
                concat!("the same at 20,000/s, ", $bytes, " bytes, ", $connections, " clients"),
                Number::Latency,
                Limit::AtMost(1.0),
                [$connections, $bytes, "20000"],
            ),
            crowd(
                concat!("the same at 2,000/s, ", $bytes, " bytes, ", $connections, " clients"),
                Number::Latency,
                Limit::AtMost(1.0),
                [$connections, $bytes, "2000"],
            ),
            blocking(
                concat!("the same at 20,000/s, ", $bytes, " bytes, ", $connections, " clients, blocking descriptors"),
                [$connections, $bytes, "20000"],
            ),
        )*]
    };
}

/// All of them.
pub(super) const CROWDS: &[Aim] = crowds!["100" "8", "100" "1024", "1000" "8", "1000" "1024"];
