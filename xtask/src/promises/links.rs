//! docs/promises.md: the files that the tests of each promise are in.

use super::{CRATES, Known, Paths, is_module, is_place, places, row};
use crate::document::{Document, Line, Mode};
use crate::mentions::{is_file, sources};
use crate::tally::Tally;
use crate::workspace::{Workspace, read};

/// Text above the tables of docs/promises.md.
const INTRODUCTION: &str = "\
# Promises and the files of their tests

Each promise of [SPECIFICATION.md](../SPECIFICATION.md) that names tests, with the files that they
are in. A file without names is meant as a whole. `system` names rows of `cargo xtask system`
(`--list` shows them). `cargo xtask promises --write-table` writes this page.
";

/// Files of a promise, in the order in which it names them: each with the tests of it.
type Files<'t> = Vec<(String, Vec<&'t str>)>;

/// Holds docs/promises.md against SPECIFICATION.md and the sources, or writes it.
pub(crate) fn table(workspace: &Workspace, mode: Mode, tally: &mut Tally) -> Result<(), String> {
    let text = read(&workspace.root.join("SPECIFICATION.md"))?;
    let mut sources = sources(workspace)?;
    // Folders are read in no order.
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    let known = Known::of(workspace, &sources)?;
    let mut section = "";
    let mut lines = Vec::new();
    for line in text.lines() {
        section = line.strip_prefix("## ").unwrap_or(section);
        if let Some((id, _, tests)) = row(line).filter(|(_, _, tests)| !tests.starts_with("as ")) {
            lines.push(Line {
                section: section.to_owned(),
                key: vec![id.to_owned()],
                results: vec![Some(cell(tests, &known))],
            });
        }
    }
    let document = Document {
        file: "docs/promises.md",
        introduction: INTRODUCTION.to_owned(),
        columns: ["#", "tests"].map(str::to_owned).to_vec(),
        lines,
    };
    document.settle(workspace, mode, tally)
}

/// A column of tests, with links. One that names no test stays as it is.
fn cell(tests: &str, known: &Known<'_>) -> String {
    let links = links(&files(tests, known));
    if links.is_empty() {
        tests.to_owned()
    } else {
        links
    }
}

/// The files as a cell of a table in `docs`.
fn links(files: &Files<'_>) -> String {
    let link = |(file, names): &(String, Vec<&str>)| {
        let place = match file.strip_prefix('/') {
            Some(path) => {
                let short = path.strip_prefix("crates/").unwrap_or(path);
                format!("[{short}](../{path})")
            }
            None if names.is_empty() => format!("`{file}`"),
            None => file.clone(),
        };
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let between = if names.is_empty() { "" } else { ": " };
        format!("{place}{between}{}", names.join(", "))
    };
    let links: Vec<String> = files.iter().map(link).collect();
    links.join("; ")
}

/// The files of a column of tests. Names of rows stand under `system`.
fn files<'t>(tests: &'t str, known: &Known<'_>) -> Files<'t> {
    let mut files: Files<'t> = Vec::new();
    let mut add = |file: &str, name: Option<&'t str>| {
        let at = files.iter().position(|(known, _)| known == file);
        let at = at.unwrap_or_else(|| {
            files.push((file.to_owned(), Vec::new()));
            files.len() - 1
        });
        files[at].1.extend(name);
    };
    let mut folder = None;
    let mut names = places(tests, known).into_iter().peekable();
    while let Some(named) = names.next() {
        let (kind, name) = (named.kind, named.name);
        let mut places = named.places.unwrap_or_default();
        if let Some(folder) = folder.take().filter(|_| is_file(name)) {
            places = in_folder(places, folder);
        }
        let is_whole = is_place(name);
        let next = names.peek().filter(|next| next.part == named.part);
        folder = next.and_then(|_| is_module(name).then_some(name));
        // Behind a module its files may follow, and its tests behind either: these say where.
        let is_told =
            next.is_some_and(|next| !is_place(next.name) || is_module(name) && is_file(next.name));
        match places[..] {
            [] if name.starts_with("cargo ") => add(name, None),
            [] if CRATES.contains(&kind) => {}
            [] => add(kind, Some(name)),
            _ if is_whole && is_told => {}
            _ => {
                let in_it = Some(name).filter(|_| !is_whole);
                places.iter().for_each(|path| add(path, in_it));
            }
        }
    }
    files
}

/// Those of some files that are in a folder, if any are.
fn in_folder<'k>(places: Paths<'k>, folder: &str) -> Paths<'k> {
    let folder = format!("/{folder}/");
    let is_in = |path: &&str| path.contains(&folder);
    let inside: Vec<_> = places.iter().copied().filter(is_in).collect();
    if inside.is_empty() { places } else { inside }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mentions::Source;

    #[test]
    fn a_cell_links_each_file_once() {
        let source = |path: &str, text: &str| Source {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let sources = [
            source(
                "/crates/nic/tests/a.rs",
                "fn one_test_of_it() fn two_tests_of_it()",
            ),
            source("/crates/nic/tests/b.rs", ""),
        ];
        let known = Known {
            sources: &sources,
            rows: vec!["c.epoll".into()],
            cases: String::new(),
        };
        let tests = "nic `a.rs` `one_test_of_it`; `b.rs`; nic `two_tests_of_it`; system `c.e*`";
        assert_eq!(
            links(&files(tests, &known)),
            "[nic/tests/a.rs](../crates/nic/tests/a.rs): `one_test_of_it`, `two_tests_of_it`; \
             [nic/tests/b.rs](../crates/nic/tests/b.rs); system: `c.e*`"
        );
    }
}
