//! UDP sockets that carry `RoCEv2`.
//!
//! IPv4 sockets that send are never connected and never fragment: the kernel then sends
//! Identification 0 with "don't fragment", which the invariant CRC has to know in advance (it
//! covers both and a UDP socket can set neither).

mod flow;
mod holder;
mod receive;
mod send;

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use crate::fd::Fd;
use crate::sockaddr::InetAddr;
use crate::sys::{self, check};

pub use holder::user_of_port;
pub use receive::{Received, RecvRing};
pub use send::{MAX_RUN, MAX_SEGMENTS, UdpDatagram};

/// Socket buffers asked for, in bytes; the kernel gives at most `rmem_max` and `wmem_max` (and
/// counts double).
const BUFFER: c_int = 8 << 20;
/// `UDP_NO_CHECK6_RX` of `linux/udp.h`, at level `IPPROTO_UDP`.
const UDP_NO_CHECK6_RX: c_int = 102;
/// `IPV6_AUTOFLOWLABEL` of `linux/in6.h`.
const IPV6_AUTOFLOWLABEL: c_int = 70;
/// The bits of a flow label.
const FLOW_LABEL: u32 = 0x000f_ffff;

const V4_OPTIONS: [(c_int, c_int, c_int); 4] = [
    (
        libc::IPPROTO_IP,
        libc::IP_MTU_DISCOVER,
        libc::IP_PMTUDISC_PROBE,
    ),
    (libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
    (libc::IPPROTO_IP, libc::IP_RECVTTL, 1),
    (libc::IPPROTO_IP, libc::IP_RECVTOS, 1),
];
const V6_OPTIONS: [(c_int, c_int, c_int); 8] = [
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1),
    (
        libc::IPPROTO_IPV6,
        libc::IPV6_MTU_DISCOVER,
        libc::IPV6_PMTUDISC_PROBE,
    ),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1),
    (libc::IPPROTO_IPV6, libc::IPV6_FLOWINFO, 1),
    // The label is the address handle's: the kernel must not make one up.
    (libc::IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, 0),
    (libc::IPPROTO_UDP, UDP_NO_CHECK6_RX, 1),
];

/// The discard service (RFC 863).
const DISCARD: u16 = 9;

/// An unconnected, non-blocking UDP socket of one IP family.
#[derive(Debug)]
pub struct UdpSocket {
    fd: Fd,
    v6: bool,
    port: u16,
    receive_buffer: usize,
}

impl UdpSocket {
    /// An IPv4 socket on a port of all addresses, shared with other such sockets of the same user.
    /// Port 0: any free one.
    ///
    /// # Errors
    /// EADDRINUSE if another user, or a socket that does not share, owns the port.
    pub fn bind_v4(port: u16) -> io::Result<Self> {
        Self::bind_v4_at(Ipv4Addr::UNSPECIFIED, port)
    }

    /// As [`bind_v4`](Self::bind_v4), on a port of one address, which may be a group's.
    pub(crate) fn bind_v4_at(ip: Ipv4Addr, port: u16) -> io::Result<Self> {
        Self::bind(unbound(false)?, ip.into(), port)
    }

    /// An IPv6-only socket on a port of all addresses, shared with other such sockets of the same
    /// user. Port 0: any free one. Datagrams without UDP checksum are accepted: the invariant CRC
    /// guards the content. Those that are sent have one, which the kernel wants where it cuts runs,
    /// and which costs nothing on interfaces that fill it in.
    ///
    /// # Errors
    /// EAFNOSUPPORT without IPv6, EADDRINUSE if another user, or a socket that does not share, owns
    /// the port.
    pub fn bind_v6(port: u16) -> io::Result<Self> {
        Self::bind(unbound(true)?, Ipv6Addr::UNSPECIFIED.into(), port)
    }

    fn bind(fd: Fd, ip: IpAddr, port: u16) -> io::Result<Self> {
        Self::bind_in(fd, InetAddr::new(ip, port, 0))
    }

    fn bind_in(fd: Fd, at: InetAddr) -> io::Result<Self> {
        let (ip, port) = at
            .get()
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))?;
        let share = || sys::set_option(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1);
        // When the kernel chooses the port it may choose one that others share, too: allow that
        // only afterwards.
        if port != 0 {
            share()?;
        }
        sys::set_buffers(fd.as_raw_fd(), BUFFER)?;
        bind(&fd, at)?;
        share()?;
        let (_, port) = local_address(&fd)?;
        let socket = Self::of_bound(fd, ip.is_ipv6(), port)?;
        socket.own_groups_only()?;
        socket.receive_runs()?;
        Ok(socket)
    }

    fn of_bound(fd: Fd, v6: bool, port: u16) -> io::Result<Self> {
        let bytes = sys::option(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF)?;
        Ok(Self {
            fd,
            v6,
            port,
            receive_buffer: usize::try_from(bytes).unwrap_or(0),
        })
    }

    /// Whether it is of IPv6.
    pub(crate) const fn is_v6(&self) -> bool {
        self.v6
    }

    /// The port that it is bound to.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Bytes that may wait to be received, as the kernel counts: about twice what datagrams hold,
    /// or more for small ones.
    #[must_use]
    pub const fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }

    /// Takes the socket out of those that share the port: new datagrams go to the others. What has
    /// come so far is still here to be received. Nothing may be sent any more: an IPv4 socket would
    /// fill in an Identification from now on.
    ///
    /// # Errors
    /// ENETUNREACH without a loopback interface; nothing has changed then.
    pub fn leave(&self) -> io::Result<()> {
        // A connected socket gets the datagrams of its peer only, and nobody sends from the discard
        // port.
        let nowhere: IpAddr = if self.v6 {
            Ipv6Addr::LOCALHOST.into()
        } else {
            Ipv4Addr::LOCALHOST.into()
        };
        let to = InetAddr::new(nowhere, DISCARD, 0);
        connect(&self.fd, to)
    }
}

impl AsRawFd for UdpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The address that this host would use toward `dst`. `scope` is the interface if `dst` is
/// link-local, else 0 or ignored.
///
/// # Errors
/// ENETUNREACH, EHOSTUNREACH: no route; EINVAL: a link-local address without its interface.
pub fn source_for(dst: IpAddr, scope: u32) -> io::Result<IpAddr> {
    let domain = if dst.is_ipv6() {
        libc::AF_INET6
    } else {
        libc::AF_INET
    };
    let fd = sys::socket(domain, libc::SOCK_DGRAM, libc::IPPROTO_UDP)?;
    // The port does not matter: nothing is sent.
    let to = InetAddr::new(dst, 4791, scope);
    connect(&fd, to)?;
    local_address(&fd).map(|(ip, _)| ip)
}

/// A socket with what all that carry packets have in common.
fn unbound(v6: bool) -> io::Result<Fd> {
    let (domain, options) = if v6 {
        (libc::AF_INET6, &V6_OPTIONS[..])
    } else {
        (libc::AF_INET, &V4_OPTIONS[..])
    };
    let fd = sys::socket(domain, libc::SOCK_DGRAM, libc::IPPROTO_UDP)?;
    for &(level, name, value) in options {
        sys::set_option(fd.as_raw_fd(), level, name, value)?;
    }
    Ok(fd)
}

fn bind(fd: &Fd, at: InetAddr) -> io::Result<()> {
    // SAFETY: pointer and length describe `at`.
    check(unsafe { libc::syscall(libc::SYS_bind, fd.as_raw_fd(), &raw const at, at.len()) })
        .map(drop)
}

fn connect(fd: &Fd, to: InetAddr) -> io::Result<()> {
    // SAFETY: pointer and length describe `to`.
    check(unsafe { libc::syscall(libc::SYS_connect, fd.as_raw_fd(), &raw const to, to.len()) })
        .map(drop)
}

fn local_address(fd: &Fd) -> io::Result<(IpAddr, u16)> {
    let mut at = InetAddr::zeroed();
    let mut len = InetAddr::capacity();
    // SAFETY: the pointers are to a live address and its length.
    check(unsafe {
        libc::syscall(
            libc::SYS_getsockname,
            fd.as_raw_fd(),
            &raw mut at,
            &raw mut len,
        )
    })?;
    at.get()
        .ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))
}

#[cfg(test)]
#[path = "udp_tests.rs"]
mod tests;
