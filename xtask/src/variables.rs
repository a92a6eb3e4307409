//! Environment variables are read in one place: `ferroce_os::environment`, which heeds none where
//! the program has more rights than its caller.

use std::fs;
use std::path::{Path, PathBuf};

use crate::workspace::Workspace;

/// The crates that are loaded into programs.
const LOADED: [&str; 7] = ["proto", "os", "nic", "abi", "dropin", "sockets", "sysfs"];
/// The place.
const PLACE: &str = "crates/os/src/environment.rs";
/// What reads one.
const READERS: [&str; 5] = ["env::var", "env::vars", "var_os(", "getenv(", "environ"];

/// An error names every other place that reads a variable.
pub(crate) fn check(workspace: &Workspace) -> Result<(), String> {
    let mut wrong = Vec::new();
    for name in LOADED {
        for file in sources(&workspace.root.join("crates").join(name).join("src")) {
            let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            let file = file.strip_prefix(&workspace.root).unwrap_or(&file);
            if file != Path::new(PLACE) {
                let found = readers(&text).map(|line| format!("{}:{line}", file.display()));
                wrong.extend(found);
            }
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!(
        "environment variables are read by {PLACE} only, not by\n{}",
        wrong.join("\n")
    ))
}

/// The lines that read a variable, counted from 1.
fn readers(text: &str) -> impl Iterator<Item = usize> {
    let reads = |line: &str| {
        let code = line.split("//").next().unwrap_or_default();
        READERS.iter().any(|reader| is_called(code, reader))
    };
    let lines = text.lines().enumerate();
    lines.filter_map(move |(at, line)| reads(line).then_some(at + 1))
}

/// Whether a word is there that is not a part of a longer one.
fn is_called(code: &str, word: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric());
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        ends(&code[at + word.len()..]) && !before.is_some_and(|c| c.is_alphanumeric())
            || word.ends_with('(')
    })
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for path in fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path())
    {
        if path.is_dir() {
            all.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            all.push(path);
        }
    }
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::readers;

    #[test]
    fn finds_what_reads_a_variable() {
        let text = "let a = std::env::var(X);\n// env::var(\nlet b = var_os(X);\nuse os::environment::variable;\nlibc::secure_getenv(p);";
        assert_eq!(readers(text).collect::<Vec<_>>(), [1, 3, 5]);
    }
}
