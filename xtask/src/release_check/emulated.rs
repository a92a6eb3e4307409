//! Unit tests of `proto` for aarch64, run by qemu-user. They show sizes, alignment, instructions,
//! and no memory order. The other crates' tests want what the emulator lacks: `process_vm_readv`,
//! `SO_ATTACH_REUSEPORT_CBPF` and `IP_MULTICAST_ALL`.

use std::time::Instant;

use crate::tally::Tally;
use crate::workspace::Workspace;
use crate::{dist, sh};

const NAME: &str = "release.emulated";

/// Builds and runs them. Those of random runs take an hour.
pub(super) fn check(workspace: &Workspace, tally: &mut Tally) -> Result<(), String> {
    let begun = Instant::now();
    let words = ["-p", "ferroce-proto", "--lib", "--tests"];
    match sh::step(dist::tests_for_aarch64(workspace, &words)) {
        Ok(()) => tally.ok(NAME, begun.elapsed()),
        Err(e) => tally.fail(NAME, &e),
    }
    Ok(())
}
