//! `cargo xtask release-check`: what `cargo xtask dist` made is installed in clean Debian systems
//! and used there by an ordinary user, without a network.

mod artefacts;
mod consumer;
mod root;
mod schemas;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use self::artefacts::{ARTEFACTS, Artefact};
use crate::dist::{self, write};
use crate::packages;
use crate::sh;
use crate::tally::Tally;
use crate::workspace::Workspace;

/// Makes a folder a running system.
const ENTER: &str = include_str!("enter.sh");
/// What runs in it.
const PAIRS: &str = include_str!("pairs.sh");

/// What there is to check.
enum Check {
    Artefact(&'static Artefact),
    Other(fn(&Workspace, &[PathBuf]) -> Result<(), String>),
}

/// All checks, by name.
fn checks() -> Vec<(&'static str, Check)> {
    let artefacts = ARTEFACTS.iter().map(|a| (a.name, Check::Artefact(a)));
    let others: [(_, Check); 3] = [
        ("lintian", Check::Other(lintian)),
        ("schemas", Check::Other(schemas::check)),
        (
            "crates",
            Check::Other(|workspace, _| consumer::check(workspace)),
        ),
    ];
    artefacts.chain(others).collect()
}

/// Checks the artefacts in a release of Debian, those in whose name `filter` is.
pub(crate) fn run(
    workspace: &Workspace,
    suite: &str,
    filter: &str,
    tally: &mut Tally,
) -> Result<(), String> {
    packages::require(&[packages::DIST, packages::RELEASE_CHECK])?;
    let wanted = |(name, _): &(&str, Check)| name.contains(filter);
    let wanted: Vec<_> = checks().into_iter().filter(wanted).collect();
    dist::run(workspace, "")?;
    let made = files(&dist::folder(workspace))?;
    let mut waits = Vec::new();
    for (name, check) in wanted {
        let (name, begun) = (format!("release.{name}"), Instant::now());
        let outcome = match check {
            Check::Artefact(artefact) => install(workspace, suite, artefact, &made)
                .map(|seconds| waits.push(format!("{} {seconds}", artefact.name))),
            Check::Other(check) => check(workspace, &made),
        };
        match outcome {
            Ok(()) => tally.ok(&name, begun.elapsed()),
            Err(e) => tally.fail(&name, &e),
        }
    }
    println!("# seconds from the install command to the end of a pair of rping:");
    for wait in waits {
        println!("#   {wait}");
    }
    Ok(())
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

/// Removes a folder, if it is there.
fn remove(folder: &Path) -> Result<(), String> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    Ok(())
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
