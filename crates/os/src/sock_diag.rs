//! Whether the kernel tells of TCP sockets (`sock_diag(7)`), which `ferroce run --sockets` needs.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

use crate::netlink::{self, HEADER, split};
use crate::sys;

/// Bytes of `struct inet_diag_req_v2`.
const REQUEST: usize = HEADER + 56;
const ROOM: usize = 512;
/// Type of the request and of its answer.
const BY_FAMILY: u16 = 20;

/// Asks the kernel for a listener that this function makes.
///
/// # Errors
/// No descriptor is left, a sandbox forbids netlink, or the kernel does not know the socket
/// (ENOENT: it lacks `tcp_diag`).
pub fn knows_tcp() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    let fd = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_SOCK_DIAG)?;
    netlink::send(&fd, &request(port)?)?;
    let answer = netlink::receive(&fd, ROOM)?;
    match split(&answer) {
        Some((BY_FAMILY, ..)) => Ok(()),
        Some((_, body, _)) => Err(netlink::error(body)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Asks for the listener of a port at 127.0.0.1.
fn request(port: u16) -> io::Result<[u8; REQUEST]> {
    let byte = |number: libc::c_int| u8::try_from(number).map_err(io::Error::other);
    let length = u32::try_from(REQUEST).map_err(io::Error::other)?;
    let flags = u16::try_from(libc::NLM_F_REQUEST).map_err(io::Error::other)?;
    let mut bytes = [0; REQUEST];
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
    let body = &mut bytes[HEADER..];
    body[0] = byte(libc::AF_INET)?;
    body[1] = byte(libc::IPPROTO_TCP)?;
    body[4..8].fill(0xff); // all states
    body[8..10].copy_from_slice(&port.to_be_bytes());
    body[12..16].copy_from_slice(&Ipv4Addr::LOCALHOST.octets());
    body[48..56].fill(0xff); // any cookie
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_known() {
        knows_tcp().expect("the kernel has tcp_diag");
    }
}
