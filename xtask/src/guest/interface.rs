//! The tests of the Rust interface in the guest: on genuine rdma-core, with the kernel's driver
//! below.
//!
//! They are the test programs that `cargo test` runs, told to use the system's libraries and the
//! address of the guest's device. What that driver does otherwise than the software device, the
//! tests assert themselves.

use std::time::Duration;

use super::MTUS;
use super::driver::Driver;
use super::harness::Run;
use super::pair::{Family, Outcome};
use super::parallel::{Job, Turn};
use crate::workspace::Workspace;
use crate::{programs, sh};

/// Part of the test's name.
const NAME: &str = "rust-interface";
/// Run by this name only.
pub(super) const EXAMPLES: &str = "rust-examples";
/// They take a minute there, and some where the machine is busy; where `cargo test` has not run
/// before, they are built first.
const LIMIT: Duration = Duration::from_secs(1200);
/// The one that makes up its steps. A dozen cases take three seconds there; the other programs with
/// random parts do one.
const RANDOM: &str = "programs";
const RANDOM_CASES: &str = "FERROCE_SEEDS=12";
const CASES: &str = "FERROCE_SEEDS=1";
/// The test programs.
///
/// Left out are tests of what has no provider or is the software device's own: the compiler
/// (`refused`), names (`public_names`), `allocations`, `log` and `wire`; of what rxe does not have
/// (`kinds_of_memory`); and `storm`, whose threads would take an emulated processor for minutes.
/// The `examples` are a test of their own.
const PROGRAMS: [&str; 26] = [
    "arrivals",
    "channel",
    "connection",
    "connections",
    "device_events",
    "endpoint",
    "errors",
    "futures",
    "identifiers",
    "interchange",
    "linger",
    "looks",
    "operations",
    "pool",
    RANDOM,
    "providers",
    "raw_handles",
    "raw_queues",
    "resets",
    "scopes",
    "shared_memory",
    "spans",
    "stream",
    "threads",
    "typed",
    "wakers",
];

/// The test, on the link of the smaller MTU.
pub(super) fn job(workspace: &Workspace) -> Job<'_> {
    Job {
        name: format!("guest.mtu1500.{NAME}"),
        turn: Turn::Polls,
        limit: LIMIT,
        body: Box::new(|run| all_of(workspace, run, &PROGRAMS)),
    }
}

/// The examples between two processes of the guest, on the driver that it has: by name only, as
/// they take a minute.
pub(super) fn examples(workspace: &Workspace, driver: Driver) -> Job<'_> {
    Job {
        name: format!("{}.{EXAMPLES}", driver.prefix(MTUS[0])),
        turn: Turn::Polls,
        limit: LIMIT,
        body: Box::new(|run| all_of(workspace, run, &["examples"])),
    }
}

/// Runs test programs, one after the other.
fn all_of(workspace: &Workspace, run: &Run, names: &[&str]) -> Outcome {
    for program in programs::named(workspace, "ferroce", names)? {
        let target = run.guest.share().join(shared(&program.name));
        let [target, built] = [&target, &program.path].map(|path| path.to_string_lossy());
        sh::output("strip", &["-o", &target, &built])?;
    }
    let device = format!("FERROCE_TEST_DEVICE={}", run.guest.driver().name());
    let address = format!("FERROCE_TEST_ADDRESS={}", Family::V4.theirs());
    for &name in names {
        let program = format!("/share/{}", shared(name));
        let words = [
            "env",
            "FERROCE_TEST_PROVIDER=system",
            &device,
            if name == RANDOM { RANDOM_CASES } else { CASES },
            &address,
            &program,
            "--test-threads=1",
        ];
        let mut tests = run.there(&words)?;
        tests.succeed()?;
        if !tests.output().contains("test result: ok") {
            return Err(format!("{name} has no result"));
        }
    }
    Ok(())
}

/// Name of a test program in the guest's share, where a C program may have the same one.
fn shared(name: &str) -> String {
    format!("rust-{name}")
}
