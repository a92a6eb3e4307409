//! `cargo xtask release-check`: what `cargo xtask dist` made is installed in clean Debian systems
//! and used there by an ordinary user, without a network.

mod artefacts;
mod consumer;
mod emulated;
mod root;
mod schemas;
mod table;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use self::artefacts::{ARTEFACTS, Artefact};
use crate::debian::remove;
use crate::dist::{self, write};
use crate::document::Mode;
use crate::packages;
use crate::tally::Tally;
use crate::workspace::Workspace;
use crate::{sh, system, unit};

/// Makes a folder a running system.
const ENTER: &str = include_str!("enter.sh");
/// What runs in it.
const PAIRS: &str = include_str!("pairs.sh");

/// A check.
struct Check {
    name: &'static str,
    /// What it shows, for a reader.
    what: &'static str,
    kind: Kind,
}

/// How it is done.
enum Kind {
    Artefact(&'static Artefact),
    /// With the artefacts of the systems in whose names this is.
    Of(
        &'static str,
        fn(&Workspace, &[PathBuf]) -> Result<(), String>,
    ),
    /// Without any.
    Alone(fn(&Workspace) -> Result<(), String>),
    /// What tells its results by itself; with the artefacts of that system, if it needs any.
    Counted(
        Option<&'static str>,
        fn(&Bench<'_>, &mut Tally) -> Result<(), String>,
    ),
}

/// All checks.
fn checks() -> Vec<Check> {
    let artefacts = ARTEFACTS.iter().map(|artefact| Check {
        name: artefact.name,
        what: artefact.what,
        kind: Kind::Artefact(artefact),
    });
    let other = |name, what, kind| Check { name, what, kind };
    let lint = "no error in the packages of Debian";
    let schemas = "YAML files and bill of materials, by the schemas of their readers";
    let crates = "a program on the crates as they are packed";
    let of = |name, what, systems, check| other(name, what, Kind::Of(systems, check));
    let others = [
        of("lintian", lint, "linux-gnu", lintian),
        of("schemas", schemas, "x86_64-linux-gnu", schemas::check),
        other("crates", crates, Kind::Alone(consumer::check)),
    ];
    artefacts.chain(others).chain(counted_checks()).collect()
}

/// Those that tell their results by themselves.
fn counted_checks() -> [Check; 7] {
    let of = |name, what, kind| Check { name, what, kind };
    let emulated =
        "unit tests of four crates, and conformance within a host, for aarch64, emulated";
    let runs = "the transport's tests of random runs for aarch64, emulated: an hour";
    let programs = "the table of programs within a host for aarch64, emulated";
    let clients = "all rows of [clients.md](clients.md)";
    let soak = "attacks at full rate beside a verified transfer, for ten minutes";
    let storm = "threads that post, drop and reset at random, with address sanitizer: ten minutes";
    let sleepers = "threads that sleep for events in every way, on three paths: half an hour";
    let counted = |name, what, check| of(name, what, Kind::Counted(None, check));
    [
        counted("emulated", emulated, |bench, tally| {
            emulated::check(bench.workspace, tally)
        }),
        counted("emulated-runs", runs, |bench, tally| {
            emulated::check_random_runs(bench.workspace, tally)
        }),
        of(
            "emulated-programs",
            programs,
            Kind::Counted(Some("aarch64"), emulated::check_programs),
        ),
        counted("clients", clients, |bench, tally| {
            system::clients::run(bench.workspace, "", Mode::Check, tally)
        }),
        counted("soak", soak, |bench, tally| {
            crate::soak(bench.workspace, crate::SOAK, tally)
        }),
        counted("storm", storm, |bench, tally| {
            unit::run_long_storm(bench.workspace, tally)
        }),
        counted("sleepers", sleepers, |bench, tally| {
            crate::sleepers(bench.workspace, crate::SLEEPERS, None, tally)
        }),
    ]
}

/// Whether a check is meant by a filter: names or parts of names, with commas. Where a check has
/// the very name, no others are meant.
fn is_wanted(check: &Check, all: &[Check], filter: &str) -> bool {
    filter.split(',').any(|part| {
        let is_name = all.iter().any(|other| other.name == part);
        check.name == part || !is_name && check.name.contains(part)
    })
}

/// Makes the artefacts and does those checks in a release of Debian that `filter` means. Prints a
/// table of all that ran; with [`Mode::Write`] writes it.
pub(crate) fn run(
    workspace: &Workspace,
    suite: &str,
    filter: &str,
    mode: Mode,
    tally: &mut Tally,
) -> Result<(), String> {
    packages::require(&[packages::DIST, packages::RELEASE_CHECK])?;
    let all = checks();
    if let Some(part) = filter
        .split(',')
        .find(|part| !all.iter().any(|c| c.name.contains(part)))
    {
        return Err(format!("no check has '{part}' in its name"));
    }
    let wanted = |check: &&Check| is_wanted(check, &all, filter);
    let made = match system(all.iter().filter(wanted)) {
        Some(system) => dist::run(workspace, system).and_then(|()| files(&dist::folder(workspace))),
        None => Ok(Vec::new()),
    };
    let bench = Bench {
        workspace,
        suite,
        made,
    };
    let done = |check: &Check| wanted(&check).then(|| bench.check(check, tally));
    let outcomes: Vec<Option<String>> = all.iter().map(done).collect();
    table::settle(workspace, &all, outcomes, mode, tally)
}

/// The system whose artefacts the checks need: all (an empty name) if they need those of several,
/// none if they need no artefacts.
fn system<'a>(checks: impl Iterator<Item = &'a Check>) -> Option<&'static str> {
    let needed = checks.filter_map(|check| match check.kind {
        Kind::Artefact(artefact) => Some(artefact.root.system()),
        Kind::Of(systems, _) => Some(systems),
        Kind::Counted(system, _) => system,
        Kind::Alone(_) => None,
    });
    needed.reduce(|one, other| if one == other { one } else { "" })
}

/// What checks work on.
struct Bench<'a> {
    workspace: &'a Workspace,
    /// Release of Debian.
    suite: &'a str,
    /// The artefacts, or why there are none.
    made: Result<Vec<PathBuf>, String>,
}

impl Bench<'_> {
    fn made(&self) -> Result<&[PathBuf], String> {
        self.made.as_ref().map(Vec::as_slice).map_err(Clone::clone)
    }

    /// Does one check. Returns what came out, for the table.
    fn check(&self, check: &Check, tally: &mut Tally) -> String {
        let (name, begun) = (format!("release.{}", check.name), Instant::now());
        let outcome = match check.kind {
            Kind::Artefact(artefact) => self
                .made()
                .and_then(|made| install(self.workspace, self.suite, artefact, made))
                .map(|seconds| format!(", pair of `rping` {seconds} s after the install command")),
            Kind::Of(_, check) => self
                .made()
                .and_then(|made| check(self.workspace, made))
                .map(|()| String::new()),
            Kind::Alone(check) => check(self.workspace).map(|()| String::new()),
            Kind::Counted(_, check) => {
                let before = tally.counts();
                let done = check(self, tally);
                let after = tally.counts();
                let counted = [after[0] - before[0], after[1] - before[1]];
                match (done, counted) {
                    (Ok(()), [0, 0]) => Err("nothing ran".to_owned()),
                    (Ok(()), [passed, 0]) => return format!("passes: {passed} passed"),
                    (Ok(()), [passed, failed]) => {
                        return format!("fails: {passed} passed, {failed} failed");
                    }
                    (Err(e), _) => Err(e),
                }
            }
        };
        match outcome {
            Ok(figure) => {
                tally.ok(&name, begun.elapsed());
                format!("passes{figure}")
            }
            Err(e) => {
                tally.fail(&name, &e);
                format!("fails: {}", e.lines().next().unwrap_or_default())
            }
        }
    }
}

/// Installs and uses one artefact in a copy of a clean system. Returns the seconds from the install
/// command to the end of the first pair of programs.
fn install(
    workspace: &Workspace,
    suite: &str,
    artefact: &Artefact,
    made: &[PathBuf],
) -> Result<String, String> {
    let file = find(made, artefact.ending)?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let clean = artefact.root.make(workspace, suite)?;
    let root = clean.with_file_name(artefact.name);
    remove(&root)?;
    let mut copy = Command::new("cp");
    copy.args(["-a", "--reflink=auto"]).arg(clean).arg(&root);
    sh::step(copy)?;
    let srv = root.join("srv");
    for file in made {
        let name = file.file_name().unwrap_or_default();
        std::fs::copy(file, srv.join(name)).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    let [before, after] = artefact.around;
    let use_it = format!("{before}\nferroce --version\n{PAIRS}\n{after}\n");
    write(&srv.join("before"), artefact.root.before())?;
    write(&srv.join("installer"), artefact.installer)?;
    let code = artefact.install.replace("ARTEFACT", &name);
    write(&srv.join("install"), code)?;
    write(&srv.join("use"), use_it)?;
    write(&root.with_extension("enter"), ENTER)?;
    let mut enter = Command::new("unshare");
    enter.args(["--mount", "--net", "--ipc", "--uts", "--pid"]);
    enter.args(["--fork", "--kill-child", "sh"]);
    enter.arg(root.with_extension("enter")).arg(&root);
    sh::step(enter)?;
    let seconds = std::fs::read_to_string(root.join("home/stranger/seconds"));
    let seconds = seconds.map_err(|e| format!("seconds: {e}"))?;
    remove(&root)?;
    Ok(seconds.trim().into())
}

fn lintian(_: &Workspace, made: &[PathBuf]) -> Result<(), String> {
    let mut command = Command::new("lintian");
    command.args(["--fail-on", "error", "--allow-root"]);
    command.args(
        made.iter()
            .filter(|file| file.extension() == Some("deb".as_ref())),
    );
    sh::step(command)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

fn find<'a>(files: &'a [PathBuf], ending: &str) -> Result<&'a PathBuf, String> {
    let fits = |file: &&PathBuf| file.to_string_lossy().ends_with(ending);
    let missing = || format!("there is no {ending}");
    files.iter().find(fits).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::{checks, is_wanted, system};

    #[test]
    fn only_what_the_checks_need_is_made() {
        let all = checks();
        let of = |filter: &str| system(all.iter().filter(|check| is_wanted(check, &all, filter)));
        assert_eq!(of("aarch64"), Some("aarch64"));
        assert_eq!(of("recipes"), Some("x86_64-linux-gnu"));
        assert_eq!(of("tarball"), Some("x86_64-linux-gnu"));
        assert_eq!(of("tarball,aarch64.deb"), Some(""));
        assert_eq!(of(""), Some(""));
        assert_eq!(of("lintian"), Some("linux-gnu"));
        assert_eq!(of("tarball,schemas"), Some("x86_64-linux-gnu"));
        assert_eq!(of("emulated-programs"), Some("aarch64"));
        assert_eq!(of("crates"), None);
        assert_eq!(of("soak"), None);
        assert_eq!(of("storm"), None);
        assert_eq!(of("sleepers"), None);
    }
}
