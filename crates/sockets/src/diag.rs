//! `sock_diag(7)`: which TCP sockets this network namespace has.

use std::os::fd::RawFd;

use crate::address::End;
use crate::kept::Kept;
use crate::lock::Held;
use crate::sys;

const NETLINK_SOCK_DIAG: i32 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
/// Lengths of `nlmsghdr`, `inet_diag_req_v2` and `inet_diag_msg`.
const HEADER: usize = 16;
const REQUEST: usize = HEADER + 56;
const ANSWER: usize = HEADER + 72;

/// A socket as the kernel tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Socket {
    /// Its state, as in `tcpi_state`.
    pub(crate) state: u8,
    /// Its number (`SO_COOKIE`).
    pub(crate) cookie: u64,
}

/// State of a socket that takes connections.
pub(crate) const LISTEN: u8 = 10;

static SOCKET: Kept = Kept::new(
    libc::AF_NETLINK,
    libc::SOCK_RAW | libc::SOCK_NONBLOCK,
    NETLINK_SOCK_DIAG,
);

/// A socket to ask with, while the process's lock is held.
#[derive(Debug)]
pub(crate) struct Diag<'h> {
    fd: RawFd,
    _held: &'h Held,
}

impl<'h> Diag<'h> {
    /// None where the kernel has no such sockets.
    pub(crate) fn open(held: &'h Held) -> Option<Self> {
        let fd = SOCKET.get(held)?;
        Some(Self { fd, _held: held })
    }

    /// The socket that would get a connection to this address.
    pub(crate) fn listener(&self, to: End) -> Option<Socket> {
        let none = End {
            ip: if to.ip.to_ipv4_mapped().is_some() {
                std::net::Ipv4Addr::UNSPECIFIED.to_ipv6_mapped()
            } else {
                std::net::Ipv6Addr::UNSPECIFIED
            },
            port: 0,
        };
        self.ask(to, none)
    }

    /// The socket of a connection with these ends.
    pub(crate) fn connection(&self, own: End, peer: End) -> Option<Socket> {
        self.ask(own, peer)
    }

    fn ask(&self, own: End, peer: End) -> Option<Socket> {
        sys::send(self.fd, &request(own, peer)).ok()?;
        let mut answer = [0; 512];
        let length = sys::receive(self.fd, &mut answer, 0).ok()?;
        parse(&answer[..length])
    }
}

fn address(end: End) -> [u8; 16] {
    let Some(v4) = end.ip.to_ipv4_mapped() else {
        return end.ip.octets();
    };
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&v4.octets());
    bytes
}

fn request(own: End, peer: End) -> [u8; REQUEST] {
    let is_v4 = own.ip.to_ipv4_mapped().is_some();
    let family = if is_v4 { libc::AF_INET } else { libc::AF_INET6 };
    let mut bytes = [0; REQUEST];
    bytes[..4].copy_from_slice(&u32::try_from(REQUEST).unwrap_or(0).to_ne_bytes());
    bytes[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    let body = &mut bytes[HEADER..];
    body[0] = u8::try_from(family).unwrap_or(0);
    body[1] = u8::try_from(libc::IPPROTO_TCP).unwrap_or(0);
    body[4..8].fill(0xff); // all states
    body[8..10].copy_from_slice(&own.port.to_be_bytes());
    body[10..12].copy_from_slice(&peer.port.to_be_bytes());
    body[12..28].copy_from_slice(&address(own));
    body[28..44].copy_from_slice(&address(peer));
    body[48..56].fill(0xff); // any cookie
    bytes
}

fn parse(answer: &[u8]) -> Option<Socket> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if kind != SOCK_DIAG_BY_FAMILY || answer.len() < ANSWER {
        return None;
    }
    let body = &answer[HEADER..];
    let half = |at: usize| Some(u32::from_ne_bytes(body.get(at..at + 4)?.try_into().ok()?));
    Some(Socket {
        state: body[1],
        cookie: u64::from(half(44)?) | u64::from(half(48)?) << 32,
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;

    /// State of an established connection.
    const ESTABLISHED: u8 = 1;

    #[test]
    fn listeners_and_connections_are_found_by_their_addresses() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let at = listener.local_addr().expect("an address");
        let held = crate::lock::hold();
        let diag = Diag::open(&held).expect("sock_diag");
        let server = End::new(at).expect("an end");
        let cookie = sys::cookie(listener.as_raw_fd()).expect("a cookie");
        let found = diag.listener(server);
        let state = LISTEN;
        assert_eq!(found, Some(Socket { state, cookie }));
        let stream = TcpStream::connect(at).expect("a connection");
        let client = End::new(stream.local_addr().expect("an address")).expect("an end");
        let found = diag
            .connection(client, server)
            .expect("the client's socket");
        assert_eq!(found.state, ESTABLISHED);
        assert_eq!(
            found.cookie,
            sys::cookie(stream.as_raw_fd()).expect("a cookie")
        );
        assert!(diag.connection(server, client).is_some());
        drop(listener);
        assert_eq!(diag.listener(server), None);
    }

    #[test]
    fn what_is_no_answer_is_none() {
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&[0; 512]), None);
    }
}
