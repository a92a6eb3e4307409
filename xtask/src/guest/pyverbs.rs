//! rdma-core's own test suite on the kernel's driver, in the guest.
//!
//! The guest's file system has no Python. What this machine has of it goes there as an archive: the
//! interpreter, its library, `pyverbs`, and the shared libraries that these need. Both run the same
//! distribution.

use std::path::Path;
use std::time::Duration;

use super::harness::{Guest, Run};
use super::pair::{Family, Outcome};
use super::parallel::{Job, Turn};
use crate::sh;
use crate::system::pyverbs::{Record, unpack};

/// Part of the test's name.
pub(super) const NAME: &str = "pyverbs";
/// The suite takes half a minute there, and its archive a quarter.
const LIMIT: Duration = Duration::from_secs(300);
/// Packages whose files go there.
const PACKAGES: [&str; 4] = [
    "python3-pyverbs",
    "python3.11-minimal",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
];
/// Makes the archive of the packages named, with the libraries that the loader finds for their
/// files, below the names that the guest has. `__pycache__` saves the guest from compiling.
const PACK: &str = r#"
target=$1; shift
files=$(dpkg -L "$@" | grep -E '^/usr/(bin|lib)/' | while read -r f; do [ -d "$f" ] || echo "$f"; done)
caches=$(for f in $files; do case $f in *.py) d=${f%/*}/__pycache__; b=${f##*/}; ls "$d/${b%.py}."*.pyc 2>/dev/null;; esac; done)
libraries=$(for f in $files; do case $f in *.so|/usr/bin/*) ldd "$f" 2>/dev/null; esac; done |
    sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sed 's,^/lib/,/usr/lib/,' | sort -u)
printf '%s\n' $files $caches $libraries | sort -u | tar -chf "$target" -C / -P --transform 's,^/,,' -T -
"#;

/// The test, which keeps its result.
pub(super) fn job(record: &Record) -> Job<'_> {
    Job {
        name: format!("guest.mtu1500.{NAME}"),
        turn: Turn::Polls,
        limit: LIMIT,
        body: Box::new(|run| suite(run, record)),
    }
}

fn suite(run: &Run, record: &Record) -> Outcome {
    let share = run.guest.share();
    let archive = share.join("python.tar");
    let archive = archive.to_string_lossy();
    let words = [&["-c", PACK, "sh", &archive][..], &PACKAGES].concat();
    sh::output("sh", &words)?;
    unpack(Path::new("/"), &share.join("suite"))?;
    run.there(&["tar", "xf", "/share/python.tar", "-C", "/"])?
        .succeed()?;
    let report = "REPORT=/share/report PYTHONPATH=/share/suite PYTHONDONTWRITEBYTECODE=1";
    let line = format!(
        "env {report} python3.11 /share/suite/report.py --dev rxe0 --port 1 --gid {}",
        Family::V4.their_gid()
    );
    run.there(&line.split(' ').collect::<Vec<_>>())?.succeed()?;
    let report = share.join("report");
    let text =
        std::fs::read_to_string(&report).map_err(|e| format!("{}: {e}", report.display()))?;
    // Why something failed or was skipped stays among the logs.
    let _ = std::fs::write(run.file("report"), &text);
    record.keep_peer(&text)
}

/// With which kernel, and when: for the document.
pub(super) fn taken(guest: &Guest, logs: &Path) -> Result<String, String> {
    let run = Run::new(guest, logs.join(NAME), LIMIT)?;
    let mut asked = run.there(&["uname", "-r"])?;
    asked.succeed()?;
    let date = sh::output("date", &["+%F"])?;
    Ok(format!("{}, {}", asked.output().trim(), date.trim()))
}
