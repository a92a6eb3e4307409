//! Times of messages by this crate and by what a program would use otherwise, by turns:
//! `cargo bench -p ferroce --features tokio --bench side_by_side`.
//!
//! First the processor's time of one thread that has both ends, polled, by this crate and by the
//! functions of C, which other programs of the machine hardly change. Then the same between two
//! processes, for an idle machine: the loops are those of `ib_send_lat` and `ib_send_bw`. At last
//! two tokio programs that sleep until a message comes: of an `Endpoint`, and of eventfds. Both
//! ends do the same runs in the same order, which is all that keeps them together.
//!
//! `side_by_side --only NAME WAY` measures one of them, and prints its median in nanoseconds.
#![expect(
    clippy::unwrap_used,
    reason = "a failure is for the person that runs it"
)]

mod asleep;
mod ways;

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ferroce::qp::QueuePairAddress;
use nix::time::{ClockId, clock_gettime};
use ways::{DEPTH, End, Raw, Safe, Way};

/// Runs of each way, of which the median counts.
const ROUNDS: usize = 15;
/// Messages of a run.
const MESSAGES: u32 = 10_000;

/// What is measured between two processes.
#[derive(Clone, Copy)]
enum Case {
    /// Time of a message, one way.
    PingPong(usize),
    /// Time of a message of 64 bytes while many are on their way.
    Stream,
}

const CASES: [(Case, &str); 3] = [
    (Case::PingPong(64), "ping-pong 64 B"),
    (Case::PingPong(4096), "ping-pong 4 KiB"),
    (Case::Stream, "stream 64 B"),
];
/// The last case, and its two ways.
const ASLEEP: &str = "asleep 64 B";
const CRATE: &str = "crate";
const C: &str = "C";
const EVENTFD: &str = "eventfd";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--answer", name, way] => answer(&Choice { name, way }),
        ["--only", name, way] => between(&Choice { name, way }),
        _ => {
            alone();
            between(&Choice::ALL);
        }
    }
}

/// The cases and ways to measure; "" means all.
struct Choice<'a> {
    name: &'a str,
    way: &'a str,
}

impl Choice<'_> {
    const ALL: Choice<'static> = Choice { name: "", way: "" };

    fn has(&self, name: &str, way: &str) -> bool {
        let fits = |chosen: &str, this| chosen.is_empty() || chosen == this;
        fits(self.name, name) && fits(self.way, way)
    }

    /// Whether cases that poll are among them.
    fn has_polled(&self) -> bool {
        self.name != ASLEEP
    }

    fn tells_one(&self) -> bool {
        !self.way.is_empty()
    }
}

/// Measures with a process that answers.
fn between(choice: &Choice<'_>) {
    if choice.has_polled() {
        polled(choice);
    }
    let by_endpoint = choice.has(ASLEEP, CRATE);
    let by_eventfd = choice.has(ASLEEP, EVENTFD);
    let mut times = [const { Vec::new() }; 2];
    if by_eventfd {
        times[0] = asleep::by_eventfd(peer(ASLEEP, EVENTFD));
    }
    if by_endpoint {
        times[1] = asleep::by_endpoint(peer(ASLEEP, CRATE));
    }
    if by_endpoint || by_eventfd {
        tell(choice, ASLEEP, EVENTFD, times);
    }
}

/// The process that answers.
fn peer(name: &str, way: &str) -> Command {
    let mut peer = Command::new(std::env::current_exe().unwrap());
    peer.args(["--answer", name, way]);
    peer
}

fn polled(choice: &Choice<'_>) {
    let mut peer = peer(choice.name, choice.way)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let streams = (peer.stdout.take().unwrap(), peer.stdin.take().unwrap());
    let (safe, raw) = connected(streams.0, streams.1);
    for (case, name) in CASES {
        let mut times = [const { Vec::new() }; 2];
        for _ in 0..ROUNDS {
            if choice.has(name, C) {
                times[0].push(ask(&raw, case));
            }
            if choice.has(name, CRATE) {
                times[1].push(ask(&safe, case));
            }
        }
        tell(choice, name, C, times);
    }
    assert!(peer.wait().unwrap().success());
}

/// Tells the medians of the times of the way `other` and of this crate.
fn tell(choice: &Choice<'_>, name: &str, other: &str, times: [Vec<Duration>; 2]) {
    let [theirs, ours] = times.map(|times| median(times).map(|time| time.as_secs_f64() * 1e9));
    match (theirs, ours) {
        (Some(one), None) | (None, Some(one)) if choice.tells_one() => println!("{one:.1}"),
        (Some(theirs), Some(ours)) => {
            let ratio = ours / theirs;
            println!("{name:<18} {other} {theirs:8.1} ns, {CRATE} {ours:8.1} ns: {ratio:.3}");
        }
        _ => (),
    }
}

/// One thread has both ends: what it takes to post a receive and a send, and to take both
/// completions.
fn alone() {
    let (safe, raw) = (End::pair().map(Safe), End::pair().map(Raw::new));
    for (length, name) in [(64, "one thread, 64 B"), (4096, "one thread, 4 KiB")] {
        let mut times = [const { Vec::new() }; 2];
        for _ in 0..ROUNDS {
            times[0].push(circle(&raw, length));
            times[1].push(circle(&safe, length));
        }
        tell(&Choice::ALL, name, C, times);
    }
}

/// The processor's time of a message from the first end to the second.
fn circle(ends: &[impl Way; 2], length: usize) -> Duration {
    let now = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
    let begun = now();
    for _ in 0..MESSAGES {
        ends[1].post_receive();
        ends[0].post_send(length);
        ends[1].take_receive();
        ends[0].take_send();
    }
    (now() - begun) / MESSAGES
}

/// In the process that answers.
fn answer(choice: &Choice<'_>) {
    match (choice.name, choice.way) {
        (ASLEEP, EVENTFD) => return asleep::answer_by_eventfd(),
        (ASLEEP, CRATE) => return asleep::answer_by_endpoint(),
        _ => (),
    }
    let (safe, raw) = connected(std::io::stdin(), std::io::stdout());
    for (case, name) in CASES {
        for _ in 0..ROUNDS {
            if choice.has(name, C) {
                serve(&raw, case);
            }
            if choice.has(name, CRATE) {
                serve(&safe, case);
            }
        }
    }
}

/// Two connections to the other process, each with its receives.
fn connected(mut from: impl Read, mut to: impl Write) -> (Safe, Raw) {
    let [safe, raw] = [(); 2].map(|()| {
        let (end, address) = End::new();
        to.write_all(&address.to_bytes()).unwrap();
        to.flush().unwrap();
        let mut bytes = address.to_bytes();
        from.read_exact(&mut bytes).unwrap();
        end.connect(&QueuePairAddress::from_bytes(&bytes).unwrap());
        end
    });
    let (safe, raw) = (Safe(safe), Raw::new(raw));
    for _ in 0..DEPTH {
        safe.post_receive();
        raw.post_receive();
    }
    // Neither sends before the other one has its receives.
    to.write_all(&[0]).unwrap();
    to.flush().unwrap();
    from.read_exact(&mut [0]).unwrap();
    (safe, raw)
}

/// Does a run; the time of one message.
fn ask(way: &impl Way, case: Case) -> Duration {
    let begun = Instant::now();
    match case {
        Case::PingPong(length) => {
            for _ in 0..MESSAGES {
                way.post_send(length);
                way.take_send();
                way.take_receive();
                way.post_receive();
            }
            begun.elapsed() / (2 * MESSAGES)
        }
        Case::Stream => {
            let mut under_way = 0;
            for _ in 0..MESSAGES {
                while under_way == DEPTH / 2 {
                    under_way -= way.take_sends();
                }
                way.post_send(64);
                under_way += 1;
            }
            while under_way > 0 {
                under_way -= way.take_sends();
            }
            // The last one has come when this one comes.
            way.take_receive();
            let time = begun.elapsed() / MESSAGES;
            way.post_receive();
            time
        }
    }
}

/// The other end of a run.
fn serve(way: &impl Way, case: Case) {
    match case {
        Case::PingPong(length) => {
            for _ in 0..MESSAGES {
                way.take_receive();
                way.post_receive();
                way.post_send(length);
                way.take_send();
            }
        }
        Case::Stream => {
            let mut left = MESSAGES;
            while left > 0 {
                let came = way.take_receives();
                (0..came).for_each(|_| way.post_receive());
                left -= came;
            }
            way.post_send(64);
            way.take_send();
        }
    }
}

fn median(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}
