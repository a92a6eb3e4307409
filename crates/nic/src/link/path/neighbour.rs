//! Whether the next station on the way to another host can be reached at all.
//!
//! A connected queue pair needs the link address of the next station when it moves to RTR: the
//! kernel's verbs resolve it there (`ib_resolve_eth_dmac`, one second) and fail the move if nobody
//! answers.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use ferroce_os::clock;
use ferroce_os::neighbour::{self, Known};
use ferroce_proto::time::Time;

use crate::Error;

/// How long a station has to answer, as in the kernel's `rdma_addr_find_l2_eth_by_grh`.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// Time between two looks at the kernel's table: the first, doubled up to the last.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_millis(50);

/// Waits until the link address of the next station on the way to `dst` is known, or none is
/// needed. `scope` is the interface of a link-local address, else 0. The caller has no lock.
///
/// # Errors
/// ETIMEDOUT if nobody answers until `until`; ENETUNREACH or EHOSTUNREACH without a route.
pub(crate) fn resolve(dst: IpAddr, scope: u32, until: Time) -> Result<(), Error> {
    let mut pause = FIRST_LOOK;
    loop {
        match neighbour::next_hop(dst, scope).and_then(neighbour::known) {
            Ok(Known::No) => {}
            Err(e) if is_no_route(&e) => return Err(Error::system(&format!("way to {dst}"), &e)),
            // A sandbox may forbid the question.
            Ok(Known::Yes) | Err(_) => return Ok(()),
        }
        if clock::monotonic() >= until {
            return Err(Error::new(
                libc::ETIMEDOUT,
                format!("nobody answers for {dst}, or the router before it, on the local network"),
            ));
        }
        if let Err(error) = neighbour::nudge(dst, scope) {
            tracing::debug!(target: "ferroce::path", %dst, %error, "link address not asked for");
        }
        thread::sleep(pause);
        pause = (2 * pause).min(LAST_LOOK);
    }
}

fn is_no_route(error: &std::io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH)
    )
}
