//! `cargo xtask walks`: the walks of ARCHITECTURE.md, held against what runs.
//!
//! `tests/c/walks/walks.c` makes each walk in two processes, on the drop-in library of the dev
//! profile, where functions are not inlined. callgrind writes which functions ran. Each function
//! and file that a numbered step names must be among them.

mod document;
mod trace;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use self::trace::Trace;
use crate::tally::Tally;
use crate::workspace::{Workspace, read};
use crate::{packages, sh};

/// Headings, by their beginning, and what the program is told.
const WALKS: [(&str, &str); 4] = [
    ("One SEND", "send"),
    ("One READ", "read"),
    ("One connection", "connect"),
    ("One deregistration", "deregister"),
];

/// Each walk counts as one result.
pub(crate) fn run(workspace: &Workspace, tally: &mut Tally) -> Result<(), String> {
    packages::require(&[packages::SYSTEM])?;
    let document = read(&workspace.root.join("ARCHITECTURE.md"))?;
    let program = Program::build(workspace)?;
    for (heading, walk) in WALKS {
        let begun = Instant::now();
        let outcome = document::steps(&document, heading)
            .and_then(|steps| compare(&steps, &program.trace(walk)?));
        match outcome {
            Ok(()) => tally.ok(&format!("walks.{walk}"), begun.elapsed()),
            Err(e) => tally.fail(&format!("walks.{walk}"), &e),
        }
    }
    Ok(())
}

/// An error names each word of a step that did not run.
fn compare(steps: &[document::Step], trace: &Trace) -> Result<(), String> {
    let wrong: Vec<String> = steps
        .iter()
        .flat_map(|step| step.names.iter().map(move |name| (step.number, name)))
        .filter(|(_, name)| !trace.has(name))
        .map(|(number, name)| format!("step {number} names {name}, which did not run"))
        .collect();
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n"))
    }
}

/// The program that makes the walks, and its libraries.
struct Program {
    /// Holds all that is made here.
    folder: PathBuf,
}

impl Program {
    fn build(workspace: &Workspace) -> Result<Self, String> {
        sh::step(workspace.cargo(&["build", "--quiet", "--package", "ferroce-dropin"]))?;
        let folder = workspace.target.join("walks");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let library = workspace.target.join("debug/libferroce_dropin.so");
        for name in ["libibverbs.so.1", "librdmacm.so.1"] {
            symlink(&library, folder.join(name)).map_err(|e| format!("{name}: {e}"))?;
        }
        let source = workspace.root.join("tests/c/walks/walks.c");
        let mut gcc = Command::new("gcc");
        gcc.args(["-std=gnu11", "-O0", "-g", "-Wall", "-Wextra"])
            .arg(source)
            .arg("-o")
            .arg(folder.join("walks"))
            .args(["-lrdmacm", "-libverbs", "-lpthread"]);
        sh::output_of(&mut gcc)?;
        Ok(Self { folder })
    }

    /// Makes a walk. Both processes write what ran in a file of their own.
    fn trace(&self, walk: &str) -> Result<Trace, String> {
        let out = format!("{walk}.out");
        let mut valgrind = Command::new("valgrind");
        valgrind
            .args([
                "--quiet",
                "--tool=callgrind",
                "--compress-strings=no",
                "--compress-pos=no",
            ])
            .arg(format!(
                "--callgrind-out-file={}.%p",
                self.folder.join(&out).display()
            ))
            .arg(self.folder.join("walks"))
            .arg(walk)
            .env("LD_LIBRARY_PATH", &self.folder);
        sh::output_of(&mut valgrind)?;
        let mut trace = Trace::default();
        let mut processes = 0;
        for path in files(&self.folder, &out)? {
            trace.add(&read(&path)?);
            processes += 1;
        }
        if processes == 2 {
            Ok(trace)
        } else {
            Err(format!("{processes} processes were counted, not 2"))
        }
    }
}

/// The first dump of each process: what ran in the walk. The rest of the program is in others.
fn files(folder: &Path, out: &str) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let is_dump = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(out) && name.ends_with(".1")
    };
    Ok(entries
        .flatten()
        .map(|entry| entry.path())
        .filter(is_dump)
        .collect())
}
