//! Guest tests: Linux's own software RDMA driver as the peer.
//!
//! `tests/guest` boots a small virtual machine with the kernel's `rdma_rxe` and Debian's programs.
//! Its network interface ends in a network namespace of this machine, where the same programs run
//! on Ferroce. Nobody wrote the one for the other. The [`table`] has what is run; what came out
//! becomes `docs/interop-rxe.md`.

mod deviations;
mod document;
mod harness;
mod interface;
mod own;
mod pair;
mod parallel;
mod pyverbs;
mod rows;
mod table;

use std::time::Instant;

use crate::cleanup;
use crate::document::Mode;
use crate::system::{artefacts, pyverbs as suite};
use crate::tally::Tally;
use crate::workspace::Workspace;

use document::Record;
use harness::Guest;
use pair::Server;
use parallel::Job;
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
    let rows = table::all();
    let record = Record::default();
    let (begun, mut count) = (Instant::now(), 0);
    for mtu in MTUS {
        let mut jobs = jobs(&rows, mtu, &record);
        if mtu == MTUS[0] {
            jobs.push(interface::job(workspace));
        }
        jobs.retain(|job| job.name.contains(filter));
        if jobs.is_empty() {
            continue;
        }
        count += jobs.len();
        let guest = Guest::start(workspace, &bin, mtu, logs.join(format!("mtu{mtu}")))?;
        parallel::run(&guest, &jobs, &logs, tally);
    }
    if count == 0 {
        return Err(format!("no guest test has {filter:?} in its name"));
    }
    let seconds = begun.elapsed().as_secs();
    println!("# guest: {count} tests, {seconds}s with the starts of the guest");
    document::made_of(&rows, &record).settle(workspace, mode, tally)
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
    let guest = Guest::start(workspace, &bin, MTUS[0], logs.join(pyverbs::NAME))?;
    parallel::run(&guest, &[pyverbs::job(&record)], &logs, tally);
    // A check of the numbers alone is none of the day.
    let taken = match mode {
        Mode::Check => None,
        Mode::Write => Some(pyverbs::taken(&guest, &logs)?),
    };
    suite::document(&record, taken)?.settle(workspace, mode, tally)
}

/// The tests of all rows on a link of this MTU.
fn jobs<'a>(rows: &'a [rows::Row], mtu: u32, record: &'a Record) -> Vec<Job<'a>> {
    let mut all = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        for server in [Server::Here, Server::There] {
            let way = Way { server, mtu };
            if !row.has(way) {
                continue;
            }
            all.push(Job {
                name: format!("guest.mtu{mtu}.{}", row.name(server)),
                waits: row.section.waits,
                limit: parallel::LIMIT,
                body: Box::new(move |run| {
                    let outcome = row.run(run, way);
                    record.keep(index, way, outcome.is_ok());
                    outcome
                }),
            });
        }
    }
    all.push(Job {
        name: format!("guest.mtu{mtu}.deviations"),
        waits: false,
        limit: parallel::LIMIT,
        body: Box::new(deviations::still_there),
    });
    all
}
