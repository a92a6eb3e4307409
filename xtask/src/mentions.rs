//! What the documents name: every file is there, and so is every test behind a promise.

use std::fs;
use std::path::Path;

use crate::workspace::{Workspace, read};
use crate::{pages, promises};

/// Documents in which a reader looks for something; so are the pages of `docs/design`.
const DOCUMENTS: [&str; 4] = [
    "README.md",
    "ARCHITECTURE.md",
    "SPECIFICATION.md",
    "CONTRIBUTING.md",
];

/// Folders with what they name.
const FOLDERS: [&str; 6] = ["crates", "docs", "fuzz", "packaging", "tests", "xtask"];

/// Endings of the files that are looked for.
const ENDINGS: [&str; 3] = [".rs", ".c", ".md"];

/// A file of the repository.
pub(crate) struct Source {
    /// Below the root, with a slash in front.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// An error lists each file and test that is named and not there.
pub(crate) fn check(workspace: &Workspace) -> Result<(), String> {
    let sources = sources(workspace)?;
    let mut wrong = Vec::new();
    let pages = pages::names(workspace)?
        .into_iter()
        .map(|name| format!("docs/design/{name}"));
    for document in DOCUMENTS.map(str::to_owned).into_iter().chain(pages) {
        let text = read(&workspace.root.join(&document))?;
        for line in text.lines() {
            for word in quoted(line) {
                let is_place = is_file(word) || is_path(word);
                if is_place && !workspace.root.join(word).exists() && !has(&sources, word) {
                    wrong.push(format!("{document} names {word}, which is not there"));
                }
            }
            // The walks name functions.
            let missing = |word: &&str| is_function(word) && !has_function(&sources, word);
            if document == "ARCHITECTURE.md" {
                let missing = quoted(line).filter(missing);
                wrong.extend(missing.map(|word| format!("{document}: no function {word}")));
            }
        }
    }
    wrong.extend(promises::check(workspace, &sources)?);
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n"))
    }
}

/// All files of [`FOLDERS`], in no order.
pub(crate) fn sources(workspace: &Workspace) -> Result<Vec<Source>, String> {
    let mut sources = Vec::new();
    for folder in FOLDERS {
        collect(&workspace.root, &workspace.root.join(folder), &mut sources)?;
    }
    Ok(sources)
}

/// What stands between backquotes.
pub(crate) fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

pub(crate) fn is_file(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/_-.".contains(c);
    word.chars().all(plain) && ENDINGS.iter().any(|ending| word.ends_with(ending))
}

/// A folder or any file, by a path of several names. Headers are C's.
fn is_path(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/_-.".contains(c);
    let is_own = !word.starts_with('/') && !word.ends_with(".h");
    let is_long = word.trim_end_matches('/').contains('/');
    is_own && is_long && word.chars().all(plain)
}

/// Tests are named by sentences; nothing else in the column of tests has that many words. Modules
/// of tests have a path.
pub(crate) fn is_test(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:".contains(c);
    word.chars().all(plain) && (word.matches('_').count() >= 3 || word.contains("::"))
}

/// A function, by its name or with its type before it. The name has more than one word. Those of
/// `infiniband/verbs.h` are partly the header's.
fn is_function(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c == '_';
    let (of, name) = word.split_once("::").unwrap_or(("", word));
    let is_type = of.starts_with(|c: char| c.is_ascii_uppercase());
    (is_type || of.is_empty() && name.contains('_'))
        && !name.is_empty()
        && !name.starts_with("ibv_")
        && name.chars().all(plain)
}

/// Whether a crate has a function of this name, beside the type if there is one.
fn has_function(sources: &[Source], word: &str) -> bool {
    let (of, name) = word.split_once("::").unwrap_or(("", word));
    let defined = ["(", "<"].map(|next| format!("fn {name}{next}"));
    let implements = format!("impl {of}");
    sources.iter().any(|source| {
        source.path.starts_with("/crates/")
            && defined.iter().any(|fun| source.text.contains(fun))
            && (of.is_empty() || source.text.contains(&implements))
    })
}

/// Whether there is a file of this name, or with this end of its path, or such a folder. A crate's
/// path may leave `src` out.
pub(crate) fn has(sources: &[Source], word: &str) -> bool {
    let (file, folder) = (
        format!("/{word}"),
        format!("/{}/", word.trim_end_matches('/')),
    );
    let fits = |path: &str| path.ends_with(&file) || path.contains(&folder);
    sources
        .iter()
        .any(|source| fits(&source.path) || fits(&source.path.replace("/src/", "/")))
}

fn collect(root: &Path, folder: &Path, sources: &mut Vec<Source>) -> Result<(), String> {
    let unreadable = |e| format!("{}: {e}", folder.display());
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let name = path.strip_prefix(root).unwrap_or(&path).display();
        let name = format!("/{name}");
        if path.is_dir() {
            // What the fuzzer builds lies in between.
            if !path.ends_with("target") {
                collect(root, &path, sources)?;
            }
        } else if is_file(&name) {
            let text = read(&path)?;
            sources.push(Source { path: name, text });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_tests_are_told_from_other_words() {
        assert!(is_file("rc/requester.rs") && is_file("docs/pyverbs.md"));
        assert!(!is_file("libibverbs.so.1") && !is_file("a b.rs") && !is_file("*.rs"));
        assert!(is_path("nic/src/path") && !is_path("/sys/class") && !is_path("path"));
        assert!(is_test("a_killed_peer_has_disconnected"));
        assert!(is_test("direct::hazard") && !is_test("ibv_reg_mr") && !is_test("c.epoll.*"));
        assert!(is_function("Mr::deregister") && is_function("end_memos"));
        assert!(!is_function("proto::rc") && !is_function("progress") && !is_function("a.rs"));
        let words: Vec<_> = quoted("nic `a.rs` `b`; os `c`").collect();
        assert_eq!(words, ["a.rs", "b", "c"]);
    }

    #[test]
    fn functions_are_found_beside_their_type() {
        let source = Source {
            path: "/crates/nic/src/mr.rs".to_owned(),
            text: "impl Mr {\n    pub fn deregister(&self) {}\n}\nfn end_memos<T>() {}".to_owned(),
        };
        let sources = [source];
        assert!(has_function(&sources, "Mr::deregister") && has_function(&sources, "end_memos"));
        assert!(!has_function(&sources, "Qp::deregister") && !has_function(&sources, "Mr::drop"));
    }

    #[test]
    fn files_are_found_by_the_end_of_their_path() {
        let source = Source {
            path: "/crates/nic/src/path/route.rs".to_owned(),
            text: "fn a_test_of_it() {}".to_owned(),
        };
        let sources = [source];
        for there in [
            "nic/src/path/route.rs",
            "path/route.rs",
            "nic/path/route.rs",
        ] {
            assert!(has(&sources, there), "{there}");
        }
        assert!(has(&sources, "nic/path"));
        assert!(!has(&sources, "oute.rs") && !has(&sources, "link/route.rs"));
    }
}
