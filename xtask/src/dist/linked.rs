//! The libraries of others that the released files contain.

use std::collections::BTreeMap;

use serde_json::Value;

use super::system::System;
use crate::workspace::Workspace;

/// The packages whose results are released.
const RELEASED: [&str; 4] = [
    "ferroce-cli",
    "ferroce-dropin",
    "ferroce-sockets",
    "ferroce-sysfs",
];

/// What `cargo metadata` says of each library that is linked in.
pub(super) fn libraries(workspace: &Workspace, system: System) -> Result<Vec<Value>, String> {
    let metadata = metadata(workspace, &system.triple())?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let by_id = |value: &Value| -> BTreeMap<String, Value> {
        let entries = list(value).into_iter();
        entries.map(|entry| (text(&entry, "id"), entry)).collect()
    };
    let mut packages = by_id(&metadata["packages"]);
    let nodes = by_id(&metadata["resolve"]["nodes"]);
    let released = |package: &Value| RELEASED.contains(&&*text(package, "name"));
    let ids = packages.iter().filter(|(_, package)| released(package));
    let mut waiting: Vec<String> = ids.map(|(id, _)| id.clone()).collect();
    let mut found = BTreeMap::new();
    while let Some(id) = waiting.pop() {
        if let (Some(package), Some(node)) = (packages.remove(&id), nodes.get(&id)) {
            found.insert(id, package);
            let linked = list(&node["deps"]).into_iter().filter(is_linked);
            waiting.extend(linked.map(|dependency| text(&dependency, "pkg")));
        }
    }
    let others = found.into_values();
    Ok(others
        .filter(|package| !package["source"].is_null())
        .collect())
}

/// Whether a dependency becomes a part of the program, and not only of its build or its tests.
fn is_linked(dependency: &Value) -> bool {
    let kinds = dependency["dep_kinds"].as_array();
    kinds
        .into_iter()
        .flatten()
        .any(|kind| kind["kind"].is_null())
}

fn metadata(workspace: &Workspace, target: &str) -> Result<Value, String> {
    let words = ["metadata", "--locked", "--format-version", "1"];
    let answer = workspace
        .cargo(&[&words[..], &["--filter-platform", target]].concat())
        .output()
        .map_err(|e| format!("cargo metadata: {e}"))?;
    serde_json::from_slice(&answer.stdout).map_err(|e| format!("cargo metadata: {e}"))
}

/// A text of an object, empty if there is none.
pub(super) fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}
