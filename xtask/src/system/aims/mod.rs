//! The performance aims: unmodified perftest on the drop-in libraries, by turns with what each aim
//! is measured against.
//!
//! Nothing here is a test: how fast a machine is, nobody can promise.
//! `cargo xtask aims --write-table` writes `docs/performance.md`.

mod asleep;
mod batches;
mod crowd;
mod document;
mod iwarp;
mod probe;
mod rounds;
mod rust;
mod sizes;
mod sockets;
mod table;
mod tails;

use std::path::Path;
use std::time::Duration;

use super::{Stage, User};
use crate::document::Mode;
use crate::tally::Tally;
use crate::workspace::Workspace;
use crate::{cleanup, packages, sh};
use asleep::ASLEEP;
use batches::{LISTS, MANY};
use crowd::CROWDS;
use iwarp::IWARP;
use probe::Probe;
pub(crate) use probe::{Number, iperf3_number, perftest_number, qperf_number};
use rounds::Round;
use rust::RUST;
use sizes::SIZES;
use sockets::SOCKETS;
use table::{AIMS, Aim};
use tails::TAILS;

/// Time for all rounds of an aim.
const LIMIT: Duration = Duration::from_secs(600);

/// One aim's outcome.
#[derive(Debug)]
struct Verdict {
    aim: &'static Aim,
    /// Our number and the other's, in the aim's unit; medians.
    ours: f64,
    theirs: f64,
    /// Median of ours divided by the other's, round by round.
    ratio: f64,
    /// The least and the greatest ratio.
    spread: (f64, f64),
    rounds: usize,
    /// What a cache line took meanwhile, in microseconds, where that counts; median.
    line: Option<f64>,
}

impl Verdict {
    /// Whether the aim is met; `None` if there is none.
    fn met(&self) -> Option<bool> {
        let step = self.aim.step();
        self.aim
            .limit
            .map(|limit| limit.holds(self.ratio, self.ours, step))
    }
}

/// All aims.
fn all() -> impl Iterator<Item = &'static Aim> {
    let groups = [
        AIMS, SIZES, TAILS, LISTS, MANY, ASLEEP, RUST, CROWDS, IWARP, SOCKETS,
    ];
    groups.into_iter().flatten()
}

/// Measures the aims whose names contain `filter`, prints each, and writes the document.
pub(crate) fn run(
    workspace: &Workspace,
    filter: &str,
    mode: Mode,
    tally: &mut Tally,
) -> Result<(), String> {
    packages::require(&[packages::SYSTEM, packages::SPEED])?;
    sh::step(workspace.cargo(&["build", "--release"]))?;
    cleanup::on_signal()?;
    cleanup::left_over();
    let bin = super::artefacts(workspace)?;
    rust::build(workspace, &bin)?;
    let logs = workspace.target.join("aims-logs");
    let load = document::load();
    println!("load average {load} at the start");
    let mut verdicts = Vec::new();
    let mut failed = Vec::new();
    for aim in all().filter(|aim| aim.name().contains(filter)) {
        match measure(aim, &bin, &logs) {
            Ok(verdict) => {
                println!("{}", document::line(&verdict));
                verdicts.push(verdict);
            }
            Err(e) => {
                println!("{}: {e}", aim.name());
                failed.push(format!("{}: {e}", aim.name()));
            }
        }
    }
    if mode == Mode::Write {
        document::write(workspace, &verdicts, &load, tally)?;
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(format!("not measured: {}", failed.join("\n")))
    }
}

fn measure(aim: &'static Aim, bin: &Path, logs: &Path) -> Result<Verdict, String> {
    let folder = logs.join(aim.name().replace([' ', '/'], "-"));
    let _ = std::fs::remove_dir_all(&folder);
    let stage = Stage::new(aim.place, User::Root, bin.to_owned(), folder, LIMIT)?;
    let rounds = rounds::measure(aim, &stage)?;
    let of = |what: fn(&Round) -> f64| median(rounds.iter().map(what).collect());
    let lines: Option<Vec<f64>> = rounds.iter().map(|round| round.line).collect();
    Ok(Verdict {
        aim,
        ours: of(|round| round.ours)?,
        theirs: of(|round| round.theirs)?,
        ratio: of(|round| round.ours / round.theirs)?,
        spread: spread(&rounds),
        rounds: rounds.len(),
        line: lines.map(median).transpose()?,
    })
}

/// The least and the greatest ratio of rounds.
fn spread(rounds: &[Round]) -> (f64, f64) {
    let ratios = rounds.iter().map(|round| round.ours / round.theirs);
    let widest = (f64::INFINITY, f64::NEG_INFINITY);
    ratios.fold(widest, |(least, most), ratio| {
        (least.min(ratio), most.max(ratio))
    })
}

pub(crate) fn median(mut numbers: Vec<f64>) -> Result<f64, String> {
    numbers.sort_unstable_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    numbers
        .get(middle)
        .copied()
        .filter(|number| number.is_finite())
        .ok_or_else(|| "no number".into())
}
