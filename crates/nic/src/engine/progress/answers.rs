//! Looks of a polling program for the peer's answer to what it has sent over TCP.

use std::time::Duration;

use ferroce_os::lock::{Lock, LockGuard};
use ferroce_proto::time::Time;

/// How long a program that has sent something over TCP looks for the answer: longer than a peer
/// takes whose device thread has to be woken for what was sent. Otherwise two ends that have begun
/// to rely on their device threads would never find that a look pays.
const WITHIN: Duration = Duration::from_micros(60);

/// Makes rounds by `round` until one has something to do. Returns false if nothing comes soon.
pub(super) fn look(mut now: impl FnMut() -> Time, mut round: impl FnMut(Time) -> bool) -> bool {
    let begun = now();
    let mut at = begun;
    while at.since(begun) < WITHIN {
        if round(at) {
            return true;
        }
        std::hint::spin_loop();
        at = now();
    }
    false
}

/// Takes the lock if another thread gives it up soon. The device thread may still be in the round
/// that has brought the last message: a program that did not look then would leave it the next one,
/// too.
pub(super) fn lock_soon<T>(lock: &Lock<T>, now: impl FnMut() -> Time) -> Option<LockGuard<'_, T>> {
    let mut guard = None;
    look(now, |_| {
        guard = lock.try_lock();
        if guard.is_none() {
            // The other thread may wait for this processor.
            std::thread::yield_now();
        }
        guard.is_some()
    });
    guard
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look on a clock that goes on by a microsecond each time. Returns what came of it and the
    /// number of rounds; the round of this number has something to do.
    fn look_until(comes: u32) -> (bool, u32) {
        let (mut at, mut rounds) = (Time(0), 0);
        let now = || {
            at = at + Duration::from_micros(1);
            at
        };
        let found = look(now, |_| {
            rounds += 1;
            rounds == comes
        });
        (found, rounds)
    }

    #[test]
    fn a_lock_is_waited_for_while_a_look_lasts() {
        // The lock is free after `until` microseconds.
        for (until, expected) in [(0, true), (10, true), (100, false)] {
            let lock = Lock::new(());
            let (mut at, mut other) = (0, Some(lock.lock()));
            let now = || {
                at += 1;
                if at > until {
                    other = None;
                }
                Time(1000 * at)
            };
            assert_eq!(lock_soon(&lock, now).is_some(), expected, "{until}");
        }
    }

    #[test]
    fn a_look_ends_with_the_first_round_that_has_something_or_after_a_while() {
        for comes in [1, 2, 60] {
            assert_eq!(look_until(comes), (true, comes));
        }
        assert_eq!(look_until(61), (false, 60));
    }
}
