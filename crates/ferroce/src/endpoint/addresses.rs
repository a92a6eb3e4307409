//! Addresses, and their names.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use crate::{Error, Result};

/// The first address, and the others.
pub(super) type Addresses = (SocketAddr, Vec<SocketAddr>);

/// The addresses that something stands for.
pub(super) fn addresses(of: impl ToSocketAddrs) -> Result<Addresses> {
    let looked_up = |source| Error::io("looking up an address", source);
    let mut found = of.to_socket_addrs().map_err(looked_up)?;
    let first = found
        .next()
        .ok_or_else(|| looked_up(io::ErrorKind::AddrNotAvailable.into()))?;
    Ok((first, found.collect()))
}

/// An own address, if it is known.
pub(crate) fn local(known: Option<SocketAddr>) -> io::Result<SocketAddr> {
    known.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::AddrNotAvailable,
            "it has no address of the internet protocol",
        )
    })
}

/// A peer's address, if it is known.
pub(crate) fn peer(known: Option<SocketAddr>) -> io::Result<SocketAddr> {
    known.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotConnected,
            "no peer with an address of the internet protocol is known",
        )
    })
}
