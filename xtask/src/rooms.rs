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

/// Number of paths from one folder to another.
type Arrows = BTreeMap<(String, String), usize>;

/// Looks for `crate::` paths of `nic` that point upwards. Tests are exempt.
pub(crate) fn check(workspace: &Workspace) -> Result<(), String> {
    let source = workspace.root.join("crates/nic/src");
    let exports = exports(&read(&source.join("lib.rs"))?);
    let mut found = Arrows::new();
    for (room, _) in ROOMS {
        walk(&source.join(room), &mut |text| {
            for first in first_segments(&without_tests(text)) {
                let to = exports.get(&first).unwrap_or(&first);
                if points_upwards(room, to) {
                    *found.entry((room.to_owned(), to.clone())).or_default() += 1;
                }
            }
        })?;
    }
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

fn points_upwards(from: &str, to: &str) -> bool {
    let height = |room: &str| ROOMS.iter().find(|(name, _)| *name == room).map(|r| r.1);
    from != to && matches!((height(from), height(to)), (Some(f), Some(t)) if t >= f)
}

/// Names that the crate's root exports, each with the folder it comes from.
fn exports(root: &str) -> BTreeMap<String, String> {
    let statements = root.split("pub use ").skip(1);
    let mut all = BTreeMap::new();
    for statement in statements.filter_map(|rest| rest.split(';').next()) {
        let Some((room, names)) = statement.split_once("::") else {
            continue;
        };
        for name in names.split(|c: char| !c.is_alphanumeric() && c != '_') {
            if name.starts_with(char::is_uppercase) {
                all.insert(name.to_owned(), room.to_owned());
            }
        }
    }
    all
}

/// The source without comments, and up to its tests: they stand at the end of each file.
pub(crate) fn without_tests(text: &str) -> String {
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    let code = text.lines().filter(is_code);
    let code: Vec<&str> = code.take_while(|l| !l.ends_with("mod tests {")).collect();
    code.join("\n")
}

/// What follows each `crate::`: a name, or the first names of a group.
fn first_segments(code: &str) -> Vec<String> {
    let mut all = Vec::new();
    for (at, prefix) in code.match_indices("crate::") {
        // `pub(in crate::…)` says where it is visible, and uses nothing.
        if code[..at].ends_with("pub(in ") {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        if let Some(group) = rest.strip_prefix('{') {
            all.extend(heads(group));
        } else {
            all.push(name(rest));
        }
    }
    all
}

/// The first name of each path of a group, whose brace is open.
fn heads(group: &str) -> Vec<String> {
    let (mut depth, mut begins, mut all) = (0, true, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            c if begins && !c.is_whitespace() => {
                all.push(name(&group[at..]));
                begins = false;
            }
            _ => {}
        }
    }
    all
}

fn name(text: &str) -> String {
    let ends = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    text[..ends.unwrap_or(text.len())].to_owned()
}

/// Gives each source file of a folder that is no test to `each`.
fn walk(folder: &Path, each: &mut dyn FnMut(&str)) -> Result<(), String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for entry in entries {
        let path = entry.map_err(|e| e.to_string())?.path();
        let is_test = path.file_stem().is_some_and(|name| name == "tests");
        if path.is_dir() && !is_test {
            walk(&path, each)?;
        } else if path.extension().is_some_and(|e| e == "rs") && !is_test {
            each(&read(&path)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_alone_in_groups_and_by_what_the_root_exports() {
        let code =
            "use crate::{Error, link::{Batch, local}, Qp};\nlet a = crate::base::sync::lock;";
        assert_eq!(first_segments(code), ["Error", "link", "Qp", "base"]);
        assert!(first_segments("pub(in crate::objects) fn f() {}").is_empty());
        let exports = exports("pub use engine::Nic;\npub use objects::qp::{Qp, QpInit};");
        assert_eq!(exports["Nic"], "engine");
        assert_eq!(exports["QpInit"], "objects");
        assert!(points_upwards("base", "engine") && points_upwards("cm", "survey"));
        assert!(!points_upwards("engine", "base") && !points_upwards("cm", "cm"));
    }

    #[test]
    fn tests_and_comments_use_nothing() {
        let text = "// crate::cm\nfn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::cm;\n}";
        assert!(first_segments(&without_tests(text)).is_empty());
    }

    #[test]
    fn an_arrow_that_points_upwards_is_named() {
        assert!(judge(&Arrows::new()).is_ok());
        let found = Arrows::from([(("link".to_owned(), "objects".to_owned()), 3)]);
        let said = judge(&found).unwrap_err();
        assert_eq!(said, "link must not use objects, and does in 3 paths");
    }
}
