//! Sending datagrams, many in one system call, and many cut from one run of bytes (`UDP_SEGMENT`).

use std::ffi::c_int;
use std::io;
use std::mem::zeroed;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;

use super::{FLOW_LABEL, UdpSocket};
use crate::cmsg::ControlMessages;
use crate::sockaddr::{InetAddr, in_addr, in6_addr, is_link_local};
use crate::sys::{self, check_retry, fit};

/// Messages per system call.
const BATCH: usize = 16;
/// Messages of a system call where there are no more.
const FEW: usize = 4;

/// `UDP_SEGMENT` of `linux/udp.h`, at level `IPPROTO_UDP`.
const UDP_SEGMENT: c_int = 103;

/// Most datagrams that the kernel cuts from one run, in all versions that cut (`UDP_MAX_SEGMENTS`
/// was 64 before Linux 6.9).
pub const MAX_SEGMENTS: usize = 64;
/// Most bytes of one run: what fits an IPv4 packet behind its headers.
pub const MAX_RUN: usize = 65_507;

/// A datagram to send, or a run of datagrams.
#[derive(Clone, Copy, Debug)]
pub struct UdpDatagram<'a> {
    /// Destination, of the socket's family.
    pub dst: IpAddr,
    /// Destination port.
    pub port: u16,
    /// Source: one of this host's addresses, of the socket's family. Unspecified: the kernel
    /// chooses.
    pub src: IpAddr,
    /// The interface, for link-local destinations and multicast groups; otherwise routing decides
    /// and this is ignored.
    pub ifindex: u32,
    /// TTL or hop limit. 0 means the system's default: an IPv4 socket cannot send 0.
    pub ttl: u8,
    /// TOS or traffic class.
    pub tos: u8,
    /// Flow label, 20 bits; IPv4 has none.
    pub flow_label: u32,
    /// The content.
    pub payload: &'a [u8],
    /// The content is a run of datagrams of this many bytes each, the last of which may be shorter:
    /// at most [`MAX_SEGMENTS`] of them and [`MAX_RUN`] bytes. Over IPv4 their Identifications
    /// count up from 0. 0: it is one datagram.
    pub segment: u16,
}

impl UdpSocket {
    /// Whether this kernel cuts runs ([`UdpDatagram::segment`]): Linux 4.18 and later.
    #[must_use]
    pub fn can_segment(&self) -> bool {
        sys::option(self.as_raw_fd(), libc::IPPROTO_UDP, UDP_SEGMENT).is_ok()
    }

    /// Sends datagrams in order and returns how many went out, at least one (of a slice that is not
    /// empty). Fewer than all: the next one met an error, which the next call will tell.
    ///
    /// # Errors
    /// Of the first datagram: EAGAIN when the socket is full, EMSGSIZE when it is longer than the
    /// interface allows, ENETUNREACH, EINVAL for a source that is not ours, EAFNOSUPPORT for the
    /// wrong family … A run that the interface cannot take meets EINVAL, EMSGSIZE or EIO.
    pub fn send_many(&self, datagrams: &[UdpDatagram<'_>]) -> io::Result<usize> {
        let mut sent = 0;
        for chunk in datagrams.chunks(BATCH) {
            // One datagram, or the few runs of a stream, are spared the room for many, which has to
            // be cleared.
            let went = match chunk.len() {
                0..=1 => self.send_chunk::<1>(chunk),
                2..=FEW => self.send_chunk::<FEW>(chunk),
                _ => self.send_chunk::<BATCH>(chunk),
            };
            match went {
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

    fn send_chunk<const N: usize>(&self, chunk: &[UdpDatagram<'_>]) -> io::Result<usize> {
        let mut addresses = [const { InetAddr::zeroed() }; N];
        let mut controls = [const { ControlMessages::new() }; N];
        // SAFETY: null pointers, lengths and flags, for which zero is a value.
        let (mut iovs, mut headers): ([libc::iovec; N], [libc::mmsghdr; N]) = unsafe { zeroed() };
        let mut ready = 0;
        for (i, datagram) in chunk.iter().enumerate().take(N) {
            if datagram.dst.is_ipv6() != self.is_v6() || datagram.src.is_ipv6() != self.is_v6() {
                break;
            }
            addresses[i] = InetAddr::new(datagram.dst, datagram.port, datagram.ifindex);
            fill_control(&mut controls[i], datagram);
            iovs[i].iov_base = datagram.payload.as_ptr().cast_mut().cast();
            iovs[i].iov_len = datagram.payload.len();
            let header = &mut headers[i].msg_hdr;
            header.msg_name = (&raw mut addresses[i]).cast();
            header.msg_namelen = addresses[i].len();
            header.msg_iov = &raw mut iovs[i];
            header.msg_iovlen = 1;
            header.msg_control = controls[i].as_mut_ptr();
            header.msg_controllen = fit(controls[i].len());
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
        // SAFETY: the first `ready` headers point to addresses, contents and control messages that
        // live through the call; the kernel only reads from them.
        check_retry(|| unsafe {
            libc::syscall(
                libc::SYS_sendmmsg,
                self.as_raw_fd(),
                headers.as_mut_ptr(),
                ready,
                flags,
            )
        })
    }
}

fn fill_control(control: &mut ControlMessages, datagram: &UdpDatagram<'_>) {
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
    if datagram.segment != 0 {
        control.push(libc::IPPROTO_UDP, UDP_SEGMENT, datagram.segment);
    }
}
