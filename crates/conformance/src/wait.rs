//! Waiting for conditions, never longer than a deadline.

use std::time::{Duration, Instant};

/// Nothing in a case takes this long, even on a machine that is busy with other things.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Looks at a condition that follow each other at once. What takes longer waits for other threads,
/// which need the processor.
const EAGER: u32 = 64;
/// The time between looks after that.
const PAUSE: Duration = Duration::from_micros(500);

/// Waits until `poll` gives something. `what` says for a person what did not come.
#[track_caller]
pub fn wait_for<T>(what: &str, poll: impl FnMut() -> Option<T>) -> T {
    wait_within(DEADLINE, what, poll)
}

/// The same with another deadline, for what moves very much.
#[track_caller]
pub fn wait_within<T>(deadline: Duration, what: &str, poll: impl FnMut() -> Option<T>) -> T {
    let found = wait_at_most(deadline, poll);
    found.unwrap_or_else(|| panic!("no {what} within {deadline:?}"))
}

/// The same for what may not come at all.
pub fn wait_at_most<T>(deadline: Duration, mut poll: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    let mut looks = 0;
    loop {
        let found = poll();
        if found.is_some() || start.elapsed() > deadline {
            return found;
        }
        looks += 1;
        if looks < EAGER {
            std::thread::yield_now();
        } else {
            std::thread::park_timeout(PAUSE);
        }
    }
}
