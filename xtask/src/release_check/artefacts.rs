//! What is installed, how, and what must be so afterwards.

use super::root::Root;

/// Something to install.
pub(super) struct Artefact {
    pub(super) name: &'static str,
    /// What its check shows.
    pub(super) what: &'static str,
    /// End of its file's name.
    pub(super) ending: &'static str,
    /// Where it is installed.
    pub(super) root: Root,
    /// The user and group that install it, or `outside`: programs of this machine do.
    pub(super) installer: &'static str,
    /// Shell code that installs `/srv/ARTEFACT`. Outside it runs in the folder of that file.
    pub(super) install: &'static str,
    /// Shell code before its use, and after it.
    pub(super) around: [&'static str; 2],
}

const UNPACK: &str = "tar -xf /srv/ARTEFACT -C ~";
const UNPACKED: [&str; 2] = [
    "PATH=$(echo ~/ferroce-*/bin):$PATH",
    "test -s ~/ferroce-*/share/man/man1/ferroce-run.1",
];
const APT: &str = "apt-get -qq install --yes /srv/ARTEFACT";
const UNCHANGED: [&str; 2] = ["", "dpkg --verify ferroce libibverbs1 librdmacm1"];
const PIP: &str = "~/venv/bin/pip --quiet install --no-index /srv/ARTEFACT";
const PYTHON: [&str; 2] = [
    "PATH=~/venv/bin:$PATH",
    "python -m ferroce run -- ibv_devices | grep ferroce_lo
     python -c 'import ferroce, subprocess as s
s.run([\"ibv_devinfo\", \"-d\", \"ferroce_lo\"], env=ferroce.env(), check=True, stdout=s.DEVNULL)'",
];

/// Installs a package by RPM, with an option. The root has no RPM packages, so one says what the
/// package asks for, which is refused before.
macro_rules! rpm {
    ($option:literal) => {
        concat!(
            "
printf '%s\\n' 'Name: base' 'Version: 1' 'Release: 1' 'Summary: x' 'License: x' 'BuildArch: noarch' \\
    \"Provides: glibc = $(chroot $root dpkg-query -W -f '${Version}' libc6 | sed 's/-.*//')\" \\
    'Provides: libgcc = 1' '%description' '%files' > base.spec
rpmbuild -bb --quiet --define \"_topdir $PWD/rpmbuild\" base.spec
rpm() { command rpm --root $root --dbpath /var/lib/rpm \"$@\"; }
if rpm --install ",
            $option,
            " ARTEFACT; then exit 1; fi
rpm --install rpmbuild/RPMS/noarch/base-1-1.noarch.rpm
rpm --install ",
            $option,
            " ARTEFACT
rpm --verify ferroce
command rpm -qp --requires ARTEFACT | grep -x 'glibc >= 2.28'
if command rpm -qp --provides ARTEFACT | grep libibverbs; then exit 1; fi"
        )
    };
}

/// The image's entry point runs where there is nothing else, and fills the volume. It says so where
/// it may not write, and a container that starts again fills it once more.
const IMAGE: &str = "mkdir /srv/layout && tar -xf /srv/ARTEFACT -C /srv/layout
umoci unpack --image /srv/layout:$(echo ARTEFACT | cut -d - -f 2) /srv/image
mkdir /srv/image/rootfs/target /opt/ferroce
! chroot --userspec=1000:1000 /srv/image/rootfs /install || exit 1
chroot /srv/image/rootfs /install
chroot /srv/image/rootfs /install
mv /srv/image/rootfs/target/* /opt/ferroce";
/// A job of a CI service.
const ACTION: &str = "export GITHUB_ENV=~/for-env GITHUB_PATH=~/for-path URL=/srv
VERSION=$(echo ARTEFACT | cut -d - -f 2) sh /srv/setup.sh";

pub(super) const ARTEFACTS: [Artefact; 13] = [
    Artefact {
        name: "tarball",
        what: "`tar -xf FILE -C ~` by an ordinary user",
        ending: "-x86_64-linux-gnu.tar.gz",
        root: Root::Native,
        installer: "stranger:stranger",
        install: UNPACK,
        around: UNPACKED,
    },
    Artefact {
        name: "deb",
        what: "`apt-get install ./FILE`, beside rdma-core, whose files stay as they are",
        ending: "_amd64.deb",
        root: Root::Native,
        installer: "root:root",
        install: APT,
        around: UNCHANGED,
    },
    Artefact {
        name: "wheel",
        what: "`pip install --no-index FILE` in a virtual environment; `python -m ferroce`, \
               `ferroce.env()`",
        ending: "_x86_64.whl",
        root: Root::Native,
        installer: "stranger:stranger",
        install: PIP,
        around: PYTHON,
    },
    Artefact {
        name: "rpm",
        what: "`rpm --install FILE`: refused without what it asks for, then installed and verified",
        ending: ".x86_64.rpm",
        root: Root::Native,
        installer: "outside",
        install: rpm!(""),
        around: ["", ""],
    },
    Artefact {
        name: "image",
        what: "unpacked, `/install` run as an init container twice, by a user that may not write, \
               too",
        ending: "-x86_64-oci.tar",
        root: Root::Native,
        installer: "root:root",
        install: IMAGE,
        around: ["PATH=/opt/ferroce/bin:$PATH", ""],
    },
    Artefact {
        name: "action",
        what: "`setup.sh` of the GitHub action and the GitLab snippet",
        ending: "-x86_64-linux-gnu.tar.gz",
        root: Root::Native,
        installer: "stranger:stranger",
        install: ACTION,
        around: [
            "PATH=$(cat ~/for-path):$PATH",
            "env $(cat ~/for-env) ibv_devices | grep ferroce_lo
             . ~/.ferroce/environment
             ibv_devices | grep ferroce_lo",
        ],
    },
    Artefact {
        name: "recipes",
        what: "the recipes for CI services: perftest's smoke test, Valkey's own test over RDMA",
        ending: "-x86_64-linux-gnu.tar.gz",
        root: Root::Recipes,
        installer: "stranger:stranger",
        install: ACTION,
        // A job that has the libraries, in a checkout of the program.
        around: [
            "PATH=$(cat ~/for-path):$PATH",
            ". ~/.ferroce/environment
             sh -eu /srv/perftest.sh
             cp -r /srv/valkey ~
             cd ~/valkey
             sh -eu /srv/valkey.sh",
        ],
    },
    Artefact {
        name: "musl.tarball",
        what: "Debian 13 with musl: rdma-core's and perftest's programs built by `musl-gcc`",
        ending: "-x86_64-linux-musl.tar.gz",
        root: Root::Musl,
        installer: "stranger:stranger",
        install: UNPACK,
        around: [
            "PATH=$(echo ~/ferroce-*/bin):$PATH
             for program in rping ib_write_bw ibv_rc_pingpong; do
                 grep -q /lib/ld-musl-x86_64.so.1 $(command -v $program)
             done",
            "test -s ~/ferroce-*/share/man/man1/ferroce-run.1",
        ],
    },
    Artefact {
        name: "aarch64.tarball",
        what: "the same, emulated",
        ending: "-aarch64-linux-gnu.tar.gz",
        root: Root::Aarch64,
        installer: "stranger:stranger",
        install: UNPACK,
        around: UNPACKED,
    },
    Artefact {
        name: "aarch64.deb",
        what: "the same, emulated",
        ending: "_arm64.deb",
        root: Root::Aarch64,
        installer: "root:root",
        install: APT,
        around: UNCHANGED,
    },
    Artefact {
        name: "aarch64.wheel",
        what: "the same, emulated",
        ending: "_aarch64.whl",
        root: Root::Aarch64,
        installer: "stranger:stranger",
        install: PIP,
        around: PYTHON,
    },
    Artefact {
        name: "aarch64.rpm",
        what: "the same, emulated",
        ending: ".aarch64.rpm",
        root: Root::Aarch64,
        installer: "outside",
        install: rpm!("--ignorearch"),
        around: ["", ""],
    },
    Artefact {
        name: "aarch64.image",
        what: "the same, emulated",
        ending: "-aarch64-oci.tar",
        root: Root::Aarch64,
        installer: "root:root",
        install: IMAGE,
        around: ["PATH=/opt/ferroce/bin:$PATH", ""],
    },
];
