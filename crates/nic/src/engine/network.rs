//! Changes of the network while the process runs: the devices follow their interfaces.

use std::os::fd::AsRawFd;

use ferroce_os::netdev;
use ferroce_os::netlink::RouteSocket;
use ferroce_os::poll::{Interest, Poller};

use crate::Nic;
use crate::base::token::Token;

/// Starts to watch the interfaces. Where a sandbox forbids that, the devices stay as they were at
/// the start.
pub(super) fn watch(poller: &Poller) -> Option<RouteSocket> {
    let watched = RouteSocket::open().and_then(|socket| {
        poller.add(socket.as_raw_fd(), Token::Network.raw(), Interest::READ)?;
        Ok(socket)
    });
    watched
        .inspect_err(|e| {
            tracing::warn!(target: "ferroce::device", "changes of interfaces and addresses go unnoticed: {e}");
        })
        .ok()
}

impl Nic {
    /// The kernel says that interfaces or addresses have changed.
    pub(super) fn on_network_change(&self) {
        let Some(socket) = &self.network else { return };
        let mut changed = false;
        let drained = socket.drain(&mut |change| {
            tracing::debug!(target: "ferroce::device", ?change, "the network has changed");
            changed = true;
        });
        if let Err(e) = drained {
            tracing::warn!(target: "ferroce::device", "listening to changes of the network failed: {e}");
        }
        if !changed {
            return;
        }
        match netdev::interfaces() {
            Ok(interfaces) => {
                self.services.devices.update(&interfaces);
                self.cm().on_network_change();
            }
            Err(e) => {
                tracing::warn!(target: "ferroce::device", "cannot list interfaces, the devices stay as they are until the next change: {e}");
            }
        }
    }
}
