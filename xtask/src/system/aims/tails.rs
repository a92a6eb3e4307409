//! What the median hides: the mean, the slowest of a hundred, and the first messages of a
//! connection.

use super::Probe;
use super::probe::{Number, PORT, PORT_WORD, unread};
use super::table::{Aim, Limit};
use crate::system::{Place, Side, Stage};

/// `ucx_perftest` by shared memory and the kernel's copies, one message at a time.
#[derive(Debug)]
pub(super) struct UcxPing {
    size: &'static str,
    count: &'static str,
}

/// The ways of UCX.
const WAYS: (&str, &str) = ("UCX_TLS", "posix,cma");

impl UcxPing {
    fn words(&self, server: &'static str, number: Number) -> Vec<&'static str> {
        let Self { size, count } = *self;
        let rank = if number == Number::Tail { "99" } else { "50" };
        let test = [
            "-t", "tag_lat", "-s", size, "-n", count, "-w", "1000", "-R", rank, "-f",
        ];
        [&["ucx_perftest", server, "-p", PORT_WORD], &test[..]].concat()
    }

    /// The command line of the client, for people.
    pub(super) fn command(&self, number: Number) -> String {
        let (name, ways) = WAYS;
        format!("{name}={ways} {}", self.words("SERVER", number).join(" "))
    }

    /// Measures once.
    pub(super) fn measure(&self, stage: &Stage, number: Number) -> Result<f64, String> {
        let ucx = |side, words: &[&str]| {
            let mut launch = stage.bare(side, words);
            launch.env(WAYS.0, WAYS.1);
            launch.start()
        };
        let mut server = ucx(Side::A, &["ucx_perftest", "-p", PORT_WORD])?;
        server.listens_on_tcp(PORT)?;
        let mut client = ucx(Side::B, &self.words("127.0.0.1", number))?;
        client.succeed()?;
        server.succeed()?;
        last_line(&client.output(), number).ok_or_else(|| unread("ucx_perftest"))
    }
}

/// `ucx_perftest -f`: iterations; latency at the rank, mean of the last part, of all; bandwidth and
/// rates.
fn last_line(output: &str, number: Number) -> Option<f64> {
    let numbers = |line: &str| -> Option<Vec<f64>> {
        line.split_whitespace()
            .map(|word| word.parse().ok())
            .collect()
    };
    let line = output.lines().rev().filter_map(numbers);
    let line = line.into_iter().find(|numbers| numbers.len() == 8)?;
    match number {
        Number::Tail => Some(line[1]),
        Number::Mean => Some(line[3]),
        Number::Stretch => Some(line[3] / line[1]),
        Number::Latency | Number::Bandwidth | Number::Rate => None,
    }
}

const fn tail(
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

/// The rows of a size: its name, its bytes, and how many messages a long run has.
macro_rules! tails {
    ($($name:literal $bytes:literal $count:literal),* $(,)?) => {
        &[$(
            tail(
                concat!("SEND ", $name, ", mean by median"),
                Number::Stretch,
                &["ib_send_lat", "-s", $bytes, "-n", $count],
                Probe::Ucx(UcxPing { size: $bytes, count: $count }),
                Limit::EitherAtMost { ratio: 1.2, ours: 1.3 },
            ),
            tail(
                concat!("SEND ", $name, ", slowest of a hundred"),
                Number::Tail,
                &["ib_send_lat", "-s", $bytes, "-n", $count],
                Probe::Ucx(UcxPing { size: $bytes, count: $count }),
                Limit::AtMost(3.0),
            ),
            tail(
                concat!("SEND ", $name, ", mean of the first 1,000 against a long run's"),
                Number::Mean,
                &["ib_send_lat", "-s", $bytes, "-n", "1000"],
                Probe::Perftest(&["ib_send_lat", "-s", $bytes, "-n", $count]),
                Limit::AtMost(1.5),
            ),
        )*]
    };
}

/// All of them.
pub(super) const TAILS: &[Aim] = tails![
    "8 B" "8" "200000",
    "1 KiB" "1024" "100000",
    "8 KiB" "8192" "50000",
    "64 KiB" "65536" "20000",
    "1 MiB" "1048576" "2000",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ucx_prints_mean_and_rank() {
        let line =
            "20000      0.5   649.277   0.75       96.26      72.98        1540        1168\n";
        assert_eq!(last_line(line, Number::Tail), Some(0.5));
        assert_eq!(last_line(line, Number::Mean), Some(0.75));
        assert_eq!(last_line(line, Number::Stretch), Some(1.5));
        assert_eq!(last_line("nothing", Number::Mean), None);
    }
}
