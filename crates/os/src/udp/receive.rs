//! Receiving datagrams, many in one system call, and many that the kernel has joined to one run
//! (`UDP_GRO`).

use std::ffi::c_int;
use std::io;
use std::mem::zeroed;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use super::{FLOW_LABEL, UdpSocket};
use crate::cmsg::ControlMessages;
use crate::sockaddr::{InetAddr, ipv4, ipv6};
use crate::sys::{self, check_retry, errno, fit};

/// Most slots of a ring. Headers for so many are made for each call, also for one that finds
/// nothing.
const BATCH: usize = 8;

/// `UDP_GRO` of `linux/udp.h`, at level `IPPROTO_UDP`.
const UDP_GRO: c_int = 104;

/// Room for received datagrams, used again and again.
pub struct RecvRing {
    bytes: Vec<u8>,
    size: usize,
    slots: Vec<Slot>,
    /// Slots that are to be filled at most.
    most: usize,
    filled: usize,
}

/// Room for one datagram or run, beside its bytes.
struct Slot {
    from: InetAddr,
    control: ControlMessages,
    len: usize,
    truncated: bool,
}

/// A received datagram, or a run of datagrams that the kernel has joined: same addresses, same
/// length but the last, which may be shorter.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// The content.
    pub payload: &'a [u8],
    /// Bytes of each datagram of a run; all of the content if it is one datagram.
    pub segment: usize,
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
    /// The datagram was longer than the ring's slots and was cut.
    pub truncated: bool,
    /// Datagrams that this socket has lost since it was made, because nobody took them out in time
    /// (modulo 2^32).
    pub lost: u32,
}

impl<'a> Received<'a> {
    /// The datagrams in it, in order.
    pub fn segments(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        // An empty datagram is one, too.
        let whole = self.payload.is_empty().then_some(self.payload);
        whole
            .into_iter()
            .chain(self.payload.chunks(self.segment.max(1)))
    }
}

impl UdpSocket {
    /// Lets the kernel join datagrams, and tell how many were lost. Kernels that cannot (before
    /// 5.0) do not.
    pub(super) fn receive_runs(&self) -> io::Result<()> {
        for (level, name) in [
            (libc::IPPROTO_UDP, UDP_GRO),
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL),
        ] {
            match sys::set_option(self.as_raw_fd(), level, name, 1) {
                Err(e) if errno(&e) != libc::ENOPROTOOPT => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether the kernel joins datagrams of one flow to runs.
    #[must_use]
    pub fn can_join(&self) -> bool {
        // Asking for it once more is the only question that all kernels answer.
        sys::set_option(self.as_raw_fd(), libc::IPPROTO_UDP, UDP_GRO, 1).is_ok()
    }

    /// Whether something waits to be received.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        // SAFETY: no room is given, so none is written to.
        unsafe { libc::recv(self.as_raw_fd(), std::ptr::null_mut(), 0, flags) >= 0 }
    }

    /// Receives what is there, as much as the ring holds, and replaces the ring's content by it.
    /// Returns how many slots were filled; 0: there is nothing.
    ///
    /// # Errors
    /// ENOMEM and the like; none is expected.
    pub fn recv_many(&self, ring: &mut RecvRing) -> io::Result<usize> {
        ring.filled = 0;
        // SAFETY: null pointers, lengths and flags, for which zero is a value.
        let (mut iovs, mut headers): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
            unsafe { zeroed() };
        let slots = ring.capacity();
        for (i, (slot, bytes)) in ring.slots[..slots]
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
            header.msg_controllen = fit(ControlMessages::CAPACITY);
        }
        // SAFETY: the first `slots` headers point to room of the lengths that they say, in the
        // ring, which is borrowed exclusively; no timeout.
        let got = check_retry(|| unsafe {
            libc::syscall(
                libc::SYS_recvmmsg,
                self.as_raw_fd(),
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
            slot.control.set_len(fit(header.msg_hdr.msg_controllen));
        }
        ring.filled = got;
        Ok(got)
    }
}

impl RecvRing {
    /// Room for up to `slots` datagrams or runs (1..=8) of `size` bytes (at least 1) each. A run
    /// has up to 64 KiB.
    #[must_use]
    pub fn new(slots: usize, size: usize) -> Self {
        let (slots, size) = (slots.clamp(1, BATCH), size.max(1));
        let empty = || Slot {
            from: InetAddr::zeroed(),
            control: ControlMessages::new(),
            len: 0,
            truncated: false,
        };
        Self {
            bytes: vec![0; slots * size],
            size,
            slots: std::iter::repeat_with(empty).take(slots).collect(),
            most: slots,
            filled: 0,
        }
    }

    /// Slots that the next call fills at most.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.most
    }

    /// From now on fills at most `slots` of its slots (at least 1).
    pub fn limit(&mut self, slots: usize) {
        self.most = slots.clamp(1, self.slots.len());
    }

    /// What the last [`recv_many`](UdpSocket::recv_many) has brought.
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
    /// `None` if the kernel did not tell the addresses: then it is no datagram that a peer could
    /// have meant for us.
    fn received<'a>(&self, bytes: &'a [u8]) -> Option<Received<'a>> {
        let (src, src_port) = self.from.get()?;
        let payload = bytes.get(..self.len)?;
        let mut received = Received {
            payload,
            segment: payload.len(),
            src,
            src_port,
            dst: src,
            ttl: 0,
            tos: 0,
            flow_label: 0,
            ifindex: 0,
            truncated: self.truncated,
            lost: 0,
        };
        let mut dst = None;
        for message in self.control.iter() {
            // SAFETY: both structures are made of integers only.
            let (info4, info6) = unsafe {
                (
                    message.plain::<libc::in_pktinfo>(),
                    message.plain::<libc::in6_pktinfo>(),
                )
            };
            let number = message.int().unwrap_or(0);
            let low_byte = number.to_le_bytes()[0];
            match (message.level, message.kind, info4, info6) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO, Some(info), _) => {
                    dst = Some(ipv4(info.ipi_addr).into());
                    received.ifindex = info.ipi_ifindex.cast_unsigned();
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, _, Some(info)) => {
                    dst = Some(ipv6(info.ipi6_addr).into());
                    received.ifindex = info.ipi6_ifindex;
                }
                (libc::IPPROTO_IP, libc::IP_TTL, ..)
                | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, ..) => received.ttl = low_byte,
                (libc::IPPROTO_IP, libc::IP_TOS, ..)
                | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, ..) => received.tos = low_byte,
                (libc::IPPROTO_IPV6, libc::IPV6_FLOWINFO, ..) => {
                    received.flow_label = u32::from_be(number.cast_unsigned()) & FLOW_LABEL;
                }
                (libc::IPPROTO_UDP, UDP_GRO, ..) => {
                    received.segment = usize::try_from(number).unwrap_or(0).max(1);
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL, ..) => {
                    received.lost = number.cast_unsigned();
                }
                _ => {}
            }
        }
        received.dst = dst?;
        Some(received)
    }
}
