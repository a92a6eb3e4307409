//! The list of statements with the cases that show them.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;

use crate::case::{Case, On};
use crate::cases;
use crate::differences::{DIFFERENCES, excludes};
use crate::statements::AREAS;

/// Set to anything, the test of the list writes it anew instead of comparing.
pub const UPDATE: &str = "FERROCE_UPDATE_LISTS";

/// Statements that need more than one device on a network that stays as it is, or a process that
/// goes, with the tests that show them.
const ELSEWHERE: &[(&str, &[&str])] = &[
    (
        "event.port",
        &[
            "`cargo xtask system network`",
            "`cargo xtask system ibv_asyncwatch`",
        ],
    ),
    (
        "event.path-mig-err",
        &["proto `rc_migration.rs` `nothing_is_migrated_to_a_process_that_is_gone`"],
    ),
];

const INTRODUCTION: &str = "\
# Conformance

Which case shows which statement of the specifications. Cases are in `crates/conformance/src/cases`; each is played through the Rust
objects and through the C functions, on the local path and over the wire (IPv4 and IPv6), with both ends of a connection in one process and with
each in its own, except those marked \u{2020}, whose peer is
played by hand over IPv4, and those marked \u{2021}, which move very much and are played on one path, and those marked \u{a7}, whose multicast groups
the kernel has on loopback over IPv4 only. Over iWARP (by TCP and within the host, with both ends in one process and with each in its own) those without a mark are played but those in the last table;
those marked \u{2020}\u{2020} are played there only.

Generated from the cases: `FERROCE_UPDATE_LISTS=1 cargo test -p ferroce-conformance --test list` writes it anew, and the same test
without the variable fails if it is out of date.
";

/// Where the list is kept.
#[must_use]
pub fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/conformance.md")
}

/// Text of docs/conformance.md, as the cases want it.
#[must_use]
pub fn render() -> String {
    let cases = cases::all();
    let mut text = INTRODUCTION.to_owned();
    let statements: usize = AREAS.iter().map(|a| a.statements.len()).sum();
    let shown = AREAS
        .iter()
        .flat_map(|a| a.statements)
        .filter(|(id, _)| !showing(&cases, id).is_empty())
        .count();
    let _ = writeln!(
        text,
        "\n{} cases show {shown} of {statements} statements.",
        cases.len()
    );
    for area in AREAS {
        let _ = writeln!(
            text,
            "\n## {}\n| statement | | cases |\n|---|---|---|",
            area.title
        );
        for (id, rule) in area.statements {
            let names = showing(&cases, id);
            let names = if names.is_empty() {
                "**none**".to_owned()
            } else {
                names.join(", ")
            };
            let _ = writeln!(text, "| `{id}` | {rule} | {names} |");
        }
    }
    text.push_str(&rules());
    text
}

/// What iWARP does otherwise, as a table.
fn rules() -> String {
    let mut text = "\n## Not played over iWARP\n| rule | cases |\n|---|---|\n".to_owned();
    for (rule, patterns) in DIFFERENCES {
        let _ = writeln!(text, "| {rule} | {} |", patterns.join(", "));
    }
    text
}

fn showing(cases: &[Case], id: &str) -> Vec<String> {
    let here = cases
        .iter()
        .filter(|case| case.covers.contains(&id))
        .map(|case| match case.on {
            On::Every => case.name.to_owned(),
            On::Iwarp => format!("{}\u{2020}\u{2020}", case.name),
            On::Groups => format!("{}\u{a7}", case.name),
            On::Raw => format!("{}\u{2020}", case.name),
            On::Slow => format!("{}\u{2021}", case.name),
        });
    let elsewhere = ELSEWHERE.iter().filter(|(shown, _)| *shown == id);
    here.chain(elsewhere.flat_map(|(_, tests)| tests.iter().map(|&t| t.to_owned())))
        .collect()
}

/// Differences that exclude no case.
fn stale_differences() -> Vec<String> {
    let cases = cases::all();
    let is_stale = |pattern: &&&str| !cases.iter().any(|case| excludes(pattern, case.name));
    let patterns = DIFFERENCES.iter().flat_map(|(_, patterns)| *patterns);
    patterns
        .filter(is_stale)
        .map(|pattern| format!("no case is called {pattern}, which iWARP leaves out"))
        .collect()
}

/// What is wrong with the cases as a list: names that occur twice, statements that do not exist.
#[must_use]
pub fn mistakes() -> Vec<String> {
    let known: BTreeSet<_> = AREAS
        .iter()
        .flat_map(|a| a.statements)
        .map(|(id, _)| *id)
        .collect();
    let mut names = BTreeSet::new();
    let mut wrong = stale_differences();
    for case in cases::all() {
        if !names.insert(case.name) {
            wrong.push(format!("two cases are called {}", case.name));
        }
        if case.covers.is_empty() {
            wrong.push(format!("{} shows no statement", case.name));
        }
        for id in case.covers.iter().filter(|id| !known.contains(*id)) {
            wrong.push(format!("{} shows {id}, which is no statement", case.name));
        }
    }
    wrong
}
