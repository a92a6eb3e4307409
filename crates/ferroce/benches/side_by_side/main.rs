//! Times of polled messages by this crate and by the functions of C, by turns:
//! `cargo bench -p ferroce --bench side_by_side`.
//!
//! First the processor's time of one thread that has both ends, which other programs of the machine
//! hardly change. Then between two processes, for an idle machine: the loops are those of
//! `ib_send_lat` and `ib_send_bw`. Both ends do the same runs in the same order, which is all that
//! keeps them together.
#![expect(
    clippy::unwrap_used,
    reason = "a failure is for the person that runs it"
)]

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

/// What is measured.
#[derive(Clone, Copy)]
enum Case {
    /// Time of a message, one way.
    PingPong(usize),
    /// Time of a message of 64 bytes while many are on their way.
    Stream,
}

const CASES: [(Case, &str); 3] = [
    (Case::PingPong(64), "ping-pong 64 B, one way"),
    (Case::PingPong(4096), "ping-pong 4 KiB, one way"),
    (Case::Stream, "stream of 64 B, a message"),
];

fn main() {
    if std::env::args().any(|argument| argument == "--answer") {
        answer();
        return;
    }
    alone();
    let mut peer = Command::new(std::env::current_exe().unwrap())
        .arg("--answer")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let streams = (peer.stdout.take().unwrap(), peer.stdin.take().unwrap());
    let (safe, raw) = connected(streams.0, streams.1);
    for (case, name) in CASES {
        let mut times = [const { Vec::new() }; 2];
        for _ in 0..ROUNDS {
            times[0].push(ask(&raw, case));
            times[1].push(ask(&safe, case));
        }
        tell(name, times);
    }
    assert!(peer.wait().unwrap().success());
}

/// Tells the medians of the times of C and of this crate.
fn tell(name: &str, times: [Vec<Duration>; 2]) {
    let [raw, safe] = times.map(|times| median(times).as_secs_f64() * 1e9);
    let ratio = safe / raw;
    println!("{name:<26} C {raw:7.1} ns, crate {safe:7.1} ns: {ratio:.3}");
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
        tell(name, times);
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

/// The process that answers.
fn answer() {
    let (safe, raw) = connected(std::io::stdin(), std::io::stdout());
    for (case, _) in CASES {
        for _ in 0..ROUNDS {
            serve(&raw, case);
            serve(&safe, case);
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
            for message in 0..MESSAGES {
                if message >= DEPTH / 2 {
                    way.take_send();
                }
                way.post_send(64);
            }
            (0..DEPTH / 2).for_each(|_| way.take_send());
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
            for _ in 0..MESSAGES {
                way.take_receive();
                way.post_receive();
            }
            way.post_send(64);
            way.take_send();
        }
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
