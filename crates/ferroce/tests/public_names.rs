//! The public names of the crate, as `public-names.txt` lists them: none comes, goes or moves
//! without that being seen in a review.
//!
//! What a name means is not compared, nor are the transports, which a macro declares. The names are
//! read from the source: each public module declares its own, or takes them from its private parts
//! by `pub use`.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The file of a module of the root.
fn file(source: &Path, module: &str) -> PathBuf {
    let single = source.join(format!("{module}.rs"));
    if single.exists() {
        single
    } else {
        source.join(module).join("mod.rs")
    }
}

/// The names that follow `pub use`, without the paths before them.
fn taken(uses: &str) -> Vec<String> {
    let (_, names) = uses.rsplit_once("::").unwrap();
    let names = names.trim_matches(['{', '}']).split(',');
    let names = names.map(|name| name.trim().to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

/// The names that a file makes public at its own level.
fn public(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for part in text.split("\npub ").skip(1) {
        let mut words = part.split_whitespace();
        match words.next().unwrap() {
            "use" => {
                let uses = part
                    .strip_prefix("use ")
                    .and_then(|uses| uses.split_once(';'));
                names.extend(taken(uses.unwrap().0));
            }
            "mod" | "struct" | "enum" | "trait" | "fn" | "const" | "type" => {
                let name = words.next().unwrap();
                let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
                names.push(name[..end.unwrap_or(name.len())].to_owned());
            }
            _ => {}
        }
    }
    names
}

#[test]
fn the_public_names_are_those_of_the_list() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = here.join("src");
    let read = |path: PathBuf| fs::read_to_string(path).unwrap();
    let mut found = BTreeSet::new();
    for name in public(&read(source.join("lib.rs"))) {
        let module = file(&source, &name);
        if module.exists() {
            let inner = public(&read(module));
            found.extend(inner.into_iter().map(|inner| format!("{name}::{inner}")));
        } else {
            found.insert(name);
        }
    }
    let listed = read(here.join("tests/public-names.txt"));
    let listed: BTreeSet<String> = listed.lines().map(str::to_owned).collect();
    let new: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(
        new.is_empty() && gone.is_empty(),
        "not in the list: {new:#?}, not in the crate: {gone:#?}"
    );
}
