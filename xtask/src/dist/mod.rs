//! `cargo xtask dist`: what a release consists of, in `target/dist`.

mod build;
mod deb;
mod glibc;
mod image;
mod licences;
mod linked;
mod musl;
mod rpm;
mod sbom;
mod system;
mod tree;
mod wheel;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use self::build::tests_for_aarch64;
use self::system::{Library, SYSTEMS, System};
use crate::packages;
use crate::sh;
use crate::workspace::{Workspace, read};

/// What all artefacts tell of themselves.
struct About {
    version: String,
    repository: String,
    /// Of the last commit, in seconds: nothing in an artefact is newer, so two builds are the same.
    time: String,
}

/// The files for one system, and what packages of them are made with.
struct Part<'a> {
    workspace: &'a Workspace,
    about: &'a About,
    system: System,
    /// Folder for what is made on the way.
    staged: PathBuf,
    /// The files as they are installed, in that folder.
    tree: PathBuf,
    /// Folder of the artefacts.
    to: &'a Path,
}

/// Builds all artefacts from the present sources, for the systems in whose name `filter` is.
pub(crate) fn run(workspace: &Workspace, filter: &str) -> Result<(), String> {
    if std::env::consts::ARCH != "x86_64" {
        return Err("releases are made on x86-64".into());
    }
    packages::require(&[packages::DIST])?;
    let systems = SYSTEMS.map(|system| (system, system.to_string()));
    let mut wanted: Vec<_> = systems.iter().filter(|(_, n)| n.contains(filter)).collect();
    if wanted.is_empty() {
        let all = systems.map(|(_, name)| name).join(", ");
        return Err(format!("no system {filter}; there are {all}"));
    }
    // The command of this machine writes the manual of all.
    if !wanted.iter().any(|(system, _)| system.is_native()) {
        wanted.insert(0, &systems[0]);
    }
    let about = About::ask(workspace)?;
    let folder = folder(workspace);
    let staged = workspace.target.join("dist-staged");
    for folder in [&folder, &staged] {
        renew(folder)?;
    }
    for (system, name) in wanted {
        let staged = staged.join(name);
        Part {
            workspace,
            about: &about,
            system: *system,
            tree: staged.join(format!("ferroce-{}-{name}", about.version)),
            staged,
            to: &folder,
        }
        .build()?;
    }
    for name in [
        "action.yml",
        "setup.sh",
        "gitlab.yml",
        "perftest.sh",
        "valkey.sh",
    ] {
        copy(
            &workspace.root.join("packaging/ci").join(name),
            &folder.join(name),
        )?;
    }
    sums(&folder)
}

impl Part<'_> {
    fn build(&self) -> Result<(), String> {
        let built = build::release(self.workspace, self.system)?;
        let files = tree::stage(self, &built)?;
        match self.system.library {
            Library::Glibc => glibc::check(self.system, &files)?,
            Library::Musl => musl::check(self.system, &files)?,
        }
        let name = self.tree.file_name().unwrap_or_default().to_string_lossy();
        for packed in [name.to_string(), format!("{name}-debug")] {
            let file = self.to.join(format!("{packed}.tar.gz"));
            sh::step(tarball(&self.staged, &packed, &file, self.about))?;
        }
        if self.system.library == Library::Glibc {
            deb::build(self)?;
            rpm::build(self)?;
            wheel::build(self)?;
            image::build(self)?;
        }
        if self.system.is_native() {
            let bill = format!("ferroce-{}.cdx.json", self.about.version);
            copy(&self.tree.join(tree::BILL), &self.to.join(bill))?;
        }
        Ok(())
    }
}

/// Where the artefacts are.
pub(crate) fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("dist")
}

impl About {
    fn ask(workspace: &Workspace) -> Result<Self, String> {
        let packages = workspace.metadata["packages"].as_array();
        let mut packages = packages.into_iter().flatten();
        let command = packages.find(|package| package["name"] == "ferroce-cli");
        let text = |key: &str| command.and_then(|package| package[key].as_str());
        let root = workspace.root.to_string_lossy();
        let time = sh::output("git", &["-C", &root, "log", "-1", "--format=%ct"])?;
        Ok(Self {
            version: text("version").ok_or("no version of ferroce-cli")?.into(),
            repository: text("repository")
                .ok_or("no repository of ferroce-cli")?
                .into(),
            time: time.trim().to_owned(),
        })
    }

    /// A template of `packaging` with `{version}` and `{repository}`, and these besides, filled in.
    fn fill(&self, template: &str, more: &[(&str, &str)]) -> String {
        let own = [
            ("version", &*self.version),
            ("repository", &*self.repository),
        ];
        let all = own.iter().chain(more);
        all.fold(template.to_owned(), |text, (key, value)| {
            text.replace(&format!("{{{key}}}"), value)
        })
    }
}

/// `tar` with nothing of this machine in the result.
fn tarball(from: &Path, name: &str, to: &Path, about: &About) -> Command {
    let mut command = Command::new("tar");
    command
        .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
        .args(["--mode=go-w", "--format=gnu"])
        .arg(format!("--mtime=@{}", about.time));
    if to.extension().is_some_and(|ending| ending == "gz") {
        command.args(["-I", "gzip -9n"]);
    }
    command.arg("-C").arg(from).arg("-cf").arg(to).arg(name);
    command
}

/// Writes `SHA256SUMS`, and prints it.
fn sums(folder: &Path) -> Result<(), String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .map_err(|e| at(folder, &e))?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let mut command = Command::new("sha256sum");
    command.current_dir(folder).args(names);
    let done = command.output().map_err(|e| format!("sha256sum: {e}"))?;
    print!("{}", String::from_utf8_lossy(&done.stdout));
    write(&folder.join("SHA256SUMS"), &done.stdout)
}

/// Makes an empty folder of what may be there.
pub(crate) fn renew(folder: &Path) -> Result<(), String> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|e| at(folder, &e))?;
    }
    fs::create_dir_all(folder).map_err(|e| at(folder, &e))
}

/// Writes a file, and the folders to it.
pub(crate) fn write(file: &Path, content: impl AsRef<[u8]>) -> Result<(), String> {
    let folder = file.parent().unwrap_or_else(|| Path::new("/"));
    fs::create_dir_all(folder).map_err(|e| at(folder, &e))?;
    fs::write(file, content).map_err(|e| at(file, &e))
}

/// Copies a file with its mode, and makes the folders to it.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let folder = to.parent().unwrap_or_else(|| Path::new("/"));
    fs::create_dir_all(folder).map_err(|e| at(folder, &e))?;
    fs::copy(from, to).map(drop).map_err(|e| at(from, &e))
}

fn at(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::About;

    #[test]
    fn templates_are_filled() {
        let about = About {
            version: "1.2.3".into(),
            repository: "there".into(),
            time: "0".into(),
        };
        let filled = about.fill("{version} {repository} {arch} {x}", &[("arch", "amd64")]);
        assert_eq!(filled, "1.2.3 there amd64 {x}");
    }
}
