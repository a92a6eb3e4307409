//! The licences of the libraries that are linked in. They ask for their text in every copy.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use super::linked::{self, text};
use super::{Part, at, read};

/// First words of the names of files with a licence.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

/// Name, version, licence and its texts, of each library that the released files contain.
pub(super) fn of_libraries(part: &Part<'_>) -> Result<String, String> {
    let mut out = String::from(INTRODUCTION);
    for package in &linked::libraries(part.workspace, part.system)? {
        add(&mut out, package)?;
    }
    Ok(out)
}

const INTRODUCTION: &str = "\
Libraries that are linked into ferroce and its two libraries, besides Rust's own (MIT or Apache-2.0,
https://www.rust-lang.org/policies/licenses), with their licences.
";

fn add(out: &mut String, package: &Value) -> Result<(), String> {
    let [name, version, licence] = ["name", "version", "license"].map(|key| text(package, key));
    let line = "=".repeat(100);
    write!(out, "\n{line}\n{name} {version}: {licence}\n").map_err(|e| e.to_string())?;
    let manifest = text(package, "manifest_path");
    let folder = Path::new(&manifest)
        .parent()
        .unwrap_or_else(|| Path::new("/"));
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .map_err(|e| at(folder, &e))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|file| is_licence(file))
        .collect();
    files.sort();
    for file in files {
        write!(out, "\n{}\n", read(&file)?.trim_end()).map_err(|e| e.to_string())?;
    }
    Ok(())
}

fn is_licence(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let name = name.to_uppercase();
    file.is_file() && NAMES.iter().any(|first| name.starts_with(first))
}
