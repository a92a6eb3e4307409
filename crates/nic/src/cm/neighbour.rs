//! Resolution of link addresses: whether the destination, or the router before it, is there at all.
//!
//! The kernel resolves for us when a packet goes there. As long as nothing is known, a packet
//! without content is sent to make it ask, and its table is looked at again and again until the
//! time of the call is over.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ferroce_proto::time::Time;

use super::service::Work;
use super::state::Progress;
use super::{EventKind, EventParam};

/// Identifiers whose destination is being resolved.
#[derive(Debug, Default)]
pub(super) struct Resolving {
    waiting: Vec<ResolvingId>,
}

#[derive(Debug)]
struct ResolvingId {
    key: u64,
    dst: IpAddr,
    /// The interface of a link-local destination, else 0.
    scope: u32,
    /// When the table is looked at next.
    at: Time,
    interval: Duration,
    until: Time,
}

impl Resolving {
    const FIRST_LOOK: Duration = Duration::from_millis(1);
    const LAST_LOOK: Duration = Duration::from_millis(100);

    pub(super) fn deadline(&self) -> Option<Time> {
        self.waiting.iter().map(|w| w.at).min()
    }

    /// Forgets an identifier that is gone.
    pub(super) fn forget(&mut self, key: u64) {
        self.waiting.retain(|w| w.key != key);
    }
}

impl Work<'_> {
    /// Reports that the address is resolved, once it is known that there is somebody on the way; an
    /// error if that is not known within `timeout`.
    pub(super) fn resolve_link(&mut self, key: u64, dst: SocketAddr, timeout: Duration) {
        let (ip, scope) = (dst.ip(), scope_of(dst));
        if ip.is_multicast() || self.host.is_local(ip) || self.host.is_link_known(ip, scope) {
            self.link_resolved(key);
            return;
        }
        self.host.resolve_link(ip, scope);
        if let Some(id) = self.state.ids.get_mut(&key) {
            id.progress = Progress::Resolving;
        }
        let until = self.now + timeout;
        self.state.resolving.waiting.push(ResolvingId {
            key,
            dst: ip,
            scope,
            at: until.min(self.now + Resolving::FIRST_LOOK),
            interval: Resolving::FIRST_LOOK,
            until,
        });
    }

    /// Looks at the table for those whose time has come.
    pub(super) fn look_at_links(&mut self) {
        let now = self.now;
        for mut w in std::mem::take(&mut self.state.resolving.waiting) {
            if w.at > now {
                self.state.resolving.waiting.push(w);
            } else if self.host.is_link_known(w.dst, w.scope) {
                self.link_resolved(w.key);
            } else if w.until <= now {
                self.link_unresolved(w.key, w.dst);
            } else {
                // The kernel gives up by itself after a while, and starts anew with the next
                // packet.
                self.host.resolve_link(w.dst, w.scope);
                w.interval = (2 * w.interval).min(Resolving::LAST_LOOK);
                w.at = w.until.min(now + w.interval);
                self.state.resolving.waiting.push(w);
            }
        }
    }

    fn link_resolved(&mut self, key: u64) {
        if let Some(id) = self.state.ids.get_mut(&key) {
            id.progress = Progress::AddrResolved;
            self.tell(key, EventKind::AddrResolved, 0, EventParam::None);
        }
    }

    fn link_unresolved(&mut self, key: u64, dst: IpAddr) {
        if let Some(id) = self.state.ids.get_mut(&key) {
            id.progress = Progress::Bound;
            tracing::debug!(target: "ferroce::cm", id = key, %dst, "nobody answers for the address on the local network");
            self.tell(
                key,
                EventKind::AddrError,
                -libc::ETIMEDOUT,
                EventParam::None,
            );
        }
    }
}

/// The interface of a link-local address, else 0.
pub(super) fn scope_of(addr: SocketAddr) -> u32 {
    match addr {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    }
}
