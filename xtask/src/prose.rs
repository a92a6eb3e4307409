//! How comments and documents are written, as far as a program can tell.
//!
//! | where | what is refused |
//! |---|---|
//! | comments of Rust and C | more than 100 columns; a word of [`HIDDEN`] (a named thing is the subject) |
//! | `reason = "…"` of Rust | a word of [`HIDDEN`] |
//! | SAFETY notes | those that lean on another one |
//! | documents | such a word with nothing before it that it could stand for; more bytes than [`SIZES`] |

use std::fs;
use std::path::{Path, PathBuf};

use crate::workspace::{Workspace, read};

/// Columns of a comment.
const WIDTH: usize = 100;
/// Columns from one tab stop to the next, in C.
const TAB: usize = 8;
/// Most bytes of a document.
const SIZES: [(&str, usize); 2] = [("README.md", 6 << 10), ("ARCHITECTURE.md", 12 << 10)];
/// Folders whose Rust is looked at.
const RUST: [&str; 3] = ["crates", "fuzz", "xtask"];
/// Folders whose C is looked at.
const C: [&str; 1] = ["tests"];
/// Folders whose documents are looked at, besides those of the root.
const DOCUMENTS: [&str; 4] = ["docs", "crates", "fuzz", "tests"];
/// Words that hide a subject.
const HIDDEN: [&str; 2] = ["who", "whoever"];
/// How a SAFETY note begins that leans on another one.
const LEANING: [&str; 6] = [
    "SAFETY: as above",
    "SAFETY: as for ",
    "SAFETY: as in ",
    "SAFETY: as there",
    "SAFETY: as `",
    "SAFETY: see ",
];
/// What the text before a word of [`HIDDEN`] ends with if the word stands for nothing.
const BARE_BEFORE: [&str; 7] = [".", ";", ":", "(", " and", " or", " as"];
/// What is said of a SAFETY note that begins so.
const LEANS: &str = "a SAFETY note without a reason";
/// What is said of a line with a word of [`HIDDEN`].
const IS_HIDDEN: &str = "a subject is hidden";

/// An error names each comment and document that is not as it should be.
pub(crate) fn check(workspace: &Workspace) -> Result<(), String> {
    let mut wrong = Vec::new();
    for (name, most) in SIZES {
        let bytes = read(&workspace.root.join(name))?.len();
        if bytes > most {
            wrong.push(format!("{name} has {bytes} bytes, and may have {most}"));
        }
    }
    let mut look = |path: &Path, faults: fn(&str) -> Vec<Fault>| {
        let name = path.strip_prefix(&workspace.root).unwrap_or(path).display();
        let faults = faults(&read(path)?);
        wrong.extend(
            faults
                .iter()
                .map(|(at, what)| format!("{name}:{at}: {what}")),
        );
        Ok(())
    };
    for folder in RUST {
        walk(&workspace.root.join(folder), &["rs"], &mut |path| {
            look(path, of_rust)
        })?;
    }
    for folder in C {
        walk(&workspace.root.join(folder), &["c", "h"], &mut |path| {
            look(path, of_c)
        })?;
    }
    for path in at_the_root(workspace)? {
        look(&path, of_document)?;
    }
    for folder in DOCUMENTS {
        walk(&workspace.root.join(folder), &["md"], &mut |path| {
            look(path, of_document)
        })?;
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n"))
    }
}

/// Number of a line, and what is wrong there.
type Fault = (usize, String);

fn of_rust(text: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (at, comment) in comments(text) {
        if comment.width > WIDTH && !is_exempt(comment.text) {
            faults.push((at, format!("{} columns", comment.width)));
        }
        let note = comment.text.trim();
        if LEANING.iter().any(|start| note.starts_with(start)) {
            faults.push((at, LEANS.into()));
        }
        if hides_its_subject(comment.text) {
            faults.push((at, IS_HIDDEN.into()));
        }
    }
    for (at, line) in lines(text) {
        let reason = line.split_once("reason = \"");
        if reason.is_some_and(|(_, rest)| hides_its_subject(rest)) {
            faults.push((at, IS_HIDDEN.into()));
        }
    }
    faults
}

fn of_c(text: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut is_inside = false;
    for (at, line) in lines(text) {
        let Some(comment) = (if is_inside {
            Some(line)
        } else {
            line.split_once("/*").map(|(_, rest)| rest)
        }) else {
            continue;
        };
        is_inside = !comment.contains("*/");
        let width = columns(line);
        if width > WIDTH && !is_exempt(comment) {
            faults.push((at, format!("{width} columns")));
        }
        if hides_its_subject(comment) {
            faults.push((at, IS_HIDDEN.into()));
        }
    }
    faults
}

/// Code, headings and questions may ask.
fn of_document(text: &str) -> Vec<Fault> {
    let mut is_code = false;
    let mut faults = Vec::new();
    for (at, line) in lines(text) {
        is_code ^= line.trim_start().starts_with("```");
        if is_code || line.starts_with('#') {
            continue;
        }
        let is_table = line.starts_with('|');
        let hides = |cell: &str| stands_for_nothing(cell, is_table);
        if line.split('|').any(hides) {
            faults.push((at, IS_HIDDEN.into()));
        }
    }
    faults
}

/// Whether a piece of prose has a word of [`HIDDEN`] with nothing before it that it could stand
/// for: the longer one never has. A line may go on with the sentence before it; a cell of a table
/// begins one.
fn stands_for_nothing(piece: &str, is_cell: bool) -> bool {
    let piece = piece.trim().to_lowercase();
    if piece.ends_with('?') {
        return false;
    }
    let mut before = String::new();
    for word in piece.split_whitespace() {
        let bare: String = word.chars().filter(|c| c.is_alphanumeric()).collect();
        let begins = if before.is_empty() {
            is_cell
        } else {
            BARE_BEFORE.iter().any(|end| before.ends_with(end))
        };
        if bare == "whoever" || bare == "who" && (begins || word.starts_with('(')) {
            return true;
        }
        before.push(' ');
        before.push_str(word);
    }
    false
}

/// The lines of a file with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(at, line)| (at + 1, line))
}

/// Columns that a line of C takes.
fn columns(line: &str) -> usize {
    line.chars().fold(0, |at, c| match c {
        '\t' => (at / TAB + 1) * TAB,
        _ => at + 1,
    })
}

/// The documents beside the workspace's manifest.
fn at_the_root(workspace: &Workspace) -> Result<Vec<PathBuf>, String> {
    let root = &workspace.root;
    let entries = fs::read_dir(root).map_err(|e| format!("{}: {e}", root.display()))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "md"));
    paths.sort();
    Ok(paths)
}

struct Comment<'a> {
    text: &'a str,
    /// Columns of its line.
    width: usize,
}

/// The comments of a file that have a line of their own, with the number of that line.
fn comments(text: &str) -> impl Iterator<Item = (usize, Comment<'_>)> {
    lines(text).filter_map(|(at, line)| {
        let text = line.trim_start().strip_prefix("//")?;
        let width = line.chars().count();
        Some((at, Comment { text, width }))
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

/// Gives each file below a folder that has one of these extensions to `each`.
pub(crate) fn walk(
    folder: &Path,
    extensions: &[&str],
    each: &mut impl FnMut(&Path) -> Result<(), String>,
) -> Result<(), String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            if !path.ends_with("target") && !path.ends_with("corpus") {
                walk(&path, extensions, each)?;
            }
        } else if path
            .extension()
            .is_some_and(|e| extensions.iter().any(|wanted| e == *wanted))
        {
            each(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_is_wrong_in_c_and_in_reasons() {
        let text = "int a; /* short */\n/*\n * whoever asks\n */\n\tint who; /* the peer */\n";
        assert_eq!(of_c(text), [(3, IS_HIDDEN.to_owned())]);
        let long = format!("\t/* {} */", "x".repeat(90));
        assert_eq!(of_c(&long), [(1, "104 columns".to_owned())]);
        let text = "#[expect(unused, reason = \"for whoever runs it\")]\nlet who = \"reason\";\n";
        assert_eq!(of_rust(text), [(1, IS_HIDDEN.to_owned())]);
    }

    #[test]
    fn a_safety_note_has_a_reason_of_its_own() {
        for wrong in [
            "as above.",
            "as for completion queues.",
            "as in `bytes`; and `self` is borrowed mutably.",
            "as `stat`.",
            "see `stat`.",
        ] {
            let text = format!("fn f() {{\n    // SAFETY: {wrong}\n}}\n");
            assert_eq!(of_rust(&text), [(2, LEANS.to_owned())], "{wrong}");
        }
        for right in ["as many bytes as were allocated.", "a live context."] {
            assert_eq!(of_rust(&format!("// SAFETY: {right}\n")), [], "{right}");
        }
    }

    #[test]
    fn documents_may_ask_and_name_a_subject() {
        for right in [
            "| Who is trusted? | a user who asks |",
            "## Who is trusted with what",
            "This page says who is trusted.",
            "who asked for it, and got it.",
            "```\n// Whoever asks.\n```",
        ] {
            assert_eq!(of_document(right), [], "{right}");
        }
        for wrong in [
            "| `a.rs` | who waits |",
            "It is open. Who asks gets it.",
            "what happens, and who knows of it",
            "(who sends it)",
            "all of them, whoever they are",
        ] {
            assert_eq!(of_document(wrong), [(1, IS_HIDDEN.to_owned())], "{wrong}");
        }
    }

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
