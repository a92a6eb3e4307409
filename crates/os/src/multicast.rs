//! Membership of UDP sockets in multicast groups (IGMP, MLD).

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;

use crate::sockaddr::{in_addr, in6_addr};
use crate::sys::{self, check, errno};
use crate::udp::UdpSocket;

/// What the kernel allows where the file cannot be read.
const DEFAULT_GROUPS: u32 = 20;

/// Groups that one IPv4 socket can be a member of (`igmp_max_memberships`). IPv6 allows more.
#[must_use]
pub fn max_groups() -> u32 {
    std::fs::read_to_string("/proc/sys/net/ipv4/igmp_max_memberships")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(DEFAULT_GROUPS)
}

impl UdpSocket {
    /// Asks the kernel for datagrams of those groups only that this very socket has joined, and not
    /// of all that anybody on this host has joined.
    pub(crate) fn own_groups_only(&self) -> io::Result<()> {
        let (level, name) = if self.is_v6() {
            (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL)
        } else {
            (libc::IPPROTO_IP, libc::IP_MULTICAST_ALL)
        };
        match sys::set_option(self.as_raw_fd(), level, name, 0) {
            // Kernels before 4.20 have no such option for IPv6: datagrams of other groups then come
            // and are dropped later.
            Err(e) if errno(&e) == libc::ENOPROTOOPT => Ok(()),
            other => other,
        }
    }

    /// Becomes a member of a group on an interface: a copy of each datagram to the group that comes
    /// in there, or that this host sends there, reaches this socket, whatever else shares the port.
    ///
    /// # Errors
    /// EADDRINUSE if it is a member; ENOBUFS at the limit ([`max_groups`]); ENODEV; EINVAL if it is
    /// no group, EAFNOSUPPORT for the wrong family.
    pub fn join(&self, group: IpAddr, ifindex: u32) -> io::Result<()> {
        self.membership(
            group,
            ifindex,
            libc::IP_ADD_MEMBERSHIP,
            libc::IPV6_ADD_MEMBERSHIP,
        )
    }

    /// Ends the membership.
    ///
    /// # Errors
    /// EADDRNOTAVAIL if it is no member, or the interface is gone.
    pub fn leave_group(&self, group: IpAddr, ifindex: u32) -> io::Result<()> {
        self.membership(
            group,
            ifindex,
            libc::IP_DROP_MEMBERSHIP,
            libc::IPV6_DROP_MEMBERSHIP,
        )
    }

    fn membership(&self, group: IpAddr, ifindex: u32, v4: i32, v6: i32) -> io::Result<()> {
        if group.is_ipv6() != self.is_v6() {
            return Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT));
        }
        match group {
            IpAddr::V4(group) => {
                let request = libc::ip_mreqn {
                    imr_multiaddr: in_addr(group),
                    imr_address: libc::in_addr { s_addr: 0 },
                    imr_ifindex: ifindex.cast_signed(),
                };
                self.set(libc::IPPROTO_IP, v4, &request)
            }
            IpAddr::V6(group) => {
                let request = libc::ipv6_mreq {
                    ipv6mr_multiaddr: in6_addr(group),
                    ipv6mr_interface: ifindex,
                };
                self.set(libc::IPPROTO_IPV6, v6, &request)
            }
        }
    }

    /// `setsockopt(2)` with a structure.
    fn set<T>(&self, level: i32, name: i32, value: &T) -> io::Result<()> {
        // SAFETY: pointer and length describe `value`.
        check(unsafe {
            libc::syscall(
                libc::SYS_setsockopt,
                self.as_raw_fd(),
                level,
                name,
                std::ptr::from_ref(value),
                size_of::<T>(),
            )
        })
        .map(drop)
    }
}

/// `BPF_RET | BPF_K`: a filter's verdict, the number of bytes to take.
const TAKE: u16 = 0x06;

/// A second member of an IPv4 group, which takes nothing.
///
/// Kernels from 6.6 on look for the one socket that a datagram to a group is for before they route
/// it. Then they choose anew among all that share that socket's port and address, members or not.
/// So with one member in a namespace, datagrams go to whichever socket. Where two sockets fit they
/// do not look, and every member gets its copy. This is the second one. It is bound to the group,
/// so it never fits what is for others, and a filter keeps its copies from it.
#[derive(Debug)]
pub struct Witness {
    _socket: UdpSocket,
}

impl Witness {
    /// Joins beside a member of a group on an interface.
    ///
    /// # Errors
    /// As [`UdpSocket::join`]; EADDRINUSE if another user has a port of this number at the group's
    /// address.
    pub fn beside(member: &UdpSocket, group: Ipv4Addr, ifindex: u32) -> io::Result<Self> {
        let socket = UdpSocket::bind_v4_at(group, member.port())?;
        let mut nothing = libc::sock_filter {
            code: TAKE,
            jt: 0,
            jf: 0,
            k: 0,
        };
        let filter = libc::sock_fprog {
            len: 1,
            filter: &raw mut nothing,
        };
        socket.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)?;
        socket.join(group.into(), ifindex)?;
        Ok(Self { _socket: socket })
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::netdev;
    use crate::udp::{RecvRing, UdpDatagram};

    const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 255, 71, 9));

    fn loopback() -> u32 {
        let all = netdev::interfaces().expect("interfaces");
        all.iter().find(|i| i.loopback).expect("lo").index
    }

    fn send(socket: &UdpSocket, port: u16, text: &[u8]) {
        let datagram = UdpDatagram {
            dst: GROUP,
            port,
            src: Ipv4Addr::LOCALHOST.into(),
            ifindex: loopback(),
            ttl: 1,
            tos: 0,
            flow_label: 0,
            payload: text,
            segment: 0,
        };
        assert_eq!(socket.send_many(&[datagram]).expect("sent"), 1);
    }

    /// Adds what comes to the list until `text` has come.
    fn receive_until(socket: &UdpSocket, text: &[u8], list: &mut Vec<Vec<u8>>) {
        let mut ring = RecvRing::new(8, 100);
        let deadline = Instant::now() + Duration::from_secs(60);
        while list.last().is_none_or(|last| last != text) {
            if socket.recv_many(&mut ring).expect("received") == 0 {
                assert!(Instant::now() < deadline, "got {list:?}");
                thread::yield_now();
            }
            for datagram in ring.iter() {
                assert_eq!((datagram.dst, datagram.ifindex), (GROUP, loopback()));
                list.push(datagram.payload.to_vec());
            }
        }
    }

    #[test]
    fn each_member_that_shares_the_port_gets_one_copy() {
        let a = UdpSocket::bind_v4(0).expect("a socket");
        let (b, c) = (
            UdpSocket::bind_v4(a.port()).expect("a socket"),
            UdpSocket::bind_v4(a.port()).expect("a socket"),
        );
        let (sockets, mut lists) = ([&a, &b, &c], [const { Vec::new() }; 3]);
        // The kernel decides which sockets get a copy when it delivers a datagram, which may be
        // after it was sent. So the test waits for each before a socket joins or leaves.
        let mut tell = |from: &UdpSocket, text: &[u8], members: &[usize]| {
            send(from, a.port(), text);
            for &i in members {
                receive_until(sockets[i], text, &mut lists[i]);
            }
        };
        a.join(GROUP, loopback()).expect("joined");
        b.join(GROUP, loopback()).expect("joined");
        assert_eq!(
            errno(&a.join(GROUP, loopback()).expect_err("twice")),
            libc::EADDRINUSE
        );
        tell(&c, b"one", &[0, 1]);
        // Sent by a member: it gets a copy as well.
        tell(&a, b"two", &[0, 1]);
        b.leave_group(GROUP, loopback()).expect("left");
        tell(&c, b"three", &[0]);
        b.join(GROUP, loopback()).expect("joined");
        c.join(GROUP, loopback()).expect("joined");
        let IpAddr::V4(group) = GROUP else {
            unreachable!()
        };
        // It takes nothing from the members, and neither does it from what is for one of them
        // alone.
        let _witness = Witness::beside(&c, group, loopback()).expect("joined");
        tell(&c, b"end", &[0, 1, 2]);
        assert_eq!(lists[0], [&b"one"[..], b"two", b"three", b"end"]);
        assert_eq!(lists[1], [&b"one"[..], b"two", b"end"]);
        assert_eq!(lists[2], [b"end"]);
    }

    #[test]
    fn what_is_no_group_is_refused() {
        let socket = UdpSocket::bind_v4(0).expect("a socket");
        let join = |ip: &str, ifindex| {
            errno(
                &socket
                    .join(ip.parse().expect("an address"), ifindex)
                    .expect_err("no"),
            )
        };
        assert_eq!(join("10.0.0.1", loopback()), libc::EINVAL);
        assert_eq!(join("ff02::77", loopback()), libc::EAFNOSUPPORT);
        assert_eq!(join("239.0.0.1", u32::MAX >> 1), libc::ENODEV);
        let left = socket.leave_group(GROUP, loopback());
        assert_eq!(errno(&left.expect_err("no member")), libc::EADDRNOTAVAIL);
        assert!(max_groups() > 0);
    }
}
