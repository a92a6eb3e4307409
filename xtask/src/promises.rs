//! SPECIFICATION.md: one sentence a promise, and each test that a promise names is there. It is a
//! test in its crate (and in the file that is named before it), a row of `cargo xtask system`, or a
//! case of the conformance suite. docs/promises.md links the files that the tests are in.

use std::collections::BTreeSet;

use crate::mentions::{Source, has, is_file, is_test, quoted};
use crate::system;
use crate::workspace::{Workspace, read};

mod links;

pub(crate) use links::table;

/// Words that begin a list of tests, and whose tests those are.
const CRATES: [&str; 10] = [
    "abi",
    "cli",
    "conformance",
    "dropin",
    "ferroce",
    "nic",
    "os",
    "proto",
    "sockets",
    "sysfs",
];

/// What names can be compared with.
struct Known<'a> {
    sources: &'a [Source],
    rows: Vec<String>,
    cases: String,
}

/// An error names each promise of several sentences, and each test that is not there.
pub(crate) fn check(workspace: &Workspace, sources: &[Source]) -> Result<Vec<String>, String> {
    let text = read(&workspace.root.join("SPECIFICATION.md"))?;
    let known = Known::of(workspace, sources)?;
    let mut wrong = Vec::new();
    let mut ids = BTreeSet::new();
    for (id, promise, tests) in text.lines().filter_map(row) {
        if sentences(promise) != 1 {
            wrong.push(format!("{id} is not one sentence"));
        }
        let is_known = tests
            .strip_prefix("as ")
            .map_or(!tests.is_empty(), |of| ids.contains(of));
        if !is_known || !ids.insert(id) {
            wrong.push(format!("{id} has no tests, or its number is another's"));
        }
        let missing = missing(tests, &known);
        wrong.extend(
            missing
                .into_iter()
                .map(|name| format!("{id} names {name}, which is no test")),
        );
    }
    Ok(wrong)
}

/// Number, promise and tests of a line of the tables.
fn row(line: &str) -> Option<(&str, &str, &str)> {
    let cells = line.strip_prefix("| ")?.strip_suffix(" |")?;
    let (id, rest) = cells.split_once(" | ")?;
    let (promise, tests) = rest.rsplit_once(" | ")?;
    let is_id = id.starts_with(|c: char| c.is_ascii_uppercase()) && id.len() < 8;
    is_id.then_some((id, promise, tests))
}

/// Sentences outside of code and parentheses.
fn sentences(text: &str) -> usize {
    let (mut depth, mut is_code) = (0_usize, false);
    let mut plain = String::new();
    for c in text.chars() {
        match c {
            '`' => is_code = !is_code,
            '(' if !is_code => depth += 1,
            ')' if !is_code => depth = depth.saturating_sub(1),
            _ if !is_code && depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let ends = plain.trim_end().ends_with('.');
    plain.matches(". ").count() + usize::from(ends)
}

/// A name in a column of tests.
struct Named<'t, 'k> {
    /// Number of the part of the column, up to a semicolon.
    part: usize,
    /// Word that says whose the name is.
    kind: &'t str,
    name: &'t str,
    /// The files that it stands for; `None` if there is no such test.
    places: Option<Paths<'k>>,
}

/// Names of a column of tests that are not there.
fn missing<'t>(tests: &'t str, known: &Known<'_>) -> Vec<&'t str> {
    let names = places(tests, known).into_iter();
    let missing = names.filter(|named| named.places.is_none());
    missing.map(|named| named.name).collect()
}

/// Each name of a column of tests, and the files that it stands for.
fn places<'t, 'k>(tests: &'t str, known: &Known<'k>) -> Vec<Named<'t, 'k>> {
    let (mut kind, mut all) = ("", Vec::new());
    for (at, part) in tests.split(';').enumerate() {
        let first = part.trim_start().split([' ', ':', ',']).next();
        // A part without a word of its own goes on with the one before.
        kind = first.filter(|word| !word.starts_with('`')).unwrap_or(kind);
        let mut file = None;
        for name in quoted(part) {
            let places = match kind {
                "system" => known.has_row(name).then(|| known.of_row(name)),
                _ if CRATES.contains(&kind) => known.of_crate(kind, name, &mut file),
                _ => Some(known.of_row(name)),
            };
            all.push(Named {
                part: at,
                kind,
                name,
                places,
            });
        }
    }
    all
}

/// Whether a name is that of a file or module, and not of a test in it.
fn is_place(name: &str) -> bool {
    is_file(name) || name.contains("::") || is_module(name)
}

/// Whether a name may be that of a module.
fn is_module(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c == '_';
    name.chars().all(plain) && !is_test(name)
}

/// Paths below the root, with a slash in front.
type Paths<'k> = Vec<&'k str>;

impl<'k> Known<'k> {
    fn of(workspace: &Workspace, sources: &'k [Source]) -> Result<Self, String> {
        Ok(Self {
            sources,
            rows: system::names(),
            cases: read(&workspace.root.join("docs/conformance.md"))?,
        })
    }

    fn has_row(&self, name: &str) -> bool {
        let (begin, end) = name.split_once('*').unwrap_or((name, ""));
        let is_row = !name.contains([' ', '/']) && !name.starts_with('-');
        let fits = |row: &String| row.starts_with(begin) && row.contains(end);
        !is_row || self.rows.iter().any(fits)
    }

    /// The file, where a program or document is named by its path.
    fn of_row(&self, name: &str) -> Paths<'k> {
        let is_it = |source: &&Source| source.path.strip_prefix('/') == Some(name);
        let found = self.sources.iter().filter(is_it);
        found.map(|source| source.path.as_str()).collect()
    }

    /// The places of a file of a crate, which tests after it are in; of a test or a module; of a
    /// conformance case. `None` if there is none.
    fn of_crate<'n>(
        &self,
        of: &str,
        name: &'n str,
        file: &mut Option<&'n str>,
    ) -> Option<Paths<'k>> {
        let plain = name.trim_end_matches('*');
        if is_file(name) {
            *file = Some(name);
            return self.file(of, name);
        }
        if name.contains("::") {
            *file = None;
            return self.module(of, name);
        }
        if of == "conformance" && name.contains('.') {
            let quoted = format!("\"{plain}");
            let paths = self.paths(of, |source| source.text.contains(&quoted));
            return self
                .cases
                .contains(plain)
                .then(|| paths.unwrap_or_default());
        }
        if !is_test(plain) {
            *file = None;
            let module = Some(name).filter(|name| is_module(name));
            return module.map_or(Some(Vec::new()), |name| {
                Some(self.module(of, name).unwrap_or_default())
            });
        }
        let definition = if plain == name {
            format!("fn {name}(")
        } else {
            format!("fn {plain}")
        };
        self.paths(of, |source| {
            file.is_none_or(|file| has(std::slice::from_ref(source), file))
                && source.text.contains(&definition)
        })
    }

    /// The file of a crate's tests of this name, or all its files of this name.
    fn file(&self, of: &str, name: &str) -> Option<Paths<'k>> {
        let paths = self.paths(of, |source| has(std::slice::from_ref(source), name))?;
        let tests = format!("/crates/{of}/tests/{name}");
        let tests: Vec<_> = paths
            .iter()
            .copied()
            .filter(|path| *path == tests)
            .collect();
        Some(if tests.is_empty() { paths } else { tests })
    }

    /// The file of a module, or the file with the shortest path in its folder.
    fn module(&self, of: &str, name: &str) -> Option<Paths<'k>> {
        let path = name.replace("::", "/");
        let names = [path.clone(), format!("{path}.rs")];
        let mut paths = self.paths(of, |source| {
            let of_source = |name: &String| has(std::slice::from_ref(source), name);
            names.iter().any(of_source)
        })?;
        let own = [format!("/{path}.rs"), format!("/{path}/mod.rs")];
        let is_own = |path: &str| own.iter().any(|own| path.ends_with(own));
        paths.sort_by_key(|path| (!is_own(path), path.len()));
        paths.truncate(1);
        Some(paths)
    }

    /// The files of a crate that are as said, `None` if there is none.
    fn paths(&self, of: &str, is_it: impl Fn(&Source) -> bool) -> Option<Paths<'k>> {
        let folder = format!("/crates/{of}/");
        let in_crate = |source: &&Source| source.path.starts_with(&folder) && is_it(source);
        let found = self.sources.iter().filter(in_crate);
        let paths: Vec<_> = found.map(|source| source.path.as_str()).collect();
        (!paths.is_empty()).then_some(paths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_is_one_sentence() {
        assert_eq!(sentences("A `b. c` holds (see D. E.)."), 1);
        assert_eq!(sentences("One. Two."), 2);
        assert_eq!(sentences("None"), 0);
        let line = "| T4.2 | A `|` is bad. | nic `a.rs` |";
        assert_eq!(row(line), Some(("T4.2", "A `|` is bad.", "nic `a.rs`")));
        assert_eq!(row("| # | promise | tests |"), None);
    }

    #[test]
    fn tests_are_looked_for_where_they_are_said_to_be() {
        let source = |path: &str, text: &str| Source {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let sources = [
            source(
                "/crates/nic/tests/direct.rs",
                "fn a_test_of_the_device() {}",
            ),
            source(
                "/crates/proto/src/rc/window.rs",
                "fn one_of_proto_here() {}",
            ),
        ];
        let known = Known {
            sources: &sources,
            rows: vec!["c.epoll.loopback.user".into()],
            cases: "cq.arm.not-empty".into(),
        };
        for held in [
            "nic `direct.rs` `a_test_of_the_device`, `a_test_of_*`",
            "proto `rc::window`; system `c.epoll.*`, `tests/c/x.c`; conformance `cq.arm.*`",
            "`cargo xtask soak`; guest `anything`",
        ] {
            assert_eq!(missing(held, &known), [""; 0], "{held}");
        }
        for wrong in [
            "proto `a_test_of_the_device`",
            "nic `window.rs`",
            "nic `direct.rs` `one_of_proto_here`",
            "system `c.epol.*`",
            "conformance `cq.gone`",
            "nic `direct.rs`; `rc::window`",
        ] {
            assert_eq!(missing(wrong, &known).len(), 1, "{wrong}");
        }
    }
}
