//! The side that is measured against: it answers, and verifies what arrived.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::end::VerbsEnd;
use super::unreliable;
use crate::bench::pattern::Slots;
use crate::bench::task::{Kind, Task, Verb, Waiting};
use crate::bench::worker::{Finish, Served};
use crate::connection::{Outcome, text};

/// Time for what the active side has completed to be seen here.
const PATIENCE: Duration = Duration::from_secs(10);
/// Polls that find nothing between two looks at whether it is over.
const POLLS: u32 = 64;
/// Time between two looks where this side sleeps.
const GLANCE: Duration = Duration::from_millis(5);

/// Serves one measurement to its end.
pub(in crate::bench) fn serve(
    task: &Task,
    verb: Verb,
    kind: Kind,
    listening: &mut dyn FnMut(SocketAddr),
    finish: &Finish,
) -> Outcome<Served> {
    let end = VerbsEnd::accept(task, listening, |end| prepare(end, verb))?;
    if task.transport().may_lose() {
        return match (verb, kind) {
            (_, Kind::Latency) => unreliable::answer(&end, verb, finish),
            (Verb::Write, Kind::Stream) => unreliable::look_at_writes(&end, finish),
            (_, Kind::Stream) => unreliable::receive(&end, task, finish),
        };
    }
    serve_reliable(&end, verb, kind, finish)?;
    Ok(Served::default())
}

fn serve_reliable(end: &VerbsEnd, verb: Verb, kind: Kind, finish: &Finish) -> Outcome {
    let operations = match (verb, kind) {
        (Verb::Send | Verb::WriteImmediate, Kind::Latency) => answer_messages(end, verb, finish)?,
        (Verb::Write, Kind::Latency) => answer_writes(end, finish)?,
        (Verb::Send | Verb::WriteImmediate, Kind::Stream) => receive(end, finish)?,
        _ => finish.wait(),
    };
    match verb {
        Verb::Send | Verb::Write | Verb::WriteImmediate => {
            end.receiver.verify(&end.far, operations, end.sender)
        }
        Verb::Read => Ok(()),
        Verb::CompareSwap | Verb::FetchAdd => match end.far.load(0).map_err(text)? {
            value if value == operations => Ok(()),
            value => Err(format!("{operations} atomics left the value {value}")),
        },
    }
}

/// What READs find.
fn prepare(end: &VerbsEnd, verb: Verb) -> Outcome {
    if verb == Verb::Read {
        let readable = Slots {
            count: end.sender.count,
            ..end.receiver
        };
        readable.fill(&end.far)?;
    }
    Ok(())
}

/// Sends each message back; how many.
fn answer_messages(end: &VerbsEnd, verb: Verb, finish: &Finish) -> Outcome<u64> {
    let mut next = 0;
    while let Some(completion) = arrival(end, finish, next)? {
        end.take(next, completion)?;
        end.post(verb, next)?;
        end.complete(verb, next)?;
        next += 1;
    }
    Ok(next)
}

/// Receives; how many.
fn receive(end: &VerbsEnd, finish: &Finish) -> Outcome<u64> {
    let mut next = 0;
    while let Some(completion) = arrival(end, finish, next)? {
        end.take(next, completion)?;
        next += 1;
    }
    Ok(next)
}

/// The next arrival; `None` when as many have come as the active side has sent.
fn arrival(end: &VerbsEnd, finish: &Finish, next: u64) -> Outcome<Option<ferroce::cq::Completion>> {
    let mut over = None;
    loop {
        if let Some(completion) = look(end)? {
            return Ok(Some(completion));
        }
        if finish.asked().is_some_and(|due| due <= next) {
            return Ok(None);
        }
        if finish.asked().is_some() && over.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return Err(format!("message {next} has completed and not arrived"));
        }
    }
}

/// An arrival, if one comes within a moment.
fn look(end: &VerbsEnd) -> Outcome<Option<ferroce::cq::Completion>> {
    if end.waiting == Waiting::Asleep {
        return end.received.wait_timeout(GLANCE).map_err(text);
    }
    for _ in 0..POLLS {
        if let Some(completion) = end.received.poll().map_err(text)? {
            return Ok(Some(completion));
        }
        std::hint::spin_loop();
    }
    Ok(None)
}

/// Writes back for each WRITE that is seen in memory; how many.
fn answer_writes(end: &VerbsEnd, finish: &Finish) -> Outcome<u64> {
    let mut next = 0;
    loop {
        let mut polls = 0;
        while end.written(next)? != next + 1 {
            std::hint::spin_loop();
            polls += 1;
            if polls % POLLS == 0 && finish.asked().is_some() {
                return Ok(next);
            }
        }
        end.post(Verb::Write, next)?;
        end.complete(Verb::Write, next)?;
        next += 1;
    }
}
