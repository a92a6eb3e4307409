//! Programs of others: `cargo xtask clients [ROW]` runs them, and writes `docs/clients.md`.
//!
//! Rows of [`TESTED`] programs are system tests, too (family `clients`). A row runs within a host,
//! and between two network namespaces or, where a program starts both ends by itself, with
//! `FERROCE_PATH=wire`. It passes if the program's own report is there and `FERROCE_SUMMARY` says
//! that the bytes went over the devices, by that path: a run that fell back to TCP fails. The
//! introduction of the document names the rows without that check.

mod built;
mod dapl;
mod fabric;
mod iscsi;
mod mpi;
mod own;
mod python;
mod rdma_core;
mod simple;
mod source;
mod summary;
mod torch;
mod ucx;
mod valkey;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use self::source::Origin;
use super::process::Process;
use super::stage::Launch;
use super::{Catalogue, Place, Side, Stage, User, artefacts, failure};
use crate::document::{Document, Line, Mode};
use crate::tally::Tally;
use crate::workspace::Workspace;
use crate::{cleanup, sh};

const FILE: &str = "docs/clients.md";
/// Time for one row on one way.
const LIMIT: Duration = Duration::from_secs(180);

/// Programs whose rows are system tests: Debian's, small and soon done.
const TESTED: [&str; 8] = [
    "UCX",
    "Open MPI",
    "libfabric",
    "qperf",
    "fio",
    "DAPL",
    "librpma",
    "Gloo",
];
/// Seconds for such a row as a system test.
const SYSTEM_LIMIT: u64 = 120;

/// What carries a row's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Within a host.
    Local,
    /// Over UDP.
    Wire,
}

/// A program and what it is to do.
struct Row {
    /// What the command calls it.
    name: &'static str,
    /// Whose it is: the heading of its table.
    program: &'static str,
    /// What it does, for a reader.
    what: &'static str,
    origin: Origin,
    /// The program starts both ends by itself, in one network namespace.
    is_one_host: bool,
    /// Runs it. Returns the figure to show.
    run: fn(&Run<'_>) -> Result<String, String>,
}

impl Row {
    /// Where it runs.
    fn place(&self, way: Way) -> Place {
        match way {
            Way::Wire if !self.is_one_host => Place::Wire(1500),
            _ => Place::OneSpace,
        }
    }
}

/// Adds the rows that are system tests.
pub(super) fn add(all: &mut Catalogue) {
    for row in rows() {
        if !TESTED.contains(&row.program) {
            continue;
        }
        for way in [Way::Local, Way::Wire] {
            let name = format!("clients.{}.{}", row.name, name_of(way));
            let (place, run) = (row.place(way), row.run);
            all.at(&name, place, User::Ordinary, SYSTEM_LIMIT, move |stage| {
                let source = PathBuf::new();
                run(&Run { stage, way, source }).map(drop)
            });
        }
    }
}

/// All of them, as they stand in the document.
fn rows() -> Vec<Row> {
    let lists = [
        ucx::rows(),
        mpi::rows(),
        fabric::rows(),
        simple::rows(),
        dapl::rows(),
        python::rows(),
        rdma_core::rows(),
        torch::rows(),
        valkey::rows(),
        built::rows(),
        own::rows(),
        iscsi::rows(),
    ];
    lists.into_iter().flatten().collect()
}

/// A row that is being run.
struct Run<'a> {
    stage: &'a Stage,
    way: Way,
    /// The folder of its source, built, or of its Python environment's commands; nothing for
    /// Debian's packages.
    source: PathBuf,
}

impl Run<'_> {
    /// A program under `ferroce run` that says what went over its devices.
    fn program(&self, side: Side, words: &[&str]) -> Launch<'_> {
        let mut launch = self.stage.program(side, words);
        launch.env("FERROCE_SUMMARY", "1");
        if self.way == Way::Wire && self.stage.place == Place::OneSpace {
            launch.env("FERROCE_PATH", "wire");
        }
        launch
    }

    /// Wants the bytes of a program that has ended to have gone the row's way.
    fn carried(&self, process: &Process) -> Result<(), String> {
        summary::check(&process.output(), self.way)
    }

    /// A pair: the server on side A, the client on side B once the server is `ready`. Both must
    /// end with 0. What the client printed.
    fn pair(
        &self,
        ready: fn(&mut Process) -> Result<(), String>,
        server: &[&str],
        client: &[&str],
    ) -> Result<String, String> {
        let mut server = self.program(Side::A, server).start()?;
        ready(&mut server)?;
        let mut client = self.program(Side::B, client).start()?;
        client.succeed()?;
        server.succeed()?;
        self.carried(&client)?;
        Ok(client.output())
    }

    /// The device of the sides' interface; both sides call theirs alike.
    fn device(&self) -> Result<String, String> {
        super::family::device(self.stage)
    }
}

/// Runs the rows whose names contain `filter`; with [`Mode::Write`] writes what came out.
pub(crate) fn run(
    workspace: &Workspace,
    filter: &str,
    mode: Mode,
    tally: &mut Tally,
) -> Result<(), String> {
    let rows = rows();
    let chosen: Vec<&Row> = rows.iter().filter(|r| r.name.contains(filter)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
        return Err(format!(
            "no row has {filter:?} in its name; there are {}",
            names.join(", ")
        ));
    }
    sh::step(workspace.cargo(&["build", "--release"]))?;
    cleanup::on_signal()?;
    cleanup::left_over();
    let bin = artefacts(workspace)?;
    let mut lines: Vec<Line> = rows.iter().map(line).collect();
    for (row, line) in rows.iter().zip(&mut lines) {
        if row.name.contains(filter) {
            line.results = one(workspace, row, &bin, tally);
        }
    }
    match mode {
        Mode::Write => document(lines).settle(workspace, mode, tally),
        // Figures are others each time: they are not held against the document.
        Mode::Check => Ok(()),
    }
}

/// Runs a row on both ways: its version, and what came out of each.
fn one(workspace: &Workspace, row: &Row, bin: &Path, tally: &mut Tally) -> Vec<Option<String>> {
    let source = match row.origin.find(workspace) {
        Ok(source) => source,
        Err(why) => {
            tally.fail(row.name, &why);
            return vec![None; 3];
        }
    };
    let mut results = vec![Some(row.origin.version(&source))];
    for way in [Way::Local, Way::Wire] {
        let name = format!("{} {}", row.name, name_of(way));
        let folder = workspace
            .target
            .join("clients-logs")
            .join(name.replace(' ', "-"));
        let _ = std::fs::remove_dir_all(&folder);
        let begun = Instant::now();
        let place = row.place(way);
        let stage = Stage::new(place, User::Root, bin.to_owned(), folder.clone(), LIMIT);
        let outcome = stage.and_then(|stage| {
            if row.origin.is_system() {
                stage.enter(source.clone())?;
            }
            let (stage, source) = (&stage, source.clone());
            (row.run)(&Run { stage, way, source })
        });
        results.push(Some(match outcome {
            Ok(figure) => {
                println!("   {name}: {figure}");
                tally.ok(&name, begun.elapsed());
                format!("passes, {figure}")
            }
            Err(why) => {
                tally.fail(&name, &failure(&why, &folder));
                format!("fails: {}", why.lines().next().unwrap_or_default())
            }
        }));
    }
    results
}

fn name_of(way: Way) -> &'static str {
    match way {
        Way::Local => "local",
        Way::Wire => "wire",
    }
}

/// A row's line, as long as it was not run.
fn line(row: &Row) -> Line {
    Line {
        section: row.program.to_owned(),
        key: vec![format!("`{}`", row.name), row.what.to_owned()],
        results: vec![None; 3],
    }
}

const INTRODUCTION: &str = "\
# Programs of others

What was run on Ferroce besides the programs of [programs.md](programs.md), unmodified, under `ferroce run`. `cargo xtask clients [ROW]`
runs a row, as root; `cargo xtask clients [ROW] --write-table` writes this page. A row passes if the program reports what was asked of it, and if
`FERROCE_SUMMARY=1` says that its bytes went over the devices by that way: a run over TCP fails. The summary is not looked at where there is nothing to fall back
to: `rdma-core-devinfo` and `cmtime` (in `rdma-core-cm`) move no bytes, and the programs of `rdma-core-suite` and `valkey-test` speak RDMA only.

*Local*: both ends are in one network namespace. *Wire*: they are in two, joined by a cable of MTU 1500; programs that start both ends by
themselves run with `FERROCE_PATH=wire`. Figures are of a shared virtual machine with two processors, each of one short run: they
show that a row ran, not how fast it can be ([performance.md](performance.md) does that).

Packages come from Debian and PyPI, and are installed by the command; those of Debian's unstable release in a system of their own, made by `mmdebstrap`,
in which their programs run. A row whose program has to be built wants its source, built, in
`FERROCE_CLIENTS_SRC=DIR`, and fails with the line that builds it there. The rows of UCX, Open MPI, libfabric, qperf, fio, DAPL, librpma and Gloo
are part of `cargo xtask test`, too.

Several devices: where a program is not told which to take, it should take one that its peer reaches. That is why `ferroce_lo` comes last, with the lowest rate,
no NUMA node, and an active MTU at most that of every other device: UCX 1.23 takes 127.0.0.1 of another host for an address that it reaches, and sends
its first messages by the devices with the largest MTU. Mooncake's store tries all devices of its peer all the same, and takes some 2 s for it: give it a name,
or `MC_TE_FILTERS=ferroce_eth0`.

What does not run, and why:

- fio's `verb=send` fails in two ways. It connects with `rnr_retry_count` 0 and sends before its receiver has posted a receive: *RNR retry counter exceeded* in
  1 of 7 runs, at any depth, and fio hangs then. And with `verb=recv` and a deeper queue at the receiver, as fio's source wants it (16 and 32), both ends slept in
  `ibv_get_cq_event` at the end of one of two runs of 4,096 SENDs between hosts. fio's source explains it: what `rdma_poll_wait` polls besides the completion that
  it waits for is counted in `cq_event_num`, and for each of those `fio_rdmaio_getevents` returns 0 once, so they are never handed out and are waited for at the
  end. Not proved by a mended fio.
- tgt's iSER target (Debian's 1.0.85) answers a login with *target not found* (class 2, detail 3) where `tgtadm --op bind` named an address only: its iSER
  code wants a rule for the address (ALL) and one for the initiator's name. With both it runs, as the row `tgt-iser` does.
- libfabric has no endpoints of type MSG on `ferroce_lo`: its provider `verbs` leaves out loopback interfaces. Of fabtests, `fi_rdm_rma_event` asks for
  RMA events, `fi_shared_ctx` for shared transmit contexts and `fi_dgram` for endpoints without message prefixes, and end with ENODATA: the provider
  has none of them on any adapter.
- `ucmatose -c 20` between two hosts did not end once in some 900 runs, at a load of 14 on two processors, after `return status 0` on both sides. The cause was
  not found: 300 runs more, at loads of 6 to 9, all ended.
- `nvme discover` and `srp_daemon` talk to drivers in the kernel. `ibsrpdm` refuses Ethernet.
- Completion counters (`ibv_create_comp_cntr`) are EOPNOTSUPP, as on every adapter but EFA.
";

fn document(lines: Vec<Line>) -> Document {
    let columns = ["row", "what ran", "version", "local", "wire"];
    Document {
        file: FILE,
        introduction: INTRODUCTION.to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        lines,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_each_row_and_no_other() {
        let text = std::fs::read_to_string(Path::new("..").join(FILE)).unwrap();
        let listed: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
            .map(|(name, _)| name)
            .collect();
        let names: Vec<&str> = rows().iter().map(|row| row.name).collect();
        assert_eq!(listed, names);
        for line in text.lines().filter(|line| line.starts_with("| `")) {
            assert_eq!(line.matches(" | ").count(), 4, "{line}");
        }
    }

    #[test]
    fn a_row_without_its_source_says_how_to_build_it() {
        for row in rows() {
            if let Origin::Source(source) = &row.origin {
                let why = source.find_in(None).unwrap_err();
                assert!(why.contains("FERROCE_CLIENTS_SRC") && why.contains(source.build));
                let why = source.find_in(Some("/nowhere".into())).unwrap_err();
                assert!(
                    why.contains(source.tag) && why.contains(source.build),
                    "{why}"
                );
            }
        }
    }
}
