//! rdma-core's own test suite, which Debian's `python3-pyverbs` brings, on each kind of device,
//! address family and path.

mod exceptions;
mod report;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::stage::Launch;
use super::{Catalogue, Outcome, Place, Side, Stage, User};
use crate::document::{Document, Line};
use crate::sh;
use report::Count;

/// Where the package puts the suite.
const SUITE: &str = "/usr/share/doc/rdma-core/tests";
/// Runs it and writes down what came out.
const RUNNER: &str = include_str!("report.py");
/// Seconds for the suite: it takes one or two.
const LIMIT: u64 = 180;

/// A device, one of its addresses and a path.
#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    place: Place,
    user: User,
    device: &'static str,
    gid: &'static str,
    path: &'static str,
}

const WAYS: [Way; 7] = [
    way("ipv4.local", "0", "local", User::Ordinary),
    way("ipv4.wire", "0", "wire", User::Ordinary),
    way("ipv6.local", "1", "local", User::Ordinary),
    way("ipv6.wire", "1", "wire", User::Ordinary),
    way("ipv4.local", "0", "local", User::Root),
    on_loopback("ipv4.local", "0"),
    on_loopback("ipv6.local", "1"),
];

const fn way(name: &'static str, gid: &'static str, path: &'static str, user: User) -> Way {
    Way {
        name,
        place: Place::OneSpace,
        user,
        device: "ferroce_eth0",
        gid,
        path,
    }
}

const fn on_loopback(name: &'static str, gid: &'static str) -> Way {
    Way {
        name,
        place: Place::Loopback,
        user: User::Ordinary,
        device: "ferroce_lo",
        gid,
        path: "local",
    }
}

impl Way {
    /// Its column of the document.
    fn column(self) -> String {
        format!(
            "{}, {}, {}",
            self.device,
            self.name.replace('.', ", "),
            self.user.name()
        )
    }
}

/// Column of the kernel's driver, which the guest test runs.
const PEER: &str = "the kernel's rxe0, ipv4";
/// Last line of the table: when and with which kernel the last column was taken.
const TAKEN: &str = "kernel and date";

/// Counts by column and module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record(Arc<Mutex<BTreeMap<String, BTreeMap<String, Count>>>>);

impl Record {
    /// Keeps what the suite's runner wrote about the kernel's driver.
    pub(crate) fn keep_peer(&self, text: &str) -> Outcome {
        self.keep(PEER, report::Report::read(text)?.by_module());
        Ok(())
    }

    fn keep(&self, column: &str, counts: BTreeMap<String, Count>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.insert(column.to_owned(), counts);
    }
}

/// Adds a test for each way.
pub(super) fn add(all: &mut Catalogue) {
    for way in WAYS {
        let record = all.pyverbs.clone();
        let name = format!("pyverbs.{}", way.name);
        all.at(&name, way.place, way.user, LIMIT, move |stage| {
            let report = run(stage, way)?;
            record.keep(&way.column(), report.by_module());
            report.judge(exceptions::ALL)
        });
    }
}

/// Runs the suite, unpacked in the folder of logs.
fn run(stage: &Stage, way: Way) -> Result<report::Report, String> {
    let folder = stage.file("suite");
    unpack(Path::new("/"), &folder)?;
    let seen = folder.to_string_lossy();
    let script = format!("{seen}/report.py");
    let mut launch = stage.program(Side::A, &words(&script, way.device, way.gid));
    if way.path == "wire" {
        launch.env("FERROCE_PATH", way.path);
    }
    report(&mut launch, &folder, &seen)
}

/// The suite of another system's rdma-core on one device. `launch` makes a program of that system,
/// which sees the folder of logs as `logs`. Returns how many tests did what.
pub(crate) fn of_system<'s>(
    system: &Path,
    stage: &Stage,
    logs: &str,
    device: &str,
    launch: impl FnOnce(&[&str]) -> Launch<'s>,
) -> Result<String, String> {
    let folder = stage.file("suite");
    unpack(system, &folder)?;
    let seen = format!("{logs}/suite");
    let script = format!("{seen}/report.py");
    let mut launch = launch(&words(&script, device, "0"));
    let report = report(&mut launch, &folder, &seen)?;
    report.judge(&[exceptions::ALL, exceptions::NEWER].concat())?;
    let all: Count = report.by_module().into_values().sum();
    Ok(format!("{} tests, {} skipped", all.passed, all.skipped))
}

/// What runs the suite on a device; `script` is its runner.
fn words<'a>(script: &'a str, device: &'a str, gid: &'a str) -> [&'a str; 8] {
    [
        "/usr/bin/python3",
        script,
        "--dev",
        device,
        "--port",
        "1",
        "--gid",
        gid,
    ]
}

/// Runs the suite, unpacked in `folder`, which it sees as `seen`.
fn report(launch: &mut Launch<'_>, folder: &Path, seen: &str) -> Result<report::Report, String> {
    let lines = folder.join("report");
    launch.env("PYTHONPATH", seen);
    launch.env("PYTHONDONTWRITEBYTECODE", "1");
    launch.env("REPORT", &format!("{seen}/report"));
    launch.start()?.succeed()?;
    let text = std::fs::read_to_string(&lines).map_err(|e| format!("{}: {e}", lines.display()))?;
    report::Report::read(&text)
}

/// Puts the suite of the system below `root` where everyone may write.
pub(crate) fn unpack(root: &Path, folder: &Path) -> Outcome {
    let io = |e: std::io::Error| format!("{}: {e}", folder.display());
    std::fs::create_dir_all(folder).map_err(io)?;
    let target = folder.to_string_lossy();
    let script = "cp \"$1\"/* \"$2\"/ && gunzip -f \"$2\"/*.gz";
    let suite = format!("{}{SUITE}", root.display());
    sh::output("sh", &["-c", script, "sh", &suite, &target])?;
    std::fs::write(folder.join("report.py"), RUNNER).map_err(io)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).map_err(io)
}

const INTRODUCTION: &str = "\
# rdma-core's test suite

The Python suite of rdma-core as Debian's `python3-pyverbs` brings it, unmodified, under `ferroce run`: passed/failed/skipped
tests by module, for each device, address, path and user; beside them what the same suite gives on the kernel's soft-RoCE driver.
`cargo xtask system pyverbs` runs it and fails at a test that fails, at one that is skipped without being in the list of exceptions, and
at an exception that no test needs any more; `cargo xtask system pyverbs --write-table` writes this page.

The last column takes a minute and says nothing about Ferroce, so only `cargo xtask guest pyverbs --write-table` runs it, in the virtual
machine of the guest tests; its last line tells when that was. The driver has no extended completion queues, no on-demand paging, no
XRC, no device memory and no parent domains, which the suite skips. Its failure is the atomic write, which this kernel does not have and
the suite does not ask for.

The exceptions stand in `xtask/src/system/pyverbs/exceptions.rs`, each with its reason; here they are:

";

const INTRODUCTION_OF_NEWER: &str = "
The suite of the newest release, which `cargo xtask clients rdma-core-suite` runs, may skip these, too:

";

/// An exception's line in the document.
fn item(exception: &exceptions::Exception) -> String {
    format!("- {}: {}\n", exception.what, exception.reason)
}

/// The document of what was recorded. `taken` is for the last column, if that is to be written.
pub(crate) fn document(record: &Record, taken: Option<String>) -> Result<Document, String> {
    let kept = record.0.lock().unwrap_or_else(PoisonError::into_inner);
    let mut introduction = INTRODUCTION.to_owned();
    for exception in exceptions::ALL {
        introduction += &item(exception);
    }
    introduction += INTRODUCTION_OF_NEWER;
    for exception in exceptions::NEWER {
        introduction += &item(exception);
    }
    let mut columns: Vec<String> = WAYS.iter().map(|way| way.column()).collect();
    columns.push(PEER.to_owned());
    let line = |name: &str, cell: &dyn Fn(&BTreeMap<String, Count>) -> Count| Line {
        section: "Passed/failed/skipped".into(),
        key: vec![name.to_owned()],
        results: columns
            .iter()
            .map(|column| kept.get(column).map(|counts| cell(counts).to_string()))
            .collect(),
    };
    let mut lines: Vec<Line> = modules()?
        .iter()
        .map(|module| {
            line(module, &|counts| {
                counts.get(module).copied().unwrap_or_default()
            })
        })
        .collect();
    lines.push(line("all", &|counts| counts.values().copied().sum()));
    let mut last = line(TAKEN, &|_| Count::default());
    last.results = vec![Some("–".into()); WAYS.len()];
    last.results.push(taken);
    lines.push(last);
    columns.insert(0, "module".into());
    Ok(Document {
        file: "docs/pyverbs.md",
        introduction,
        columns,
        lines,
    })
}

/// Names of the suite's modules.
fn modules() -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(SUITE).map_err(|e| format!("{SUITE}: {e}"))?;
    let mut names: Vec<String> = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter_map(|name| Some(name.split_once(".py")?.0.to_owned()))
        .filter(|name| name.starts_with("test_"))
        .collect();
    names.sort();
    Ok(names)
}
