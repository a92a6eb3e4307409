//! Tests for aarch64, run by qemu-user 7.2. They show sizes, alignment, system calls and
//! instructions, and no memory order.

use super::Bench;
use super::root::Root;
use crate::debian::remove;
use crate::tally::Tally;
use crate::workspace::Workspace;
use crate::{dist, sh, system, unit};

/// Crates whose unit tests run, with parts of the names of those that do not.
const CRATES: [(&str, &[&str]); 4] = [
    ("ferroce-proto", &[]),
    ("ferroce-os", &OS),
    ("ferroce-nic", &NIC),
    ("ferroce-abi", &[]),
];

/// Loom's models choose every order by themselves: a processor adds nothing to them but time.
const MODEL: &str = "model";

const OS: [&str; 16] = [
    MODEL,
    // The emulator has no `process_vm_readv`.
    "memory::tests::a_page_in_the_middle",
    "memory::tests::a_run_is_copied_up_to",
    "memory::tests::atomics_of_several_threads",
    "memory::tests::atomics_return_the_old_value",
    "memory::tests::holes_and_protected_pages",
    "memory::tests::ranges_that_cannot_be",
    // It has no `IP_MULTICAST_ALL` and no `IP_BIND_ADDRESS_NO_PORT`, and does not report datagrams
    // that found no room.
    "multicast::tests::each_member",
    "tcp::tests",
    "udp::tests::datagrams_that_found_no_room",
    // It refuses questions about neighbours, and sockets of `NETLINK_SOCK_DIAG`.
    "neighbour::tests::loopback",
    "sock_diag::tests::a_listener",
    "unix::owner::tests",
    // It asks for no sender of a message.
    "unix::process::tests::all_descriptors",
    // It sees the end of a connection before what was attached to it, and a signal's handler does
    // not end a wait.
    "unix::discard::tests::what_a_stranger",
    "waiter::tests::a_handler_ends",
];

const NIC: [&str; 6] = [
    MODEL,
    // `IP_BIND_ADDRESS_NO_PORT`, as above.
    "cm::tests::iwarp",
    // `SO_ATTACH_REUSEPORT_CBPF`: there is no wire.
    "link::wire::tests",
    // `NETLINK_SOCK_DIAG`, as above.
    "cm::tests::routing::the_port_of_a_user",
    "link::local::slots::tests::the_owner_of_a_slot",
    // It measures time, of which an emulator takes more.
    "unwanted::tests::a_flooded_socket",
];

/// Conformance cases that run: those within a host. 1 GiB would take a quarter of an hour.
const CASES: [&str; 4] = ["c_local", "rust_local", "--skip", "1_gib"];

/// Builds and runs the unit tests, and the conformance cases within a host.
pub(super) fn check(workspace: &Workspace, tally: &mut Tally) -> Result<(), String> {
    for (name, beyond) in CRATES {
        let mut command = dist::tests_for_aarch64(workspace, &["-p", name, "--lib"]);
        command.arg("--");
        for test in beyond {
            command.args(["--skip", test]);
        }
        unit::count(command, &format!("release.emulated {name}"), tally)?;
    }
    let conformance = ["-p", "ferroce-conformance", "--test", "conformance"];
    let mut command = dist::tests_for_aarch64(workspace, &conformance);
    command.arg("--").args(CASES);
    unit::count(command, "release.emulated conformance", tally)
}

/// Runs the transport's tests of random runs, too, which take an hour.
pub(super) fn check_random_runs(workspace: &Workspace, tally: &mut Tally) -> Result<(), String> {
    let command = dist::tests_for_aarch64(workspace, &["-p", "ferroce-proto", "--tests"]);
    unit::count(command, "release.emulated-runs", tally)
}

/// Runs the table of programs within a host on the release, in a system for aarch64. The emulator
/// has no `SO_ATTACH_REUSEPORT_CBPF`, so there is no wire.
pub(super) fn check_programs(bench: &Bench<'_>, tally: &mut Tally) -> Result<(), String> {
    let tarball = super::find(bench.made()?, "-aarch64-linux-gnu.tar.gz")?;
    let system = Root::Aarch64.make(bench.workspace, bench.suite)?;
    let bin = system.with_file_name("emulated-programs");
    remove(&bin)?;
    let folder = bin.to_string_lossy();
    let unpack =
        r#"mkdir "$1" && tar -xzf "$2" -C "$1" --strip-components=1 && ln -s bin/ferroce "$1""#;
    let words = ["-c", unpack, "sh", &folder, &tarball.to_string_lossy()];
    sh::output("sh", &words)?;
    system::emulated_table(bench.workspace, &system, &bin, tally)?;
    remove(&bin)
}
