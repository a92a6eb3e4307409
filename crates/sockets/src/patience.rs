//! How long a client waits for the server to take its connection, and which listeners are not
//! worth a wait.
//!
//! A server that accepts without this library (by `io_uring`, or by system calls of its own) never
//! takes a stream, and one that is busy takes it late. Each of their connections stays on TCP, and
//! the next ones do without a wait: after the first miss one, then two, four, up to 1024.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ferroce_os::environment::variable;
use ferroce_os::linger::Looks;

use crate::lock::Held;

/// The variable: microseconds.
const VARIABLE: &str = "FERROCE_SOCKETS_WAIT";
/// A server that sleeps in `accept` or `epoll_wait` takes a connection within a twentieth of this.
/// On a busy machine it waits for a time slice of others.
const USUAL: Duration = Duration::from_millis(5);
/// Listeners that are remembered.
const LISTENERS: usize = 64;
/// Most connections that do without a wait after a miss, as a power of two.
const LONGEST: u32 = 10;

/// How long a connection may wait.
pub(crate) fn longest() -> Duration {
    static LIMIT: OnceLock<Duration> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let text = variable(VARIABLE).and_then(|value| value.into_string().ok());
        text.and_then(|text| text.parse().ok())
            .map_or(USUAL, Duration::from_micros)
    })
}

/// A listener's misses, and the connections that are still to do without a wait.
struct Record {
    cookie: AtomicU64,
    misses: AtomicU64,
    skips: AtomicU64,
    looks: Looks,
}

static RECORDS: [Record; LISTENERS] = [const {
    Record {
        cookie: AtomicU64::new(0),
        misses: AtomicU64::new(0),
        skips: AtomicU64::new(0),
        looks: Looks::new(),
    }
}; LISTENERS];

/// All of it is used under the process's lock.
const ORDER: Ordering = Ordering::Relaxed;

fn place(listener: u64) -> &'static Record {
    &RECORDS[usize::try_from(listener % LISTENERS as u64).unwrap_or(0)]
}

/// Experience with looks before a wait for this listener, and for others with the same place.
pub(crate) fn looks(listener: u64) -> &'static Looks {
    &place(listener).looks
}

fn record(listener: u64, _held: &Held) -> &'static Record {
    let record = place(listener);
    if record.cookie.swap(listener, ORDER) != listener {
        record.misses.store(0, ORDER);
        record.skips.store(0, ORDER);
    }
    record
}

/// Whether a connection to this listener is offered a stream. Counts it if it is not.
pub(crate) fn is_worth_it(listener: u64, held: &Held) -> bool {
    let record = record(listener, held);
    let skips = record.skips.load(ORDER);
    record.skips.store(skips.saturating_sub(1), ORDER);
    skips == 0
}

/// Notes what became of an offer.
pub(crate) fn note(listener: u64, was_taken: bool, held: &Held) {
    let record = record(listener, held);
    if was_taken {
        record.misses.store(0, ORDER);
        return;
    }
    let misses = record.misses.load(ORDER);
    record.misses.store(misses + 1, ORDER);
    let power = u32::try_from(misses).unwrap_or(LONGEST).min(LONGEST);
    record.skips.store(1 << power, ORDER);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock;

    #[test]
    fn each_miss_doubles_what_does_without() {
        let held = lock::hold();
        let listener = 1 << 40;
        let mut skipped = Vec::new();
        for _ in 0..12 {
            assert!(is_worth_it(listener, &held));
            note(listener, false, &held);
            let mut skips = 0;
            while !is_worth_it(listener, &held) {
                skips += 1;
            }
            skipped.push(skips);
        }
        assert_eq!(skipped[..4], [1, 2, 4, 8]);
        assert_eq!(skipped[10..], [1024, 1024]);
        note(listener, true, &held);
        note(listener, false, &held);
        assert!(!is_worth_it(listener, &held) && is_worth_it(listener, &held));
    }
}
