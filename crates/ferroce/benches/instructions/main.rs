//! What the safe interface costs beside the functions that it is written on, for
//! `cargo xtask instructions`, which runs this under callgrind and counts.
//!
//! Each case is there several times: `raw` calls the functions of the context, as C programs do;
//! `safe` is this crate with tags that are polled for, `owned` with buffers that futures give back,
//! `scoped` with borrowed bytes. Each lies between two calls of [`boundary`], at which callgrind
//! writes its counters down. The names and the number of repetitions go to standard output, in that
//! order.
#![expect(
    clippy::unwrap_used,
    reason = "a failure is for the person that runs it"
)]

mod raw;
mod safe;

use std::hint::black_box;
use std::time::{Duration, Instant};

use raw::Raw;
use safe::Safe;

/// Work requests that are posted one after the other: fewer than a queue holds.
const POSTED: usize = 200;
/// Bytes of a message.
const SMALL: usize = 64;

/// Callgrind writes down what was counted whenever this is entered.
#[inline(never)]
fn boundary() {
    black_box(());
}

/// One round in advance, so that every table has its size.
fn main() {
    let (raw, safe) = (Raw::new(), Safe::new());
    for round in ["warm", "counted"] {
        raw.round(round);
        safe.tagged(round);
        safe.tagged_together(round);
        safe.owned(round);
        safe.scoped(round);
    }
}

/// Does a case; counts it in the second round. There is one loop for both, so that what is small is
/// inlined.
fn counted(round: &str, name: &str, once: impl FnMut(usize)) {
    let is_counted = round == "counted";
    if is_counted {
        println!("{name}\t{POSTED}");
        boundary();
    }
    (0..POSTED).for_each(once);
    if is_counted {
        boundary();
    }
}

/// Takes all completions, with as many as there are at a time: how many `together` took, when it
/// has seen all before that many. Counted as above.
fn counted_together(round: &str, name: &str, mut together: impl FnMut(usize) -> usize) {
    let is_counted = round == "counted";
    if is_counted {
        println!("{name}\t{POSTED}");
        boundary();
    }
    let mut seen = 0;
    while seen < POSTED {
        seen += together(seen);
    }
    if is_counted {
        boundary();
    }
}

/// Waits until all that was sent is there; completions are not looked at.
fn arrived(last: impl Fn() -> bool) {
    let begun = Instant::now();
    while !last() {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing arrives");
        std::thread::yield_now();
    }
}
