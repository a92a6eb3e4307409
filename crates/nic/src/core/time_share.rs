//! A bounded part of the time, for work that others cause at no cost to themselves.

use std::time::Duration;

use ferroce_proto::time::Time;

/// Work may take one part in so many of the time. What was not used is saved up, to a limit, so
/// that a burst is served at once.
#[derive(Debug)]
pub(crate) struct TimeShare {
    part: u32,
    most: Duration,
    /// What is left, as of `at`.
    left: Duration,
    /// Work that took longer than what was left: it is made up for first. No more than `most`, so
    /// that the wait has a bound.
    debt: Duration,
    at: Time,
}

impl TimeShare {
    /// One part in `part` of the time; at most `most` is saved up.
    pub(crate) const fn new(part: u32, most: Duration) -> Self {
        Self {
            part,
            most,
            left: most,
            debt: Duration::ZERO,
            at: Time(0),
        }
    }

    /// Whether there is time left for the work.
    pub(crate) fn is_left(&mut self, now: Time) -> bool {
        let earned = now.since(self.at) / self.part;
        self.left = (self.left + earned.saturating_sub(self.debt)).min(self.most);
        self.debt = self.debt.saturating_sub(earned);
        self.at = now;
        !self.left.is_zero()
    }

    /// How long it takes until something is left, as of the last [`is_left`](Self::is_left).
    pub(crate) fn wait(&self) -> Duration {
        self.debt * self.part
    }

    /// The work took so long.
    pub(crate) fn spend(&mut self, took: Duration) {
        self.debt = (self.debt + took.saturating_sub(self.left)).min(self.most);
        self.left = self.left.saturating_sub(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_micros(1);

    #[test]
    fn work_takes_no_more_than_its_part() {
        let mut share = TimeShare::new(4, Duration::from_millis(1));
        let (mut now, mut worked) = (Time(1 << 40), Duration::ZERO);
        let end = now + Duration::from_secs(1);
        while now < end {
            now = now + PERIOD;
            if share.is_left(now) {
                share.spend(PERIOD * 10);
                worked += PERIOD * 10;
                now = now + PERIOD * 10;
            }
        }
        let most = Duration::from_millis(252);
        assert!(
            (Duration::from_millis(200)..most).contains(&worked),
            "{worked:?}"
        );
    }

    #[test]
    fn a_burst_is_served_at_once() {
        let mut share = TimeShare::new(4, Duration::from_millis(1));
        let now = Time(1 << 40);
        let served = (0..1000).filter(|_| {
            let may = share.is_left(now);
            share.spend(PERIOD * 10);
            may
        });
        assert_eq!(served.count(), 100);
    }
}
