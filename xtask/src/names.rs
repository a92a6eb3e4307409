//! Names of types: each occurs once in `proto`, `nic` and `os` together, and once in each of the
//! other crates of [`GROUPS`], so that a search finds one thing.

use std::collections::BTreeMap;

use crate::prose::walk;
use crate::rooms::without_tests;
use crate::workspace::{Workspace, read};

/// Crates within which a name occurs once.
struct Group {
    crates: &'static [&'static str],
    /// Names that may repeat, each with the reason.
    repeated: &'static [(&'static str, &'static str)],
}

/// All groups.
const GROUPS: [Group; 6] = [
    Group {
        crates: &["proto", "nic", "os"],
        repeated: &REPEATED,
    },
    Group {
        crates: &["abi"],
        repeated: &[],
    },
    Group {
        crates: &["cli"],
        repeated: &[],
    },
    Group {
        crates: &["conformance"],
        repeated: &[],
    },
    Group {
        crates: &["sockets"],
        repeated: &[],
    },
    Group {
        crates: &["sysfs"],
        repeated: &[],
    },
];
/// Files that only tests use, which have no `mod tests` of their own.
const TESTS: [&str; 5] = ["tests", "testkit", "model", "short_ring_model", "hostile"];
/// Names that may repeat in `proto`, `nic` and `os`.
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
    let mut wrong = Vec::new();
    for group in &GROUPS {
        let found = found(workspace, group.crates)?;
        wrong.extend(judge(&found, group.repeated));
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n"))
    }
}

/// Returns the files that each name of a type occurs in.
fn found(workspace: &Workspace, crates: &[&str]) -> Result<BTreeMap<String, Vec<String>>, String> {
    let mut found = BTreeMap::<String, Vec<String>>::new();
    for name in crates {
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
    Ok(found)
}

/// Returns what is wrong with the names of a group.
fn judge(found: &BTreeMap<String, Vec<String>>, exempt: &[(&str, &str)]) -> Vec<String> {
    let is_exempt = |name: &str| exempt.iter().any(|(repeated, _)| *repeated == name);
    let repeated = |name: &str| found.get(name).is_some_and(|places| places.len() > 1);
    let mut wrong: Vec<String> = found
        .iter()
        .filter(|(name, _)| repeated(name) && !is_exempt(name))
        .map(|(name, places)| format!("{name} is the name of types in {}", places.join(", ")))
        .collect();
    let idle = exempt.iter().filter(|(name, _)| !repeated(name));
    wrong.extend(idle.map(|(name, _)| format!("{name} occurs once: it needs no exception")));
    wrong
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
            // A macro gives each of its types a name of its own.
            let name = words.next().filter(|name| !name.starts_with('$'));
            all.extend(name.map(str::to_owned));
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
                    pub(crate) trait G: Debug {\npub struct $name {";
        assert_eq!(types(code), ["A", "B", "C", "D", "E", "G"]);
    }

    #[test]
    fn a_name_that_repeats_needs_a_reason_and_a_reason_a_name_that_repeats() {
        let places = |count| vec!["a.rs".to_owned(); count];
        let exempt = [("Inner", "what a lock guards")];
        let mut found = BTreeMap::from([
            ("Inner".to_owned(), places(2)),
            ("Once".to_owned(), places(1)),
        ]);
        assert_eq!(judge(&found, &exempt), [""; 0]);
        found.insert("Gate".to_owned(), places(2));
        found.insert("Inner".to_owned(), places(1));
        assert_eq!(
            judge(&found, &exempt),
            [
                "Gate is the name of types in a.rs, a.rs",
                "Inner occurs once: it needs no exception"
            ]
        );
    }
}
