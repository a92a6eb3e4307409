//! The pages of `docs/design`: each has the same parts in the same order, so that a reader finds
//! the reason of a decision where the last page had it. Other parts may stand between them.

use std::fs;

use crate::workspace::{Workspace, read};

/// The parts of a page, in order.
const PARTS: [&str; 5] = [
    "Problem",
    "Choice",
    "Rejected",
    "Enforced by",
    "Cost and gain",
];

/// An error names each page that lacks a part, and each that ARCHITECTURE.md does not list.
pub(crate) fn check(workspace: &Workspace) -> Result<(), String> {
    let map = read(&workspace.root.join("ARCHITECTURE.md"))?;
    let mut wrong = Vec::new();
    for name in names(workspace)? {
        let text = read(&workspace.root.join("docs/design").join(&name))?;
        if let Some(part) = missing(&text) {
            wrong.push(format!(
                "docs/design/{name} has no part \"{part}\" in its place"
            ));
        }
        if !map.contains(&format!("docs/design/{name})")) {
            wrong.push(format!("ARCHITECTURE.md has no link to docs/design/{name}"));
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n"))
    }
}

/// The files of the pages.
pub(crate) fn names(workspace: &Workspace) -> Result<Vec<String>, String> {
    let folder = workspace.root.join("docs/design");
    let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut names: Vec<_> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.ends_with(".md"))
        .collect();
    names.sort();
    Ok(names)
}

/// The first part that a page does not have, or has before an earlier one.
fn missing(text: &str) -> Option<&'static str> {
    let mut headings = text.lines().filter_map(|line| line.strip_prefix("## "));
    PARTS
        .into_iter()
        .find(|part| !headings.any(|heading| heading == *part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_there_in_their_order() {
        let page = |parts: &[&str]| {
            let headings = parts.iter().map(|part| format!("## {part}\ntext\n"));
            missing(&headings.collect::<String>())
        };
        let [problem, choice, rejected, enforced, cost] = PARTS;
        let all = [problem, choice, "The format", rejected, enforced, cost];
        assert_eq!(page(&all), None);
        assert_eq!(
            page(&[problem, choice, rejected, cost, enforced]),
            Some(cost)
        );
        assert_eq!(page(&[problem, rejected, enforced, cost]), Some(choice));
        assert_eq!(page(&[]), Some(problem));
    }
}
