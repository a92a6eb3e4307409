//! Whether a host of the local network is there: the kernel's neighbour table (rtnetlink(7), RFC
//! 826, RFC 4861).
//!
//! The kernel resolves an address when a packet goes there, and says what came of it to any process
//! that asks.

use std::ffi::c_int;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use crate::netlink::{self, HEADER, split, word};
use crate::sockaddr::InetAddr;
use crate::sys::{self, check_retry};

/// `NUD_VALID` of the kernel: permanent, no ARP needed, reachable, or to be confirmed by use.
const VALID: u16 = 0x80 | 0x40 | 0x02 | 0x10 | 0x04 | 0x08;
/// `RTA_DST` and `NDA_DST`.
const DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
/// Bytes of `struct rtmsg` and `struct ndmsg`.
const FIXED: usize = 12;
/// Room for an answer: routes and neighbours are a few attributes.
const ROOM: usize = 4096;

/// The station of the local network to which packets for some host go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// The host itself, or a router.
    pub ip: IpAddr,
    /// The interface that it is behind.
    pub ifindex: u32,
}

/// What the kernel knows of a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Its link address, or that none is needed.
    Yes,
    /// Nothing yet, or that it did not answer.
    No,
}

/// Where packets for `dst` go first; `scope` is the interface of a link-local address, else 0.
///
/// # Errors
/// No route (ENETUNREACH, EHOSTUNREACH), or a sandbox that forbids netlink.
pub fn next_hop(dst: IpAddr, scope: u32) -> io::Result<NextHop> {
    let mut fixed = [0; FIXED];
    fixed[0] = family(dst);
    fixed[1] = if dst.is_ipv6() { 128 } else { 32 };
    let mut attributes = vec![(DST, octets(dst))];
    if scope != 0 {
        attributes.push((RTA_OIF, scope.to_ne_bytes().to_vec()));
    }
    let route = ask(libc::RTM_GETROUTE, fixed, &attributes)?;
    let ifindex = attribute(&route, RTA_OIF).and_then(|bytes| word(bytes, 0));
    let gateway = attribute(&route, RTA_GATEWAY).and_then(address);
    Ok(NextHop {
        ip: gateway.unwrap_or(dst),
        ifindex: ifindex.ok_or_else(malformed)?,
    })
}

/// What the kernel knows of a station.
///
/// # Errors
/// A sandbox that forbids netlink.
pub fn known(hop: NextHop) -> io::Result<Known> {
    let mut fixed = [0; FIXED];
    fixed[0] = family(hop.ip);
    fixed[4..8].copy_from_slice(&hop.ifindex.to_ne_bytes());
    match ask(libc::RTM_GETNEIGH, fixed, &[(DST, octets(hop.ip))]) {
        Ok(entry) => {
            let state = entry.get(8..10).and_then(|bytes| bytes.try_into().ok());
            let state = u16::from_ne_bytes(state.ok_or_else(malformed)?);
            Ok(if state & VALID == 0 {
                Known::No
            } else {
                Known::Yes
            })
        }
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(if resolves(hop.ifindex)? {
            Known::No
        } else {
            Known::Yes
        }),
        Err(e) => Err(e),
    }
}

/// UDP port of the discard service.
const DISCARD: u16 = 9;

/// Has the kernel resolve what is on the way to `dst`, by a packet without content to the port
/// whose purpose it is to discard what comes (RFC 863). At that of `RoCEv2` it would count as a
/// malformed packet.
///
/// # Errors
/// No route, or out of descriptors.
pub fn nudge(dst: IpAddr, scope: u32) -> io::Result<()> {
    let domain = c_int::from(family(dst));
    let fd = sys::socket(domain, libc::SOCK_DGRAM, libc::IPPROTO_UDP)?;
    let to = InetAddr::new(dst, DISCARD, scope);
    // SAFETY: pointer and length describe `to`; there is no content.
    check_retry(|| unsafe {
        libc::syscall(
            libc::SYS_sendto,
            fd.as_raw_fd(),
            std::ptr::null::<u8>(),
            0,
            libc::MSG_DONTWAIT,
            &raw const to,
            to.len(),
        )
    })?;
    Ok(())
}

/// Whether addresses are resolved on an interface.
fn resolves(ifindex: u32) -> io::Result<bool> {
    let mut fixed = [0; 16];
    fixed[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    let link = ask(libc::RTM_GETLINK, fixed, &[])?;
    let flags = word(&link, 8).ok_or_else(malformed)?.cast_signed();
    Ok(flags & (libc::IFF_NOARP | libc::IFF_LOOPBACK | libc::IFF_POINTOPOINT) == 0)
}

/// Asks the kernel for one object: the body of its answer.
fn ask<const N: usize>(
    kind: u16,
    fixed: [u8; N],
    attributes: &[(u16, Vec<u8>)],
) -> io::Result<Vec<u8>> {
    let request = request(kind, &fixed, attributes);
    let fd = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
    netlink::send(&fd, &request)?;
    let answer = netlink::receive(&fd, ROOM)?;
    let (answered, body, _) = split(&answer).ok_or_else(malformed)?;
    if c_int::from(answered) == libc::NLMSG_ERROR {
        return Err(netlink::error(body));
    }
    // What is asked for has the number before the one that asks, less the difference of "new" and
    // "get".
    if answered == kind - 2 {
        Ok(body.to_vec())
    } else {
        Err(malformed())
    }
}

fn request(kind: u16, fixed: &[u8], attributes: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes.extend(fixed);
    for (name, value) in attributes {
        let len =
            u16::try_from(4 + value.len()).expect("invariant: addresses and indices are short");
        bytes.extend(len.to_ne_bytes());
        bytes.extend(name.to_ne_bytes());
        bytes.extend(value);
    }
    let len = u32::try_from(bytes.len()).expect("invariant: as above");
    let flags = u16::try_from(libc::NLM_F_REQUEST).expect("invariant: 1");
    bytes[..4].copy_from_slice(&len.to_ne_bytes());
    bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
    bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
    bytes
}

/// The value of an attribute behind the fixed part of an answer.
fn attribute(body: &[u8], wanted: u16) -> Option<&[u8]> {
    netlink::attribute(body.get(FIXED..)?, wanted)
}

fn family(ip: IpAddr) -> u8 {
    let family = if ip.is_ipv6() {
        libc::AF_INET6
    } else {
        libc::AF_INET
    };
    u8::try_from(family).expect("invariant: families are small numbers")
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(v4.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

fn malformed() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADMSG)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::netdev::{interfaces, is_local};

    #[test]
    fn loopback_needs_no_resolution() {
        let (v4, v6) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
        // A host need not have IPv6.
        let v6 = is_local(&interfaces().expect("interfaces"), v6).then_some(v6);
        for ip in [v4].into_iter().chain(v6) {
            let hop = next_hop(ip, 0).expect("a route");
            assert_eq!(hop.ip, ip);
            assert_eq!(known(hop).expect("an answer"), Known::Yes);
        }
    }

    #[test]
    fn attributes_are_found_wherever_they_stand() {
        let request = request(
            libc::RTM_GETROUTE,
            &[0; FIXED],
            &[(DST, vec![1, 2, 3, 4]), (RTA_OIF, vec![7, 0, 0, 0])],
        );
        let (_, body, rest) = split(&request).expect("a message");
        assert!(rest.is_empty());
        assert_eq!(attribute(body, DST), Some(&[1, 2, 3, 4][..]));
        assert_eq!(attribute(body, RTA_OIF), Some(&[7, 0, 0, 0][..]));
        assert_eq!(attribute(body, RTA_GATEWAY), None);
        for cut in 0..body.len() {
            let _no_panic = attribute(&body[..cut], RTA_GATEWAY);
        }
    }

    #[test]
    fn an_unknown_interface_is_an_error() {
        let hop = NextHop {
            ip: "10.0.0.1".parse().expect("an address"),
            ifindex: 0x7fff_0000,
        };
        known(hop).expect_err("there is no such interface");
    }
}
