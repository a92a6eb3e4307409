//! The release builds, for older systems than the one that builds, and for others.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::glibc;
use super::system::{Library, System};
use crate::sh;
use crate::workspace::Workspace;

/// A linker with the symbols of every glibc and with musl, and the cargo command that uses it. Both
/// are made for this, and come as Python packages, so nothing of it has to be compiled.
const TOOLS: [&str; 2] = ["cargo-zigbuild==0.24.0", "ziglang==0.17.1"];
/// Debian's compiler, which has the source of its standard library.
const COMPILER: &str = "/usr/bin/rustc";

/// Builds the command and the libraries for a system; the folder where they are.
pub(super) fn release(workspace: &Workspace, system: System) -> Result<PathBuf, String> {
    let tools = tools(workspace)?;
    let triple = system.triple();
    let target = match system.library {
        Library::Glibc => format!("{triple}.{}", glibc::OLDEST),
        Library::Musl => triple.clone(),
    };
    let mut build = workspace.cargo(&["zigbuild", "--release", "--locked", "--target", &target]);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(tools).chain(std::env::split_paths(&path)));
    build.env("PATH", path.map_err(|e| e.to_string())?);
    build.env("RUSTFLAGS", flags(system)?);
    if !system.is_native() {
        // No toolchain has the standard library of every system.
        build.arg("-Zbuild-std=std,panic_abort");
        build.env("RUSTC", COMPILER).env("RUSTC_BOOTSTRAP", "1");
    }
    sh::step(build)?;
    Ok(workspace.target.join(triple).join("release"))
}

/// Cargo's tests for aarch64, to be run by the emulator.
pub(crate) fn tests_for_aarch64(workspace: &Workspace, words: &[&str]) -> Command {
    let system = System::AARCH64;
    let triple = system.triple();
    let mut test = workspace.cargo(&["test", "--locked", "--target", &triple]);
    test.args(words);
    test.arg("-Zbuild-std=std,panic_abort,test");
    test.env("RUSTC", COMPILER).env("RUSTC_BOOTSTRAP", "1");
    // Tests unwind, whatever the profile says: the standard library would be built both ways, and
    // crates would mix them.
    test.env("CARGO_PROFILE_DEV_PANIC", "unwind");
    let setting = |name: &str| {
        let triple = triple.to_uppercase().replace('-', "_");
        format!("CARGO_TARGET_{triple}_{name}")
    };
    test.env(setting("LINKER"), system.tool("gcc"));
    test.env(setting("RUNNER"), "qemu-aarch64-static");
    // A variable, so that processes that a test starts find their loader, too.
    test.env("QEMU_LD_PREFIX", "/usr/aarch64-linux-gnu");
    test
}

/// With glibc the unwinder is the system's, as in every other build: with one of its own a library
/// would misread the frames that the system's hands to it when a program cancels a thread. Musl
/// unwinds nothing then, and its systems often have no unwinder, so there it is linked in.
fn flags(system: System) -> Result<String, String> {
    match system.library {
        Library::Glibc => {
            let compiler = system.tool("gcc");
            let unwinder = sh::output(&compiler, &["-print-file-name=libgcc_s.so.1"])?;
            // That file itself needs the glibc of this machine; the system of the user has its own.
            let lenient = "-Clink-arg=-Wl,--allow-shlib-undefined";
            Ok(format!("-Clink-arg={} {lenient}", unwinder.trim()))
        }
        // Libraries are not possible otherwise.
        Library::Musl => Ok("-Ctarget-feature=-crt-static".into()),
    }
}

/// Zig's compiler, which brings a C library to link statically.
pub(super) fn zig(workspace: &Workspace) -> Result<Command, String> {
    let mut command = Command::new(tools(workspace)?.join("python"));
    command.args(["-m", "ziglang"]);
    Ok(command)
}

/// A Python environment with the tools; the folder of its commands.
fn tools(workspace: &Workspace) -> Result<PathBuf, String> {
    let folder = workspace.target.join(format!("tools-{}", TOOLS.join("-")));
    let commands = folder.join("bin");
    if !commands.join("cargo-zigbuild").exists() {
        let mut make = Command::new("/usr/bin/python3");
        make.args(["-m", "venv"]).arg(&folder);
        sh::step(make)?;
        install(&commands, &TOOLS)?;
    }
    Ok(commands)
}

fn install(commands: &Path, packages: &[&str]) -> Result<(), String> {
    let mut pip = Command::new(commands.join("pip"));
    pip.args(["--quiet", "install"]).args(packages);
    sh::step(pip)
}
