//! Where things are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The workspace that this program belongs to.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// Folder of the workspace's `Cargo.toml`.
    pub(crate) root: PathBuf,
    /// Cargo's target folder, wherever the settings put it.
    pub(crate) target: PathBuf,
    /// `cargo metadata` of the workspace's own packages.
    pub(crate) metadata: Value,
}

/// The text of a file; an error names it.
pub(crate) fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))
}

impl Workspace {
    /// Asks cargo.
    pub(crate) fn find() -> Result<Self, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .ok_or("xtask has no parent folder")?
            .to_path_buf();
        let answer = cargo_in(&root, &["metadata", "--no-deps", "--format-version", "1"])
            .output()
            .map_err(|e| format!("cargo metadata: {e}"))?;
        if !answer.status.success() {
            return Err(format!(
                "cargo metadata: {}",
                String::from_utf8_lossy(&answer.stderr)
            ));
        }
        let metadata: Value =
            serde_json::from_slice(&answer.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
        let target = metadata["target_directory"]
            .as_str()
            .ok_or("cargo metadata names no target directory")?;
        Ok(Self {
            root,
            target: target.into(),
            metadata,
        })
    }

    /// A cargo command at the root.
    pub(crate) fn cargo(&self, args: &[&str]) -> Command {
        cargo_in(&self.root, args)
    }

    /// Folder of the release build.
    pub(crate) fn release(&self) -> PathBuf {
        self.target.join("release")
    }
}

fn cargo_in(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(args);
    command
}
