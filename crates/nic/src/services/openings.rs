//! Which links this process opens because of what strangers sent.
//!
//! A datagram names a slot, and each costs its sender nothing. So an attempt that found no process
//! is not repeated for a while, and there are few attempts per period. Without a link the datagram
//! is dropped, as a network may drop it. A MAD for a slot without an owner is rejected, which ends
//! a conversation: for MADs the slot is looked at each time.

use std::collections::HashMap;
use std::time::Duration;

use ferroce_proto::time::Time;

/// Attempts to open a link, per period. Each takes some 20 µs.
const ATTEMPTS: u32 = 64;
const PERIOD: Duration = Duration::from_millis(100);
/// The time for which nobody is looked for in a slot that nobody had. Short: a new process may take
/// it.
const ABSENT_FOR: Duration = Duration::from_millis(250);

/// The attempts of late.
#[derive(Debug, Default)]
pub(crate) struct Openings {
    /// Slots that nobody had, and since when that is known. At most one entry for each slot.
    absent: HashMap<u16, Time>,
    /// When the period began.
    began: Time,
    attempts: u32,
}

impl Openings {
    /// Whether nobody was in a slot a moment ago.
    pub(crate) fn is_absent(&self, slot: u16, now: Time) -> bool {
        let since = self.absent.get(&slot);
        since.is_some_and(|since| now.since(*since) < ABSENT_FOR)
    }

    /// Whether a link may be opened for something that a stranger sent; counts the attempt.
    pub(crate) fn try_once(&mut self, now: Time) -> bool {
        if now.since(self.began) >= PERIOD {
            (self.began, self.attempts) = (now, 0);
        }
        let may = self.attempts < ATTEMPTS;
        self.attempts += u32::from(may);
        may
    }

    /// The attempt has opened no link, and cost little: it does not count.
    pub(crate) fn give_back(&mut self) {
        self.attempts = self.attempts.saturating_sub(1);
    }

    /// Nobody is in a slot.
    pub(crate) fn found_nobody(&mut self, slot: u16, now: Time) {
        self.absent.insert(slot, now);
    }

    /// A process is in a slot.
    pub(crate) fn found(&mut self, slot: u16) {
        self.absent.remove(&slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_few_per_period() {
        let (mut openings, start) = (Openings::default(), Time(1 << 40));
        assert_eq!((1..=1023).filter(|_| openings.try_once(start)).count(), 64);
        openings.give_back();
        assert!(openings.try_once(start));
        assert!(!openings.try_once(start));
        assert!(openings.try_once(start + PERIOD));
    }

    #[test]
    fn nobody_is_not_looked_for_again_at_once() {
        let (mut openings, start) = (Openings::default(), Time(1 << 40));
        openings.found_nobody(5, start);
        assert!(openings.is_absent(5, start + PERIOD));
        assert!(!openings.is_absent(6, start + PERIOD));
        assert!(!openings.is_absent(5, start + ABSENT_FOR));
        openings.found_nobody(5, start);
        openings.found(5);
        assert!(!openings.is_absent(5, start));
    }
}
