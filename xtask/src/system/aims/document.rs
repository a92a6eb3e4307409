//! What is printed and written of the aims.

use super::Verdict;
use super::probe::Number;
use super::table::{Aim, Limit};
use crate::document::{Document, Line, Mode};
use crate::sh;
use crate::tally::Tally;
use crate::workspace::Workspace;

/// The document, below the root of the repository.
const FILE: &str = "docs/performance.md";
const INTRODUCTION: &str = "\
# Performance

Written by `cargo xtask aims [FILTER] --write-table`, which measures the rows in whose names
FILTER is. Each row says when and on how many processors it was measured, and the load average
before that (what is measured makes about 2). Ours is measured by unmodified perftest on the
drop-in libraries, by turns with what the aim is measured against. The numbers are medians of the
rounds, the ratio is the median of the rounds' ratios. Where a cache line decides, it is measured
in each round as well, and all rounds that count are of the state in which the machine was most;
but of SENDs one way and in streams, by size, of lists, of many queue pairs and of what sleeps,
all rounds count. A latency that is above its limit by no more than perftest's last digit meets
it. The last column has the command of ours, then of what it is measured against; `SERVER` is the
same program without an address.
";
const COLUMNS: [&str; 11] = [
    "work",
    "measured against",
    "ours",
    "theirs",
    "ratio",
    "least and greatest",
    "aim",
    "",
    "measured",
    "rounds",
    "commands",
];
/// Columns that say what a row is about.
const KEYS: usize = 2;

/// One line for the terminal.
pub(super) fn line(verdict: &Verdict) -> String {
    format!(
        "{:<66}{:>10.3}{:>10.3}   ratio {:>6.3} ({:.3} to {:.3})  {:<8} {}{}",
        verdict.aim.name(),
        verdict.ours,
        verdict.theirs,
        verdict.ratio,
        verdict.spread.0,
        verdict.spread.1,
        limit(verdict),
        met(verdict),
        state(verdict)
    )
}

/// In which state of the machine that was, where it counts.
fn state(verdict: &Verdict) -> String {
    let said = |line| format!(" (a line takes {line:.3} µs)");
    verdict.line.map_or_else(String::new, said)
}

fn limit(verdict: &Verdict) -> String {
    match verdict.aim.limit {
        Some(Limit::AtLeast(limit)) => format!("≥ {limit}"),
        Some(Limit::AtMost(limit)) => format!("≤ {limit}"),
        Some(Limit::EitherAtMost { ratio, ours }) => format!("≤ {ratio}, or ours ≤ {ours}"),
        None => "none".into(),
    }
}

fn met(verdict: &Verdict) -> &'static str {
    match verdict.met() {
        Some(true) => "met",
        Some(false) => "not met",
        None => "",
    }
}

fn unit(verdict: &Verdict) -> &'static str {
    let named = verdict.aim.work;
    match verdict.aim.number {
        _ if named.starts_with("resident bytes") || named.starts_with("memory") => "B",
        _ if named.starts_with("processor time") => "ms/s",
        Number::Latency | Number::Mean | Number::Tail => "µs",
        Number::Stretch => "",
        Number::Bandwidth => "GB/s",
        Number::Rate => "M/s",
    }
}

/// The load average of the last minute.
pub(super) fn load() -> String {
    let all = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    all.split(' ').next().unwrap_or("unknown").to_owned()
}

/// Writes down what was measured, `before` which the load average was this. The other rows stay as
/// they are.
pub(super) fn write(
    workspace: &Workspace,
    verdicts: &[Verdict],
    before: &str,
    tally: &mut Tally,
) -> Result<(), String> {
    let date = sh::output("date", &["--utc", "+%Y-%m-%d"])?;
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let measured = format!("{}, {cores} processors, load {before}", date.trim());
    let line = |aim: &Aim| {
        let verdict = verdicts
            .iter()
            .find(|verdict| verdict.aim.name() == aim.name());
        row(aim, verdict, &measured)
    };
    let document = Document {
        file: FILE,
        introduction: INTRODUCTION.to_owned(),
        columns: COLUMNS.map(str::to_owned).to_vec(),
        lines: super::all().map(line).collect(),
    };
    document.settle(workspace, Mode::Write, tally)
}

fn row(aim: &Aim, verdict: Option<&Verdict>, measured: &str) -> Line {
    let name = aim.name();
    let work = name.split(" / ").next().unwrap_or_default().to_owned();
    let results = match verdict {
        None => vec![None; COLUMNS.len() - KEYS],
        Some(verdict) => {
            let number = |number: f64| format!("{number:.3} {}", unit(verdict));
            let commands = [&aim.ours, &aim.theirs].map(|probe| probe.command(aim.number));
            let results = [
                number(verdict.ours),
                number(verdict.theirs),
                format!("{:.2}", verdict.ratio),
                format!("{:.2} to {:.2}", verdict.spread.0, verdict.spread.1),
                limit(verdict),
                met(verdict).to_owned() + &state(verdict),
                measured.to_owned(),
                verdict.rounds.to_string(),
                format!("`{}`; `{}`", commands[0], commands[1]),
            ];
            results.map(|cell| Some(cell.trim().to_owned())).to_vec()
        }
    };
    Line {
        section: "Aims".to_owned(),
        key: vec![work, aim.theirs.name()],
        results,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_document_has_each_aim_and_no_other() {
        let text = std::fs::read_to_string(Path::new("..").join(FILE)).unwrap();
        let rows = text.lines().filter(|line| line.starts_with("| "));
        let listed: Vec<Vec<&str>> = rows
            .skip(1)
            .map(|row| row[2..].splitn(KEYS + 1, " | ").take(KEYS).collect())
            .collect();
        let all: Vec<Vec<String>> = super::super::all()
            .map(|aim| row(aim, None, "").key)
            .collect();
        assert_eq!(listed, all);
    }
}
