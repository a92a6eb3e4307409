//! Addresses, and their names.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use crate::{Error, Result};

/// The first address, and the others.
pub(super) type Addresses = (SocketAddr, Vec<SocketAddr>);

/// The addresses that something stands for.
pub(super) fn addresses(of: impl ToSocketAddrs) -> Result<Addresses> {
    let mut found = of.to_socket_addrs().map_err(looked_up)?;
    let first = found
        .next()
        .ok_or_else(|| looked_up(io::ErrorKind::AddrNotAvailable.into()))?;
    Ok((first, found.collect()))
}

/// What the first of the addresses gives that something stands for, and for which there is no
/// error; otherwise the error of the last.
pub(crate) fn first_of<T>(
    of: impl ToSocketAddrs,
    mut give: impl FnMut(SocketAddr) -> Result<T>,
) -> Result<T> {
    let (first, others) = addresses(of)?;
    let first = give(first);
    others
        .into_iter()
        .fold(first, |so_far, next| so_far.or_else(|_| give(next)))
}

/// Own addresses that were looked up, of which one is chosen by its peer's family.
#[derive(Clone, Default)]
pub(crate) struct Source(Option<Arc<io::Result<Vec<SocketAddr>>>>);

impl Source {
    pub(crate) fn of(addresses: impl ToSocketAddrs) -> Self {
        let found = addresses.to_socket_addrs();
        Self(Some(Arc::new(found.map(Iterator::collect))))
    }

    /// The first of the peer's family, or of all if there is none; none if any will do.
    pub(crate) fn towards(&self, peer: SocketAddr) -> Result<Option<SocketAddr>> {
        let Some(found) = &self.0 else {
            return Ok(None);
        };
        let found = found
            .as_ref()
            .as_ref()
            .map_err(|e| looked_up(io::Error::new(e.kind(), e.to_string())))?;
        let alike = |own: &&SocketAddr| own.is_ipv4() == peer.is_ipv4();
        match found.iter().find(alike).or_else(|| found.first()) {
            Some(own) => Ok(Some(*own)),
            None => Err(looked_up(io::ErrorKind::AddrNotAvailable.into())),
        }
    }
}

fn looked_up(source: io::Error) -> Error {
    Error::io("looking up an address", source)
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

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::{Source, first_of};
    use crate::Error;

    #[test]
    fn a_source_is_of_the_family_of_the_peer() {
        let [v4, v6, peer]: [SocketAddr; 3] =
            ["127.0.0.1:7", "[::1]:7", "[2001:db8::1]:9"].map(|text| text.parse().unwrap());
        let source = Source::of(&[v4, v6][..]);
        assert_eq!(source.towards(peer).unwrap(), Some(v6));
        assert_eq!(source.towards(v4).unwrap(), Some(v4));
        assert_eq!(Source::of(v4).towards(peer).unwrap(), Some(v4));
        assert_eq!(Source::default().towards(peer).unwrap(), None);
        for none in [Source::of(&[][..]), Source::of("no port")] {
            assert!(none.towards(peer).is_err());
        }
    }

    #[test]
    fn of_several_addresses_the_first_is_taken_that_can_be() {
        let all: [SocketAddr; 3] =
            ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"].map(|text| text.parse().unwrap());
        let (mut asked, refused) = (Vec::new(), || Error::Misuse("refused"));
        let port = first_of(&all[..], |address| {
            asked.push(address.port());
            (address.port() >= 2)
                .then_some(address.port())
                .ok_or_else(refused)
        });
        assert_eq!((port.unwrap(), asked), (2, vec![1, 2]));
        assert!(first_of(&all[..], |_| Err::<(), _>(refused())).is_err());
    }
}
