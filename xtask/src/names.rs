//! Names of types: each occurs once in `proto`, `nic` and `os`, so that a search finds one thing.

use std::collections::BTreeMap;

use crate::prose::walk;
use crate::rooms::without_tests;
use crate::workspace::{Workspace, read};

/// The crates that share their names.
const CRATES: [&str; 3] = ["proto", "nic", "os"];
/// Files that only tests use, which have no `mod tests` of their own.
const TESTS: [&str; 5] = ["tests", "testkit", "model", "short_ring_model", "hostile"];
/// Names that may repeat.
const REPEATED: [(&str, &str); 9] = [
    ("Frame", "MPA's requests and replies (RFC 5044, 7.1)"),
    ("Inner", "what the lock of a type guards, in its file"),
    ("Message", "a MAD, and librdmacm's rs_msg"),
    ("Opcode", "RFC 5040, 4.3"),
    ("Responder", "the MPA responder (RFC 5044, 7.1)"),
    ("Segment", "RFC 5041, 2"),
    ("Stream", "RFC 5040, 2; a socket of SOCK_STREAM"),
    ("Target", "librdmacm's target list of an rsocket"),
    ("Wqe", "RFC 5040, 2"),
];

/// An error names each type that has another one's name, and each exception that is none.
pub(crate) fn check(workspace: &Workspace) -> Result<(), String> {
    let mut found = BTreeMap::<String, Vec<String>>::new();
    for name in CRATES {
        let source = workspace.root.join("crates").join(name).join("src");
        walk(&source, &["rs"], &mut |path| {
            let place = path.strip_prefix(&workspace.root).unwrap_or(path);
            if !place
                .with_extension("")
                .iter()
                .any(|part| TESTS.iter().any(|test| part == *test))
            {
                for name in types(&without_tests(&read(path)?)) {
                    found
                        .entry(name)
                        .or_default()
                        .push(place.display().to_string());
                }
            }
            Ok(())
        })?;
    }
    judge(&found)
}

fn judge(found: &BTreeMap<String, Vec<String>>) -> Result<(), String> {
    let is_exempt = |name: &str| REPEATED.iter().any(|(repeated, _)| *repeated == name);
    let repeated = |name: &str| found.get(name).is_some_and(|places| places.len() > 1);
    let mut wrong: Vec<String> = found
        .iter()
        .filter(|(name, _)| repeated(name) && !is_exempt(name))
        .map(|(name, places)| format!("{name} is the name of types in {}", places.join(", ")))
        .collect();
    let idle = REPEATED.iter().filter(|(name, _)| !repeated(name));
    wrong.extend(idle.map(|(name, _)| format!("{name} occurs once: it needs no exception")));
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n"))
    }
}

/// The types that a source file makes. A type within a trait or an `impl` is none: its trait's name
/// stands beside it.
fn types(code: &str) -> Vec<String> {
    let mut all = Vec::new();
    for line in code.lines() {
        let indented = line.starts_with(' ');
        let item = without_visibility(line.trim_start());
        let mut words = item.split([' ', '<', '(', '{', ';', ':']);
        let is_type = match words.next() {
            Some("struct" | "enum" | "trait" | "union") => true,
            Some("type") => !indented,
            _ => false,
        };
        if is_type {
            all.extend(words.next().map(str::to_owned));
        }
    }
    all
}

fn without_visibility(item: &str) -> &str {
    match item.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ").map_or("", |(_, item)| item),
        None => item.strip_prefix("pub ").unwrap_or(item),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_whatever_their_visibility() {
        let code = "pub struct A<'a> {\npub(super) enum B {\nstruct C(u8);\npub type D = u8;\n\
                    pub(in crate::objects) struct E;\n    type Output = u8;\nlet f = structure;\n\
                    pub(crate) trait G: Debug {";
        assert_eq!(types(code), ["A", "B", "C", "D", "E", "G"]);
    }

    #[test]
    fn a_name_that_repeats_needs_a_reason_and_a_reason_a_name_that_repeats() {
        let places = |count| vec!["a.rs".to_owned(); count];
        let mut found: BTreeMap<_, _> = REPEATED
            .iter()
            .map(|(name, _)| ((*name).to_owned(), places(2)))
            .collect();
        found.insert("Once".to_owned(), places(1));
        assert_eq!(judge(&found), Ok(()));
        found.insert("Gate".to_owned(), places(2));
        found.insert("Inner".to_owned(), places(1));
        let said = judge(&found).unwrap_err();
        assert_eq!(
            said,
            "Gate is the name of types in a.rs, a.rs\nInner occurs once: it needs no exception"
        );
    }
}
