//! What can be measured for an aim: ours by perftest, floors and other programs by themselves.

use serde_json::Value;

use super::crowd::Crowd;
use super::iwarp::OverTcp;
use super::rust::Measured;
use super::sockets::Traffic;
use super::tails::UcxPing;
use crate::system::family::{impair, pairs, port_of, repair};
use crate::system::{Process, Side, Stage};

/// Which of a measurement's numbers counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    /// Microseconds, median.
    Latency,
    /// Microseconds, mean.
    Mean,
    /// Microseconds that 99 of a hundred do not take.
    Tail,
    /// The mean divided by the median.
    Stretch,
    /// GB/s.
    Bandwidth,
    /// Million operations per second.
    Rate,
}

/// Something that gives a number.
#[derive(Debug)]
pub(super) enum Probe {
    /// Unmodified perftest on the drop-in libraries.
    Perftest(&'static [&'static str]),
    /// The same, where so many packets of a thousand are lost, at random. What goes through the
    /// kernel as one counts as one.
    Lossy(&'static [&'static str], u32),
    /// A floor or another program, run by `ferroce bench` on one host. `asleep`: both sides sleep.
    Bench {
        name: &'static str,
        size: &'static str,
        asleep: bool,
    },
    /// A single TCP stream.
    Iperf3,
    /// UDP there and back.
    Sockperf,
    /// A test of qperf: there and back.
    Qperf(&'static str),
    /// `cmtime`: microseconds per connection, with that many.
    Connections(&'static str),
    /// `connect-rate` of the system tests, by `cm` or `tcp`: microseconds for a connection that is
    /// made and ended, one after the other, both sides asleep.
    ConnectRate(&'static str),
    /// `many-pairs` of the system tests: resident bytes of one of so many connected, idle queue
    /// pairs.
    Pairs(&'static str),
    /// A server with many clients.
    Crowd(Crowd),
    /// What an idle device costs.
    Idle,
    /// `ucx_perftest`, for what the median hides.
    Ucx(UcxPing),
    /// Programs on sockets.
    Sockets(Traffic),
    /// A number that needs no measurement.
    Given(f64),
    /// The second wire, or bare TCP.
    OverTcp(OverTcp),
    /// A program on the Rust interface, and what it is beside.
    Rust(Measured),
}

/// The TCP or UDP port of the servers.
pub(super) const PORT: u16 = 18515;
pub(super) const PORT_WORD: &str = "18515";
/// sockperf's alone: it does not reuse addresses, so it cannot listen where a connection of the
/// program before it, of which the server was the first to close, is remembered for a minute. The
/// others can.
const SOCKPERF_PORT: u16 = 18516;
const SOCKPERF_PORT_WORD: &str = "18516";
/// Measures what an idle device costs.
const IDLE: &str = include_str!("idle.py");

impl Probe {
    /// What it is called.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Perftest(words) | Self::Lossy(words, _) => words[0].to_owned(),
            Self::Bench { name, asleep, .. } if *asleep => format!("{name}, asleep"),
            Self::Bench { name, .. } => (*name).to_owned(),
            Self::Iperf3 => "iperf3 TCP".into(),
            Self::Sockperf => "sockperf UDP".into(),
            Self::Qperf(test) => format!("qperf {test}"),
            Self::Connections(count) => format!("cmtime -c {count}"),
            Self::ConnectRate(by) => format!("connect-rate {by}"),
            Self::Pairs(count) => format!("many-pairs {count}"),
            Self::Crowd(crowd) => crowd.name(),
            Self::Idle => "idle.py".into(),
            Self::Ucx(_) => "UCX posix+cma".into(),
            Self::Sockets(traffic) => traffic.name(),
            Self::Given(_) => "given".into(),
            Self::OverTcp(probe) => probe.name(),
            Self::Rust(measured) => measured.name(),
        }
    }

    /// The command line of the client, for people.
    pub(super) fn command(&self, number: Number) -> String {
        match self {
            Self::Perftest(words) => format!("ferroce run -- {} -F SERVER", words.join(" ")),
            Self::Lossy(words, lost) => {
                let rule = drops(*lost);
                format!(
                    "ferroce run -- {} -F SERVER, with `{rule}` for UDP 4791 in nft",
                    words.join(" ")
                )
            }
            Self::Bench { name, size, asleep } => {
                let option = if *asleep { " --asleep" } else { "" };
                bench_line(name, size) + option
            }
            Self::Iperf3 => "iperf3 -c SERVER -t 1 -l 65536".into(),
            Self::Sockperf => "sockperf pp -i SERVER -t 1 -m 14".into(),
            Self::Qperf(test) => format!("qperf SERVER -t 1 -m 8 {test}"),
            Self::Connections(count) => format!("ferroce run -- cmtime -s SERVER -c {count}"),
            Self::ConnectRate("tcp") => "connect-rate tcp client 2000 SERVER PORT".into(),
            Self::ConnectRate(by) => {
                format!("ferroce run -- connect-rate {by} client 2000 SERVER PORT")
            }
            Self::Pairs(count) => {
                format!("ferroce run -- many-pairs client verbs {count} SERVER PORT")
            }
            Self::Crowd(crowd) => crowd.command(),
            Self::Idle => "ferroce run -- python3 idle.py".into(),
            Self::Ucx(ping) => ping.command(number),
            Self::Sockets(traffic) => traffic.command(),
            Self::Given(number) => number.to_string(),
            Self::OverTcp(probe) => probe.command(),
            Self::Rust(measured) => measured.command(),
        }
    }

    /// Measures once.
    pub(super) fn measure(&self, stage: &Stage, number: Number) -> Result<f64, String> {
        let server = stage.ipv4();
        match *self {
            Self::Ucx(ref ping) => ping.measure(stage, number),
            Self::OverTcp(ref probe) => probe.measure(stage, number),
            Self::Rust(measured) => measured.measure(stage, number),
            Self::Perftest(words) => perftest(stage, words, number),
            Self::Lossy(words, lost) => {
                impair(stage, &drops(lost))?;
                let measured = perftest(stage, words, number);
                repair(stage)?;
                measured
            }
            Self::Bench { name, size, asleep } => {
                let options: &[&str] = if asleep { &["--asleep"] } else { &[] };
                bench(stage, options, name, size, number)
            }
            Self::Iperf3 => iperf3_number(&iperf3(stage, "65536")?),
            Self::Sockperf => sockperf(stage, server),
            Self::Qperf(test) => qperf(stage, server, test),
            Self::Connections(count) => connections(stage, count),
            Self::ConnectRate(by) => connect_rate(stage, by),
            Self::Crowd(ref crowd) => crowd.measure(stage, number),
            Self::Pairs(count) => {
                let output = pairs(stage, "verbs", count)?;
                let mut lines = output.lines().rev();
                let line = lines.find(|l| l.contains("resident memory per idle queue pair"));
                last_number(line).ok_or_else(|| unread("many-pairs"))
            }
            Self::Idle => {
                let words = ["/usr/bin/python3", "-c", IDLE];
                let output = stage.run(Side::A, &words)?;
                last_number(output.lines().last()).ok_or_else(|| unread("idle.py"))
            }
            Self::Sockets(traffic) => traffic.measure(stage, number),
            Self::Given(number) => Ok(number),
        }
    }
}

/// What iperf3 says of one TCP stream that is written in pieces of `piece` bytes.
pub(super) fn iperf3(stage: &Stage, piece: &str) -> Result<Value, String> {
    let server = ["iperf3", "-s", "-1", "-p", PORT_WORD];
    let client = [
        "iperf3",
        "-c",
        stage.ipv4(),
        "-J",
        "-t",
        "1",
        "-l",
        piece,
        "-p",
        PORT_WORD,
    ];
    let output = bare_pair(stage, PORT, &server, &client)?;
    serde_json::from_str(&output).map_err(|e| e.to_string())
}

/// GB/s that the receiver of iperf3 got.
pub(crate) fn iperf3_number(results: &Value) -> Result<f64, String> {
    let bits = results["end"]["sum_received"]["bits_per_second"].as_f64();
    bits.map(|bits| bits / 8e9).ok_or_else(|| unread("iperf3"))
}

/// Half a round trip of 14 bytes over UDP, median, in microseconds.
fn sockperf(stage: &Stage, server: &str) -> Result<f64, String> {
    // With a listener on TCP as well one knows when it is ready: it takes both from a
    // list of addresses.
    let both = format!("T:{server}:{SOCKPERF_PORT}\nU:{server}:{SOCKPERF_PORT}\n");
    let list = stage.file("sockperf.list");
    std::fs::write(&list, both).map_err(|e| e.to_string())?;
    let list = list.to_string_lossy();
    let client = [
        "sockperf",
        "pp",
        "-i",
        server,
        "-p",
        SOCKPERF_PORT_WORD,
        "-t",
        "1",
        "-m",
        "14",
    ];
    let server = ["sockperf", "sr", "-f", &list];
    let output = bare_pair(stage, SOCKPERF_PORT, &server, &client)?;
    let line = output.lines().find(|l| l.contains("percentile 50.000"));
    last_number(line).ok_or_else(|| unread("sockperf"))
}

/// Latency of 8 bytes, in microseconds.
fn qperf(stage: &Stage, server: &str, test: &str) -> Result<f64, String> {
    let client = [
        "qperf", server, "-lp", PORT_WORD, "-uu", "-t", "1", "-m", "8", test,
    ];
    let output = bare_pair(stage, PORT, &["qperf", "-lp", PORT_WORD], &client)?;
    qperf_number(&output).ok_or_else(|| unread("qperf"))
}

/// The latency that qperf has printed in nanoseconds (`-uu`), in microseconds.
pub(crate) fn qperf_number(output: &str) -> Option<f64> {
    let line = output.lines().find(|l| l.contains("latency"))?;
    let nanoseconds = last_number(line.trim_end().strip_suffix("ns"))?;
    Some(nanoseconds / 1e3)
}

/// What nft is told.
pub(super) fn drops(of_thousand: u32) -> String {
    format!("numgen random mod 1000 < {of_thousand} drop")
}

pub(super) fn unread(program: &str) -> String {
    format!("{program} printed what was not expected; see the logs")
}

fn numbers(line: &str) -> Vec<f64> {
    line.split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

pub(super) fn last_number(line: Option<&str>) -> Option<f64> {
    numbers(line?).last().copied()
}

/// A server and a client of a program that has nothing to do with RDMA; what the client printed.
fn bare_pair(stage: &Stage, port: u16, server: &[&str], client: &[&str]) -> Result<String, String> {
    let mut server = stage.bare(Side::A, server).label("server").start()?;
    server.listens_on_tcp(port)?;
    let mut client = stage.bare(Side::B, client).start()?;
    client.succeed()?;
    Ok(client.output())
}

/// Both sides of an unmodified perftest program.
fn perftest(stage: &Stage, words: &[&str], number: Number) -> Result<f64, String> {
    perftest_by(stage, words, number, |side, words| stage.start(side, words))
}

/// As [`perftest`], with a start of its own for each side.
pub(super) fn perftest_by(
    stage: &Stage,
    words: &[&str],
    number: Number,
    start: impl Fn(Side, &[&str]) -> Result<Process, String>,
) -> Result<f64, String> {
    let server_words = [words, &["-F"]].concat();
    let client_words = [&server_words[..], &[stage.ipv4()]].concat();
    let mut server = start(Side::A, &server_words)?;
    server.listens_on_tcp(PORT)?;
    let mut client = start(Side::B, &client_words)?;
    client.succeed()?;
    server.succeed()?;
    perftest_number(&client.output(), number).ok_or_else(|| unread(words[0]))
}

/// The last row of perftest's table. Latency: bytes, iterations, min, max, typical, average,
/// deviation, 99 % …; bandwidth: bytes, iterations, peak, average (MiB/s), million messages per
/// second.
pub(crate) fn perftest_number(output: &str, number: Number) -> Option<f64> {
    let row = |line: &str| {
        let numbers: Option<Vec<f64>> = line
            .split_whitespace()
            .map(|word| word.parse().ok())
            .collect();
        numbers.filter(|numbers| numbers.len() >= 5)
    };
    let numbers = output.lines().rev().find_map(row)?;
    let of_latency = |at: usize| numbers.get(at).copied();
    Some(match number {
        Number::Mean => of_latency(5)?,
        Number::Tail => of_latency(7)?,
        Number::Stretch => of_latency(5)? / numbers[4],
        Number::Latency => numbers[4],
        Number::Bandwidth => numbers[3] * f64::from(1 << 20) / 1e9,
        Number::Rate => numbers[4],
    })
}

/// What makes `ferroce` measure one thing.
pub(super) fn bench_words<'a>(name: &'a str, size: &'a str) -> [&'a str; 10] {
    [
        "bench", "--peers", "--only", name, "--sizes", size, "--rounds", "1", "--time", "300",
    ]
}

/// The same, for people.
pub(super) fn bench_line(name: &str, size: &str) -> String {
    let quoted = format!("'{name}'");
    format!("ferroce {}", bench_words(&quoted, size).join(" "))
}

/// One measurement of `ferroce bench`.
fn bench(
    stage: &Stage,
    options: &[&str],
    name: &str,
    size: &str,
    number: Number,
) -> Result<f64, String> {
    let ferroce = stage.built("ferroce");
    let words = [
        &[&*ferroce],
        &bench_words(name, size)[..],
        &["--json"],
        options,
    ]
    .concat();
    let mut process = stage.bare(Side::A, &words).label("bench").start()?;
    process.succeed()?;
    bench_median(&process.output(), name, number)
}

/// The number that `ferroce bench --json` has printed.
pub(super) fn bench_median(output: &str, name: &str, number: Number) -> Result<f64, String> {
    let results: Value = serde_json::from_str(output).map_err(|e| format!("ferroce bench: {e}"))?;
    bench_number(&results, name, number)
}

/// One number of `ferroce bench`'s results.
pub(super) fn bench_number(results: &Value, name: &str, number: Number) -> Result<f64, String> {
    let all = results["series"].as_array().map_or(&[][..], Vec::as_slice);
    let found = all.iter().find(|series| series["name"] == name);
    let median = found.map(|series| &series["points"][0]["median"]);
    let value = median.and_then(|median| match number {
        Number::Latency => median["latency"]["median"].as_f64(),
        Number::Tail => median["latency"]["p99"].as_f64(),
        Number::Mean | Number::Stretch => None,
        Number::Bandwidth => median["bandwidth"].as_f64().map(|bytes| bytes / 1e9),
        Number::Rate => median["rate"].as_f64().map(|rate| rate / 1e6),
    });
    value.ok_or_else(|| format!("{name}: {}", results["left_out"]))
}

/// Runs the server and the client of a program of the system tests, over RDMA or (`by` is `tcp`) by
/// bare TCP, with what each is told besides. Returns the client and the server, which have ended.
pub(super) fn both_ends(
    stage: &Stage,
    [program, by]: [&str; 2],
    server: &[&str],
    client: &[&str],
) -> Result<(Process, Process), String> {
    let program = stage.built(program);
    let launch = |side, words: &[&[&str]]| {
        let words = [&[&*program, by], &words.concat()[..]].concat();
        match by {
            "tcp" => stage.bare(side, &words).start(),
            _ => stage.start(side, &words),
        }
    };
    let mut server = launch(Side::A, &[&["server"], server])?;
    let port = port_of(&mut server)?;
    let mut client = launch(Side::B, &[&["client"], client, &[stage.ipv4(), &port]])?;
    client.succeed()?;
    server.succeed()?;
    Ok((client, server))
}

/// What `connect-rate` prints, of RDMA connections or of bare TCP.
fn connect_rate(stage: &Stage, by: &str) -> Result<f64, String> {
    let (client, _) = both_ends(stage, ["connect-rate", by], &[], &["2000"])?;
    last_number(client.output().lines().last()).ok_or_else(|| unread("connect-rate"))
}

/// `cmtime`'s time of the step that connects, per connection.
fn connections(stage: &Stage, count: &str) -> Result<f64, String> {
    let mut server = stage.start(Side::A, &["cmtime", "-c", count])?;
    server.listens_on_cm(7471)?;
    let words = ["cmtime", "-c", count, "-s", stage.ipv4()];
    let mut client = stage.start(Side::B, &words)?;
    client.succeed()?;
    let output = client.output();
    // Columns: step, total (ms), max, min (µs), average (µs).
    let all = [
        "create id",
        "resolve addr",
        "resolve route",
        "create qp",
        "connect",
    ];
    let step = |name: &str| {
        // It also says "connecting" and the like.
        let mut steps = output.lines().filter_map(|line| line.split_once(':'));
        let (_, columns) = steps.find(|(step, _)| step.trim() == name)?;
        numbers(columns).first().copied()
    };
    let total: Option<f64> = all.into_iter().map(step).sum();
    let count: f64 = count.parse().map_err(|e| format!("{e}"))?;
    total
        .map(|total| total * 1e3 / count)
        .ok_or_else(|| unread("cmtime"))
}

#[cfg(test)]
mod tests {
    use super::{Number, perftest_number};

    #[test]
    fn perftest_prints_a_table() {
        let output = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n \
                      65536      5000             2411.22            1907.35              0.030518\n----\n";
        let bandwidth = perftest_number(output, Number::Bandwidth).unwrap();
        assert!((bandwidth - 2.0).abs() < 1e-3, "{bandwidth}");
        let rate = perftest_number(output, Number::Rate).unwrap();
        assert!((rate - 0.030_518).abs() < 1e-9);
        assert_eq!(perftest_number("nothing", Number::Rate), None);
    }
}
