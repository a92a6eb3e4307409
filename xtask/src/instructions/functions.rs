//! Which functions the instructions of a case are spent in.

use std::collections::BTreeMap;
use std::fs;

use super::Case;

/// Functions that are shown.
const SHOWN: usize = 40;

/// What a function costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cost {
    /// Instructions of its own, without those of what it calls.
    own: u64,
    calls: u64,
}

/// The dearest functions of a case, a line each.
pub(super) fn table(case: &Case) -> Result<Vec<String>, String> {
    let text =
        fs::read_to_string(&case.part).map_err(|e| format!("{}: {e}", case.part.display()))?;
    let mut all: Vec<(String, Cost)> = parse(&text).into_iter().collect();
    all.sort_by_key(|(_, cost)| std::cmp::Reverse(cost.own));
    let total: u64 = all.iter().map(|(_, cost)| cost.own).sum();
    let each = |count: u64| count as f64 / case.repetitions;
    let mut lines = vec![format!("{:.0} instructions, of them", each(total))];
    lines.extend(all.iter().take(SHOWN).map(|(name, cost)| {
        let share = cost.own as f64 / total.max(1) as f64 * 100.0;
        format!(
            "{:>8.0} {share:>5.1} %  called {:>5.2} times  {name}",
            each(cost.own),
            each(cost.calls)
        )
    }));
    Ok(lines)
}

/// Reads callgrind's format, without compressed names or positions: a block per function, in it a
/// line per place with its own instructions, and three lines per call, the last of which has the
/// instructions of the called function.
fn parse(text: &str) -> BTreeMap<String, Cost> {
    let mut all: BTreeMap<String, Cost> = BTreeMap::new();
    let (mut current, mut called) = (String::new(), String::new());
    let mut of_call = false;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            name.clone_into(&mut current);
        } else if let Some(name) = line.strip_prefix("cfn=") {
            name.clone_into(&mut called);
        } else if let Some(calls) = line.strip_prefix("calls=") {
            let count = calls.split(' ').next().and_then(|n| n.parse().ok());
            all.entry(called.clone()).or_default().calls += count.unwrap_or(0);
            of_call = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit()) && !std::mem::take(&mut of_call) {
            let own = line.split(' ').nth(1).and_then(|n| n.parse().ok());
            all.entry(current.clone()).or_default().own += own.unwrap_or(0);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::{Cost, parse};

    #[test]
    fn calls_do_not_count_for_the_caller() {
        let text = "version: 1\nfn=outer\n0 10\ncfn=inner\ncalls=3 0\n0 500\n0 5\n\nfn=inner\n0 500\ntotals: 515\n";
        let costs = parse(text);
        assert_eq!(costs["outer"], Cost { own: 15, calls: 0 });
        assert_eq!(costs["inner"], Cost { own: 500, calls: 3 });
    }
}
