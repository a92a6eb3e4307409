//! A cache line between two processors and back: two threads that write a number in turn.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use crate::bench::measured::{Measured, Times};
use crate::bench::task::Task;
use crate::connection::Outcome;

/// Alone on its cache line, and on the one that processors fetch along with it.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

/// Round trips that are timed together: a look at the clock takes as long as one of them.
const TOGETHER: u32 = 16;

/// One way.
pub(super) fn run(task: &Task) -> Outcome<Measured> {
    let (there, back) = (Line::default(), Line::default());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| answer(&there, &back, &over));
        let measured = ask(task, &there, &back);
        over.store(true, Ordering::Relaxed);
        measured
    })
}

fn answer(there: &Line, back: &Line, over: &AtomicBool) {
    let mut next = 1;
    while !over.load(Ordering::Relaxed) {
        if there.0.load(Ordering::Acquire) == next {
            back.0.store(next, Ordering::Release);
            next += 1;
        }
    }
}

fn ask(task: &Task, there: &Line, back: &Line) -> Outcome<Measured> {
    let mut times = Times::new()?;
    let begun = Instant::now();
    let (mut before, mut number) = (begun, 0);
    while before - begun < task.warm_up() + task.time {
        for _ in 0..TOGETHER {
            number += 1;
            there.0.store(number, Ordering::Release);
            while back.0.load(Ordering::Acquire) != number {
                std::hint::spin_loop();
            }
        }
        let now = Instant::now();
        if now - begun > task.warm_up() {
            times.add(now - before);
        }
        before = now;
    }
    Ok(Measured {
        latency: Some(times.latency(0.5 / f64::from(TOGETHER))?),
        operations: number,
        ..Measured::default()
    })
}
