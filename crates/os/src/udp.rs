//! UDP sockets that carry `RoCEv2`.
//!
//! IPv4 sockets are never connected and never fragment: the kernel then sends Identification 0 with "don't fragment", which
//! the invariant CRC has to know in advance (it covers both and a UDP socket can set neither).

use std::ffi::c_int;
use std::io;
use std::mem::zeroed;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use crate::cmsg::Control;
use crate::fd::Fd;
use crate::sockaddr::{InetAddr, in_addr, in6_addr, ipv4, ipv6, is_link_local};
use crate::sys::{self, check, check_retry};

/// Datagrams per system call.
const BATCH: usize = 32;
/// Socket buffers asked for, in bytes; the kernel gives at most `rmem_max` and `wmem_max` (and counts double).
const BUFFER: c_int = 8 << 20;
/// `UDP_NO_CHECK6_TX` and `UDP_NO_CHECK6_RX` of `linux/udp.h`, at level `IPPROTO_UDP`.
const UDP_NO_CHECK6_TX: c_int = 101;
const UDP_NO_CHECK6_RX: c_int = 102;
/// `IPV6_AUTOFLOWLABEL` of `linux/in6.h`.
const IPV6_AUTOFLOWLABEL: c_int = 70;
/// The bits of a flow label.
const FLOW_LABEL: u32 = 0x000f_ffff;

/// The discard service (RFC 863).
const DISCARD: u16 = 9;

/// A datagram to send.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Destination, of the socket's family.
    pub dst: IpAddr,
    /// Destination port.
    pub port: u16,
    /// Source: one of this host's addresses, of the socket's family. Unspecified: the kernel chooses.
    pub src: IpAddr,
    /// The interface, for link-local destinations and multicast groups; otherwise routing decides and this is ignored.
    pub ifindex: u32,
    /// TTL or hop limit. 0 means the system's default: an IPv4 socket cannot send 0.
    pub ttl: u8,
    /// TOS or traffic class.
    pub tos: u8,
    /// Flow label, 20 bits; IPv4 has none.
    pub flow_label: u32,
    /// The content, in two parts.
    pub parts: [&'a [u8]; 2],
}

/// An unconnected, non-blocking UDP socket of one IP family.
#[derive(Debug)]
pub struct UdpSocket {
    fd: Fd,
    v6: bool,
    port: u16,
}

impl UdpSocket {
    /// An IPv4 socket on a port of all addresses, shared with other such sockets of the same user. Port 0: any free one.
    ///
    /// # Errors
    /// EADDRINUSE if another user, or somebody who does not share, owns the port.
    pub fn bind_v4(port: u16) -> io::Result<Self> {
        let fd = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_UDP)?;
        for (name, value) in [
            (libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
            (libc::IP_PKTINFO, 1),
            (libc::IP_RECVTTL, 1),
            (libc::IP_RECVTOS, 1),
        ] {
            sys::set_option(fd.as_raw_fd(), libc::IPPROTO_IP, name, value)?;
        }
        Self::bind(fd, Ipv4Addr::UNSPECIFIED.into(), port)
    }

    /// An IPv6-only socket on a port of all addresses, shared with other such sockets of the same user. Port 0: any free one.
    /// Datagrams without UDP checksum are sent and accepted: the invariant CRC guards the content.
    ///
    /// # Errors
    /// EAFNOSUPPORT without IPv6, EADDRINUSE if another user, or somebody who does not share, owns the port.
    pub fn bind_v6(port: u16) -> io::Result<Self> {
        let fd = sys::socket(libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_UDP)?;
        for (level, name, value) in [
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
            (libc::IPPROTO_UDP, UDP_NO_CHECK6_TX, 1),
            (libc::IPPROTO_UDP, UDP_NO_CHECK6_RX, 1),
        ] {
            sys::set_option(fd.as_raw_fd(), level, name, value)?;
        }
        Self::bind(fd, Ipv6Addr::UNSPECIFIED.into(), port)
    }

    fn bind(fd: Fd, ip: IpAddr, port: u16) -> io::Result<Self> {
        let share = || sys::set_option(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1);
        // When the kernel chooses the port it may choose one that others share, too: allow that only afterwards.
        if port != 0 {
            share()?;
        }
        sys::set_buffers(fd.as_raw_fd(), BUFFER)?;
        let at = InetAddr::new(ip, port, 0);
        // SAFETY: pointer and length describe `at`.
        check(unsafe { libc::syscall(libc::SYS_bind, fd.as_raw_fd(), &raw const at, at.len()) })?;
        share()?;
        let (_, port) = local_address(&fd)?;
        let socket = Self {
            fd,
            v6: ip.is_ipv6(),
            port,
        };
        socket.own_groups_only()?;
        Ok(socket)
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

    /// Bytes that may wait to be received, as the kernel counts: about twice what datagrams hold, or more for small ones.
    ///
    /// # Errors
    /// None is expected.
    pub fn receive_buffer(&self) -> io::Result<usize> {
        let bytes = sys::option(self.fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF)?;
        Ok(usize::try_from(bytes).unwrap_or(0))
    }

    /// Takes the socket out of those that share the port: new datagrams go to the others. What has come so far is still here to be
    /// received. Nothing may be sent any more: an IPv4 socket would fill in an Identification from now on.
    ///
    /// # Errors
    /// ENETUNREACH without a loopback interface; nothing has changed then.
    pub fn leave(&self) -> io::Result<()> {
        // A connected socket gets the datagrams of its peer only, and nobody sends from the discard port.
        let nowhere: IpAddr = if self.v6 {
            Ipv6Addr::LOCALHOST.into()
        } else {
            Ipv4Addr::LOCALHOST.into()
        };
        let to = InetAddr::new(nowhere, DISCARD, 0);
        // SAFETY: pointer and length describe `to`.
        check(unsafe {
            libc::syscall(
                libc::SYS_connect,
                self.fd.as_raw_fd(),
                &raw const to,
                to.len(),
            )
        })
        .map(drop)
    }

    /// Sends datagrams in order and returns how many went out, at least one (of a slice that is not empty). Fewer than all:
    /// the next one met an error, which the next call will tell.
    ///
    /// # Errors
    /// Of the first datagram: EAGAIN when the socket is full, EMSGSIZE when it is longer than the interface allows, ENETUNREACH,
    /// EINVAL for a source that is not ours, EAFNOSUPPORT for the wrong family …
    pub fn send_many(&self, datagrams: &[Datagram<'_>]) -> io::Result<usize> {
        let mut sent = 0;
        for chunk in datagrams.chunks(BATCH) {
            match self.send_chunk(chunk) {
                Ok(n) => sent += n,
                Err(e) if sent == 0 => return Err(e),
                Err(_) => break,
            }
            if sent % BATCH != 0 {
                break;
            }
        }
        Ok(sent)
    }

    fn send_chunk(&self, chunk: &[Datagram<'_>]) -> io::Result<usize> {
        let mut addresses = [const { InetAddr::zeroed() }; BATCH];
        let mut controls = [const { Control::new() }; BATCH];
        // SAFETY: null pointers, lengths and flags, for which zero is a value.
        let (mut iovs, mut headers): ([[libc::iovec; 2]; BATCH], [libc::mmsghdr; BATCH]) =
            unsafe { zeroed() };
        let mut ready = 0;
        for (i, datagram) in chunk.iter().enumerate() {
            if datagram.dst.is_ipv6() != self.v6 || datagram.src.is_ipv6() != self.v6 {
                break;
            }
            addresses[i] = InetAddr::new(datagram.dst, datagram.port, datagram.ifindex);
            fill_control(&mut controls[i], datagram);
            for (iov, part) in iovs[i].iter_mut().zip(datagram.parts) {
                iov.iov_base = part.as_ptr().cast_mut().cast();
                iov.iov_len = part.len();
            }
            let header = &mut headers[i].msg_hdr;
            header.msg_name = (&raw mut addresses[i]).cast();
            header.msg_namelen = addresses[i].len();
            header.msg_iov = iovs[i].as_mut_ptr();
            header.msg_iovlen = 2;
            header.msg_control = controls[i].as_mut_ptr();
            header.msg_controllen = controls[i].len();
            ready += 1;
        }
        if ready == 0 {
            return if chunk.is_empty() {
                Ok(0)
            } else {
                Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT))
            };
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the first `ready` headers point to addresses, parts and control messages that live through the call; the
        // kernel only reads from them.
        check_retry(|| unsafe {
            libc::syscall(
                libc::SYS_sendmmsg,
                self.fd.as_raw_fd(),
                headers.as_mut_ptr(),
                ready,
                flags,
            )
        })
    }

    /// Receives what is there, as much as the ring holds, and replaces the ring's content by it. Returns how many; 0: there is
    /// nothing.
    ///
    /// # Errors
    /// ENOMEM and the like; none is expected.
    pub fn recv_many(&self, ring: &mut RecvRing) -> io::Result<usize> {
        ring.filled = 0;
        // SAFETY: null pointers, lengths and flags, for which zero is a value.
        let (mut iovs, mut headers): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
            unsafe { zeroed() };
        let slots = ring.slots.len();
        for (i, (slot, bytes)) in ring
            .slots
            .iter_mut()
            .zip(ring.bytes.chunks_exact_mut(ring.size))
            .enumerate()
        {
            iovs[i] = libc::iovec {
                iov_base: bytes.as_mut_ptr().cast(),
                iov_len: bytes.len(),
            };
            let header = &mut headers[i].msg_hdr;
            header.msg_name = (&raw mut slot.from).cast();
            header.msg_namelen = InetAddr::capacity();
            header.msg_iov = &raw mut iovs[i];
            header.msg_iovlen = 1;
            header.msg_control = slot.control.as_mut_ptr();
            header.msg_controllen = Control::CAPACITY;
        }
        // SAFETY: the first `slots` headers point to room of the lengths that they say, in the ring, which is borrowed
        // exclusively; no timeout.
        let got = check_retry(|| unsafe {
            libc::syscall(
                libc::SYS_recvmmsg,
                self.fd.as_raw_fd(),
                headers.as_mut_ptr(),
                slots,
                libc::MSG_DONTWAIT,
                std::ptr::null::<libc::timespec>(),
            )
        });
        let got = match got {
            Ok(got) => got,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(e) => return Err(e),
        };
        for (slot, header) in ring.slots.iter_mut().zip(&headers[..got]) {
            slot.len = (header.msg_len as usize).min(ring.size);
            slot.truncated = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            slot.control.set_len(header.msg_hdr.msg_controllen);
        }
        ring.filled = got;
        Ok(got)
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

fn fill_control(control: &mut Control, datagram: &Datagram<'_>) {
    let (ttl, tos) = (c_int::from(datagram.ttl), c_int::from(datagram.tos));
    match (datagram.dst, datagram.src) {
        (IpAddr::V6(dst), IpAddr::V6(src)) => {
            let ipi6_ifindex = if is_link_local(dst) || dst.is_multicast() {
                datagram.ifindex
            } else {
                0
            };
            let info = libc::in6_pktinfo {
                ipi6_addr: in6_addr(src),
                ipi6_ifindex,
            };
            control.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
            if ttl != 0 {
                control.push(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, ttl);
            }
            control.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, tos);
            if datagram.flow_label != 0 {
                let label = (datagram.flow_label & FLOW_LABEL).to_be();
                control.push(libc::IPPROTO_IPV6, libc::IPV6_FLOWINFO, label);
            }
        }
        (dst, IpAddr::V4(src)) => {
            let none = in_addr(Ipv4Addr::UNSPECIFIED);
            let ifindex = if dst.is_multicast() {
                datagram.ifindex
            } else {
                0
            };
            let info = libc::in_pktinfo {
                ipi_ifindex: ifindex.cast_signed(),
                ipi_spec_dst: in_addr(src),
                ipi_addr: none,
            };
            control.push(libc::IPPROTO_IP, libc::IP_PKTINFO, info);
            if ttl != 0 {
                control.push(libc::IPPROTO_IP, libc::IP_TTL, ttl);
            }
            control.push(libc::IPPROTO_IP, libc::IP_TOS, tos);
        }
        (IpAddr::V4(_), IpAddr::V6(_)) => {}
    }
}

/// Room for received datagrams, used again and again.
pub struct RecvRing {
    bytes: Vec<u8>,
    size: usize,
    slots: Vec<Slot>,
    filled: usize,
}

struct Slot {
    from: InetAddr,
    control: Control,
    len: usize,
    truncated: bool,
}

/// A received datagram.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// The content.
    pub payload: &'a [u8],
    /// Its sender's address.
    pub src: IpAddr,
    /// Its sender's port.
    pub src_port: u16,
    /// The address that it was sent to.
    pub dst: IpAddr,
    /// TTL or hop limit.
    pub ttl: u8,
    /// TOS or traffic class.
    pub tos: u8,
    /// Flow label, 20 bits; 0 over IPv4.
    pub flow_label: u32,
    /// The interface that it came in by.
    pub ifindex: u32,
    /// It was longer than the ring's slots and was cut.
    pub truncated: bool,
}

impl RecvRing {
    /// Room for up to `slots` datagrams (1..=32) of `size` bytes (at least 1) each.
    #[must_use]
    pub fn new(slots: usize, size: usize) -> Self {
        let (slots, size) = (slots.clamp(1, BATCH), size.max(1));
        let empty = || Slot {
            from: InetAddr::zeroed(),
            control: Control::new(),
            len: 0,
            truncated: false,
        };
        Self {
            bytes: vec![0; slots * size],
            size,
            slots: std::iter::repeat_with(empty).take(slots).collect(),
            filled: 0,
        }
    }

    /// Datagrams that it can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// The datagrams of the last [`recv_many`](UdpSocket::recv_many).
    pub fn iter(&self) -> impl Iterator<Item = Received<'_>> {
        let slots = self.slots[..self.filled].iter();
        slots
            .zip(self.bytes.chunks_exact(self.size))
            .filter_map(|(slot, bytes)| slot.received(bytes))
    }
}

impl std::fmt::Debug for RecvRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Slot {
    /// `None` if the kernel did not tell the addresses: then it is no datagram that a peer could have meant for us.
    fn received<'a>(&self, bytes: &'a [u8]) -> Option<Received<'a>> {
        let (src, src_port) = self.from.get()?;
        let (mut dst, mut ifindex, mut ttl, mut tos) = (None, 0, 0, 0);
        let mut flow_label = 0;
        for message in self.control.iter() {
            // SAFETY: both structures are made of integers only.
            let (info4, info6) = unsafe {
                (
                    message.plain::<libc::in_pktinfo>(),
                    message.plain::<libc::in6_pktinfo>(),
                )
            };
            let low_byte = message.int().unwrap_or(0).to_le_bytes()[0];
            match (message.level, message.kind, info4, info6) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO, Some(info), _) => {
                    dst = Some(ipv4(info.ipi_addr).into());
                    ifindex = info.ipi_ifindex.cast_unsigned();
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, _, Some(info)) => {
                    dst = Some(ipv6(info.ipi6_addr).into());
                    ifindex = info.ipi6_ifindex;
                }
                (libc::IPPROTO_IP, libc::IP_TTL, ..)
                | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, ..) => ttl = low_byte,
                (libc::IPPROTO_IP, libc::IP_TOS, ..)
                | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, ..) => tos = low_byte,
                (libc::IPPROTO_IPV6, libc::IPV6_FLOWINFO, ..) => {
                    let word = message.int().unwrap_or(0).cast_unsigned();
                    flow_label = u32::from_be(word) & FLOW_LABEL;
                }
                _ => {}
            }
        }
        let payload = bytes.get(..self.len)?;
        Some(Received {
            payload,
            src,
            src_port,
            dst: dst?,
            ttl,
            tos,
            flow_label,
            ifindex,
            truncated: self.truncated,
        })
    }
}

/// The address that this host would use toward `dst`. `scope` is the interface if `dst` is link-local, else 0 or ignored.
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
    // SAFETY: pointer and length describe `to`.
    check(unsafe { libc::syscall(libc::SYS_connect, fd.as_raw_fd(), &raw const to, to.len()) })?;
    local_address(&fd).map(|(ip, _)| ip)
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
