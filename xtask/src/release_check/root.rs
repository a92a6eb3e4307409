//! The clean systems in which a release is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::remove;
use crate::dist::{renew, write};
use crate::sh;
use crate::workspace::Workspace;

/// Builds programs by musl's compiler.
const MUSL: &str = include_str!("musl.sh");
/// Fetches their sources, those of the system's own packages, in a system that is being made.
const SOURCES: &str = r#"set -eu
cd "$1/srv"
chroot "$1" sh -eu <<'END'
sed -n 's/^deb /deb-src /p' /etc/apt/sources.list > /etc/apt/sources.list.d/sources.list
apt-get -qq update
cd /srv
apt-get -qq source --download-only --tar-only pciutils rdma-core perftest
for packed in *.tar.*; do tar -xf "$packed"; done
sh musl.sh
mv bin/* /usr/local/bin
END
"#;
/// The release of Debian whose programs are built for musl.
const MUSL_SUITE: &str = "trixie";

/// A kind of clean system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// Debian for this machine.
    Native,
    /// Debian for aarch64, run by an emulator.
    Aarch64,
    /// Debian with musl, and with RDMA programs for it. Those of glibc are not there.
    Musl,
}

impl Root {
    /// Its programs: those that use what is installed, and those that install it.
    fn packages(self) -> &'static str {
        match self {
            Self::Native => "ibverbs-utils,perftest,python3-venv,rdmacm-utils,umoci",
            Self::Aarch64 => "ibverbs-utils,perftest,python3-venv,rdmacm-utils",
            Self::Musl => "gcc,libibverbs1,librdmacm1,linux-libc-dev,make,musl-tools",
        }
    }

    /// What its user does before something is installed.
    pub(super) fn before(self) -> &'static str {
        match self {
            Self::Native | Self::Aarch64 => {
                "cd /srv; sha256sum --quiet -c SHA256SUMS; python3 -m venv ~/venv\n"
            }
            Self::Musl => "cd /srv; sha256sum --quiet -c SHA256SUMS\n",
        }
    }

    /// The system, with a user `stranger`, in a release of Debian; made once.
    pub(super) fn make(self, workspace: &Workspace, suite: &str) -> Result<PathBuf, String> {
        let folder = workspace.target.join("release-check");
        let (suite, name, architecture) = match self {
            Self::Native => (suite, suite.to_owned(), "amd64"),
            Self::Aarch64 => (suite, format!("{suite}-arm64"), "arm64"),
            Self::Musl => (MUSL_SUITE, format!("{MUSL_SUITE}-musl"), "amd64"),
        };
        if self == Self::Aarch64 {
            emulate()?;
        }
        let (root, fresh) = (folder.join(&name), folder.join(format!("{name}-fresh")));
        let (made_of, recipe) = (folder.join(format!("{name}-recipe")), self.recipe());
        if std::fs::read_to_string(&made_of).ok().as_deref() == Some(&recipe) && root.exists() {
            return Ok(root);
        }
        remove(&root)?;
        renew(&fresh)?;
        let mut make = Command::new("mmdebstrap");
        make.args(["--quiet", "--variant=minbase"]);
        make.arg(format!("--architectures={architecture}"));
        make.arg(format!("--include={}", self.packages()));
        make.arg("--customize-hook=chroot \"$1\" useradd --create-home stranger");
        if self == Self::Musl {
            let hooks = folder.join("musl-hooks");
            write(&hooks.join("musl.sh"), MUSL)?;
            write(&hooks.join("sources.sh"), SOURCES)?;
            let hooks = hooks.display();
            make.arg(format!("--customize-hook=cp {hooks}/musl.sh \"$1/srv\""));
            make.arg(format!("--customize-hook=sh {hooks}/sources.sh \"$1\""));
        }
        make.arg(suite).arg(&fresh);
        sh::step(make)?;
        std::fs::rename(&fresh, &root).map_err(|e| format!("{}: {e}", root.display()))?;
        write(&made_of, &recipe)?;
        Ok(root)
    }

    /// What it is made of: another text, another system.
    fn recipe(self) -> String {
        match self {
            Self::Musl => [self.packages(), MUSL, SOURCES].concat(),
            Self::Native | Self::Aarch64 => self.packages().into(),
        }
    }
}

/// Lets the kernel run programs for aarch64 by the emulator, as the packages do where a machine
/// starts services.
fn emulate() -> Result<(), String> {
    if Path::new("/proc/sys/fs/binfmt_misc/qemu-aarch64").exists() {
        return Ok(());
    }
    let mut enable = Command::new("update-binfmts");
    enable.args(["--enable", "qemu-aarch64"]);
    sh::step(enable)
}
