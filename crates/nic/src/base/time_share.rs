//! A bounded part of the time, for work that others cause at no cost to themselves.

use std::time::Duration;

use ferroce_proto::time::Time;

/// Work may take one part in `part` of the time. What was not used is saved up, to a limit, so
/// that a burst is served at once. What was overspent, to the same limit, is made up for first.
#[derive(Debug)]
pub(crate) struct TimeShare {
    part: u32,
    /// Limit of the balance, either way.
    most: Duration,
    /// Nanoseconds that are left, or were overspent, as of `at`.
    balance: i64,
    at: Time,
}

impl TimeShare {
    /// A share of one part in `part` of the time; at most `most` is saved up or overspent.
    pub(crate) const fn new(part: u32, most: Duration) -> Self {
        Self {
            part,
            most,
            // The first look limits it.
            balance: i64::MAX,
            at: Time(0),
        }
    }

    /// Whether there is time left for the work.
    pub(crate) fn is_left(&mut self, now: Time) -> bool {
        let earned = nanoseconds(now.since(self.at) / self.part);
        self.balance = self
            .balance
            .saturating_add(earned)
            .min(nanoseconds(self.most));
        self.at = now;
        self.balance > 0
    }

    /// How long it takes until something is left, as of the last [`is_left`](Self::is_left).
    pub(crate) fn wait(&self) -> Duration {
        let overspent = u64::try_from(-self.balance).unwrap_or(0);
        Duration::from_nanos(overspent) * self.part
    }

    /// Takes the time of work that has just been done.
    pub(crate) fn spend(&mut self, took: Duration, now: Time) {
        // What was earned before is not for work that comes later.
        self.is_left(now);
        self.balance = (self.balance - nanoseconds(took)).max(-nanoseconds(self.most));
    }
}

fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
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
                now = now + PERIOD * 10;
                share.spend(PERIOD * 10, now);
                worked += PERIOD * 10;
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
            share.spend(PERIOD * 10, now);
            may
        });
        assert_eq!(served.count(), 100);
    }
}
