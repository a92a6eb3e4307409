//! The workspace's test programs. `cargo test` builds them with the features that all tests need
//! together. What runs some of them again (on other libraries, watched by valgrind, in the guest)
//! takes those: asked for one package, cargo would build them anew with fewer features.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::workspace::Workspace;

/// What the tests need of features that are not default ones.
pub(crate) const FEATURES: &str = "ferroce/log,ferroce/tokio,ferroce/futures-core,\
                                   ferroce/futures-io,ferroce/bytes,ferroce/serde";
/// What `cargo test` is told to test.
pub(crate) const ALL: [&str; 3] = ["--workspace", "--features", FEATURES];

/// A program of tests.
#[derive(Debug)]
pub(crate) struct Program {
    /// Name of its file in `tests`, or of its crate.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// Folder of its package, in which cargo runs it.
    folder: PathBuf,
}

impl Program {
    /// A command that runs it, after these words.
    pub(crate) fn after(&self, words: &[&str]) -> Command {
        let mut command = match words {
            [] => Command::new(&self.path),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(&self.path);
                command
            }
        };
        command.current_dir(&self.folder);
        command
    }
}

/// The test programs of a package.
pub(crate) fn of(workspace: &Workspace, package: &str) -> Result<Vec<Program>, String> {
    let folder = folder(workspace, package)?;
    let told = [&["test"][..], &ALL, &["--no-run"]].concat();
    let said = messages(workspace, &told)?;
    Ok(said
        .lines()
        .filter_map(|line| program(line, &folder))
        .collect())
}

/// Builds a benchmark as the words for cargo say; where it is.
pub(crate) fn bench(workspace: &Workspace, words: &[&str], name: &str) -> Result<PathBuf, String> {
    messages(
        workspace,
        &[&["build", "--release", "--bench", name], words].concat(),
    )?
    .lines()
    .filter_map(|line| serde_json::from_str::<Value>(line).ok())
    .filter(|message| message["target"]["name"] == name)
    .find_map(|message| message["executable"].as_str().map(PathBuf::from))
    .ok_or_else(|| format!("cargo names no program {name}"))
}

/// What cargo says of what it has built, a message a line.
fn messages(workspace: &Workspace, words: &[&str]) -> Result<String, String> {
    let mut cargo = workspace.cargo(&[words, &["--message-format=json"]].concat());
    let built = cargo
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("cargo: {e}"))?;
    if !built.status.success() {
        return Err(format!("{}: {}", crate::sh::line(&cargo), built.status));
    }
    Ok(String::from_utf8_lossy(&built.stdout).into_owned())
}

/// The test program of a package that has this name.
pub(crate) fn one(workspace: &Workspace, package: &str, name: &str) -> Result<Program, String> {
    let all = of(workspace, package)?;
    let mut found = all.into_iter().filter(|program| program.name == name);
    found
        .next()
        .ok_or_else(|| format!("{package} has no test program {name}"))
}

/// The test programs of a package that have these names, in their order.
pub(crate) fn named(
    workspace: &Workspace,
    package: &str,
    names: &[&str],
) -> Result<Vec<Program>, String> {
    let mut all = of(workspace, package)?;
    let one = |name: &&str| {
        let found = all.iter().position(|program| program.name == **name);
        let index = found.ok_or_else(|| format!("{package} has no test program {name}"))?;
        Ok(all.swap_remove(index))
    };
    names.iter().map(one).collect()
}

/// The test program that a line of cargo's messages names, if it is of the package in `folder`.
fn program(line: &str, folder: &Path) -> Option<Program> {
    let message: Value = serde_json::from_str(line).ok()?;
    let is_test = message["profile"]["test"] == true;
    let manifest = Path::new(message["manifest_path"].as_str()?);
    (is_test && manifest.parent()? == folder).then_some(())?;
    Some(Program {
        name: message["target"]["name"].as_str()?.to_owned(),
        path: message["executable"].as_str()?.into(),
        folder: folder.to_owned(),
    })
}

fn folder(workspace: &Workspace, package: &str) -> Result<PathBuf, String> {
    let packages = workspace.metadata["packages"].as_array();
    let found = packages
        .into_iter()
        .flatten()
        .find(|of| of["name"] == package);
    let manifest = found.and_then(|of| of["manifest_path"].as_str());
    manifest
        .and_then(|path| Path::new(path).parent())
        .map(Path::to_owned)
        .ok_or_else(|| format!("the workspace has no package {package}"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::program;

    #[test]
    fn a_message_names_a_test_program_of_its_package() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml",
            "target":{"kind":["test"],"name":"t"},"profile":{"test":true},"executable":"/x/t-1"}"#;
        let of = |folder| program(line, Path::new(folder));
        let found = of("/w/a").expect("one of that package");
        assert_eq!((&*found.name, &*found.path), ("t", Path::new("/x/t-1")));
        assert!(of("/w/b").is_none());
        let library = line.replace("true", "false");
        assert!(program(&library, Path::new("/w/a")).is_none());
    }
}
