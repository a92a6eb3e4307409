//! `cargo xtask release-check`: what `cargo xtask dist` made is installed in clean Debian systems
//! and used there by an ordinary user, without a network.

mod artefacts;
mod consumer;
mod emulated;
mod root;
mod schemas;

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
use crate::{sh, system};

/// Makes a folder a running system.
const ENTER: &str = include_str!("enter.sh");
/// What runs in it.
const PAIRS: &str = include_str!("pairs.sh");

/// What there is to check.
enum Check {
    Artefact(&'static Artefact),
    Other(fn(&Workspace, &[PathBuf]) -> Result<(), String>),
    /// What has nothing to do with the artefacts, and tells its results by itself.
    Apart(fn(&Workspace, &mut Tally) -> Result<(), String>),
}

/// All checks, by name.
fn checks() -> Vec<(&'static str, Check)> {
    let artefacts = ARTEFACTS.iter().map(|a| (a.name, Check::Artefact(a)));
    let others: [(_, Check); 6] = [
        ("lintian", Check::Other(lintian)),
        ("schemas", Check::Other(schemas::check)),
        (
            "crates",
            Check::Other(|workspace, _| consumer::check(workspace)),
        ),
        ("emulated", Check::Apart(emulated::check)),
        (
            "clients",
            Check::Apart(|workspace, tally| {
                system::clients::run(workspace, "", Mode::Check, tally)
            }),
        ),
        (
            "soak",
            Check::Apart(|workspace, tally| crate::soak(workspace, crate::SOAK, tally)),
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
    let mut made = Vec::new();
    if let Some(system) = system(wanted.iter().map(|(_, check)| check)) {
        dist::run(workspace, system)?;
        made = files(&dist::folder(workspace))?;
    }
    let mut waits = Vec::new();
    for (name, check) in wanted {
        let (name, begun) = (format!("release.{name}"), Instant::now());
        let outcome = match check {
            Check::Artefact(artefact) => install(workspace, suite, artefact, &made)
                .map(|seconds| waits.push(format!("{} {seconds}", artefact.name))),
            Check::Other(check) => check(workspace, &made),
            Check::Apart(check) => match check(workspace, tally) {
                Ok(()) => continue,
                Err(e) => Err(e),
            },
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

/// The system whose artefacts the checks need: all (an empty name) if they need those of several,
/// none if they need no artefacts.
fn system<'a>(checks: impl Iterator<Item = &'a Check>) -> Option<&'static str> {
    let needed = checks.filter_map(|check| match check {
        Check::Artefact(artefact) => Some(artefact.root.system()),
        Check::Other(_) => Some(""),
        Check::Apart(_) => None,
    });
    needed.reduce(|one, other| if one == other { one } else { "" })
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
    use super::{checks, system};

    #[test]
    fn only_what_the_checks_need_is_made() {
        let all = checks();
        let of = |filter: &str| {
            let chosen = all.iter().filter(|(name, _)| name.contains(filter));
            system(chosen.map(|(_, check)| check))
        };
        assert_eq!(of("aarch64"), Some("aarch64"));
        assert_eq!(of("recipes"), Some("x86_64-linux-gnu"));
        assert_eq!(of("tarball"), Some(""));
        assert_eq!(of("crates"), Some(""));
        assert_eq!(of("soak"), None);
    }
}
