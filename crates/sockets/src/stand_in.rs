//! What a descriptor says by itself: whether it is a stand-in, and of which connection.

use std::net::SocketAddr;
use std::os::fd::RawFd;

use crate::address::{Connection, End, Family, Meaning};
use crate::sys::{self, SocketEnd};
use crate::{connect, filter, table};

/// The connection that a stand-in stands for, as the program's socket shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StandIn {
    /// `getsockname(2)`
    pub(crate) own: SocketAddr,
    /// `getpeername(2)`
    pub(crate) peer: SocketAddr,
    /// `SO_DOMAIN`
    pub(crate) family: Family,
}

/// Asks the descriptor. None if it is anything else, such as a socket of the program's own.
pub(crate) fn of(fd: RawFd) -> Option<StandIn> {
    if filter::is_installed() {
        return None;
    }
    match meaning(fd, SocketEnd::Own)? {
        Meaning::Client(connection) => {
            let family = connect::family(fd);
            Some(StandIn {
                own: connection.client.shown(family),
                peer: connection.server.shown(family),
                family,
            })
        }
        Meaning::Listener(_, family) => {
            let Connection { client, server } = connection_of(fd)?;
            Some(StandIn {
                own: server.shown(family),
                peer: client.shown(family),
                family,
            })
        }
    }
}

/// What the name of an end of a Unix socket says.
pub(crate) fn meaning(fd: RawFd, which: SocketEnd) -> Option<Meaning> {
    Meaning::parse(sys::name(fd, which).ok()?.abstract_name()?)
}

/// The connection of a server's end: as the client named its stream, or while it has not, as the
/// hidden TCP socket says.
fn connection_of(fd: RawFd) -> Option<Connection> {
    if let Some(Meaning::Client(connection)) = meaning(fd, SocketEnd::Peer) {
        return Some(connection);
    }
    let tcp = table::tcp(fd)?;
    let end = |which| End::new(sys::name(tcp, which).ok()?.internet()?);
    Some(Connection {
        client: end(SocketEnd::Peer)?,
        server: end(SocketEnd::Own)?,
    })
}
