//! Runs tests, two at a time beside two of those that mostly wait, and prints their lines. Each
//! test runs once: a test that fails beside another one has failed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use super::{Case, Outcome, Stage};
use crate::tally::Tally;
use crate::workspace::Workspace;
use crate::{cleanup, sh};

/// Tests that run at the same time; the usual machine has two cores. As many run beside them of
/// those that leave the processors alone.
const WORKERS: usize = 2;
/// Lines of each log that a failure shows.
const TAIL: usize = 40;

/// Runs them all, the lines in the order in which they end.
pub(super) fn run(workspace: &Workspace, cases: &[Case], tally: &mut Tally) -> Result<(), String> {
    cleanup::left_over();
    run_on(workspace, &artefacts(workspace)?, cases, tally)
}

/// The same on a build in `bin`.
pub(super) fn run_on(
    workspace: &Workspace,
    bin: &Path,
    cases: &[Case],
    tally: &mut Tally,
) -> Result<(), String> {
    if !nix::unistd::geteuid().is_root() {
        return Err("the system tests make network namespaces and need root".into());
    }
    // Tests of one name would share a folder of logs, and read each other's.
    let names: BTreeSet<&str> = cases.iter().map(|case| &*case.name).collect();
    if names.len() < cases.len() {
        return Err("two tests have the same name".into());
    }
    let logs = workspace.target.join("system-logs");
    let (waiting, working): (Vec<_>, Vec<_>) = cases.iter().partition(|case| case.waits());
    let (waiting, working) = (queue(waiting), queue(working));
    let (report, reports) = mpsc::channel();
    let mut times: BTreeMap<&str, (u32, Duration)> = BTreeMap::new();
    std::thread::scope(|scope| {
        for queue in [[&waiting; WORKERS], [&working; WORKERS]].concat() {
            let (report, logs) = (report.clone(), &logs);
            scope.spawn(move || {
                while let Some(case) = next(queue) {
                    let begun = Instant::now();
                    let folder = logs.join(&case.name);
                    let outcome = one(case, bin, &folder);
                    if report
                        .send((case, folder, outcome, begun.elapsed()))
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
        drop(report);
        for (case, folder, outcome, took) in reports {
            let (count, time) = times.entry(case.family).or_default();
            *count += 1;
            *time += took;
            show(&case.name, &folder, outcome, took, tally);
        }
    });
    for (family, (count, time)) in times {
        println!("# {family}: {count} tests, {:.0}s", time.as_secs_f64());
    }
    Ok(())
}

/// Tests that are not taken yet.
type Queue<'a> = Mutex<std::vec::IntoIter<&'a Case>>;

fn queue(cases: Vec<&Case>) -> Queue<'_> {
    Mutex::new(cases.into_iter())
}

fn next<'a>(queue: &Queue<'a>) -> Option<&'a Case> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).next()
}

fn one(case: &Case, bin: &Path, folder: &Path) -> Outcome {
    let _ = std::fs::remove_dir_all(folder);
    let stage = Stage::new(
        case.place,
        case.user,
        bin.to_owned(),
        folder.to_owned(),
        case.limit,
    )?;
    (case.body)(&stage)?;
    stage.check_empty()
}

/// Prints a test's line, and for a failure why, with the ends of its log files.
pub(crate) fn show(name: &str, folder: &Path, outcome: Outcome, took: Duration, tally: &mut Tally) {
    match outcome {
        Ok(()) => tally.ok(name, took),
        Err(reason) => tally.fail(name, &failure(&reason, folder)),
    }
}

/// Why a test failed, with the ends of its log files.
pub(crate) fn failure(reason: &str, folder: &Path) -> String {
    let mut said = vec![reason.to_owned()];
    let mut logs: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    logs.retain(|path| path.extension().is_some_and(|e| e == "log"));
    logs.sort();
    for log in logs {
        said.push(format!("--- {}", log.display()));
        let bytes = std::fs::read(&log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        let end = &lines[lines.len().saturating_sub(TAIL)..];
        said.extend(end.iter().map(|line| line.chars().take(200).collect()));
    }
    said.join("\n")
}

/// Copies what the tests run to a folder that every user can read, and builds the C programs there.
pub(crate) fn artefacts(workspace: &Workspace) -> Result<PathBuf, String> {
    let bin =
        std::env::temp_dir().join(format!("{}{}", cleanup::FOLDER_PREFIX, std::process::id()));
    if bin.exists() {
        return Ok(bin); // the other kind of tests made it
    }
    cleanup::add_folder(&bin);
    let release = workspace.release();
    let folder = bin.to_string_lossy().into_owned();
    sh::output("mkdir", &["--mode=755", &folder])?;
    let copied = [
        "ferroce",
        "ferroce-lib",
        "libferroce_dropin.so",
        "libferroce_sockets.so",
        "libferroce_sysfs.so",
    ]
    .map(|name| release.join(name));
    let mut words = vec!["--recursive", "--no-dereference", "--preserve=mode,links"];
    let copied: Vec<String> = copied
        .iter()
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    words.extend(copied.iter().map(String::as_str));
    words.push(&folder);
    sh::output("cp", &words)?;
    for folder in ["tests/c", "tests/c/attacks"] {
        for source in c_programs(&workspace.root.join(folder))? {
            compile(&source, &bin)?;
        }
    }
    sh::output("chmod", &["-R", "a+rX", &folder])?;
    Ok(bin)
}

fn c_programs(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut sources: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    sources.retain(|path| path.extension().is_some_and(|e| e == "c"));
    sources.sort();
    Ok(sources)
}

fn compile(source: &Path, bin: &Path) -> Result<(), String> {
    let program = bin.join(source.file_stem().unwrap_or_default());
    let (source, program) = (source.to_string_lossy(), program.to_string_lossy());
    let warnings = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra"];
    let mut words = warnings.to_vec();
    // A program with more rights than its caller is not told of libraries by variables.
    let run_path = format!("-Wl,-rpath,{}", bin.join("ferroce-lib").display());
    if source.ends_with("/rights.c") {
        words.push(&run_path);
    }
    words.extend([
        &*source,
        "-o",
        &*program,
        "-libverbs",
        "-lrdmacm",
        "-lpthread",
        "-ldl",
    ]);
    sh::output("gcc", &words).map(drop)
}
