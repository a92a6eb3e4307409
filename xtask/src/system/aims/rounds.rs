//! Rounds: ours and theirs, by turns.
//!
//! What two processors have to say to each other in a microsecond depends on where the host has put
//! them, and that changes: a cache line takes four times as long for a while. A round in which it
//! did so between ours and theirs says nothing. So where that counts the line is measured before,
//! between and after them; such a round is not taken, nor one in another state than most.

use super::probe::{Number, Probe};
use super::table::Aim;
use crate::system::Stage;

/// How often each aim is measured; the median of the ratios counts.
const ROUNDS: usize = 9;
/// The same where all rounds count.
const FEW_ROUNDS: usize = 5;
/// Rounds at most until there are so many of one state.
const TRIES: usize = 36;
/// Lines that differ by less than this factor are those of one state.
const SAME: f64 = 1.5;
const LINE: Probe = Probe::Bench {
    name: "cache line",
    size: "8",
    asleep: false,
};

/// One round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) ours: f64,
    pub(super) theirs: f64,
    /// What a line took then, in microseconds, where that counts.
    pub(super) line: Option<f64>,
}

/// Measures an aim.
pub(super) fn measure(aim: &Aim, stage: &Stage) -> Result<Vec<Round>, String> {
    if !aim.depends_on_line() {
        let round = || {
            Ok(Round {
                ours: aim.ours.measure(stage, aim.number)?,
                theirs: aim.theirs.measure(stage, aim.number)?,
                line: None,
            })
        };
        let rounds = if aim.all_rounds { FEW_ROUNDS } else { ROUNDS };
        return (0..rounds).map(|_| round()).collect();
    }
    let (mut rounds, mut line) = (Vec::new(), LINE.measure(stage, Number::Latency)?);
    for _ in 0..TRIES {
        let ours = aim.ours.measure(stage, aim.number)?;
        let between = LINE.measure(stage, Number::Latency)?;
        let theirs = aim.theirs.measure(stage, aim.number)?;
        let after = LINE.measure(stage, Number::Latency)?;
        if is_same(line, between) && is_same(between, after) && is_same(line, after) {
            let line = Some(between);
            rounds.push(Round { ours, theirs, line });
        }
        line = after;
        let most = of_most(&rounds);
        if most.len() >= ROUNDS {
            return Ok(most);
        }
    }
    Err(format!(
        "the machine changed its state too often: {} rounds of {TRIES} in one state, {ROUNDS} are needed",
        of_most(&rounds).len()
    ))
}

fn is_same(one: f64, other: f64) -> bool {
    one.max(other) < SAME * one.min(other)
}

/// The rounds of the state that most are in.
fn of_most(rounds: &[Round]) -> Vec<Round> {
    let near = |line: Option<f64>| {
        let is_near = |round: &&Round| match (round.line, line) {
            (Some(one), Some(other)) => is_same(one, other),
            _ => false,
        };
        rounds.iter().filter(is_near).copied().collect::<Vec<_>>()
    };
    let all = rounds.iter().map(|round| near(round.line));
    all.max_by_key(Vec::len).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_of_another_state_do_not_count() {
        let rounds = [0.06, 0.3, 0.07, 0.29, 0.065, 0.31, 0.07].map(|line| Round {
            ours: 1.0,
            theirs: 2.0,
            line: Some(line),
        });
        let most: Vec<_> = of_most(&rounds).iter().map(|round| round.line).collect();
        assert_eq!(most, [0.06, 0.07, 0.065, 0.07].map(Some));
        assert!(of_most(&[]).is_empty());
    }
}
