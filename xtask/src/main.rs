//! Ferroce's development commands. `cargo xtask test` is all of them in order, and what CI runs.

#![forbid(unsafe_code)]

mod abi;
mod arrows;
mod cleanup;
mod crates;
mod debian;
mod dist;
mod document;
mod guest;
mod instructions;
mod lint;
mod mentions;
mod names;
mod orders;
mod packages;
mod pages;
mod programs;
mod promises;
mod prose;
mod release_check;
mod rooms;
mod sh;
mod system;
mod tally;
mod unit;
mod variables;
mod walks;
mod workspace;

use std::process::ExitCode;

use document::Mode;
use tally::Tally;
use workspace::Workspace;

const USAGE: &str = "\
usage: cargo xtask COMMAND
  test             everything below, in order; ends with `N passed, N failed`
  packages         install the Debian packages that the tests need (as root), or say which are missing
  lint             format, clippy, crate dependencies, documents, documentation
  promises [--write-table]
                   docs/promises.md: the files of the tests that SPECIFICATION.md names; `lint` holds it
  unit             cargo test of the workspace
  system [FILTER] [--write-table]
                   unmodified RDMA programs on the release build; FILTER is a part of the test names
  system --list    the names
  aims [FILTER] [--write-table]
                   the performance aims, measured; not a part of `test`
  clients [ROW] [--write-table]
                   programs of others (UCX, NIXL, Valkey …), for docs/clients.md; `test` has some of the rows
  soak [SECONDS]   ten minutes of attacks at full rate beside a verified transfer; not a part of `test`
  sleepers [SECONDS [SEED]]
                   half an hour of threads that sleep for events in every way; not a part of `test`,
                   which has some seconds of it
  instructions [--write-table | CASE]
                   the hot functions' instructions, beside the committed baseline, or where those of one
                   case go; not a part of `test`
  walks            the walks of ARCHITECTURE.md: is each function that a step names called?
  dist [SYSTEM]    the release: tarballs, packages, wheels, images, checksums, in target/dist; or the part of it
                   for the systems in whose name SYSTEM is, such as aarch64
  release-check [SUITE [CHECK]] [--write-table]
                   the release, installed and used in clean systems (Debian's SUITE, by default bookworm; aarch64
                   is emulated), then `clients`, `soak` and `sleepers`; CHECK is a name, or a part
                   of names, or several with commas. Prints a table at its end. Not a part of `test`
  guest [FILTER] [--write-table]
                   the kernel's own RDMA driver, in a virtual machine, as the peer
  guest pyverbs [--write-table]
                   rdma-core's suite on that driver, for comparison; not part of `test`
  guest speed      siw and Ferroce in one virtual machine, beside its TCP; not part of `test`
  abi --from RDMA_CORE_SOURCE
                   add the symbols that a release of rdma-core exports to those of the drop-in library";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mode = if args.last() == Some(&"--write-table") {
        args.pop();
        Mode::Write
    } else {
        Mode::Check
    };
    let workspace = match Workspace::find() {
        Ok(w) => w,
        Err(e) => return fail(&e),
    };
    match args[..] {
        ["system", "--list"] => {
            system::list();
            ExitCode::SUCCESS
        }
        ["abi", "--from", source] => match abi::add(&workspace, source) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => fail(&e),
        },
        _ => tallied(&workspace, &args, mode),
    }
}

/// Runs a command that ends with `N passed, N failed`.
fn tallied(workspace: &Workspace, args: &[&str], mode: Mode) -> ExitCode {
    let mut tally = Tally::default();
    let Some(done) = run(workspace, args, mode, &mut tally) else {
        return fail(USAGE);
    };
    cleanup::everything();
    if let Err(e) = done {
        tally.fail("xtask", &e);
    }
    tally.close()
}

/// Runs a command. `None` if there is none of these words.
fn run(
    workspace: &Workspace,
    args: &[&str],
    mode: Mode,
    tally: &mut Tally,
) -> Option<Result<(), String>> {
    Some(match *args {
        ["test"] => everything(workspace, tally),
        ["packages"] => packages::require(&[packages::SYSTEM, packages::GUEST]),
        ["lint"] => lint::run(workspace, tally),
        ["promises"] => promises::table(workspace, mode, tally),
        ["unit"] => unit::run(workspace, tally),
        ["system"] => system_tests(workspace, "", mode, tally),
        ["system", filter] => system_tests(workspace, filter, mode, tally),
        ["aims"] => system::aims::run(workspace, "", mode, tally),
        ["aims", filter] => system::aims::run(workspace, filter, mode, tally),
        ["clients"] => system::clients::run(workspace, "", mode, tally),
        ["clients", row] => system::clients::run(workspace, row, mode, tally),
        ["soak"] => soak(workspace, SOAK, tally),
        ["soak", seconds] => soak(workspace, seconds.parse().ok()?, tally),
        ["sleepers"] => sleepers(workspace, SLEEPERS, None, tally),
        ["sleepers", seconds] => sleepers(workspace, seconds.parse().ok()?, None, tally),
        ["sleepers", seconds, seed] => {
            let seed = Some(seed.parse().ok()?);
            sleepers(workspace, seconds.parse().ok()?, seed, tally)
        }
        ["walks"] => walks::run(workspace, tally),
        ["dist"] => dist::run(workspace, ""),
        ["dist", system] => dist::run(workspace, system),
        ["release-check"] => release_check::run(workspace, "bookworm", "", mode, tally),
        ["release-check", suite] => release_check::run(workspace, suite, "", mode, tally),
        ["release-check", suite, filter] => {
            release_check::run(workspace, suite, filter, mode, tally)
        }
        ["instructions"] => instructions::run(workspace, mode),
        ["instructions", case] => instructions::profile(workspace, case),
        ["guest", "pyverbs"] => guest_suite(workspace, mode, tally),
        ["guest", "speed"] => guest_speed(workspace),
        ["guest"] => guest_tests(workspace, "", mode, tally),
        ["guest", filter] => guest_tests(workspace, filter, mode, tally),
        _ => return None,
    })
}

fn everything(workspace: &Workspace, tally: &mut Tally) -> Result<(), String> {
    packages::require(&[packages::SYSTEM, packages::GUEST])?;
    lint::run(workspace, tally)?;
    unit::run(workspace, tally)?;
    walks::run(workspace, tally)?;
    system_tests(workspace, "", Mode::Check, tally)?;
    guest_tests(workspace, "", Mode::Check, tally)
}

fn system_tests(
    workspace: &Workspace,
    filter: &str,
    mode: Mode,
    tally: &mut Tally,
) -> Result<(), String> {
    system_ready(workspace)?;
    if filter.is_empty() {
        unit::run_against_system(workspace, tally)?;
        unit::run_optimised(workspace, tally)?;
        unit::run_with_address_sanitizer(workspace, tally)?;
    }
    system::run(workspace, filter, mode, tally)
}

/// Seconds of a soak.
const SOAK: u64 = 600;

fn soak(workspace: &Workspace, seconds: u64, tally: &mut Tally) -> Result<(), String> {
    system_ready(workspace)?;
    system::soak(workspace, seconds, tally)
}

/// Seconds of the sleepers.
const SLEEPERS: u64 = 1800;

fn sleepers(
    workspace: &Workspace,
    seconds: u64,
    seed: Option<u32>,
    tally: &mut Tally,
) -> Result<(), String> {
    system_ready(workspace)?;
    system::sleepers(workspace, seconds, seed, tally)
}

fn system_ready(workspace: &Workspace) -> Result<(), String> {
    packages::require(&[packages::SYSTEM])?;
    sh::step(workspace.cargo(&["build", "--release"]))?;
    cleanup::on_signal()
}

fn guest_tests(
    workspace: &Workspace,
    filter: &str,
    mode: Mode,
    tally: &mut Tally,
) -> Result<(), String> {
    guest_ready(workspace)?;
    guest::run(workspace, filter, mode, tally)
}

/// Not part of `test`: it says nothing about Ferroce.
fn guest_suite(workspace: &Workspace, mode: Mode, tally: &mut Tally) -> Result<(), String> {
    guest_ready(workspace)?;
    guest::run_suite(workspace, mode, tally)
}

/// Not part of `test`: nobody can promise how fast a machine is.
fn guest_speed(workspace: &Workspace) -> Result<(), String> {
    guest_ready(workspace)?;
    guest::run_speed(workspace)
}

fn guest_ready(workspace: &Workspace) -> Result<(), String> {
    if !nix::unistd::geteuid().is_root() {
        return Err("the guest tests make network namespaces and need root".into());
    }
    packages::require(&[packages::SYSTEM, packages::GUEST])?;
    sh::step(workspace.cargo(&["build", "--release"]))?;
    cleanup::on_signal()
}

fn fail(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::from(2)
}
