//! What the checks gave: a table on the terminal, and `docs/release-check.md`.

use super::Check;
use crate::document::{Document, Line, Mode};
use crate::sh;
use crate::tally::Tally;
use crate::workspace::Workspace;

const FILE: &str = "docs/release-check.md";
const INTRODUCTION: &str = "\
# Release checks

What `cargo xtask release-check` does before a release ([RELEASING.md](../RELEASING.md)), and what each check gave when it ran last, at which commit:
`cargo xtask release-check bookworm CHECK --write-table` runs the one of that name, or those in whose name CHECK is, and writes this page.
Artefacts are installed in clean systems without a network. There `rping`, `ibv_rc_pingpong`, `ib_write_bw` and `ib_send_lat` run in pairs,
and `ferroce demo`, as an ordinary user.
";

/// Prints the outcomes of the checks that ran, and writes them down if that is asked for.
pub(super) fn settle(
    workspace: &Workspace,
    checks: &[Check],
    outcomes: Vec<Option<String>>,
    mode: Mode,
    tally: &mut Tally,
) -> Result<(), String> {
    for (check, outcome) in checks.iter().zip(&outcomes) {
        if let Some(outcome) = outcome {
            println!("# {:<16} {outcome}", check.name);
        }
    }
    match mode {
        Mode::Write => {
            let root = workspace.root.to_string_lossy();
            let words = ["-C", &*root, "rev-parse", "--short=7", "HEAD"];
            let commit = sh::output("git", &words)?;
            let quick = std::env::var("CARGO_PROFILE_RELEASE_LTO").is_ok_and(|lto| lto == "off");
            let built = if quick { ", no LTO" } else { "" };
            // This page is no part of what was checked: rows before may have changed it.
            let others = format!(":!{FILE}");
            let words = ["-C", &*root, "status", "--porcelain", "--", ".", &others];
            let changed = sh::output("git", &words)?;
            let changed = if changed.trim().is_empty() { "" } else { "+" };
            let source = format!("{}{changed}{built}", commit.trim());
            document(checks, outcomes, &source).settle(workspace, mode, tally)
        }
        Mode::Check => Ok(()),
    }
}

fn document(checks: &[Check], outcomes: Vec<Option<String>>, source: &str) -> Document {
    let line = |(check, outcome): (&Check, Option<String>)| Line {
        section: "Checks".to_owned(),
        key: vec![format!("`{}`", check.name), check.what.to_owned()],
        results: vec![outcome.is_some().then(|| source.to_owned()), outcome],
    };
    Document {
        file: FILE,
        introduction: INTRODUCTION.to_owned(),
        columns: ["check", "what", "commit", "result"]
            .map(str::to_owned)
            .to_vec(),
        lines: checks.iter().zip(outcomes).map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::checks;
    use super::*;

    #[test]
    fn the_document_has_each_check_and_no_other() {
        let text = std::fs::read_to_string(Path::new("..").join(FILE)).unwrap();
        let listed: Vec<&str> = text.lines().filter(|l| l.starts_with("| `")).collect();
        let all = checks();
        let names: Vec<String> = all
            .iter()
            .map(|c| format!("| `{}` | {} |", c.name, c.what))
            .collect();
        assert_eq!(listed.len(), names.len());
        for (line, name) in listed.iter().zip(&names) {
            assert!(line.starts_with(name.as_str()), "{line}");
        }
    }

    #[test]
    fn what_did_not_run_has_no_commit() {
        let all = checks();
        let mut outcomes = vec![None; all.len()];
        outcomes[0] = Some("passes".to_owned());
        let lines = document(&all, outcomes, "1234567").lines;
        assert_eq!(
            lines[0].results,
            [Some("1234567".into()), Some("passes".into())]
        );
        assert_eq!(lines[1].results, [None, None]);
    }
}
