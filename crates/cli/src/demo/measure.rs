//! Latency and bandwidth, measured from the client's side.

use std::time::{Duration, Instant};

use ferroce::mem::RemoteRegion;
use ferroce::qp::Operation;

use super::Outcome;
use super::client::ask;
use super::end::{DemoEnd, WINDOW, done, text};
use super::message::Message;
use super::tell::{line, step};

/// How long the latency of each size is measured.
const LATENCY_TIME: Duration = Duration::from_millis(150);
/// How long the bandwidth of each size is measured.
const BANDWIDTH_TIME: Duration = Duration::from_millis(250);
/// Rounds that are not counted: caches, and both sides awake.
const WARM_UP: u32 = 50;
/// Bytes of the two measurements of bandwidth.
const SIZES: [usize; 2] = [65536, 1 << 20];

/// All measurements, as a table.
pub(super) fn run(end: &DemoEnd, remote: RemoteRegion) -> Outcome {
    step(
        "Measured, both sides polling",
        "time: one operation of 8 bytes from ibv_post_send to its completion, median; 16 under way for the rest",
    );
    line(&format!(
        "   {:<28}{:>12}{:>18}{:>18}",
        "", "8 B", "64 KiB", "1 MiB"
    ));
    measure_messages(end, remote)?;
    measure_atomics(end, remote)?;
    let time = ping_pong(end)?;
    line(&format!(
        "   {:<28}{:>9.2} µs",
        "SEND ping-pong, one way",
        micros(time)
    ));
    Ok(())
}

/// A line for each operation that moves as many bytes as are asked for.
fn measure_messages(end: &DemoEnd, remote: RemoteRegion) -> Outcome {
    let place = remote.at(0);
    let bulk = [
        ("SEND", Operation::Send),
        ("RDMA WRITE", Operation::Write(place)),
        // Immediate 0: the server does not talk about it.
        (
            "RDMA WRITE with immediate",
            Operation::WriteImmediate(place, 0),
        ),
        ("RDMA READ", Operation::Read(place)),
    ];
    for (name, operation) in bulk {
        let time = latency(end, operation)?;
        let [small, large] = SIZES.map(|size| {
            rate(end, operation, size).map(|per_second| per_second * size as f64 / 1e9)
        });
        line(&format!(
            "   {name:<28}{:>9.2} µs{:>13.2} GB/s{:>13.2} GB/s",
            micros(time),
            small?,
            large?
        ));
    }
    Ok(())
}

fn measure_atomics(end: &DemoEnd, remote: RemoteRegion) -> Outcome {
    let target = remote.at(64);
    let atomics = [
        (
            "compare-and-swap",
            Operation::CompareSwap {
                target,
                compare: 0,
                swap: 0,
            },
        ),
        ("fetch-and-add", Operation::FetchAdd { target, add: 1 }),
    ];
    for (name, operation) in atomics {
        let time = latency(end, operation)?;
        let per_second = rate(end, operation, 8)?;
        line(&format!(
            "   {name:<28}{:>9.2} µs{:>12.2} M/s",
            micros(time),
            per_second / 1e6
        ));
    }
    Ok(())
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Repeats something for a while; the median of its times.
fn median(mut once: impl FnMut() -> Outcome) -> Outcome<Duration> {
    for _ in 0..WARM_UP {
        once()?;
    }
    let begun = Instant::now();
    let mut times = Vec::new();
    let mut before = begun;
    while before - begun < LATENCY_TIME {
        once()?;
        let now = Instant::now();
        times.push(now - before);
        before = now;
    }
    times.sort_unstable();
    times
        .get(times.len() / 2)
        .copied()
        .ok_or_else(|| "nothing was measured".into())
}

/// From posting one operation of 8 bytes to its completion.
fn latency(end: &DemoEnd, operation: Operation) -> Outcome<Duration> {
    median(|| {
        end.post(operation, &end.scratch, 8).map_err(text)?;
        done(end.sent.spin().map_err(text)?).map(drop)
    })
}

/// Half of the time until 8 bytes that were sent have been answered with 8 bytes.
fn ping_pong(end: &DemoEnd) -> Outcome<Duration> {
    ask(end, Message::Echo)?;
    let round = median(|| {
        end.post(Operation::Send, &end.scratch, 8).map_err(text)?;
        done(end.received.spin().map_err(text)?)?;
        end.post_receive().map_err(text)?;
        done(end.sent.spin().map_err(text)?).map(drop)
    })?;
    ask(end, Message::Messages)?;
    Ok(round / 2)
}

/// Operations per second with a window of them under way.
fn rate(end: &DemoEnd, operation: Operation, size: usize) -> Outcome<f64> {
    let begun = Instant::now();
    let (mut posted, mut completed) = (0_u64, 0_u64);
    while begun.elapsed() < BANDWIDTH_TIME {
        while posted - completed < WINDOW {
            end.post(operation, &end.scratch, size).map_err(text)?;
            posted += 1;
        }
        done(end.sent.spin().map_err(text)?)?;
        completed += 1;
    }
    while completed < posted {
        done(end.sent.spin().map_err(text)?)?;
        completed += 1;
    }
    Ok(completed as f64 / begun.elapsed().as_secs_f64())
}
