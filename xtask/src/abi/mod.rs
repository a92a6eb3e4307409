//! `cargo xtask abi`: which symbols rdma-core's two libraries export, by release. The drop-in
//! library exports them all, and its tests hold it against the same file.

mod map;
mod table;

use std::fs;
use std::path::Path;

use self::table::{Release, Table, Tree};
use crate::workspace::{Workspace, read};

/// The file, below the root of the repository.
const FILE: &str = "crates/dropin/symbols.txt";

/// Adds what a source tree of rdma-core exports to the file.
pub(crate) fn add(workspace: &Workspace, source: &str) -> Result<(), String> {
    let tree = read_tree(Path::new(source))?;
    let file = workspace.root.join(FILE);
    let mut table = if file.exists() {
        Table::parse(&read(&file)?)?
    } else {
        Table::default()
    };
    let (release, count) = (tree.release.to_string(), tree.symbols.len());
    table.add(tree);
    fs::write(&file, table.to_string()).map_err(|e| format!("{}: {e}", file.display()))?;
    println!("rdma-core {release}: {count} symbols, in {FILE}");
    Ok(())
}

/// What a source tree exports.
fn read_tree(source: &Path) -> Result<Tree, String> {
    let build = read(&source.join("CMakeLists.txt"))?;
    let release = Release::parse(setting(&build, "PACKAGE_VERSION")?)?;
    let private = setting(&build, "IBVERBS_PABI_VERSION")?;
    let verbs = read(&source.join("libibverbs/libibverbs.map.in"))?;
    let verbs = verbs.replace("@IBVERBS_PABI_VERSION@", private);
    let rdmacm = read(&source.join("librdmacm/librdmacm.map"))?;
    let mut symbols = map::symbols(&verbs)?;
    symbols.append(&mut map::symbols(&rdmacm)?);
    Ok(Tree { release, symbols })
}

/// The value of `set(NAME "VALUE")` in a file of CMake.
fn setting<'a>(build: &'a str, name: &str) -> Result<&'a str, String> {
    let (_, rest) = build
        .split_once(&format!("set({name} \""))
        .ok_or_else(|| format!("CMakeLists.txt does not set {name}"))?;
    let (value, _) = rest.split_once('"').unwrap_or((rest, ""));
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::setting;

    #[test]
    fn finds_a_setting() {
        let build = "# set\nset(PACKAGE_VERSION \"44.0\")\nset(IBVERBS_PABI_VERSION \"34\")\n";
        assert_eq!(setting(build, "PACKAGE_VERSION"), Ok("44.0"));
        assert_eq!(setting(build, "IBVERBS_PABI_VERSION"), Ok("34"));
        assert!(setting(build, "OTHER").is_err());
    }
}
