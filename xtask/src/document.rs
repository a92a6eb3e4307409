//! Tables in `docs` that the tests write and hold themselves against.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::tally::Tally;
use crate::workspace::Workspace;

/// Whether a table is written anew, or held against what is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A difference is a failed test.
    Check,
    /// A difference is written down.
    Write,
}

/// A document that consists of an introduction and a table per section.
#[derive(Debug)]
pub(crate) struct Document {
    /// Its name below the root of the repository.
    pub(crate) file: &'static str,
    /// What stands above the tables.
    pub(crate) introduction: String,
    /// Names of the columns: first those which say what was done, then those which say what came
    /// out.
    pub(crate) columns: Vec<String>,
    /// All lines, in the order in which they shall stand, sections one after the other.
    pub(crate) lines: Vec<Line>,
}

/// A line of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Heading of the table it belongs to.
    pub(crate) section: String,
    /// What was done; no two lines of a section have the same.
    pub(crate) key: Vec<String>,
    /// What came out; `None` if it was not done this time.
    pub(crate) results: Vec<Option<String>>,
}

/// A result that nobody has seen yet.
const UNKNOWN: &str = "not run";

impl Document {
    /// Holds the results against the committed document, or writes it. What was not done this time
    /// stays as it is there.
    pub(crate) fn settle(
        mut self,
        workspace: &Workspace,
        mode: Mode,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let path = workspace.root.join(self.file);
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        self.fill_in(&committed);
        let text = self.text();
        if text == committed {
            tally.ok(self.file, Duration::ZERO);
            return Ok(());
        }
        if mode == Mode::Write {
            let folder = path.parent().unwrap_or(&workspace.root);
            std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
            println!("wrote {}", self.file);
            return std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()));
        }
        let mut said = vec!["it is not what the tests give (--write-table writes it):".to_owned()];
        for (sign, lines, others) in [("-", &committed, &text), ("+", &text, &committed)] {
            let others: Vec<&str> = others.lines().collect();
            let changed = lines.lines().filter(|line| !others.contains(line));
            said.extend(changed.map(|line| format!("{sign} {line}")));
        }
        tally.fail(self.file, &said.join("\n"));
        Ok(())
    }

    /// Takes the results of what was not done from the committed text.
    fn fill_in(&mut self, committed: &str) {
        let keys = self.lines.first().map_or(0, |line| line.key.len());
        let known = parse(committed, keys);
        for line in &mut self.lines {
            let before = known.get(&(line.section.clone(), line.key.clone()));
            for (at, result) in line.results.iter_mut().enumerate() {
                if result.is_none() {
                    let found = before.and_then(|cells| cells.get(at));
                    *result = Some(found.cloned().unwrap_or_else(|| UNKNOWN.into()));
                }
            }
        }
    }

    fn text(&self) -> String {
        let mut text = self.introduction.trim().to_owned();
        text.push('\n');
        let mut section = None;
        for line in &self.lines {
            if section != Some(&line.section) {
                section = Some(&line.section);
                let rule = "|---".repeat(self.columns.len());
                text += &format!(
                    "\n## {}\n\n| {} |\n{rule}|\n",
                    line.section,
                    self.columns.join(" | ")
                );
            }
            let results = line.results.iter().map(|r| r.as_deref().unwrap_or(UNKNOWN));
            let cells: Vec<&str> = line.key.iter().map(String::as_str).chain(results).collect();
            text += &format!("| {} |\n", cells.join(" | "));
        }
        text
    }
}

/// Results by section and key.
fn parse(text: &str, keys: usize) -> BTreeMap<(String, Vec<String>), Vec<String>> {
    let mut found = BTreeMap::new();
    let mut section = String::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            heading.clone_into(&mut section);
        } else if let Some(cells) = line.strip_prefix("| ").and_then(|l| l.strip_suffix(" |")) {
            let mut cells: Vec<String> = cells.split(" | ").map(str::to_owned).collect();
            let results = cells.split_off(keys.min(cells.len()));
            found.insert((section.clone(), cells), results);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{Document, Line};

    fn line(key: &str, result: Option<&str>) -> Line {
        Line {
            section: "one".into(),
            key: vec![key.into(), String::new()],
            results: vec![result.map(str::to_owned)],
        }
    }

    fn document(lines: Vec<Line>) -> Document {
        Document {
            file: "docs/none.md",
            introduction: "# Title\n".into(),
            columns: ["a", "b", "result"].map(str::to_owned).to_vec(),
            lines,
        }
    }

    #[test]
    fn what_was_not_done_keeps_its_result() {
        let before = document(vec![line("x", Some("passes")), line("y", Some("fails"))]).text();
        let mut after = document(vec![
            line("x", None),
            line("y", Some("passes")),
            line("z", None),
        ]);
        after.fill_in(&before);
        let results: Vec<_> = after.lines.iter().map(|l| l.results[0].clone()).collect();
        let expected = ["passes", "passes", "not run"].map(|r| Some(r.to_owned()));
        assert_eq!(results, expected);
    }

    #[test]
    fn a_text_has_a_table_for_each_section() {
        let text = document(vec![line("x", Some("passes"))]).text();
        assert_eq!(
            text,
            "# Title\n\n## one\n\n| a | b | result |\n|---|---|---|\n| x |  | passes |\n"
        );
    }
}
