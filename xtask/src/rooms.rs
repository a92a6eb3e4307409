//! Which folder of `nic` may use which: arrows go one way, downwards (see ARCHITECTURE.md).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::workspace::{Workspace, read};

/// The folders, each with its height. A folder uses those below it; those of one height do not use
/// each other.
const ROOMS: [(&str, u8); 7] = [
    ("base", 0),
    ("services", 1),
    ("link", 2),
    ("objects", 3),
    ("cm", 4),
    ("survey", 4),
    ("engine", 5),
];

/// The same for what is in `link`.
const LINK: [(&str, u8); 8] = [
    ("fault", 0),
    ("origin", 0),
    ("token", 0),
    (OWN, 1),
    ("local", 2),
    ("stream", 2),
    ("wire", 2),
    ("path", 3),
];

/// A folder's own file and the items in it.
const OWN: &str = "mod";

/// The segments of a path, without `crate`.
type Segments = Vec<String>;

/// Number of paths from one folder to another.
type Arrows = BTreeMap<(String, String), usize>;

/// Looks for paths of `nic` that point upwards. Tests are exempt.
pub(crate) fn check(workspace: &Workspace) -> Result<(), String> {
    let source = workspace.root.join("crates/nic/src");
    let exports = exports(&read(&source.join("lib.rs"))?);
    let mut found = Arrows::new();
    walk(&source, &mut Vec::new(), &mut |module, text| {
        for path in paths(&without_tests(text), module) {
            let exported = path.first().and_then(|name| exports.get(name));
            if let Some(arrow) = upward_arrow(module, exported.unwrap_or(&path)) {
                *found.entry(arrow).or_default() += 1;
            }
        }
    })?;
    judge(&found)
}

fn judge(found: &Arrows) -> Result<(), String> {
    let wrong: Vec<String> = found
        .iter()
        .map(|((from, to), count)| format!("{from} must not use {to}, and does in {count} paths"))
        .collect();
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n"))
    }
}

/// The folders of a path that points upwards, seen from the module that it stands in.
fn upward_arrow(module: &[String], path: &[String]) -> Option<(String, String)> {
    let (from, to) = (module.first()?, path.first()?);
    if points_upwards(&ROOMS, from, to) {
        return Some((from.clone(), to.clone()));
    }
    if from != "link" || to != "link" {
        return None;
    }
    let (from, to) = (part_of_link(module), part_of_link(path));
    points_upwards(&LINK, from, to).then(|| (format!("link/{from}"), format!("link/{to}")))
}

/// The part of `link` that a path leads to; a type or function beside the parts is of [`OWN`].
fn part_of_link(path: &[String]) -> &str {
    let part = path.get(1).map_or(OWN, |name| name);
    let is_part = LINK.iter().any(|(known, _)| *known == part);
    if is_part { part } else { OWN }
}

fn points_upwards(rooms: &[(&str, u8)], from: &str, to: &str) -> bool {
    let height = |room: &str| rooms.iter().find(|(name, _)| *name == room).map(|r| r.1);
    from != to && matches!((height(from), height(to)), (Some(f), Some(t)) if t >= f)
}

/// Names that the crate's root exports, each with the path it comes from.
fn exports(root: &str) -> BTreeMap<String, Segments> {
    let statements = root.split("pub use ").skip(1);
    statements
        .filter_map(|rest| rest.split(';').next())
        .flat_map(tree)
        .filter_map(|path| Some((path.last()?.clone(), path)))
        .filter(|(name, _)| name.starts_with(char::is_uppercase))
        .collect()
}

/// The source without comments, and up to its tests: they stand at the end of each file.
pub(crate) fn without_tests(text: &str) -> String {
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    let code = text.lines().filter(is_code);
    let code: Vec<&str> = code.take_while(|l| !l.ends_with("mod tests {")).collect();
    code.join("\n")
}

/// The paths that begin with `crate::` or `super::`, from the crate's root.
fn paths(code: &str, module: &[String]) -> Vec<Segments> {
    let begins = code
        .match_indices("crate::")
        .chain(code.match_indices("super::"));
    let mut all = Vec::new();
    for (at, _) in begins {
        // `pub(in crate::…)` says where it is visible, and uses nothing. The second `super` of two
        // was seen with the first.
        if code[..at].ends_with("pub(in ") || code[..at].ends_with("super::") {
            continue;
        }
        let (base, rest) = from_root(&code[at..], module);
        all.extend(tree(rest).into_iter().map(|path| [base, &path].concat()));
    }
    all
}

/// The module that the beginning of a path stands for, and the rest of the text.
fn from_root<'a>(text: &'a str, mut module: &'a [String]) -> (&'a [String], &'a str) {
    if let Some(rest) = text.strip_prefix("crate::") {
        return (&[], rest);
    }
    let mut rest = text;
    while let Some(shorter) = rest.strip_prefix("super::") {
        rest = shorter;
        module = module.split_last().map_or(&[], |(_, parents)| parents);
    }
    (module, rest)
}

/// The paths of a `use` tree that begins here.
fn tree(text: &str) -> Vec<Segments> {
    if let Some(group) = text.strip_prefix('{') {
        return branches(group).into_iter().flat_map(tree).collect();
    }
    let ends = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    let (name, rest) = text.split_at(ends.unwrap_or(text.len()));
    match rest.strip_prefix("::") {
        Some(rest) => tree(rest)
            .into_iter()
            .map(|path| [vec![name.to_owned()], path].concat())
            .collect(),
        None => vec![vec![name.to_owned()]],
    }
}

/// The trees of a group, whose brace is open.
fn branches(group: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut all) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                all.push(group[begin..at].trim());
                begin = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    all.retain(|branch| !branch.is_empty());
    all
}

/// Gives each source file of a folder that is no test to `each`, with its module.
fn walk(
    folder: &Path,
    module: &mut Segments,
    each: &mut dyn FnMut(&[String], &str),
) -> Result<(), String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for entry in entries {
        let path = entry.map_err(|e| e.to_string())?.path();
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else {
            continue;
        };
        if name == "tests" {
            continue;
        }
        let depth = module.len();
        if !["mod", "lib"].contains(&name) {
            module.push(name.to_owned());
        }
        if path.is_dir() {
            walk(&path, module, each)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            each(module, &read(&path)?);
        }
        module.truncate(depth);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(path: &str) -> Segments {
        path.split("::").map(str::to_owned).collect()
    }

    fn used(code: &str, module: &str) -> Vec<String> {
        let all = paths(code, &segments(module));
        all.iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn paths_are_found_alone_in_groups_and_by_what_the_root_exports() {
        let code =
            "use crate::{Error, link::{Batch, local}, Qp};\nlet a = crate::base::sync::lock;";
        let found = [
            "Error",
            "link::Batch",
            "link::local",
            "Qp",
            "base::sync::lock",
        ];
        assert_eq!(used(code, "cm"), found);
        assert!(used("pub(in crate::objects) fn f() {}", "cm").is_empty());
        let exports = exports("pub use engine::Nic;\npub use objects::qp::{Qp, QpInit};");
        assert_eq!(exports["Nic"], segments("engine::Nic"));
        assert_eq!(exports["QpInit"], segments("objects::qp::QpInit"));
        let arrow = |from, to| upward_arrow(&segments(from), &segments(to));
        assert!(arrow("base", "engine::Nic").is_some() && arrow("cm::id", "survey").is_some());
        assert!(arrow("engine", "base::sync").is_none() && arrow("cm::id", "cm::host").is_none());
    }

    #[test]
    fn super_is_the_module_above() {
        assert_eq!(
            used("use super::Path;", "link::path::admit"),
            ["link::path::Path"]
        );
        let code = "use super::super::{wire::WireLink};";
        assert_eq!(used(code, "link::path::admit"), ["link::wire::WireLink"]);
    }

    #[test]
    fn the_folders_of_link_have_an_order() {
        let arrow = |from, to| upward_arrow(&segments(from), &segments(to));
        let said = Some(("link/local".to_owned(), "link/path".to_owned()));
        assert_eq!(arrow("link::local::way", "link::path::Egress"), said);
        assert!(arrow("link::local", "link::wire::WireLink").is_some());
        assert!(arrow("link", "link::path::Origin").is_some());
        assert!(arrow("link", "link::origin::Origin").is_none());
        assert!(arrow("link::origin", "link::Batch").is_some());
        assert!(arrow("link::wire", "link::Batch").is_none());
        assert!(arrow("link::path::outlets", "link::local::Frame").is_none());
    }

    #[test]
    fn tests_and_comments_use_nothing() {
        let text = "// crate::cm\nfn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::cm;\n}";
        assert!(used(&without_tests(text), "base").is_empty());
    }

    #[test]
    fn an_arrow_that_points_upwards_is_named() {
        assert!(judge(&Arrows::new()).is_ok());
        let found = Arrows::from([(("link".to_owned(), "objects".to_owned()), 3)]);
        let said = judge(&found).unwrap_err();
        assert_eq!(said, "link must not use objects, and does in 3 paths");
    }
}
