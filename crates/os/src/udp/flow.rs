//! Sockets for one flow: those that send from a source port of their own, and those that the kernel
//! gives one peer port's datagrams to.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;

use super::{BUFFER, UdpSocket, bind, connect, local_address, unbound};
use crate::sockaddr::InetAddr;
use crate::sys::{self, check};

/// Room for what comes to a socket that only sends: the least that the kernel gives.
const NO_BUFFER: libc::c_int = 0;
/// `BPF_RET | BPF_K` of `linux/bpf_common.h`: the answer is the constant.
const RETURN: u16 = 0x06;

impl UdpSocket {
    /// A socket that sends from a port of all addresses which nobody else has. What is sent to it
    /// vanishes.
    ///
    /// # Errors
    /// EADDRINUSE: somebody has it. EAFNOSUPPORT without the IP version.
    pub fn sender(v6: bool, port: u16) -> io::Result<Self> {
        Self::sender_with(v6, port, NO_BUFFER)
    }

    /// A socket that sends from any free port, for a process that cannot have the shared one. What
    /// is sent to it vanishes. Its receive buffer has the size that one on the shared port would
    /// have.
    ///
    /// # Errors
    /// EAFNOSUPPORT without the IP version; EADDRINUSE: no port is free.
    pub fn guest(v6: bool) -> io::Result<Self> {
        Self::sender_with(v6, 0, BUFFER)
    }

    fn sender_with(v6: bool, port: u16, receive_buffer: libc::c_int) -> io::Result<Self> {
        let fd = unbound(v6)?;
        sys::set_buffers(fd.as_raw_fd(), BUFFER)?;
        sys::set_option(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUF,
            receive_buffer,
        )?;
        refuse_all(fd.as_raw_fd())?;
        bind(&fd, InetAddr::new(any(v6), port, 0))?;
        let (_, port) = local_address(&fd)?;
        Self::of_bound(fd, v6, port)
    }

    /// A socket for what one port of a peer sends to `port` of the address `local`: the kernel
    /// prefers it to those that share the port. For a moment before that it is one of them, so it
    /// can have datagrams of others, too. It must not send: an IPv4 socket with a peer fills in
    /// Identifications.
    ///
    /// `scope` is the interface if the addresses are link-local, else 0 or ignored.
    ///
    /// # Errors
    /// EADDRINUSE if another user, or a socket that does not share, owns the port; ENETUNREACH;
    /// EINVAL for addresses of different versions.
    pub fn receiver(local: IpAddr, port: u16, peer: SocketAddr, scope: u32) -> io::Result<Self> {
        if local.is_ipv6() != peer.is_ipv6() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let peer = InetAddr::new(peer.ip(), peer.port(), scope);
        let socket = Self::bind(unbound(local.is_ipv6())?, any(local.is_ipv6()), port)?;
        connect(&socket.fd, peer)?;
        if local_address(&socket.fd)?.0 == local {
            return Ok(socket);
        }
        // The route to the peer has another source. A socket that has the address from the start
        // gets, for its moment, all that is sent to it: so that is only the second choice.
        drop(socket);
        let socket = Self::bind_in(unbound(local.is_ipv6())?, InetAddr::new(local, port, scope))?;
        connect(&socket.fd, peer)?;
        Ok(socket)
    }
}

fn any(v6: bool) -> IpAddr {
    if v6 {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    }
}

/// Lets nothing into a socket.
fn refuse_all(fd: std::os::fd::RawFd) -> io::Result<()> {
    let mut nothing = libc::sock_filter {
        code: RETURN,
        jt: 0,
        jf: 0,
        k: 0,
    };
    let program = libc::sock_fprog {
        len: 1,
        filter: &raw mut nothing,
    };
    // SAFETY: the program and its one instruction live through the call, which copies them.
    check(unsafe {
        libc::syscall(
            libc::SYS_setsockopt,
            fd,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            &raw const program,
            size_of::<libc::sock_fprog>(),
        )
    })
    .map(drop)
}
