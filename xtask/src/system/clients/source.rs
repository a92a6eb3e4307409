//! Where a program comes from.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::packages::{self, Package};
use crate::sh;

/// The folder with the sources of all rows that need one.
const VARIABLE: &str = "FERROCE_CLIENTS_SRC";

/// Where a row's program comes from.
pub(super) enum Origin {
    /// Debian's packages; the first one's version is shown.
    Debian(&'static [Package]),
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
    /// Installs packages; the folder of a source.
    ///
    /// # Errors
    /// For a person: what to do.
    pub(super) fn find(&self) -> Result<PathBuf, String> {
        match self {
            Self::Debian(list) => {
                packages::require(&[packages::SYSTEM, list]).map(|()| PathBuf::new())
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
                let words = ["--show", "--showformat=${Version}", name];
                let version = sh::output("dpkg-query", &words).unwrap_or_default();
                format!("Debian's {name} {}", version.trim())
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
