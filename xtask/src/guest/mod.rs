//! Guest tests: Linux's own software RDMA driver as the peer.
//!
//! `tests/guest` boots a small virtual machine with the kernel's `rdma_rxe` and Debian's programs. Its network interface ends in a
//! network namespace of this machine, where the same programs run on Ferroce. Nobody wrote the one for the other.

mod cases;
mod harness;
mod matrix;

use std::time::Instant;

use crate::cleanup;
use crate::system::{artefacts, show};
use crate::tally::Tally;
use crate::workspace::Workspace;

use harness::Guest;

/// MTUs of the link: a usual one, and one that lets a packet carry 4096 bytes.
const MTUS: [u32; 2] = [1500, 9000];

/// Runs the tests whose names contain `filter`.
pub(crate) fn run(workspace: &Workspace, filter: &str, tally: &mut Tally) -> Result<(), String> {
    if !nix::unistd::geteuid().is_root() {
        return Err("the guest tests make network namespaces and need root".into());
    }
    cleanup::left_over();
    let bin = artefacts(workspace)?;
    let logs = workspace.target.join("guest-logs");
    let mut count = 0;
    for mtu in MTUS {
        let named = |name: &str| format!("guest.mtu{mtu}.{name}");
        let mut cases = cases::all(mtu);
        cases.retain(|case| named(&case.name).contains(filter));
        if cases.is_empty() {
            continue;
        }
        count += cases.len();
        let guest = Guest::start(workspace, &bin, mtu, logs.join(format!("mtu{mtu}")))?;
        for case in cases {
            let name = named(&case.name);
            let folder = logs.join(&name);
            let begun = Instant::now();
            let mut outcome = guest.test(&folder, case.limit, &*case.body);
            if let Err(reason) = outcome {
                // An emulated machine misses timeouts now and then: the second try counts, the first is shown.
                println!("once more: {name}\n    {reason}");
                outcome = guest.test(&folder, case.limit, &*case.body);
            }
            show(&name, &folder, outcome, begun.elapsed(), tally);
        }
    }
    if count == 0 {
        return Err(format!("no guest test has {filter:?} in its name"));
    }
    Ok(())
}
