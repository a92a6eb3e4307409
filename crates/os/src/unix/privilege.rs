//! Whether a process may have ports below `ip_unprivileged_port_start` (`ip(7)`): it is root, or
//! has `CAP_NET_BIND_SERVICE`.

use std::fs;
use std::io;

use super::{Credentials, Identity};
use crate::thread::uncancellable;

/// The capability's bit (`capabilities(7)`).
const NET_BIND_SERVICE: u32 = 10;
/// The first port that anybody may have, where the system does not say it.
const FIRST_OPEN: u16 = 1024;

/// The first port that any process may have in this network namespace.
#[must_use]
pub fn first_open_port() -> u16 {
    let said = read("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let first = said.ok().and_then(|text| text.trim().parse().ok());
    first.unwrap_or(FIRST_OPEN)
}

/// Whether this process may have lower ones.
#[must_use]
pub fn may_have_low_ports() -> bool {
    let status = read("/proc/self/status");
    let can = |status: String| Status::parse(&status).map(|status| status.binds);
    let said = status.ok().and_then(can);
    said.unwrap_or_else(|| Credentials::own().uid == 0)
}

/// Whether the process of a peer's credentials may.
///
/// A process in a user namespace of its own has all capabilities there, which count for nothing
/// here. So those of a process that is not root count only if its namespace maps all users, as only
/// root can make one.
#[must_use]
pub fn may_peer_have_low_ports(peer: Credentials, identity: Identity) -> bool {
    match identity.user(peer) {
        None => false,
        Some(0) => true,
        Some(user) => {
            let file = |name| read(&format!("/proc/{}/{name}", peer.pid)).ok();
            let status = file("status").and_then(|text| Status::parse(&text));
            let status = status.filter(|status| status.user == user && status.binds);
            let map = status.and_then(|_| file("uid_map"));
            peer.pid != 0 && map.is_some_and(|map| Identity::is_whole(&map))
        }
    }
}

fn read(path: &str) -> io::Result<String> {
    uncancellable(|| fs::read_to_string(path))
}

/// What `/proc/PID/status` says.
struct Status {
    /// The effective user.
    user: u32,
    /// The process may have low ports.
    binds: bool,
}

impl Status {
    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let user = field("Uid:")?.split_whitespace().nth(1)?.parse().ok()?;
        let capabilities = u64::from_str_radix(field("CapEff:")?.trim(), 16).ok()?;
        Some(Self {
            user,
            binds: capabilities >> NET_BIND_SERVICE & 1 == 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_status() {
        let status = |capabilities: &str| {
            let text =
                format!("Name:\tx y\nUid:\t1\t2\t3\t4\nCapPrm:\tffff\nCapEff:\t{capabilities}\n");
            Status::parse(&text)
        };
        let one = status("0000000000000400").unwrap();
        assert_eq!((one.user, one.binds), (2, true));
        assert!(!status("fffffffffffffbff").unwrap().binds);
        assert!(status("x").is_none());
        assert!(Status::parse("Uid:\t1\t2\n").is_none());
    }

    #[test]
    fn what_a_process_may_is_what_the_kernel_lets_it() {
        let own = Credentials::own();
        let identity = Identity::read();
        if own.uid == 0 {
            assert!(may_peer_have_low_ports(own, identity));
        }
        // The kernel is asked with a TCP port that nobody else is likely to have, where such ports
        // are closed at all.
        let low = (600..FIRST_OPEN.min(first_open_port())).rev().take(50);
        let ask = |port| std::net::TcpListener::bind(("127.0.0.1", port)).map_err(|e| e.kind());
        let asked: Vec<_> = low.map(ask).filter_map(Result::err).collect();
        let denied = asked.contains(&io::ErrorKind::PermissionDenied);
        let is_closed = first_open_port() > 600;
        assert_eq!(denied, is_closed && !may_have_low_ports());
    }
}
