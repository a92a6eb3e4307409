//! The clean systems in which a release is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian::System;
use crate::dist::write;
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
/// Fetches the source of the program that has a recipe.
const VALKEY: &str = r#"chroot "$1" sh -eu <<'END'
sed -n 's/^deb /deb-src /p' /etc/apt/sources.list > /etc/apt/sources.list.d/sources.list
apt-get -qq update
cd /srv
apt-get -qq source --download-only --tar-only valkey
mkdir valkey
tar -xf valkey_*.orig.tar.* --strip-components=1 -C valkey
echo '127.0.0.1 localhost' >> /etc/hosts
END"#;
/// The release of Debian whose sources are built here.
const SOURCE_SUITE: &str = "trixie";

/// A kind of clean system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// Debian for this machine.
    Native,
    /// Debian for aarch64, run by an emulator.
    Aarch64,
    /// Debian with musl, and with RDMA programs for it. Those of glibc are not there.
    Musl,
    /// Debian with what the recipes for CI services need, and with their programs' sources.
    Recipes,
}

impl Root {
    /// Its programs: those that use what is installed, and those that install it.
    fn packages(self) -> &'static str {
        match self {
            Self::Native => "ibverbs-utils,perftest,python3-venv,rdmacm-utils,umoci",
            Self::Aarch64 => "ibverbs-utils,perftest,python3-venv,rdmacm-utils,umoci",
            Self::Musl => "gcc,libibverbs1,librdmacm1,linux-libc-dev,make,musl-tools",
            Self::Recipes => {
                "g++,gcc,ibverbs-utils,libc6-dev,libibverbs-dev,librdmacm-dev,make,perftest,\
                 pkg-config,python3-netifaces,rdmacm-utils,xz-utils"
            }
        }
    }

    /// Whose artefacts are installed there, as `cargo xtask dist` calls that system.
    pub(super) fn system(self) -> &'static str {
        match self {
            Self::Native | Self::Recipes => "x86_64-linux-gnu",
            Self::Aarch64 => "aarch64",
            Self::Musl => "musl",
        }
    }

    /// What its user does before something is installed.
    pub(super) fn before(self) -> &'static str {
        match self {
            Self::Native | Self::Aarch64 => {
                "cd /srv; sha256sum --quiet -c SHA256SUMS; python3 -m venv ~/venv\n"
            }
            Self::Musl | Self::Recipes => "cd /srv; sha256sum --quiet -c SHA256SUMS\n",
        }
    }

    /// The system, with a user `stranger`, in a release of Debian; made once.
    pub(super) fn make(self, workspace: &Workspace, suite: &str) -> Result<PathBuf, String> {
        let folder = workspace.target.join("release-check");
        let (suite, name, architecture) = match self {
            Self::Native => (suite, suite.to_owned(), "amd64"),
            Self::Aarch64 => (suite, format!("{suite}-arm64"), "arm64"),
            Self::Musl => (SOURCE_SUITE, format!("{SOURCE_SUITE}-musl"), "amd64"),
            Self::Recipes => (SOURCE_SUITE, format!("{SOURCE_SUITE}-recipes"), "amd64"),
        };
        if self == Self::Aarch64 {
            emulate()?;
        }
        let mut hooks = vec!["chroot \"$1\" useradd --create-home stranger".to_owned()];
        let mut recipe = String::new();
        if self == Self::Musl {
            let scripts = folder.join("musl-hooks");
            write(&scripts.join("musl.sh"), MUSL)?;
            write(&scripts.join("sources.sh"), SOURCES)?;
            let scripts = scripts.display();
            hooks.push(format!("cp {scripts}/musl.sh \"$1/srv\""));
            hooks.push(format!("sh {scripts}/sources.sh \"$1\""));
            recipe = [MUSL, SOURCES].concat();
        }
        if self == Self::Recipes {
            hooks.push(VALKEY.to_owned());
        }
        let system = System {
            suite,
            architecture,
            packages: self.packages(),
            hooks: &hooks,
            recipe: &recipe,
        };
        system.make(&folder, &name)
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
