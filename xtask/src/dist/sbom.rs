//! The bill of materials: every library that the released files contain, in CycloneDX 1.5.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Part, linked, read};
use crate::sh;

/// The document.
pub(super) fn document(part: &Part<'_>) -> Result<String, String> {
    let sums = checksums(&read(&part.workspace.root.join("Cargo.lock"))?);
    let libraries = linked::libraries(part.workspace, part.system)?;
    let components: Vec<_> = libraries
        .iter()
        .map(|package| component(package, &sums))
        .collect();
    let refs: Vec<_> = components.iter().map(|c| c["bom-ref"].clone()).collect();
    let time = format!("-d@{}", part.about.time);
    let time = sh::output("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ", &time])?;
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": time.trim(),
            "component": {
                "type": "application",
                "bom-ref": "ferroce",
                "name": "ferroce",
                "version": part.about.version,
                "licenses": [{"expression": "MIT OR Apache-2.0"}],
            },
        },
        "components": components,
        "dependencies": [{"ref": "ferroce", "dependsOn": refs}],
    });
    let text = serde_json::to_string_pretty(&document).map_err(|e| e.to_string())?;
    Ok(text + "\n")
}

fn component(package: &Value, sums: &BTreeMap<(String, String), String>) -> Value {
    let [name, version, licence] =
        ["name", "version", "license"].map(|key| linked::text(package, key));
    let purl = format!("pkg:cargo/{name}@{version}");
    let mut component = json!({
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        // The slash is what older manifests write for "or".
        "licenses": [{"expression": licence.replace('/', " OR ")}],
    });
    if let Some(sum) = sums.get(&(name, version)) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
    }
    component
}

/// The checksums in `Cargo.lock`, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let value = |block: &str, key: &str| {
        let start = format!("{key} = \"");
        let found = block.lines().find_map(|line| line.strip_prefix(&start));
        found.map(|rest| rest.trim_end_matches('"').to_owned())
    };
    let entry = |block: &str| {
        let key = (value(block, "name")?, value(block, "version")?);
        Some((key, value(block, "checksum")?))
    };
    lock.split("[[package]]").filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::{checksums, component};

    #[test]
    fn a_component_has_its_licence_and_checksum() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n\
                    checksum = \"00ff\"\n\n[[package]]\nname = \"ours\"\nversion = \"2.0.0\"\n";
        let sums = checksums(lock);
        assert_eq!(sums.len(), 1);
        let package =
            serde_json::json!({"name": "a", "version": "1.0.0", "license": "MIT/BSL-1.0"});
        let component = component(&package, &sums);
        assert_eq!(component["licenses"][0]["expression"], "MIT OR BSL-1.0");
        assert_eq!(component["hashes"][0]["content"], "00ff");
    }
}
