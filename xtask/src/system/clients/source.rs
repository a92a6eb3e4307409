//! Where a program comes from.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian::System;
use crate::packages::{self, Package};
use crate::sh;
use crate::workspace::Workspace;

/// The folder with the sources of all rows that need one.
const VARIABLE: &str = "FERROCE_CLIENTS_SRC";

/// What packages of Python need, and do not bring.
const PYTHON: &[Package] = &[
    Package::new("python3-venv", "/usr/share/doc/python3-venv"),
    Package::new("libcurl4", "/usr/share/doc/libcurl4"),
    Package::new("libnuma1", "/usr/share/doc/libnuma1"),
];

/// For the system of Debian's unstable release.
const UNSTABLE: &[Package] = &[
    Package::new("mmdebstrap", "mmdebstrap"),
    Package::new("util-linux", "unshare"),
];
/// What is in it.
const UNSTABLE_PACKAGES: &str =
    "ibverbs-utils,iproute2,libfabric-bin,libpython3-stdlib,python3-pyverbs,rdmacm-utils";

/// Where a row's program comes from.
pub(super) enum Origin {
    /// Debian's packages; the first one's version is shown.
    Debian(&'static [Package]),
    /// A package of Debian's unstable release.
    Unstable(&'static str),
    /// Python packages with their versions, as `pip` wants them; the first one is shown.
    Python(&'static [&'static str]),
    /// A source that the caller has built.
    Source(Source),
}

/// A source below `FERROCE_CLIENTS_SRC`.
#[derive(Clone, Copy)]
pub(super) struct Source {
    /// Its folder there.
    pub(super) folder: &'static str,
    /// Where it is published.
    pub(super) project: &'static str,
    /// The release.
    pub(super) tag: &'static str,
    /// What builds it, from the folder of all sources.
    pub(super) build: &'static str,
    /// What is there once it is built.
    pub(super) witness: &'static str,
    /// What building and running need.
    pub(super) packages: &'static [Package],
}

impl Origin {
    /// Whether programs run in a system of their own.
    pub(super) fn is_system(&self) -> bool {
        matches!(self, Self::Unstable(_))
    }

    /// Installs packages; the folder of a source, of a Python environment's commands, or of a
    /// system.
    ///
    /// # Errors
    /// For a person: what to do.
    pub(super) fn find(&self, workspace: &Workspace) -> Result<PathBuf, String> {
        match self {
            Self::Debian(list) => {
                packages::require(&[packages::SYSTEM, list]).map(|()| PathBuf::new())
            }
            Self::Unstable(_) => {
                packages::require(&[packages::SYSTEM, UNSTABLE])?;
                unstable(&workspace.target)
            }
            Self::Python(list) => {
                packages::require(&[packages::SYSTEM, PYTHON])?;
                environment(&workspace.target, list)
            }
            Self::Source(source) => {
                packages::require(&[packages::SYSTEM, source.packages])?;
                source.find_in(std::env::var_os(VARIABLE))
            }
        }
    }

    /// The version, for the table.
    pub(super) fn version(&self, folder: &Path) -> String {
        match self {
            Self::Debian(list) => {
                let name = list.first().map_or("", Package::name);
                format!("Debian's {name} {}", of_package(Path::new("/"), name))
            }
            Self::Unstable(name) => {
                format!("Debian's unstable {name} {}", of_package(folder, name))
            }
            Self::Python(list) => {
                let (name, version) = list[0].split_once("==").unwrap_or((list[0], ""));
                format!("PyPI's {name} {version}")
            }
            Self::Source(source) => {
                let folder = folder.to_string_lossy();
                let words = ["-C", &*folder, "describe", "--tags", "--always"];
                let version = sh::output("git", &words).unwrap_or_default();
                let version = Some(version.trim()).filter(|v| !v.is_empty());
                format!("{} {}", source.project, version.unwrap_or(source.tag))
            }
        }
    }
}

/// The version of a package of the system below `root`.
fn of_package(root: &Path, name: &str) -> String {
    let root = format!("--root={}", root.display());
    let words = [&*root, "--show", "--showformat=${Version}", name];
    let version = sh::output("dpkg-query", &words).unwrap_or_default();
    version.trim().to_owned()
}

/// A system of Debian's unstable release, made once; its folder.
fn unstable(target: &Path) -> Result<PathBuf, String> {
    let system = System {
        suite: "unstable",
        architecture: "amd64",
        packages: UNSTABLE_PACKAGES,
        hooks: &[],
        recipe: "",
    };
    let folder = target.join("clients-systems");
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    system.make(&folder, "unstable")
}

/// A virtual environment with these packages, made once; the folder of its commands. What the
/// packages ask for besides, torch and CUDA, the rows do not use: it is left out.
fn environment(target: &Path, list: &[&str]) -> Result<PathBuf, String> {
    let folder = target.join("clients-python").join(list.join("-"));
    let commands = folder.join("bin");
    let finished = folder.join("finished");
    if !finished.exists() {
        let mut make = Command::new("/usr/bin/python3");
        make.args(["-m", "venv", "--clear"]).arg(&folder);
        sh::step(make)?;
        let mut pip = Command::new(commands.join("pip"));
        pip.args(["--quiet", "install", "--no-deps"]).args(list);
        sh::step(pip)?;
        std::fs::write(&finished, "").map_err(|e| format!("{}: {e}", finished.display()))?;
    }
    Ok(commands)
}

impl Source {
    /// Its folder below that of all sources.
    ///
    /// # Errors
    /// For a person: what to do.
    pub(super) fn find_in(&self, all: Option<OsString>) -> Result<PathBuf, String> {
        let Self {
            folder,
            project,
            tag,
            build,
            witness,
            ..
        } = *self;
        let Some(all) = all else {
            return Err(format!(
                "set {VARIABLE} to a folder with {project} at {tag}, built there by\n  {build}"
            ));
        };
        let found = Path::new(&all).join(folder);
        if found.join(witness).exists() {
            return found
                .canonicalize()
                .map_err(|e| format!("{}: {e}", found.display()));
        }
        Err(format!(
            "{} is missing: {project} at {tag} is built, in {}, by\n  {build}",
            found.join(witness).display(),
            Path::new(&all).display()
        ))
    }
}
