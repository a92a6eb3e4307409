//! Whether the crates can be published: what crates.io asks of a package, and what its readers do.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::sh;
use crate::workspace::Workspace;

/// Fields of a manifest that each published crate fills in.
const FIELDS: [&str; 8] = [
    "description",
    "license",
    "repository",
    "readme",
    "rust_version",
    "keywords",
    "categories",
    "metadata",
];
/// Files that each package holds.
const FILES: [&str; 4] = ["Cargo.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// A crate that is published.
pub(crate) struct Crate {
    pub(crate) name: String,
    pub(crate) version: String,
}

impl Crate {
    /// The folder of its files in the folder where cargo unpacks what it verifies.
    pub(crate) fn folder(&self, workspace: &Workspace) -> PathBuf {
        let name = format!("{}-{}", self.name, self.version);
        workspace.target.join("package").join(name)
    }

    fn check_files(&self, workspace: &Workspace) -> Result<(), String> {
        let folder = self.folder(workspace);
        let package = format!("{}.crate", folder.display());
        let packed = sh::output("tar", &["-tzf", &package])?;
        let inside = Path::new(folder.file_name().unwrap_or_default());
        for file in FILES {
            let file = inside.join(file).display().to_string();
            if !packed.lines().any(|line| line == file) {
                return Err(format!("{package} lacks {file}"));
            }
        }
        Ok(())
    }
}

/// The published crates; an error names each field that a manifest lacks.
pub(crate) fn published(workspace: &Workspace) -> Result<Vec<Crate>, String> {
    let packages = workspace.metadata["packages"].as_array();
    let is_published = |package: &&Value| package["publish"].is_null();
    let mut missing = Vec::new();
    let mut found = Vec::new();
    for package in packages.into_iter().flatten().filter(is_published) {
        let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
        let crate_ = Crate {
            name: text("name"),
            version: text("version"),
        };
        let lacks = FIELDS.iter().filter(|key| is_empty(&package[**key]));
        missing.extend(lacks.map(|key| format!("{} lacks {key}", crate_.name)));
        found.push(crate_);
    }
    if missing.is_empty() {
        Ok(found)
    } else {
        Err(missing.join("\n"))
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        other => other.as_str().is_some_and(str::is_empty),
    }
}

/// Packs all crates as for crates.io. With `verify`, cargo also builds each from its own files and
/// those of the others, with no workspace around them.
pub(crate) fn package(workspace: &Workspace, verify: bool) -> Result<Vec<Crate>, String> {
    let crates = published(workspace)?;
    let mut command = workspace.cargo(&["package", "--quiet", "--allow-dirty"]);
    if !verify {
        command.arg("--no-verify");
    }
    for crate_ in &crates {
        command.args(["--package", &crate_.name]);
    }
    sh::step(command)?;
    for crate_ in &crates {
        crate_.check_files(workspace)?;
    }
    Ok(crates)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::is_empty;

    #[test]
    fn a_field_without_content_is_empty() {
        assert!([json!(null), json!(""), json!([])].iter().all(is_empty));
        assert!(!is_empty(&json!(["rdma"])) && !is_empty(&json!({"docs": 1})));
    }
}
