//! The Python wheel: the command and its libraries inside of a package.

use std::path::Path;
use std::process::Command;

use super::tree::{BILL, COMMAND, LIBRARIES};
use super::{Part, copy, glibc, read, write};
use crate::sh;

/// Makes the wheel of the staged tree.
pub(super) fn build(part: &Part<'_>) -> Result<(), String> {
    let (workspace, about, tree) = (part.workspace, part.about, &part.tree);
    let root = part.staged.join("wheel");
    let (package, packaging) = (
        root.join("ferroce"),
        workspace.root.join("packaging/python"),
    );
    for name in ["__init__.py", "__main__.py"] {
        copy(&packaging.join("ferroce").join(name), &package.join(name))?;
    }
    copy(&tree.join(COMMAND), &package.join(COMMAND))?;
    let libraries = package.join(LIBRARIES);
    for name in [
        "libibverbs.so.1",
        "libferroce-sockets.so",
        "libferroce-sysfs.so",
    ] {
        copy(&tree.join(LIBRARIES).join(name), &libraries.join(name))?;
    }
    second_library(part, &libraries)?;
    let info = root.join(format!("ferroce-{}.dist-info", about.version));
    let metadata = about.fill(&read(&packaging.join("METADATA"))?, &[]);
    let readme = read(&workspace.root.join("README.md"))?;
    write(&info.join("METADATA"), metadata + &readme)?;
    let platform = glibc::OLDEST.manylinux(part.system);
    let wheel = about.fill(&read(&packaging.join("WHEEL"))?, &[("platform", &platform)]);
    write(&info.join("WHEEL"), wheel)?;
    let entry = "[console_scripts]\nferroce = ferroce.__main__:main\n";
    write(&info.join("entry_points.txt"), entry)?;
    for name in ["LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY"] {
        let from = tree.join("share/doc/ferroce").join(name);
        copy(&from, &info.join("licenses").join(name))?;
    }
    copy(&tree.join(BILL), &info.join("sboms/ferroce.cdx.json"))?;
    let mut pack = Command::new("/usr/bin/python3");
    pack.env("SOURCE_DATE_EPOCH", &about.time);
    pack.args(["-m", "wheel", "pack"]).arg(&root);
    pack.arg("--dest-dir").arg(part.to);
    sh::step(pack)
}

/// Makes a `librdmacm.so.1` that has nothing but the versions of that library and depends on
/// `libibverbs.so.1`, where the loader finds the symbols.
///
/// A wheel holds no links, and two copies of one file would be two devices to the loader.
fn second_library(part: &Part<'_>, libraries: &Path) -> Result<(), String> {
    let first = libraries.join("libibverbs.so.1");
    let about = sh::output(
        &part.system.tool("objdump"),
        &["-p", &first.to_string_lossy()],
    )?;
    let script = part.staged.join("librdmacm.map");
    write(&script, version_script(&about))?;
    let mut link = Command::new(part.system.tool("gcc"));
    link.args(["-shared", "-nostdlib", "-Wl,-soname,librdmacm.so.1"]);
    link.arg(format!("-Wl,--version-script={}", script.display()));
    link.args(["-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed"]);
    link.arg(&first);
    link.arg("-o").arg(libraries.join("librdmacm.so.1"));
    sh::step(link)
}

/// The version nodes of `librdmacm.so.1` that `objdump -p` shows, without symbols.
fn version_script(about: &str) -> String {
    let words = about
        .lines()
        .filter_map(|line| line.split_whitespace().last());
    let nodes = words.filter(|word| word.starts_with("RDMACM_"));
    let mut nodes: Vec<_> = nodes.collect();
    nodes.sort_unstable();
    nodes.dedup();
    let node = |name: &&str| format!("{name} {{ }};\n");
    nodes.iter().map(node).collect()
}

#[cfg(test)]
mod tests {
    use super::version_script;

    #[test]
    fn the_nodes_of_the_second_library_are_those_of_the_first() {
        let printed = "\
Version definitions:
1 0x01 0x0ff0e351 libibverbs.so.1
2 0x00 0x0a3d2a10 IBVERBS_1.0
18 0x00 0x0b3d2a10 RDMACM_1.0
19 0x00 0x0b3d2a11 RDMACM_1.1
\tRDMACM_1.0
";
        assert_eq!(
            version_script(printed),
            "RDMACM_1.0 { };\nRDMACM_1.1 { };\n"
        );
    }
}
