//! Which crate may depend on which: arrows go one way, downwards (see ARCHITECTURE.md).

use serde_json::Value;

use crate::workspace::Workspace;

/// Every crate of the workspace with those that it may name.
const ALLOWED: &[(&str, &[&str])] = &[
    // The device itself only to ask processes what they say of their paths.
    ("ferroce-cli", &["ferroce", "ferroce-nic", "ferroce-os"]),
    ("ferroce-dropin", &["ferroce-abi"]),
    ("ferroce", &["ferroce-abi", "ferroce-os"]),
    (
        "ferroce-abi",
        &["ferroce-nic", "ferroce-os", "ferroce-proto"],
    ),
    ("ferroce-nic", &["ferroce-os", "ferroce-proto"]),
    ("ferroce-os", &["ferroce-proto"]),
    ("ferroce-proto", &[]),
    // Tests only: it ships nowhere.
    (
        "ferroce-conformance",
        &["ferroce-abi", "ferroce-nic", "ferroce-os", "ferroce-proto"],
    ),
    // Loaded into every program: it finds the drop-in library at run time, and only in those that
    // look for devices.
    ("ferroce-sysfs", &["ferroce-os"]),
    ("ferroce-sockets", &["ferroce-os"]),
    ("xtask", &[]),
];

/// Crates without a line of unsafe code, by the compiler's own promise.
const SAFE: &[(&str, &str)] = &[
    ("ferroce-proto", "lib.rs"),
    ("ferroce-nic", "lib.rs"),
    ("ferroce-cli", "main.rs"),
    ("xtask", "main.rs"),
];

/// Holds `cargo metadata` against the lists; an error names every arrow that is not there.
pub(crate) fn check(workspace: &Workspace) -> Result<(), String> {
    let mut wrong = Vec::new();
    for package in list(&workspace.metadata["packages"]) {
        let name = text(&package["name"]);
        let Some((_, allowed)) = ALLOWED.iter().find(|(n, _)| *n == name) else {
            wrong.push(format!(
                "{name} is new: give it its arrows in xtask/src/arrows.rs"
            ));
            continue;
        };
        for dependency in list(&package["dependencies"]) {
            let to = text(&dependency["name"]);
            let ours = ALLOWED.iter().any(|(n, _)| *n == to);
            // Tests may look across; what ships may not.
            if ours && dependency["kind"] != "dev" && !allowed.contains(&to) {
                wrong.push(format!("{name} must not depend on {to}"));
            }
        }
        if let Some((_, file)) = SAFE.iter().find(|(n, _)| *n == name) {
            wrong.extend(check_forbids(text(&package["manifest_path"]), file));
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n"))
    }
}

fn check_forbids(manifest: &str, file: &str) -> Option<String> {
    let path = std::path::Path::new(manifest)
        .with_file_name("src")
        .join(file);
    let source = std::fs::read_to_string(&path).unwrap_or_default();
    let missing = !source.contains("#![forbid(unsafe_code)]");
    missing.then(|| format!("{} must say #![forbid(unsafe_code)]", path.display()))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
