//! Result of a measurement.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::task::Task;
use crate::connection::Outcome;

/// One measurement's result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Times of single operations, if they were taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) latency: Option<Latency>,
    /// Bytes per second, 0 if only single operations were measured.
    pub(crate) bandwidth: f64,
    /// Operations per second, 0 if only single operations were measured.
    pub(crate) rate: f64,
    /// Messages that did not arrive, where that may happen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lost: Option<Lost>,
    /// Operations done in all, warm-up included: the passive side waits for as many.
    pub(crate) operations: u64,
}

/// What became of messages that nobody repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lost {
    /// Messages that did not arrive.
    pub(crate) messages: u64,
    /// Messages that were looked for: all; of WRITEs, which tell nobody, the last ones.
    pub(crate) of: u64,
}

/// Times of single operations, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) median: f64,
    /// None: the program that measured tells the median only.
    #[serde(flatten)]
    pub(crate) spread: Option<Spread>,
}

/// How far they are from the median.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
}

/// Collects times.
pub(crate) struct Times(Histogram<u64>);

impl Times {
    /// The longest time that is told from longer ones: a minute, in nanoseconds.
    const LONGEST: u64 = 60_000_000_000;

    /// An empty collection, exact to three digits.
    pub(crate) fn new() -> Outcome<Self> {
        Histogram::new_with_bounds(1, Self::LONGEST, 3)
            .map(Self)
            .map_err(|e| format!("histogram: {e}"))
    }

    /// Adds one.
    pub(crate) fn add(&mut self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanoseconds);
    }

    /// Returns the number of samples.
    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// Their distribution. `share` of each time belongs to one operation: 0.5 for round trips.
    pub(crate) fn latency(&self, share: f64) -> Outcome<Latency> {
        if self.0.is_empty() {
            return Err("nothing was measured: the time is too short".into());
        }
        let at = |quantile| self.0.value_at_quantile(quantile) as f64 * share / 1e3;
        Ok(Latency {
            median: at(0.5),
            spread: Some(Spread {
                min: self.0.min() as f64 * share / 1e3,
                p90: at(0.9),
                p99: at(0.99),
                p999: at(0.999),
            }),
        })
    }
}

/// Does something again and again for the time of a task, which is given the number of each time.
/// `share` of each time belongs to one operation, as in [`Times::latency`].
pub(crate) fn one_by_one(
    task: &Task,
    share: f64,
    mut once: impl FnMut(u64) -> Outcome,
) -> Outcome<Measured> {
    let mut times = Times::new()?;
    let begun = Instant::now();
    let (mut before, mut operations) = (begun, 0);
    while before - begun < task.warm_up() + task.time {
        once(operations)?;
        operations += 1;
        let now = Instant::now();
        if now - begun > task.warm_up() {
            times.add(now - before);
        }
        before = now;
    }
    Ok(Measured {
        latency: Some(times.latency(share)?),
        operations,
        ..Measured::default()
    })
}

/// The result of operations of `size` bytes that were counted for a time.
pub(crate) fn stream(size: usize, counted: u64, time: Duration, operations: u64) -> Measured {
    let rate = counted as f64 / time.as_secs_f64().max(1e-9);
    Measured {
        bandwidth: rate * size as f64,
        rate,
        operations,
        ..Measured::default()
    }
}

/// The median of some numbers; `None` of none.
pub(crate) fn median(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = numbers.into_iter().collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[middle - 1], upper)
    } else {
        upper
    })
}

/// All that got lost in several rounds.
fn all_lost(rounds: &[Measured]) -> Option<Lost> {
    rounds
        .iter()
        .filter_map(|m| m.lost)
        .reduce(|all, lost| Lost {
            messages: all.messages + lost.messages,
            of: all.of + lost.of,
        })
}

/// The medians of several rounds of the same measurement, number by number; `None` of none.
pub(crate) fn medians(rounds: &[Measured]) -> Option<Measured> {
    let of = |number: fn(&Measured) -> f64| median(rounds.iter().map(number));
    let times: Vec<Latency> = rounds.iter().filter_map(|m| m.latency).collect();
    let spreads: Vec<Spread> = times.iter().filter_map(|l| l.spread).collect();
    let time = |number: fn(&Spread) -> f64| median(spreads.iter().map(number));
    let spread = (|| {
        Some(Spread {
            min: time(|s| s.min)?,
            p90: time(|s| s.p90)?,
            p99: time(|s| s.p99)?,
            p999: time(|s| s.p999)?,
        })
    })();
    let latency = median(times.iter().map(|l| l.median)).map(|median| Latency { median, spread });
    Some(Measured {
        latency,
        bandwidth: of(|m| m.bandwidth)?,
        rate: of(|m| m.rate)?,
        lost: all_lost(rounds),
        operations: rounds.iter().map(|m| m.operations).sum(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Times, median, medians, stream};

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn half_of_a_round_trip_is_one_way() {
        let mut times = Times::new().unwrap();
        assert!(times.latency(0.5).is_err());
        for microseconds in 1..=1000 {
            times.add(Duration::from_micros(microseconds));
        }
        let latency = times.latency(0.5).unwrap();
        assert!((latency.median - 250.0).abs() < 1.0, "{latency:?}");
        let spread = latency.spread.unwrap();
        assert!((spread.p99 - 495.0).abs() < 1.0, "{latency:?}");
        assert!((spread.min - 0.5).abs() < 0.01, "{latency:?}");
    }

    #[test]
    fn a_stream_is_bytes_and_operations_per_second() {
        let rounds = [1, 2, 3].map(|n| stream(100, n * 10, Duration::from_secs(2), n * 12));
        let all = medians(&rounds).unwrap();
        assert!((all.rate - 10.0).abs() < 1e-9 && (all.bandwidth - 1000.0).abs() < 1e-9);
        assert_eq!((all.operations, all.latency), (72, None));
        assert_eq!(medians(&[]), None);
    }
}
