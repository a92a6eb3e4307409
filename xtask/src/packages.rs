//! The Debian packages that the tests need.

use std::path::Path;
use std::process::Command;

use crate::sh;

/// A package and something that only it brings: a command, or a file by its full name.
#[derive(Debug)]
pub(crate) struct Package(&'static str, &'static str);

impl Package {
    /// A package and its witness.
    pub(crate) const fn new(name: &'static str, witness: &'static str) -> Self {
        Self(name, witness)
    }

    /// Its name.
    pub(crate) fn name(&self) -> &'static str {
        self.0
    }
}

/// For programs on this machine, here and as peers of the guest.
pub(crate) const SYSTEM: &[Package] = &[
    Package("gcc", "gcc"),
    Package("g++", "g++"),
    Package("libc6-dev", "/usr/include/stdio.h"),
    Package("libibverbs-dev", "/usr/include/infiniband/verbs.h"),
    Package("librdmacm-dev", "/usr/include/rdma/rdma_cma.h"),
    Package("ibverbs-providers", "/etc/libibverbs.d/mlx5.driver"),
    Package("ibverbs-utils", "ibv_rc_pingpong"),
    Package("rdmacm-utils", "rping"),
    Package("perftest", "ib_send_lat"),
    Package("qperf", "qperf"),
    Package("iperf3", "iperf3"),
    Package("fio", "fio"),
    Package("infiniband-diags", "ibstat"),
    Package("ucx-utils", "ucx_info"),
    Package("valgrind", "valgrind"),
    // Renames a library as packagers of Python wheels do.
    Package("patchelf", "patchelf"),
    Package("libfabric-bin", "fi_info"),
    Package("dapl2-utils", "dtest"),
    Package("librpma-dev", "/usr/include/librpma.h"),
    Package("libgloo-dev", "/usr/include/gloo/config.h"),
    Package("openmpi-bin", "mpirun"),
    Package("libopenmpi-dev", "mpicc"),
    Package("python3", "python3"),
    Package(
        "python3-pyverbs",
        "/usr/lib/python3/dist-packages/pyverbs/__init__.py",
    ),
    Package("iproute2", "ip"),
    Package("nftables", "nft"),
    Package("ethtool", "ethtool"),
    Package("tshark", "tshark"),
    Package("util-linux", "setpriv"),
    Package("wireguard-tools", "wg"),
    // For kernels without it.
    Package("wireguard-go", "wireguard-go"),
];

/// For the performance aims, besides.
pub(crate) const SPEED: &[Package] = &[Package("sockperf", "sockperf")];

/// For building and booting the guest, besides.
pub(crate) const GUEST: &[Package] = &[
    Package("qemu-system-x86", "qemu-system-x86_64"),
    Package("make", "make"),
    Package("cpio", "cpio"),
    Package("kmod", "depmod"),
    Package("xz-utils", "xz"),
    Package("zstd", "zstd"),
    Package("libelf1", "/usr/lib/x86_64-linux-gnu/libelf.so.1"),
];

/// For building a release.
pub(crate) const DIST: &[Package] = &[
    Package("binutils", "objcopy"),
    Package("dpkg", "dpkg-deb"),
    Package("gcc", "gcc"),
    Package("gcc-aarch64-linux-gnu", "aarch64-linux-gnu-gcc"),
    Package("git", "git"),
    Package("libc6-dev", "/usr/include/stdio.h"),
    Package("python3-venv", "/usr/share/doc/python3-venv"),
    Package("python3-wheel", "/usr/lib/python3/dist-packages/wheel"),
    Package("rpm", "rpmbuild"),
    // A compiler with the source of its standard library, for systems for which others lack it.
    Package(
        "rust-web-src",
        "/usr/lib/rustlib/src/rust/library/Cargo.toml",
    ),
    Package("rustc-web", "/usr/share/doc/rustc-web"),
];

/// For installing a release in clean systems, besides.
pub(crate) const RELEASE_CHECK: &[Package] = &[
    Package("arch-test", "arch-test"),
    Package("binfmt-support", "update-binfmts"),
    Package("iproute2", "ip"),
    // The emulated unit tests are linked by that compiler, which only recommends it.
    Package(
        "libc6-dev-arm64-cross",
        "/usr/aarch64-linux-gnu/lib/Scrt1.o",
    ),
    Package("lintian", "lintian"),
    Package("mmdebstrap", "mmdebstrap"),
    Package("qemu-user-static", "qemu-aarch64-static"),
    Package("umoci", "umoci"),
    Package("util-linux", "unshare"),
    Package("yamllint", "yamllint"),
];

/// Makes sure of the packages: root installs what is missing, anyone else is told the line that
/// does.
pub(crate) fn require(lists: &[&[Package]]) -> Result<(), String> {
    let missing: Vec<&str> = lists
        .iter()
        .copied()
        .flatten()
        .filter(|p| !present(p.1))
        .map(|p| p.0)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let words = missing.join(" ");
    if !nix::unistd::geteuid().is_root() {
        return Err(format!(
            "packages are missing; install them with:\n  sudo apt-get install --no-install-recommends {words}"
        ));
    }
    let mut update = apt_get();
    update.arg("update");
    sh::step(update)?;
    let mut install = apt_get();
    install
        .args(["install", "--yes", "--no-install-recommends"])
        .args(&missing);
    sh::step(install)
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.arg("-qq").env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn present(witness: &str) -> bool {
    if witness.starts_with('/') {
        return Path::new(witness).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps some of these where only root's PATH looks.
    let sbin = ["/usr/sbin", "/sbin"].map(Into::into);
    std::env::split_paths(&path)
        .chain(sbin)
        .any(|folder| folder.join(witness).exists())
}
