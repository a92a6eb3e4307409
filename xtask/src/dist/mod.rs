//! `cargo xtask dist`: what a release consists of, in `target/dist`.

mod build;
mod deb;
mod glibc;
mod image;
mod licences;
mod linked;
mod rpm;
mod sbom;
mod tree;
mod wheel;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::packages;
use crate::sh;
use crate::workspace::{Workspace, read};

/// Systems that the sources compile for, and that nothing is made for: their standard library is
/// not in this toolchain.
const LEFT_OUT: [&str; 2] = ["aarch64-linux-gnu", "x86_64-linux-musl"];

/// What all artefacts tell of themselves.
struct About {
    version: String,
    repository: String,
    /// Of the last commit, in seconds: nothing in an artefact is newer, so two builds are the same.
    time: String,
}

/// Builds all artefacts from the present sources.
pub(crate) fn run(workspace: &Workspace) -> Result<(), String> {
    packages::require(&[packages::DIST])?;
    let built = build::release(workspace)?;
    let about = About::ask(workspace)?;
    let folder = folder(workspace);
    let staged = workspace.target.join("dist-staged");
    for folder in [&folder, &staged] {
        renew(folder)?;
    }
    let system = format!("{}-linux-gnu", std::env::consts::ARCH);
    let name = format!("ferroce-{}-{system}", about.version);
    let files = tree::stage(workspace, &about, &built, &staged.join(&name))?;
    glibc::check(&files)?;
    for packed in [name.clone(), format!("{name}-debug")] {
        let file = folder.join(format!("{packed}.tar.gz"));
        sh::step(tarball(&staged, &packed, &file, &about))?;
    }
    deb::build(workspace, &about, &staged, &staged.join(&name), &folder)?;
    rpm::build(workspace, &about, &staged, &staged.join(&name), &folder)?;
    wheel::build(workspace, &about, &staged, &staged.join(&name), &folder)?;
    image::build(workspace, &about, &staged, &staged.join(&name), &folder)?;
    let bill = format!("ferroce-{}.cdx.json", about.version);
    copy(&staged.join(&name).join(tree::BILL), &folder.join(bill))?;
    for name in ["action.yml", "setup.sh", "gitlab.yml"] {
        copy(
            &workspace.root.join("packaging/ci").join(name),
            &folder.join(name),
        )?;
    }
    sums(&folder)?;
    for system in LEFT_OUT {
        println!(
            "left out: {system}: CONTRIBUTING.md, \"Other targets\", says how to build for it"
        );
    }
    Ok(())
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
