//! How comments and documents are written, as far as a program can tell.

use std::fs;
use std::path::Path;

use crate::workspace::{Workspace, read};

/// Columns of a comment.
const WIDTH: usize = 100;
/// Most bytes of a document.
const SIZES: [(&str, usize); 2] = [("README.md", 6 << 10), ("ARCHITECTURE.md", 12 << 10)];
/// Folders whose comments are looked at.
const FOLDERS: [&str; 3] = ["crates", "fuzz", "xtask"];
/// Words that hide a subject.
const HIDDEN: [&str; 2] = ["who", "whoever"];
/// How a SAFETY note begins that leans on another one.
const LEANING: [&str; 3] = ["SAFETY: as above", "SAFETY: as there", "SAFETY: see "];
/// An error names each comment and document that is not as it should be.
pub(crate) fn check(workspace: &Workspace) -> Result<(), String> {
    let mut wrong = Vec::new();
    for (name, most) in SIZES {
        let bytes = read(&workspace.root.join(name))?.len();
        if bytes > most {
            wrong.push(format!("{name} has {bytes} bytes, and may have {most}"));
        }
    }
    for folder in FOLDERS {
        walk(&workspace.root.join(folder), &mut |path| {
            let name = path.strip_prefix(&workspace.root).unwrap_or(path);
            let text = read(path)?;
            for (at, comment) in comments(&text) {
                if comment.width > WIDTH && !is_exempt(comment.text) {
                    wrong.push(format!(
                        "{}:{at}: {} columns",
                        name.display(),
                        comment.width
                    ));
                }
                if LEANING
                    .iter()
                    .any(|start| comment.text.trim().starts_with(start))
                {
                    wrong.push(format!(
                        "{}:{at}: a SAFETY note without a reason",
                        name.display()
                    ));
                }
                if hides_its_subject(comment.text) {
                    wrong.push(format!("{}:{at}: a subject is hidden", name.display()));
                }
            }
            Ok(())
        })?;
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n"))
    }
}

struct Comment<'a> {
    text: &'a str,
    /// Columns of its line.
    width: usize,
}

/// The comments of a file that have a line of their own, with the number of that line.
fn comments(text: &str) -> impl Iterator<Item = (usize, Comment<'_>)> {
    text.lines().enumerate().filter_map(|(at, line)| {
        let text = line.trim_start().strip_prefix("//")?;
        let width = line.chars().count();
        Some((at + 1, Comment { text, width }))
    })
}

/// Tables, examples and addresses cannot be broken.
fn is_exempt(comment: &str) -> bool {
    let text = comment.trim_start_matches(['/', '!']);
    let is_picture = text.starts_with("    ") || text.contains(['─', '│']);
    let text = text.trim();
    let is_command = text.starts_with('`') && text.ends_with('`');
    is_picture || is_command || text.starts_with(['|', '#']) || text.contains("://")
}

fn hides_its_subject(comment: &str) -> bool {
    let words = comment.split(|c: char| !c.is_alphanumeric() && c != '_');
    words
        .map(str::to_lowercase)
        .any(|word| HIDDEN.contains(&word.as_str()))
}

/// Gives each source file below a folder to `each`.
pub(crate) fn walk(
    folder: &Path,
    each: &mut impl FnMut(&Path) -> Result<(), String>,
) -> Result<(), String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            if !path.ends_with("target") && !path.ends_with("corpus") {
                walk(&path, each)?;
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            each(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_hidden_subjects_and_long_lines() {
        let long = format!("// {}x\n", "word ".repeat(20));
        let text = format!(
            "/// Whoever asks.\n//! the peer, who looks\nlet who = 1; // who\n{long}// a whole, whom\n"
        );
        let hidden: Vec<_> = comments(&text)
            .filter(|(_, comment)| hides_its_subject(comment.text))
            .map(|(at, _)| at)
            .collect();
        assert_eq!(hidden, [1, 2]);
        let wide = comments(&text).filter(|(_, comment)| comment.width > WIDTH);
        assert_eq!(wide.map(|(at, _)| at).collect::<Vec<_>>(), [4]);
        assert!(
            is_exempt("/ | a table |")
                && is_exempt("/ # a hidden line")
                && !is_exempt(" two words")
        );
    }
}
