//! Clean systems made of Debian's packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::dist::{renew, write};
use crate::sh;

/// A system that is to be made.
#[derive(Debug)]
pub(crate) struct System<'a> {
    /// Release of Debian.
    pub(crate) suite: &'a str,
    /// Debian's name of the processor.
    pub(crate) architecture: &'a str,
    /// Packages besides the smallest system, with commas.
    pub(crate) packages: &'a str,
    /// Shell commands in which `$1` is the system's folder, run when all packages are there.
    pub(crate) hooks: &'a [String],
    /// What the hooks depend on besides: another text, another system.
    pub(crate) recipe: &'a str,
}

impl System<'_> {
    /// The system below `folder`, by its name there; made once.
    pub(crate) fn make(&self, folder: &Path, name: &str) -> Result<PathBuf, String> {
        let (root, fresh) = (folder.join(name), folder.join(format!("{name}-fresh")));
        let (made_of, recipe) = (folder.join(format!("{name}-recipe")), self.recipe());
        if std::fs::read_to_string(&made_of).ok().as_deref() == Some(&recipe) && root.exists() {
            return Ok(root);
        }
        remove(&root)?;
        renew(&fresh)?;
        let mut make = Command::new("mmdebstrap");
        make.args(["--quiet", "--variant=minbase"]);
        // What a mirror has, however old: a release is not to fail for its age.
        make.arg("--aptopt=Acquire::Check-Valid-Until \"false\"");
        make.arg(format!("--architectures={}", self.architecture));
        make.arg(format!("--include={}", self.packages));
        for hook in self.hooks {
            make.arg(format!("--customize-hook={hook}"));
        }
        make.arg(self.suite).arg(&fresh);
        sh::step(make)?;
        std::fs::rename(&fresh, &root).map_err(|e| format!("{}: {e}", root.display()))?;
        write(&made_of, &recipe)?;
        Ok(root)
    }

    /// All that the system is made of.
    fn recipe(&self) -> String {
        let Self {
            suite,
            architecture,
            packages,
            hooks,
            recipe,
        } = self;
        [suite, architecture, packages, &*hooks.concat(), recipe].join("\n")
    }
}

/// Removes a folder, if it is there.
pub(crate) fn remove(folder: &Path) -> Result<(), String> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    Ok(())
}
