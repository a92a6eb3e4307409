//! Running the tests of one guest: those that mostly wait beside the others.
//!
//! The guest has one emulated processor, and a program that polls takes one of this machine's,
//! which usually has two. So a test that mostly polls does not run beside another one of its kind.

use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::harness::{Guest, Run};
use super::pair::Outcome;
use crate::system::show;
use crate::tally::Tally;

/// Time for a test that has no reason to take longer.
pub(super) const LIMIT: Duration = Duration::from_secs(90);

/// Beside which tests one runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It polls: beside those that wait.
    Polls,
    /// It mostly waits: beside those that poll.
    Waits,
    /// Behind all others: processes that share the UDP port pass on what is for each other, later
    /// than what comes without a detour, and UC loses a message whose packets change places.
    Alone,
}

/// A test.
pub(super) struct Job<'a> {
    pub(super) name: String,
    pub(super) turn: Turn,
    /// Time for it.
    pub(super) limit: Duration,
    pub(super) body: Box<dyn Fn(&Run) -> Outcome + Sync + 'a>,
}

/// Runs them all, the lines in the order in which they end. Each has a folder for its logs in
/// `logs`.
pub(super) fn run(guest: &Guest, jobs: &[Job], logs: &Path, tally: &mut Tally) {
    let (report, reports) = mpsc::channel();
    let all_of = |turn, report: mpsc::Sender<_>| {
        for job in jobs.iter().filter(|job| job.turn == turn) {
            let begun = Instant::now();
            let outcome = one(guest, job, &logs.join(&job.name));
            if report.send((job, outcome, begun.elapsed())).is_err() {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::scope(|both| {
                for turn in [Turn::Polls, Turn::Waits] {
                    let report = report.clone();
                    both.spawn(move || all_of(turn, report));
                }
            });
            all_of(Turn::Alone, report);
        });
        for (job, outcome, took) in reports {
            let folder = logs.join(&job.name);
            show(&job.name, &folder, outcome, took, tally);
        }
    });
}

fn one(guest: &Guest, job: &Job, folder: &Path) -> Outcome {
    let _ = std::fs::remove_dir_all(folder);
    let run = Run::new(guest, folder.to_owned(), job.limit)?;
    (job.body)(&run)
}
