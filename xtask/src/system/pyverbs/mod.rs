//! rdma-core's own test suite, which Debian's `python3-pyverbs` brings, on each kind of device, address family and path.

mod exceptions;
mod report;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

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
    /// Its column's part of the document.
    fn section(self) -> String {
        format!(
            "{}, {}, {}",
            self.device,
            self.name.replace('.', ", "),
            self.user.name()
        )
    }
}

/// Counts by way and module.
#[derive(Clone, Debug, Default)]
pub(super) struct Record(Arc<Mutex<BTreeMap<String, BTreeMap<String, Count>>>>);

/// Adds a test for each way.
pub(super) fn add(all: &mut Catalogue) {
    for way in WAYS {
        let record = all.pyverbs.clone();
        let name = format!("pyverbs.{}", way.name);
        all.at(&name, way.place, way.user, LIMIT, move |stage| {
            let report = run(stage, way)?;
            let mut kept = record.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.insert(way.section(), report.by_module());
            drop(kept);
            report.judge(exceptions::ALL)
        });
    }
}

/// Runs the suite, unpacked in the folder of logs.
fn run(stage: &Stage, way: Way) -> Result<report::Report, String> {
    let folder = stage.file("suite");
    unpack(&folder)?;
    let lines = folder.join("report");
    let script = folder.join("report.py").to_string_lossy().into_owned();
    let words = [
        "/usr/bin/python3",
        &script,
        "--dev",
        way.device,
        "--port",
        "1",
        "--gid",
        way.gid,
    ];
    let mut launch = stage.with_sysfs(Side::A, &words);
    launch.env("PYTHONPATH", &folder.to_string_lossy());
    launch.env("PYTHONDONTWRITEBYTECODE", "1");
    launch.env("REPORT", &lines.to_string_lossy());
    if way.path == "wire" {
        launch.env("FERROCE_PATH", way.path);
    }
    launch.start()?.succeed()?;
    let text = std::fs::read_to_string(&lines).map_err(|e| format!("{}: {e}", lines.display()))?;
    report::Report::read(&text)
}

/// Puts the suite where everyone may write.
fn unpack(folder: &Path) -> Outcome {
    let io = |e: std::io::Error| format!("{}: {e}", folder.display());
    std::fs::create_dir_all(folder).map_err(io)?;
    let target = folder.to_string_lossy();
    let script = "cp \"$1\"/* \"$2\"/ && gunzip -f \"$2\"/*.gz";
    sh::output("sh", &["-c", script, "sh", SUITE, &target])?;
    std::fs::write(folder.join("report.py"), RUNNER).map_err(io)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).map_err(io)
}

const INTRODUCTION: &str = "\
# rdma-core's test suite

The Python suite of rdma-core as Debian's `python3-pyverbs` brings it, unmodified, under `ferroce run --sysfs`: passed, failed and
skipped tests by module, for each device, address and path. `cargo xtask system pyverbs` runs it and fails at a test that fails, at one
that is skipped without being in the list of exceptions, and at an exception that no test needs any more;
`cargo xtask system pyverbs --write-table` writes this page. The exceptions stand in `xtask/src/system/pyverbs/exceptions.rs`, each
with its reason; here they are:

";

/// The document of what was recorded.
pub(super) fn document(record: &Record) -> Document {
    let kept = record.0.lock().unwrap_or_else(PoisonError::into_inner);
    let mut introduction = INTRODUCTION.to_owned();
    for exception in exceptions::ALL {
        introduction += &format!("- {}: {}\n", exception.what, exception.reason);
    }
    let mut modules: Vec<&String> = kept.values().flat_map(BTreeMap::keys).collect();
    modules.sort();
    modules.dedup();
    let mut lines = Vec::new();
    for way in WAYS {
        for module in &modules {
            let count = kept.get(&way.section()).and_then(|w| w.get(*module));
            let cell = |number: fn(&Count) -> usize| count.map(|c| number(c).to_string());
            lines.push(Line {
                section: way.section(),
                key: vec![(*module).clone()],
                results: vec![cell(|c| c.passed), cell(|c| c.failed), cell(|c| c.skipped)],
            });
        }
    }
    Document {
        file: "docs/pyverbs.md",
        introduction,
        columns: &["module", "passed", "failed", "skipped"],
        lines,
    }
}
