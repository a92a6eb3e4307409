//! The two ends of a TCP connection, and the names of Unix sockets that say them.
//!
//! Unix sockets tell by their abstract names what they are, so a descriptor's meaning needs no
//! table that could be wrong after `fork`, `exec` or `SCM_RIGHTS`:
//!
//! | name | socket |
//! |---|---|
//! | `ferroce-sockets/l/COOKIE/FAMILY` | takes the streams of the TCP listener with this cookie |
//! | `ferroce-sockets/p/PORT`, or `s/COOKIE` where that is taken | a listener's stash |
//! | `ferroce-sockets/t/CLIENT/SERVER/COOKIE` | the client's end of a stream, by the cookie of its TCP socket |

use std::fmt::{self, Write as _};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ops::Deref;

/// What all names begin with.
pub(crate) const PREFIX: &str = "ferroce-sockets/";

/// An abstract name, without its zero. Nothing is allocated for it: each connection has one, and
/// asks for others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name {
    bytes: [u8; Self::ROOM],
    length: usize,
}

impl Name {
    /// Room of `sun_path` behind the zero.
    const ROOM: usize = 107;

    fn new(text: fmt::Arguments<'_>) -> Self {
        let mut name = Self {
            bytes: [0; Self::ROOM],
            length: 0,
        };
        let written = name.write_fmt(text);
        debug_assert!(written.is_ok(), "invariant: names have room");
        name
    }
}

impl fmt::Write for Name {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.length..self.length + text.len());
        room.ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

impl Deref for Name {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Address family of a socket, as the program made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// `AF_INET`
    V4,
    /// `AF_INET6`
    V6,
}

impl Family {
    /// That of an address.
    pub(crate) const fn of(address: &SocketAddr) -> Self {
        match address {
            SocketAddr::V4(_) => Self::V4,
            SocketAddr::V6(_) => Self::V6,
        }
    }

    const fn digit(self) -> char {
        match self {
            Self::V4 => '4',
            Self::V6 => '6',
        }
    }

    fn parse(text: &str) -> Option<Self> {
        match text {
            "4" => Some(Self::V4),
            "6" => Some(Self::V6),
            _ => None,
        }
    }
}

/// One end: an address, of IPv4 as IPv6 maps it, and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// The address.
    pub(crate) ip: Ipv6Addr,
    /// The port.
    pub(crate) port: u16,
}

impl End {
    /// From a socket address; none if it means something on one interface only.
    pub(crate) fn new(address: SocketAddr) -> Option<Self> {
        let ip = match address {
            SocketAddr::V4(v4) => v4.ip().to_ipv6_mapped(),
            SocketAddr::V6(v6) if v6.scope_id() == 0 => *v6.ip(),
            SocketAddr::V6(_) => return None,
        };
        let port = address.port();
        Some(Self { ip, port })
    }

    /// As a socket of this family shows it.
    pub(crate) fn shown(self, family: Family) -> SocketAddr {
        match (family, self.ip.to_ipv4_mapped()) {
            (Family::V4, Some(ip)) => SocketAddrV4::new(ip, self.port).into(),
            _ => SocketAddrV6::new(self.ip, self.port, 0, 0).into(),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (ip, port) = text.split_at_checked(32)?;
        (port.len() == 4).then_some(())?;
        Some(Self {
            ip: Ipv6Addr::from_bits(u128::from_str_radix(ip, 16).ok()?),
            port: u16::from_str_radix(port, 16).ok()?,
        })
    }
}

/// As a name says it.
impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}{:04x}", self.ip.to_bits(), self.port)
    }
}

/// A TCP connection by its two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connection {
    /// The end that called `connect(2)`.
    pub(crate) client: End,
    /// The end that called `accept(2)`.
    pub(crate) server: End,
}

impl Connection {
    /// Whether both ends are one host's: their addresses are the same. Other connections within a
    /// host stay on TCP.
    pub(crate) fn is_within_host(self) -> bool {
        self.client.ip == self.server.ip
    }

    /// Name of the client's end. An earlier connection with the same ends may still have its own.
    pub(crate) fn name(self, cookie: u64) -> Name {
        let Self { client, server } = self;
        // A name has room for 15 digits. No system counts as far.
        let cookie = cookie & (u64::MAX >> 4);
        Name::new(format_args!("{PREFIX}t/{client}/{server}/{cookie:x}"))
    }
}

/// Name of the socket that takes the streams of a listener.
pub(crate) fn listener_name(cookie: u64, family: Family) -> Name {
    Name::new(format_args!("{PREFIX}l/{cookie:x}/{}", family.digit()))
}

/// Name of a listener's stash, which says that the port has a listener that takes streams.
pub(crate) fn port_name(port: u16) -> Name {
    Name::new(format_args!("{PREFIX}p/{port}"))
}

/// Name of a stash where the port's name is taken, by the listener of another address.
pub(crate) fn stash_name(cookie: u64) -> Name {
    Name::new(format_args!("{PREFIX}s/{cookie:x}"))
}

/// What a name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A listener's socket, or a server's end of a stream: these have their listener's name.
    Listener(u64, Family),
    /// A client's end of a stream.
    Client(Connection),
}

impl Meaning {
    /// Reads a name; none if it is not one of ours.
    pub(crate) fn parse(name: &[u8]) -> Option<Self> {
        let rest = std::str::from_utf8(name).ok()?.strip_prefix(PREFIX)?;
        let mut parts = rest.split('/');
        match parts.next()? {
            "l" => {
                let cookie = u64::from_str_radix(parts.next()?, 16).ok()?;
                Some(Self::Listener(cookie, Family::parse(parts.next()?)?))
            }
            "t" => {
                let client = End::parse(parts.next()?)?;
                let server = End::parse(parts.next()?)?;
                Some(Self::Client(Connection { client, server }))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(text: &str) -> End {
        End::new(text.parse().expect("an address")).expect("an end")
    }

    #[test]
    fn names_say_what_they_were_made_of() {
        for (client, server) in [
            ("127.0.0.1:40000", "127.0.0.1:80"),
            ("[::1]:1", "[::1]:65535"),
            ("[::ffff:10.0.0.1]:5", "10.0.0.1:6"),
        ] {
            let connection = Connection {
                client: end(client),
                server: end(server),
            };
            let name = connection.name(u64::MAX);
            let parsed = Meaning::parse(&name);
            assert_eq!(parsed, Some(Meaning::Client(connection)));
            assert!(connection.is_within_host());
        }
        let name = listener_name(u64::MAX, Family::V4);
        let parsed = Meaning::parse(&name);
        assert_eq!(parsed, Some(Meaning::Listener(u64::MAX, Family::V4)));
    }

    #[test]
    fn other_names_say_nothing() {
        let names = [
            "",
            "ferroce-sockets/",
            "ferroce-sockets/l/",
            "x",
            "ferroce-sockets/t/12/34",
        ];
        for name in names {
            assert_eq!(Meaning::parse(name.as_bytes()), None, "{name}");
        }
        assert_eq!(Meaning::parse(&[0xff; 40]), None);
    }

    #[test]
    fn a_mapped_address_is_shown_as_its_socket_shows_it() {
        let v4 = end("127.0.0.1:80");
        assert_eq!(v4.shown(Family::V4).to_string(), "127.0.0.1:80");
        assert_eq!(v4.shown(Family::V6).to_string(), "[::ffff:127.0.0.1]:80");
        let scoped = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 1, 0, 2);
        assert_eq!(End::new(scoped.into()), None);
    }
}
