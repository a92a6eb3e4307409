//! `cargo xtask release-check`: what `cargo xtask dist` made is installed in clean Debian systems
//! and used there by an ordinary user, without a network.

mod consumer;
mod schemas;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::dist::{self, renew, write};
use crate::packages;
use crate::sh;
use crate::tally::Tally;
use crate::workspace::Workspace;

/// Makes a folder a running system.
const ENTER: &str = include_str!("enter.sh");
/// What runs in it.
const PAIRS: &str = include_str!("pairs.sh");
/// The programs that use what was installed, and those that install it.
const PACKAGES: &str = "ibverbs-utils,perftest,python3-venv,rdmacm-utils,rpm,umoci";

/// Something to install.
struct Artefact {
    name: &'static str,
    /// End of its file's name.
    ending: &'static str,
    /// The user and group that install it.
    installer: &'static str,
    /// Shell code that installs `/srv/ARTEFACT`.
    install: &'static str,
    /// Shell code before its use, and after it.
    around: [&'static str; 2],
}

const ARTEFACTS: [Artefact; 6] = [
    Artefact {
        name: "tarball",
        ending: "-linux-gnu.tar.gz",
        installer: "stranger:stranger",
        install: "tar -xf /srv/ARTEFACT -C ~",
        around: [
            "PATH=$(echo ~/ferroce-*/bin):$PATH",
            "test -s ~/ferroce-*/share/man/man1/ferroce-run.1",
        ],
    },
    Artefact {
        name: "deb",
        ending: ".deb",
        installer: "root:root",
        install: "apt-get -qq install --yes /srv/ARTEFACT",
        around: ["", "dpkg --verify ferroce libibverbs1 librdmacm1"],
    },
    Artefact {
        name: "wheel",
        ending: ".whl",
        installer: "stranger:stranger",
        install: "~/venv/bin/pip --quiet install --no-index /srv/ARTEFACT",
        around: [
            "PATH=~/venv/bin:$PATH",
            "python -m ferroce run -- ibv_devices | grep ferroce_lo
             python -c 'import ferroce, subprocess as s
s.run([\"ibv_devinfo\", \"-d\", \"ferroce_lo\"], env=ferroce.env(), check=True, stdout=s.DEVNULL)'",
        ],
    },
    Artefact {
        name: "rpm",
        ending: ".rpm",
        installer: "root:root",
        // A database without glibc: nothing there is what the package requires.
        install: "rpm --dbpath /srv/rpm --install --nodeps /srv/ARTEFACT",
        around: [
            "",
            "rpm --dbpath /srv/rpm --verify --nodeps ferroce
             rpm -qp --requires /srv/*.rpm | grep -x 'glibc >= 2.28'
             if rpm -qp --provides /srv/*.rpm | grep libibverbs; then exit 1; fi",
        ],
    },
    Artefact {
        name: "image",
        ending: "-oci.tar",
        installer: "root:root",
        // Its entry point runs where there is nothing else, and fills the volume. It says so where
        // it may not write, and a container that starts again fills it once more.
        install: "mkdir /srv/layout && tar -xf /srv/ARTEFACT -C /srv/layout
                  umoci unpack --image /srv/layout:$(echo ARTEFACT | cut -d - -f 2) /srv/image
                  mkdir /srv/image/rootfs/target /opt/ferroce
                  ! chroot --userspec=1000:1000 /srv/image/rootfs /install || exit 1
                  chroot /srv/image/rootfs /install
                  chroot /srv/image/rootfs /install
                  mv /srv/image/rootfs/target/* /opt/ferroce",
        around: ["PATH=/opt/ferroce/bin:$PATH", ""],
    },
    Artefact {
        name: "action",
        ending: "-linux-gnu.tar.gz",
        installer: "stranger:stranger",
        install: "export GITHUB_ENV=~/for-env GITHUB_PATH=~/for-path URL=/srv
                  VERSION=$(echo ARTEFACT | cut -d - -f 2) sh /srv/setup.sh",
        around: [
            "PATH=$(cat ~/for-path):$PATH",
            "env $(cat ~/for-env) ibv_devices | grep ferroce_lo
             . ~/.ferroce/environment
             ibv_devices | grep ferroce_lo",
        ],
    },
];

/// Checks all artefacts in a release of Debian.
pub(crate) fn run(workspace: &Workspace, suite: &str, tally: &mut Tally) -> Result<(), String> {
    packages::require(&[packages::DIST, packages::RELEASE_CHECK])?;
    dist::run(workspace)?;
    let clean = clean(workspace, suite)?;
    let made = files(&dist::folder(workspace))?;
    for artefact in &ARTEFACTS {
        let begun = Instant::now();
        let name = format!("release.{}", artefact.name);
        match check(artefact, &made, &clean) {
            Ok(()) => tally.ok(&name, begun.elapsed()),
            Err(e) => tally.fail(&name, &e),
        }
    }
    let mut check = |name: &str, outcome: &dyn Fn() -> Result<(), String>| {
        let begun = Instant::now();
        match outcome() {
            Ok(()) => tally.ok(name, begun.elapsed()),
            Err(e) => tally.fail(name, &e),
        }
    };
    check("release.lintian", &|| lintian(&made));
    check("release.schemas", &|| schemas::check(workspace, &made));
    check("release.crates", &|| consumer::check(workspace));
    Ok(())
}

/// Installs and uses one artefact in a copy of a clean system.
fn check(artefact: &Artefact, made: &[PathBuf], clean: &Path) -> Result<(), String> {
    let file = find(made, artefact.ending)?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let root = clean.with_extension(artefact.name);
    if root.exists() {
        std::fs::remove_dir_all(&root).map_err(|e| format!("{}: {e}", root.display()))?;
    }
    let mut copy = Command::new("cp");
    copy.args(["-a", "--reflink=auto"]).arg(clean).arg(&root);
    sh::step(copy)?;
    let srv = root.join("srv");
    for file in made {
        let name = file.file_name().unwrap_or_default();
        std::fs::copy(file, srv.join(name)).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    let [before, after] = artefact.around;
    let use_it = format!("{before}\nferroce --version\n{PAIRS}\n{after}\n");
    let checked = "cd /srv; sha256sum --quiet -c SHA256SUMS; python3 -m venv ~/venv\n";
    write(&srv.join("before"), checked)?;
    write(&srv.join("installer"), artefact.installer)?;
    write(
        &srv.join("install"),
        artefact.install.replace("ARTEFACT", &name),
    )?;
    write(&srv.join("use"), use_it)?;
    write(&root.with_extension("enter"), ENTER)?;
    let mut enter = Command::new("unshare");
    enter.args(["--mount", "--net", "--ipc", "--uts", "--pid"]);
    enter.args(["--fork", "--kill-child", "sh"]);
    enter.arg(root.with_extension("enter")).arg(&root);
    sh::step(enter)?;
    std::fs::remove_dir_all(&root).map_err(|e| format!("{}: {e}", root.display()))
}

/// A Debian with the programs that the checks run and a user `stranger`; made once.
fn clean(workspace: &Workspace, suite: &str) -> Result<PathBuf, String> {
    let folder = workspace.target.join("release-check");
    let (root, fresh) = (folder.join(suite), folder.join(format!("{suite}-fresh")));
    let packages = folder.join(format!("{suite}-packages"));
    if std::fs::read_to_string(&packages).ok().as_deref() != Some(PACKAGES) {
        renew(&root)?;
        renew(&fresh)?;
        let mut make = Command::new("mmdebstrap");
        make.args(["--quiet", "--variant=minbase"]);
        make.arg(format!("--include={PACKAGES}"));
        make.arg("--customize-hook=chroot \"$1\" useradd --create-home stranger");
        make.arg(suite).arg(&fresh);
        sh::step(make)?;
        std::fs::rename(&fresh, &root).map_err(|e| format!("{}: {e}", root.display()))?;
        write(&packages, PACKAGES)?;
    }
    Ok(root)
}

fn lintian(made: &[PathBuf]) -> Result<(), String> {
    let mut command = Command::new("lintian");
    command.args(["--fail-on", "error", "--allow-root"]);
    command.arg(find(made, ".deb")?);
    sh::step(command)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

fn find<'a>(files: &'a [PathBuf], ending: &str) -> Result<&'a PathBuf, String> {
    let fits = |file: &&PathBuf| file.to_string_lossy().ends_with(ending);
    let missing = || format!("there is no {ending}");
    files.iter().find(fits).ok_or_else(missing)
}
