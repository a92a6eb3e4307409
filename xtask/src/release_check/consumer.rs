//! A program of a stranger that takes the crates as crates.io would give them.

use std::process::Command;

use crate::crates::{self, Crate};
use crate::dist::{renew, write};
use crate::sh;
use crate::workspace::Workspace;

const PROGRAM: &str = r#"
fn main() -> Result<(), ferroce::Error> {
    for device in ferroce::device::devices()? {
        println!("{}", device.name());
    }
    Ok(())
}
"#;

/// Packs the crates, builds each from its package, and runs a program on what is in the packages.
pub(super) fn check(workspace: &Workspace) -> Result<(), String> {
    let crates = crates::package(workspace, true)?;
    let folder = workspace.target.join("release-check/consumer");
    renew(&folder)?;
    write(&folder.join("Cargo.toml"), manifest(workspace, &crates))?;
    write(&folder.join("src/main.rs"), PROGRAM)?;
    let mut run = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    run.current_dir(&folder).args(["run", "--quiet"]);
    let names = sh::output_of(&mut run)?;
    if names.lines().any(|name| name == "ferroce_lo") {
        Ok(())
    } else {
        Err(format!("the program found these devices: {names}"))
    }
}

/// Depends on `ferroce`; the packages stand in for the registry.
fn manifest(workspace: &Workspace, crates: &[Crate]) -> String {
    let patch = |crate_: &Crate| {
        let path = crate_.folder(workspace);
        format!("{} = {{ path = {path:?} }}\n", crate_.name)
    };
    let patches: String = crates.iter().map(patch).collect();
    format!(
        "[package]\nname = \"consumer\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\nferroce = \"*\"\n\n[patch.crates-io]\n{patches}"
    )
}
