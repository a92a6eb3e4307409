//! Both sides where messages may get lost: nobody waits for ever, and what has not arrived is
//! counted.

use std::time::{Duration, Instant};

use super::end::VerbsEnd;
use crate::bench::measured::{Lost, Measured, Times, stream};
use crate::bench::task::{Task, Verb};
use crate::bench::worker::{Finish, Served};
use crate::connection::{Outcome, text};

/// So long a message or its answer may take; then it is lost.
const PATIENCE: Duration = Duration::from_millis(50);
/// After this many in a row that nobody answers, nobody will.
const HOPELESS: u32 = 100;
/// Answers that a time is made of, however long it takes.
const LEAST: u64 = 5;
/// Polls between two looks at the clock.
const POLLS: u32 = 256;

/// The active side, one at a time.
pub(super) fn latency(end: &VerbsEnd, verb: Verb, task: &Task) -> Outcome<Measured> {
    let mut times = Times::new()?;
    let mut lost = Lost::default();
    let begun = Instant::now();
    let (mut number, mut in_vain) = (0, 0);
    loop {
        let before = Instant::now();
        if before - begun >= task.warm_up() + task.time && times.count() >= LEAST {
            break;
        }
        end.post(verb, number)?;
        end.complete(verb, number)?;
        let answered = match verb {
            Verb::Write => await_write(end, number)?,
            _ => await_message(end, number)?,
        };
        lost.of += 1;
        if answered {
            let now = Instant::now();
            if now - begun > task.warm_up() {
                times.add(now - before);
            }
        } else {
            lost.messages += 1;
        }
        in_vain = if answered { 0 } else { in_vain + 1 };
        if in_vain >= HOPELESS {
            return Err(format!("no answer to any of {HOPELESS} messages"));
        }
        // A WRITE is done again: its answer is looked for in one place.
        number += u64::from(answered || verb != Verb::Write);
    }
    Ok(Measured {
        latency: Some(times.latency(0.5)?),
        lost: Some(lost),
        operations: number,
        ..Measured::default()
    })
}

/// Whether the answer to a message came.
fn await_message(end: &VerbsEnd, number: u64) -> Outcome<bool> {
    patiently(|| {
        // A late answer to an earlier one is none.
        let arrived = end.received.poll().map_err(text)?;
        let answer = arrived.map(|completion| end.take_any(completion));
        Ok(answer.transpose()? == Some(number))
    })
}

/// Whether the answer to a WRITE came.
fn await_write(end: &VerbsEnd, number: u64) -> Outcome<bool> {
    patiently(|| is_written(end, number))
}

/// Whether a WRITE is there. Nothing completes here, but a poll lets the device work: a reliable
/// queue pair does that while it waits for the acknowledgement of its own WRITE.
fn is_written(end: &VerbsEnd, number: u64) -> Outcome<bool> {
    match end.received.poll().map_err(text)? {
        Some(completion) => Err(format!("a receive completed: {completion:?}")),
        None => Ok(end.written(number)? == number + 1),
    }
}

fn patiently(mut holds: impl FnMut() -> Outcome<bool>) -> Outcome<bool> {
    let mut begun = None;
    loop {
        for _ in 0..POLLS {
            if holds()? {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        if begun.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return Ok(false);
        }
    }
}

/// The passive side of [`latency`]: answers each message, or WRITE, that it sees.
pub(super) fn answer(end: &VerbsEnd, verb: Verb, finish: &Finish) -> Outcome<Served> {
    if verb == Verb::Write {
        answer_writes(end, finish)?;
        return Ok(Served::default());
    }
    while let Some(number) = next_message(end, || finish.asked().is_some())? {
        end.post(verb, number)?;
        end.complete(verb, number)?;
    }
    end.receiver.verify_arrived(&end.far, end.sender)?;
    Ok(Served::default())
}

/// Answers WRITEs in their order; the last answer again, if nothing comes: it may be lost.
fn answer_writes(end: &VerbsEnd, finish: &Finish) -> Outcome {
    let mut next = 0;
    while finish.asked().is_none() {
        if patiently(|| Ok(finish.asked().is_some() || is_written(end, next)?))?
            && finish.asked().is_none()
        {
            next += 1;
        }
        if let Some(last) = u64::checked_sub(next, 1) {
            end.post(Verb::Write, last)?;
            end.complete(Verb::Write, last)?;
        }
    }
    let (missing, of) = end.receiver.missing(&end.far, next, end.sender)?;
    if missing > 0 {
        return Err(format!("{missing} of {of} WRITEs were seen and are gone"));
    }
    Ok(())
}

/// The number of the next message; none when there is none any more.
fn next_message(end: &VerbsEnd, is_over: impl Fn() -> bool) -> Outcome<Option<u64>> {
    loop {
        for _ in 0..POLLS {
            if let Some(completion) = end.received.poll().map_err(text)? {
                return end.take_any(completion).map(Some);
            }
            std::hint::spin_loop();
        }
        if is_over() {
            return Ok(None);
        }
    }
}

/// The passive side of a stream of messages. What arrives counts, not what is sent.
pub(super) fn receive(end: &VerbsEnd, task: &Task, finish: &Finish) -> Outcome<Served> {
    let mut arrived: u64 = 0;
    let mut counting: Option<(Instant, u64)> = None;
    // When the clock was looked at last, and what had arrived by then.
    let (mut first, mut last, mut seen) = (None, Instant::now(), 0);
    let over_at = std::cell::Cell::new(None);
    loop {
        let count = arrived;
        // When all that was sent has come, or nothing has come for long.
        let is_over = || {
            finish.asked().is_some_and(|sent| {
                let since = over_at.get().unwrap_or_else(Instant::now);
                over_at.set(Some(since));
                count >= sent || since.max(last).elapsed() > PATIENCE
            })
        };
        if next_message(end, is_over)?.is_none() {
            break;
        }
        arrived += 1;
        if arrived.is_multiple_of(16) || counting.is_none() {
            (last, seen) = (Instant::now(), arrived);
            let first = *first.get_or_insert(last);
            if last - first >= task.warm_up() && counting.is_none() {
                counting = Some((last, arrived));
            }
        }
    }
    end.receiver.verify_arrived(&end.far, end.sender)?;
    let sent = finish.wait();
    // All may have come at once, to a process that was not scheduled before.
    let whole = || Some((first?, 1));
    let (since, before) = counting
        .filter(|(_, before)| *before < seen)
        .or_else(whole)
        .unwrap_or((last, seen));
    let time = last.saturating_duration_since(since);
    let counted = seen - before;
    if counted == 0 || time.is_zero() {
        return Err(format!("{arrived} of {sent} messages have arrived"));
    }
    Ok(Served {
        measured: Some(stream(task.size, counted, time, sent)),
        lost: Some(Lost {
            messages: sent.saturating_sub(arrived),
            of: sent,
        }),
    })
}

/// The passive side of a stream of WRITEs: what of the last ones has arrived.
pub(super) fn look_at_writes(end: &VerbsEnd, finish: &Finish) -> Outcome<Served> {
    let done = finish.wait();
    // The last ones may still be on their way.
    let last = done.saturating_sub(1);
    patiently(|| is_written(end, last))?;
    let (messages, of) = end.receiver.missing(&end.far, done, end.sender)?;
    if messages == of {
        return Err(format!("none of the last {of} WRITEs has arrived"));
    }
    Ok(Served {
        measured: None,
        lost: Some(Lost { messages, of }),
    })
}
