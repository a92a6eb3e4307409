//! `ferroce run --sockets`: programs on sockets, beside the same without it, and beside Unix
//! sockets.

use nix::sys::signal::Signal;

use super::probe::{
    Number, PORT, PORT_WORD, Probe, bench_line, bench_median, bench_words, last_number, unread,
};
use super::table::{Aim, Limit};
use crate::system::{Place, Process, Side, Stage};

/// How long `connect` waits for the server, in microseconds: none is late.
const WAIT: (&str, &str) = ("FERROCE_SOCKETS_WAIT", "30000000");

/// Two processes of one program, which talk by sockets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traffic {
    program: Program,
    /// Whether it runs under `ferroce run --sockets`.
    with_streams: bool,
}

/// The program.
#[derive(Clone, Copy, Debug)]
enum Program {
    /// A floor of `ferroce bench` whose sides sleep, and bytes of its messages.
    Bench(&'static str, &'static str),
    /// `tests/c/socket-costs.c` with these words.
    Costs(&'static [&'static str]),
    /// Redis and `redis-benchmark` with 50 clients: the test, and requests of a client that are on
    /// their way at a time.
    Redis(&'static str, &'static str),
}

impl Traffic {
    /// What it is called.
    pub(super) fn name(self) -> String {
        let name = match self.program {
            Program::Bench(name, _) => name.to_owned(),
            Program::Costs(words) => format!("socket-costs {} {}", words[0], words[1]),
            Program::Redis(..) => "redis-benchmark".to_owned(),
        };
        let option = if self.with_streams { ", --sockets" } else { "" };
        name + option
    }

    /// The command line, for people.
    pub(super) fn command(self) -> String {
        let program = match self.program {
            Program::Bench(name, size) => bench_line(name, size) + " --asleep",
            Program::Costs(words) => format!("socket-costs {}", words.join(" ")),
            Program::Redis(test, pipeline) => redis_words(test, pipeline).join(" "),
        };
        if self.with_streams {
            format!("ferroce run --sockets -- {program}")
        } else {
            program
        }
    }

    /// Measures once.
    pub(super) fn measure(self, stage: &Stage, number: Number) -> Result<f64, String> {
        match self.program {
            Program::Bench(name, size) => {
                let ferroce = stage.built("ferroce");
                let words = [&[&*ferroce], &bench_words(name, size)[..]].concat();
                let output = self.run(stage, &[&words[..], &["--asleep", "--json"]].concat())?;
                bench_median(&output, name, number)
            }
            Program::Costs(words) => {
                let program = stage.built("socket-costs");
                let output = self.run(stage, &[&[&*program], words].concat())?;
                last_number(output.lines().last()).ok_or_else(|| unread("socket-costs"))
            }
            Program::Redis(test, pipeline) => {
                let mut server = self.start(stage, &REDIS)?;
                server.listens_on_tcp(PORT)?;
                let output = self.run(stage, &redis_words(test, pipeline))?;
                server.signal(Signal::SIGTERM)?;
                server.succeed()?;
                redis_rate(&output).ok_or_else(|| unread("redis-benchmark"))
            }
        }
    }

    fn run(self, stage: &Stage, words: &[&str]) -> Result<String, String> {
        let mut process = self.start(stage, words)?;
        process.succeed()?;
        Ok(process.output())
    }

    fn start(self, stage: &Stage, words: &[&str]) -> Result<Process, String> {
        let mut launch = if self.with_streams {
            stage.with_option(Side::A, "--sockets", words)
        } else {
            stage.bare(Side::A, words)
        };
        launch.env(WAIT.0, WAIT.1).start()
    }
}

/// Redis, which keeps nothing on a disk.
const REDIS: [&str; 7] = [
    "redis-server",
    "--port",
    PORT_WORD,
    "--save",
    "",
    "--appendonly",
    "no",
];

fn redis_words(test: &'static str, pipeline: &'static str) -> [&'static str; 12] {
    [
        "redis-benchmark",
        "-p",
        PORT_WORD,
        "-t",
        test,
        "-c",
        "50",
        "-P",
        pipeline,
        "-n",
        "200000",
        "--csv",
    ]
}

/// Million requests a second, from a header and a line of values in quotes: test, requests a
/// second, times.
fn redis_rate(output: &str) -> Option<f64> {
    let value = output.lines().last()?.split(',').nth(1)?;
    let rate: f64 = value.trim_matches('"').parse().ok()?;
    Some(rate / 1e6)
}

const fn bench(name: &'static str, size: &'static str, with_streams: bool) -> Probe {
    Probe::Sockets(Traffic {
        program: Program::Bench(name, size),
        with_streams,
    })
}

const fn costs(words: &'static [&'static str], with_streams: bool) -> Probe {
    Probe::Sockets(Traffic {
        program: Program::Costs(words),
        with_streams,
    })
}

const fn redis(work: &'static str, test: &'static str, pipeline: &'static str) -> Aim {
    const fn traffic(test: &'static str, pipeline: &'static str, with_streams: bool) -> Probe {
        Probe::Sockets(Traffic {
            program: Program::Redis(test, pipeline),
            with_streams,
        })
    }
    let both = [
        traffic(test, pipeline, true),
        traffic(test, pipeline, false),
    ];
    aim(work, Number::Rate, both, Limit::AtLeast(1.3))
}

const fn aim(work: &'static str, number: Number, both: [Probe; 2], limit: Limit) -> Aim {
    let [ours, theirs] = both;
    Aim {
        work,
        place: Place::Loopback,
        number,
        ours,
        theirs,
        limit: Some(limit),
        all_rounds: true,
    }
}

/// Words of `socket-costs`.
const PING: &[&str] = &["ping", "tcp", "30000"];
const EPOLL: &[&str] = &["epoll", "tcp", "30000"];
const STREAM: &[&str] = &["stream", "tcp", "40000"];
const CONNECTIONS: &[&str] = &["connections", "tcp", "4000"];
const REQUESTS: &[&str] = &["requests", "tcp", "50000"];
const CONNECTS: &[&str] = &["connects", "tcp", "4000"];

/// All of them. A rate of 0.6 is a time of 1.667.
pub(super) const SOCKETS: &[Aim] = &[
    aim(
        "--sockets, 8 B there and back, blocking, one way",
        Number::Latency,
        [
            bench("TCP ping-pong", "8", true),
            bench("TCP ping-pong", "8", false),
        ],
        Limit::AtMost(0.6),
    ),
    aim(
        "--sockets, 8 B there and back, blocking, one way",
        Number::Latency,
        [
            bench("TCP ping-pong", "8", true),
            bench("Unix socket", "8", false),
        ],
        Limit::AtMost(1.0),
    ),
    aim(
        "--sockets, 8 B there and back, blocking",
        Number::Latency,
        [costs(PING, true), costs(PING, false)],
        Limit::AtMost(0.6),
    ),
    aim(
        "--sockets, 8 B there and back, epoll",
        Number::Latency,
        [costs(EPOLL, true), costs(EPOLL, false)],
        Limit::AtMost(0.8),
    ),
    aim(
        "--sockets, 8 B there and back, epoll",
        Number::Latency,
        [
            costs(EPOLL, true),
            costs(&["epoll", "unix", "30000"], false),
        ],
        Limit::AtMost(1.15),
    ),
    aim(
        "--sockets, stream in writes of 64 KiB",
        Number::Bandwidth,
        [costs(STREAM, true), costs(STREAM, false)],
        Limit::AtLeast(2.0),
    ),
    aim(
        "--sockets, stream in writes of 64 KiB",
        Number::Bandwidth,
        [
            costs(STREAM, true),
            costs(&["stream", "unix", "40000"], false),
        ],
        Limit::AtLeast(1.0),
    ),
    aim(
        "--sockets, connect, accept and close",
        Number::Latency,
        [costs(CONNECTIONS, true), costs(CONNECTIONS, false)],
        Limit::AtMost(1.667),
    ),
    redis("--sockets, Redis GET, 50 clients", "get", "1"),
    redis("--sockets, Redis SET, 50 clients", "set", "1"),
    redis(
        "--sockets, Redis GET, 50 clients, 16 at a time",
        "get",
        "16",
    ),
    redis(
        "--sockets, Redis SET, 50 clients, 16 at a time",
        "set",
        "16",
    ),
    aim(
        "memory of an idle connection and end with --sockets, against 16 KiB",
        Number::Latency,
        [costs(&["idle", "tcp", "1000"], true), Probe::Given(16384.0)],
        Limit::AtMost(1.0),
    ),
    aim(
        "--sockets with an ordinary peer, processor time of a request",
        Number::Latency,
        [costs(REQUESTS, true), costs(REQUESTS, false)],
        Limit::AtMost(1.02),
    ),
    aim(
        "--sockets with an ordinary peer, processor time to connect",
        Number::Latency,
        [costs(CONNECTS, true), costs(CONNECTS, false)],
        Limit::AtMost(1.05),
    ),
];
