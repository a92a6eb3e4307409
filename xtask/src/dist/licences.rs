//! The licences of the libraries that are linked in. They ask for their text in every copy.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use super::{at, read};
use crate::workspace::Workspace;

/// The packages whose results are released.
const RELEASED: [&str; 3] = ["ferroce-cli", "ferroce-dropin", "ferroce-sysfs"];
/// First words of the names of files with a licence.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

/// Name, version, licence and its texts, of each library that the released files contain.
pub(super) fn of_libraries(workspace: &Workspace) -> Result<String, String> {
    let metadata = metadata(workspace)?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let by_id = |value: &Value| -> BTreeMap<String, Value> {
        let entries = list(value).into_iter();
        entries.map(|entry| (text(&entry, "id"), entry)).collect()
    };
    let (packages, nodes) = (
        by_id(&metadata["packages"]),
        by_id(&metadata["resolve"]["nodes"]),
    );
    let released = |package: &Value| RELEASED.contains(&&*text(package, "name"));
    let ids = packages.iter().filter(|(_, package)| released(package));
    let mut waiting: Vec<String> = ids.map(|(id, _)| id.clone()).collect();
    let mut found = BTreeMap::new();
    while let Some(id) = waiting.pop() {
        if let (Some(package), Some(node)) = (packages.get(&id), nodes.get(&id))
            && found.insert(id.clone(), package).is_none()
        {
            let linked = list(&node["deps"]).into_iter().filter(is_linked);
            waiting.extend(linked.map(|dependency| text(&dependency, "pkg")));
        }
    }
    let mut out = String::from(INTRODUCTION);
    for package in found
        .values()
        .filter(|package| !package["source"].is_null())
    {
        add(&mut out, package)?;
    }
    Ok(out)
}

const INTRODUCTION: &str = "\
Libraries that are linked into ferroce and its two libraries, besides Rust's own (MIT or Apache-2.0,
https://www.rust-lang.org/policies/licenses), with their licences.
";

/// Whether a dependency becomes a part of the program, and not only of its build or its tests.
fn is_linked(dependency: &Value) -> bool {
    let kinds = dependency["dep_kinds"].as_array();
    kinds
        .into_iter()
        .flatten()
        .any(|kind| kind["kind"].is_null())
}

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

fn metadata(workspace: &Workspace) -> Result<Value, String> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let words = ["metadata", "--locked", "--format-version", "1"];
    let answer = workspace
        .cargo(&[&words[..], &["--filter-platform", &target]].concat())
        .output()
        .map_err(|e| format!("cargo metadata: {e}"))?;
    serde_json::from_slice(&answer.stdout).map_err(|e| format!("cargo metadata: {e}"))
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}
