//! What is printed and written of the aims.

use std::fmt::Write;

use super::Verdict;
use super::probe::Number;
use super::table::Limit;
use crate::sh;
use crate::workspace::Workspace;

/// The document, below the root of the repository.
const FILE: &str = "docs/performance.md";

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

/// Writes the document. `before`: the load average before anything was measured.
pub(super) fn write(
    workspace: &Workspace,
    (verdicts, failed): (&[Verdict], &[String]),
    before: &str,
) -> Result<(), String> {
    let path = workspace.root.join(FILE);
    std::fs::write(&path, text(verdicts, failed, before)?)
        .map_err(|e| format!("{}: {e}", path.display()))
}

fn text(verdicts: &[Verdict], failed: &[String], before: &str) -> Result<String, String> {
    let said = |program, words: &[&str]| sh::output(program, words).map(|s| s.trim().to_owned());
    let date = said("date", &["--utc", "+%Y-%m-%d %H:%M UTC"])?;
    let kernel = said("uname", &["-sr"])?;
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let after = load();
    let mut out = format!(
        "# Performance\n\n\
         Written by `cargo xtask aims --write-table` on {date}: {kernel}, {cores} processors, load average {before} before it \
         and {after} at the end (what is measured makes about 2).\n\
         Ours is measured by unmodified perftest on the drop-in libraries, by turns with what the aim is measured against. \
         The numbers are medians of the rounds, the ratio is the median of the rounds' ratios. Where a cache line decides, it is \
         measured in each round as well, and all rounds that count are of the state in which the machine was most; \
         but of SENDs one way and in streams, by size, of lists, of many queue pairs and of what sleeps, all rounds count. \
         A latency that is above its limit by no more than perftest's last digit meets it.\n\n\
         | work | ours | measured against | theirs | ratio | least and greatest | aim | |\n|---|---|---|---|---|---|---|---|\n"
    );
    for verdict in verdicts {
        let (work, against) = (verdict.aim.name(), verdict.aim.theirs.name());
        let work = work.split(" / ").next().unwrap_or_default().to_owned();
        let _ = writeln!(
            out,
            "| {work} | {:.3} {} | {against} | {:.3} | {:.2} | {:.2} to {:.2} | {} | {}{} |",
            verdict.ours,
            unit(verdict),
            verdict.theirs,
            verdict.ratio,
            verdict.spread.0,
            verdict.spread.1,
            limit(verdict),
            met(verdict),
            state(verdict)
        );
    }
    for reason in failed {
        let _ = writeln!(out, "\nNot measured: {reason}");
    }
    out += "\n## Commands\nEach line is ours, then what it is measured against; `SERVER` is the same program without an address.\n\n";
    for verdict in verdicts {
        let _ = writeln!(
            out,
            "- {}, {} rounds: `{}`; `{}`",
            verdict.aim.name(),
            verdict.rounds,
            verdict.aim.ours.command(verdict.aim.number),
            verdict.aim.theirs.command(verdict.aim.number)
        );
    }
    Ok(out)
}
