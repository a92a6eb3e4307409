//! `docs/design/memory-order.md` has a reason for every file that accesses an atomic without order.

use std::fs;
use std::path::{Path, PathBuf};

use crate::workspace::{Workspace, read};

/// The page.
const PAGE: &str = "docs/design/memory-order.md";
/// What needs a reason.
const WITHOUT_ORDER: &str = "Ordering::Relaxed";
/// Where the tests of a file begin.
const TESTS: &str = "#[cfg(test)]\nmod tests {";
/// Files that are tests as a whole.
const TEST_FILES: [&str; 4] = ["tests.rs", "model.rs", "hostile.rs", "fuzz.rs"];
/// Cases for the device: they ship nowhere.
const CASES: &str = "conformance";

/// An error names each file that lacks a row, and each row without such a file.
pub(crate) fn check(workspace: &Workspace) -> Result<(), String> {
    let crates = workspace.root.join("crates");
    let page = read(&workspace.root.join(PAGE))?;
    let rows = rows(&page);
    let mut relaxed = Vec::new();
    for file in sources(&crates) {
        if has_relaxed(&read(&file)?) {
            let name = file.strip_prefix(&crates).unwrap_or(&file);
            relaxed.push(name.to_string_lossy().into_owned());
        }
    }
    let lacks = relaxed.iter().filter(|name| !rows.contains(&name.as_str()));
    let lacks = lacks.map(|name| format!("{PAGE} has no reason for {name}"));
    let idle = rows
        .iter()
        .filter(|row| !relaxed.iter().any(|name| name == *row));
    let idle = idle.map(|row| format!("{PAGE}: {row} has no {WITHOUT_ORDER}"));
    let wrong: Vec<_> = lacks.chain(idle).collect();
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n"))
    }
}

/// The files in the first column of the page's tables.
fn rows(page: &str) -> Vec<&str> {
    let cells = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let names = cells.flat_map(|cell| cell.split(['`', ',', ' ']));
    names.filter(|name| name.ends_with(".rs")).collect()
}

/// Whether a file accesses an atomic without order outside of comments and of its tests.
fn has_relaxed(text: &str) -> bool {
    let code = text.split(TESTS).next().unwrap_or_default();
    let mut lines = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.any(|line| line.contains(WITHOUT_ORDER))
}

/// The source files of crates, but for tests.
fn sources(crates: &Path) -> Vec<PathBuf> {
    let folders = entries(crates).into_iter();
    let folders = folders.filter(|folder| !folder.ends_with(CASES));
    folders
        .flat_map(|folder| below(&folder.join("src")))
        .collect()
}

fn below(folder: &Path) -> Vec<PathBuf> {
    let each = |path: PathBuf| {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            if name == "tests" {
                Vec::new()
            } else {
                below(&path)
            }
        } else if name.ends_with(".rs") && !TEST_FILES.iter().any(|test| name.ends_with(test)) {
            vec![path]
        } else {
            Vec::new()
        }
    };
    entries(folder).into_iter().flat_map(each).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::{has_relaxed, rows};

    #[test]
    fn rows_are_those_of_files() {
        let page = "| count | x |\n| `a/b.rs`, `c.rs` | lock | in `d.rs` |\n`e.rs`";
        assert_eq!(rows(page), ["a/b.rs", "c.rs"]);
    }

    #[test]
    fn comments_and_tests_need_no_reason() {
        assert!(has_relaxed("x.load(Ordering::Relaxed)"));
        assert!(!has_relaxed("// Ordering::Relaxed"));
        assert!(!has_relaxed(
            "#[cfg(test)]\nmod tests {\n x(Ordering::Relaxed)"
        ));
    }
}
