//! All that was measured.

use std::collections::BTreeMap;

use crate::bench::Options;
use crate::bench::load::Load;
use crate::bench::measured::{Measured, median, medians};
use crate::bench::task::{Floor, Kind, Path, Series, Waiting};
use crate::connection::Outcome;

/// All that was measured, round by round.
pub(crate) struct Results {
    rounds: BTreeMap<(Series, usize), Vec<Measured>>,
    /// Series that were not measured, and why.
    left_out: BTreeMap<Series, String>,
    /// Milliseconds of each measurement.
    pub(super) time: u64,
    /// How often everything was measured.
    pub(super) count: u32,
    /// What both sides did until something came.
    pub(super) waiting: Waiting,
    /// The machine before the first of them.
    pub(super) load: Option<Load>,
}

/// One of ours beside its floor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compared {
    /// The floor.
    pub(super) floor: Floor,
    /// Its own number for as much as one of ours: microseconds, or bytes per second.
    pub(super) value: f64,
    /// Median over the rounds of ours divided by it.
    pub(super) ratio: f64,
}

impl Results {
    /// None yet.
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            rounds: BTreeMap::new(),
            left_out: BTreeMap::new(),
            time: options.time,
            count: options.rounds,
            waiting: options.waiting(),
            load: Load::now(),
        }
    }

    /// Adds one round of a measurement.
    pub(crate) fn add(&mut self, series: Series, size: usize, outcome: Outcome<Measured>) {
        match outcome {
            Ok(measured) => self
                .rounds
                .entry((series, size))
                .or_default()
                .push(measured),
            Err(reason) => self.leave_out(series, reason),
        }
    }

    /// A series is not measured.
    pub(crate) fn leave_out(&mut self, series: Series, reason: String) {
        self.left_out.entry(series).or_insert(reason);
    }

    /// Whether a series has failed.
    pub(crate) fn has_failed(&self, series: Series) -> bool {
        self.left_out.contains_key(&series)
    }

    /// Returns the series that were not measured, and why.
    pub(super) fn left_out(&self) -> impl Iterator<Item = (Series, &str)> {
        self.left_out
            .iter()
            .map(|(series, why)| (*series, why.as_str()))
    }

    /// An error if an operation of ours failed. Floors and other programs may not be possible
    /// everywhere; the report says so.
    pub(super) fn verdict(&self) -> Outcome {
        let ours = |series: &Series| matches!(series, Series::Verbs(..));
        match self.left_out.iter().find(|(series, _)| ours(series)) {
            Some((series, reason)) => Err(format!("{series}: {reason}")),
            None => Ok(()),
        }
    }

    /// The series of a path and kind that have numbers: floors first, then other programs, ours
    /// last.
    pub(super) fn series(&self, path: Path, kind: Kind) -> Vec<Series> {
        let mut all: Vec<Series> = self.rounds.keys().map(|(series, _)| *series).collect();
        all.dedup();
        let is_due = self.waiting.kinds().contains(&kind);
        all.retain(|series| is_due && series.path() == path && series.has(kind));
        all.sort_by_key(|series| match series {
            Series::Floor(_) => 0,
            Series::Peer(_) => 1,
            Series::Verbs(..) => 2,
        });
        all
    }

    /// All sizes of a series with their rounds.
    pub(super) fn of(&self, series: Series) -> impl Iterator<Item = (usize, &[Measured])> {
        self.rounds
            .range((series, 0)..=(series, usize::MAX))
            .map(|((_, size), rounds)| (*size, rounds.as_slice()))
    }

    /// Every series that has numbers.
    pub(super) fn all(&self) -> Vec<Series> {
        let mut all: Vec<Series> = self.rounds.keys().map(|(series, _)| *series).collect();
        all.dedup();
        all
    }

    /// The medians of a measurement.
    pub(super) fn medians(&self, series: Series, size: usize) -> Option<Measured> {
        medians(self.rounds.get(&(series, size))?)
    }

    /// Holds one of ours against its floor, round by round.
    pub(super) fn held(&self, series: Series, size: usize) -> Option<Compared> {
        let Series::Verbs(.., kind) = series else {
            return None;
        };
        let (floor, at, times) = series.floor(size, self.waiting)?;
        let ours = self.rounds.get(&(series, size))?;
        let theirs = self.rounds.get(&(Series::Floor(floor), at))?;
        let number = |measured: &Measured| number(measured, kind);
        let both = ours.iter().zip(theirs);
        let ratios = both.filter_map(|(our, their)| Some(number(our)? / (number(their)? * times)));
        Some(Compared {
            floor,
            value: median(theirs.iter().filter_map(number))? * times,
            ratio: median(ratios)?,
        })
    }
}

/// The number that is compared: the median time in microseconds, or bytes per second.
pub(super) fn number(measured: &Measured, kind: Kind) -> Option<f64> {
    let number = match kind {
        Kind::Latency => measured.latency?.median,
        Kind::Stream => measured.bandwidth,
    };
    (number > 0.0).then_some(number)
}
