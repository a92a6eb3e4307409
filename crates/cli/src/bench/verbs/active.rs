//! The side that measures.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::end::VerbsEnd;
use super::unreliable;
use crate::bench::measured::{Measured, one_by_one, stream};
use crate::bench::task::{Kind, Task, Verb};
use crate::connection::Outcome;

/// The passive side does not answer any more.
const PATIENCE: Duration = Duration::from_secs(10);
/// Polls between two looks at the clock.
const POLLS: u32 = 4096;

/// Measures an operation.
pub(in crate::bench) fn run(
    task: &Task,
    verb: Verb,
    kind: Kind,
    passive: SocketAddr,
) -> Outcome<Measured> {
    let end = VerbsEnd::connect(task, passive)?;
    match kind {
        Kind::Latency if task.transport().may_lose() => unreliable::latency(&end, verb, task),
        Kind::Latency => latency(&end, verb, task),
        Kind::Stream => keep_busy(&end, verb, task),
    }
}

/// Measures one operation at a time.
fn latency(end: &VerbsEnd, verb: Verb, task: &Task) -> Outcome<Measured> {
    let share = if verb.is_one_way() { 0.5 } else { 1.0 };
    one_by_one(task, share, |number| match verb {
        Verb::Send | Verb::WriteImmediate => bounce_message(end, verb, number),
        Verb::Write => bounce_write(end, number),
        _ => {
            end.post(verb, number)?;
            end.complete(verb, number)
        }
    })
}

/// A message there, and a message back.
fn bounce_message(end: &VerbsEnd, verb: Verb, number: u64) -> Outcome {
    end.post(verb, number)?;
    end.take(number, end.arrival()?)?;
    end.complete(verb, number)
}

/// A WRITE there, and a WRITE back; both sides only look at their memory.
fn bounce_write(end: &VerbsEnd, number: u64) -> Outcome {
    end.post(Verb::Write, number)?;
    end.complete(Verb::Write, number)?;
    let mut begun = None;
    loop {
        for _ in 0..POLLS {
            if end.written(number)? == number + 1 {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        if begun.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return Err(format!("no answer to WRITE {number}"));
        }
    }
}

/// As many at a time as the window allows.
fn keep_busy(end: &VerbsEnd, verb: Verb, task: &Task) -> Outcome<Measured> {
    let window = task.window() as u64;
    let (mut posted, mut completed) = (0, 0);
    let begun = Instant::now();
    let mut counting = None;
    loop {
        while posted < completed + window {
            end.post(verb, posted)?;
            posted += 1;
        }
        end.complete(verb, completed)?;
        completed += 1;
        // A look at the clock costs as much as a small operation.
        if task.size < 4096 && !completed.is_multiple_of(32) {
            continue;
        }
        let now = Instant::now();
        match counting {
            None if now - begun >= task.warm_up() => counting = Some((now, completed)),
            Some((since, before)) if now - since >= task.time => {
                let result = stream(task.size, completed - before, now - since, posted);
                while completed < posted {
                    end.complete(verb, completed)?;
                    completed += 1;
                }
                if verb == Verb::Read {
                    verify_reads(end, posted)?;
                }
                return Ok(result);
            }
            _ => {}
        }
    }
}

/// Every byte of the last READs.
fn verify_reads(end: &VerbsEnd, posted: u64) -> Outcome {
    let first = end.sender.count as u64;
    end.sender.verify(&end.near, first.min(posted), end.sender)
}
