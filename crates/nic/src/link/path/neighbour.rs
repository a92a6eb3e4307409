//! Whether the next station on the way to another host can be reached at all.
//!
//! A connected queue pair needs the link address of the next station when it moves to RTR: the
//! kernel's verbs resolve it there (`ib_resolve_eth_dmac`, one second) and fail the move if nobody
//! answers.

use std::io;
use std::net::IpAddr;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use ferroce_os::clock;
use ferroce_os::neighbour::{self, Known};
use ferroce_proto::time::Time;

use crate::Error;
use crate::base::sync::lock;

/// How long a station has to answer, as in the kernel's `rdma_addr_find_l2_eth_by_grh`.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// Time between two looks at the kernel's table: the first, doubled up to the last.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_millis(50);

/// How long the kernel's word that a station is known holds. It keeps one for half a minute itself.
const LATELY: Duration = Duration::from_millis(100);
/// Hosts of which it is remembered.
const MOST: usize = 64;

/// Hosts whose next station was known lately. A connection asks the kernel when its address is
/// resolved and when its queue pair moves to RTR, which would be a quarter of its time.
#[derive(Debug, Default)]
pub(crate) struct KnownStations(Mutex<Vec<KnownAt>>);

#[derive(Debug)]
struct KnownAt {
    dst: IpAddr,
    scope: u32,
    at: Time,
}

impl KnownStations {
    /// Whether the link address of the next station on the way to `dst` is known, or none is
    /// needed. `scope` is the interface of a link-local address, else 0.
    ///
    /// # Errors
    /// No route (ENETUNREACH, EHOSTUNREACH), or a sandbox that forbids the question.
    pub(crate) fn known(&self, dst: IpAddr, scope: u32) -> io::Result<Known> {
        let ask = || neighbour::next_hop(dst, scope).and_then(neighbour::known);
        self.known_at(clock::monotonic(), dst, scope, ask)
    }

    fn known_at(
        &self,
        now: Time,
        dst: IpAddr,
        scope: u32,
        ask: impl FnOnce() -> io::Result<Known>,
    ) -> io::Result<Known> {
        let is_it = |seen: &KnownAt| seen.dst == dst && seen.scope == scope;
        if lock(&self.0)
            .iter()
            .any(|s| is_it(s) && now.since(s.at) < LATELY)
        {
            return Ok(Known::Yes);
        }
        let known = ask()?;
        if known == Known::Yes {
            let mut seen = lock(&self.0);
            seen.retain(|s| !is_it(s));
            if seen.len() == MOST {
                seen.remove(0);
            }
            seen.push(KnownAt {
                dst,
                scope,
                at: now,
            });
        }
        Ok(known)
    }

    /// Waits until it is known. The caller has no lock.
    ///
    /// # Errors
    /// ETIMEDOUT if nobody answers until `until`; ENETUNREACH or EHOSTUNREACH without a route.
    pub(crate) fn resolve(&self, dst: IpAddr, scope: u32, until: Time) -> Result<(), Error> {
        let mut pause = FIRST_LOOK;
        loop {
            match self.known(dst, scope) {
                Ok(Known::No) => {}
                Err(e) if is_no_route(&e) => {
                    return Err(Error::system(&format!("way to {dst}"), &e));
                }
                // A sandbox may forbid the question.
                Ok(Known::Yes) | Err(_) => return Ok(()),
            }
            if clock::monotonic() >= until {
                return Err(Error::new(
                    libc::ETIMEDOUT,
                    format!(
                        "nobody answers for {dst}, or the router before it, on the local network"
                    ),
                ));
            }
            if let Err(error) = neighbour::nudge(dst, scope) {
                tracing::debug!(target: "ferroce::path", %dst, %error, "link address not asked for");
            }
            thread::sleep(pause);
            pause = (2 * pause).min(LAST_LOOK);
        }
    }
}

fn is_no_route(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const DST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn never() -> io::Result<Known> {
        panic!("the kernel was asked")
    }

    #[test]
    fn a_station_that_was_known_lately_is_not_asked_for_again() {
        let stations = KnownStations::default();
        let start = Time(1_000_000);
        let ask = |now, answer: fn() -> io::Result<Known>| stations.known_at(now, DST, 0, answer);
        assert_eq!(ask(start, || Ok(Known::No)).unwrap(), Known::No);
        assert_eq!(ask(start, || Ok(Known::Yes)).unwrap(), Known::Yes);
        assert_eq!(ask(start + LATELY / 2, never).unwrap(), Known::Yes);
        // That it was remembered makes it no younger.
        assert_eq!(ask(start + LATELY, || Ok(Known::No)).unwrap(), Known::No);
        let unreachable = || Err(io::Error::from_raw_os_error(libc::ENETUNREACH));
        assert!(ask(start + LATELY, unreachable).is_err());
    }

    #[test]
    fn stations_are_told_apart_and_few_are_remembered() {
        let stations = KnownStations::default();
        let now = Time(1);
        for scope in 0..=u32::try_from(MOST).unwrap() {
            let known = stations.known_at(now, DST, scope, || Ok(Known::Yes));
            assert_eq!(known.unwrap(), Known::Yes);
        }
        let forgotten = stations.known_at(now, DST, 0, || Ok(Known::No));
        assert_eq!(forgotten.unwrap(), Known::No);
        assert_eq!(stations.known_at(now, DST, 1, never).unwrap(), Known::Yes);
    }
}
