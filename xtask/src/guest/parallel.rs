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

/// A test.
pub(super) struct Job<'a> {
    pub(super) name: String,
    /// Whether it runs beside those which do not mostly wait.
    pub(super) waits: bool,
    /// Time for it.
    pub(super) limit: Duration,
    pub(super) body: Box<dyn Fn(&Run) -> Outcome + Sync + 'a>,
}

/// Runs them all, the lines in the order in which they end. Each has a folder for its logs in
/// `logs`.
pub(super) fn run(guest: &Guest, jobs: &[Job], logs: &Path, tally: &mut Tally) {
    let (report, reports) = mpsc::channel();
    std::thread::scope(|scope| {
        for waits in [false, true] {
            let report = report.clone();
            scope.spawn(move || {
                for job in jobs.iter().filter(|job| job.waits == waits) {
                    let begun = Instant::now();
                    let outcome = one(guest, job, &logs.join(&job.name));
                    if report.send((job, outcome, begun.elapsed())).is_err() {
                        return;
                    }
                }
            });
        }
        drop(report);
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
