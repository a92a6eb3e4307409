//! Guest tests: Linux's own software RDMA drivers as the peer.
//!
//! `tests/guest` boots a small virtual machine with the kernel's `rdma_rxe` and `siw`, and Debian's
//! programs. Its network interface ends in a network namespace of this machine, where the same
//! programs run on Ferroce. Nobody wrote the one for the other. The [`table`] has what is run; what
//! came out becomes `docs/interop-rxe.md` and `docs/interop-siw.md`.

mod deviations;
mod document;
mod driver;
mod harness;
mod interface;
mod own;
mod pair;
mod parallel;
mod pyverbs;
mod rows;
mod siw;
mod speed;
mod table;

use std::time::Instant;

use crate::cleanup;
use crate::document::{Document, Mode};
use crate::system::{artefacts, pyverbs as suite};
use crate::tally::Tally;
use crate::workspace::Workspace;

use document::Record;
use driver::Driver;
use harness::Guest;
use parallel::{Job, Turn};
use rows::Way;

/// MTUs of the link: a usual one, and one that lets a packet carry 4096 bytes.
const MTUS: [u32; 2] = [1500, 9000];

/// Runs the tests whose names contain `filter`.
pub(crate) fn run(
    workspace: &Workspace,
    filter: &str,
    mode: Mode,
    tally: &mut Tally,
) -> Result<(), String> {
    cleanup::left_over();
    let bin = artefacts(workspace)?;
    let logs = workspace.target.join("guest-logs");
    let matrices = Driver::ALL.map(Matrix::new);
    let (begun, mut count) = (Instant::now(), 0);
    for mtu in MTUS {
        let mut running: Option<Guest> = None;
        for matrix in &matrices {
            let jobs = matrix.jobs(workspace, mtu, filter);
            if jobs.is_empty() {
                continue;
            }
            count += jobs.len();
            let driver = matrix.driver;
            let guest = match running.take() {
                Some(mut guest) => {
                    guest.change_driver(driver)?;
                    running.insert(guest)
                }
                None => {
                    let logs = logs.join(format!("mtu{mtu}"));
                    running.insert(Guest::start(workspace, &bin, driver, mtu, logs)?)
                }
            };
            parallel::run(guest, &jobs, &logs, tally);
        }
    }
    if count == 0 {
        return Err(format!("no guest test has {filter:?} in its name"));
    }
    let seconds = begun.elapsed().as_secs();
    println!("# guest: {count} tests, {seconds}s with the starts of the guest");
    matrices
        .iter()
        .try_for_each(|matrix| matrix.document().settle(workspace, mode, tally))
}

/// Runs rdma-core's suite on the kernel's driver.
pub(crate) fn run_suite(
    workspace: &Workspace,
    mode: Mode,
    tally: &mut Tally,
) -> Result<(), String> {
    cleanup::left_over();
    let bin = artefacts(workspace)?;
    let logs = workspace.target.join("guest-logs");
    let record = suite::Record::default();
    let guest = Guest::start(
        workspace,
        &bin,
        Driver::Rxe,
        MTUS[0],
        logs.join(pyverbs::NAME),
    )?;
    parallel::run(&guest, &[pyverbs::job(&record)], &logs, tally);
    // A check of the numbers alone is none of the day.
    let taken = match mode {
        Mode::Check => None,
        Mode::Write => Some(pyverbs::taken(&guest, &logs)?),
    };
    suite::document(&record, taken)?.settle(workspace, mode, tally)
}

/// Measures siw and Ferroce in one guest, beside TCP, and prints the table.
pub(crate) fn run_speed(workspace: &Workspace) -> Result<(), String> {
    cleanup::left_over();
    let bin = artefacts(workspace)?;
    let logs = workspace.target.join("guest-logs").join("speed");
    // Both ends poll.
    let guest = Guest::start_with(workspace, &bin, Driver::Siw, MTUS[0], "2", logs.clone())?;
    speed::run(&guest, &bin, &logs)
}

/// The rows of a driver, and what they gave.
struct Matrix {
    driver: Driver,
    rows: Vec<rows::Row>,
    record: Record,
}

impl Matrix {
    fn new(driver: Driver) -> Self {
        Self {
            driver,
            rows: table::all(driver),
            record: Record::default(),
        }
    }

    /// The tests on a link of this MTU whose names contain `filter`. Those that are not daily are
    /// run by name only.
    fn jobs<'a>(&'a self, workspace: &'a Workspace, mtu: u32, filter: &str) -> Vec<Job<'a>> {
        let mut all = self.row_jobs(mtu, filter.is_empty());
        let prefix = self.driver.prefix(mtu);
        let mut add = |name: &str, body: fn(&harness::Run) -> pair::Outcome| {
            all.push(Job {
                name: format!("{prefix}.{name}"),
                turn: Turn::Polls,
                limit: parallel::LIMIT,
                body: Box::new(body),
            });
        };
        match self.driver {
            Driver::Rxe => add("deviations", deviations::still_there),
            Driver::Siw if mtu == MTUS[0] => add("frames", siw::frames),
            Driver::Siw => {}
        }
        if self.driver == Driver::Rxe && mtu == MTUS[0] {
            all.push(interface::job(workspace));
        }
        if mtu == MTUS[0] && filter.contains(interface::EXAMPLES) {
            all.push(interface::examples(workspace, self.driver));
        }
        all.retain(|job| job.name.contains(filter));
        all
    }

    fn row_jobs(&self, mtu: u32, is_daily: bool) -> Vec<Job<'_>> {
        let mut all = Vec::new();
        for (index, row) in self.rows.iter().enumerate() {
            for (way, _) in self.driver.columns() {
                if way.mtu != mtu || !row.has(way) || is_daily && !self.is_daily(row, way) {
                    continue;
                }
                all.push(Job {
                    name: format!("{}.{}", self.driver.prefix(mtu), row.name(way.server)),
                    turn: row.turn(),
                    limit: parallel::LIMIT,
                    body: Box::new(move |run| {
                        let outcome = row.run(run, way);
                        self.record.keep(index, way, outcome.is_ok());
                        outcome
                    }),
                });
            }
        }
        all
    }

    /// Whether a cell of the table is filled by a run of all tests.
    fn is_daily(&self, row: &rows::Row, way: Way) -> bool {
        match self.driver {
            Driver::Rxe => true,
            Driver::Siw => row.daily.contains(&way.server) && way.mtu == MTUS[0],
        }
    }

    fn document(&self) -> Document {
        document::made_of(self.driver, &self.rows, &self.record)
    }
}
