//! The UDP socket of a datagram rsocket, by bare system calls: a preloaded library may have put
//! itself before the functions.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::time::Duration;

use libc::{c_int, c_long, c_void, pollfd, sockaddr, sockaddr_storage, socklen_t};

use super::super::errno::{Errno, Result};
use super::super::wait;
use crate::sockaddr as address;

/// A blocking UDP socket, closed on drop. The program does not see its number.
#[derive(Debug)]
pub(super) struct Udp {
    fd: RawFd,
}

impl Drop for Udp {
    fn drop(&mut self) {
        // SAFETY: takes no pointers; the descriptor is this value's.
        unsafe { libc::syscall(libc::SYS_close, self.fd) };
    }
}

fn checked(result: c_long) -> Result<usize> {
    usize::try_from(result).map_err(|_| Errno::last())
}

fn address_len(addr: SocketAddr) -> socklen_t {
    let family = match addr {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    socklen_t::try_from(address::length(family)).unwrap_or(0)
}

impl Udp {
    /// A socket of `AF_INET` or `AF_INET6`.
    pub(super) fn new(domain: c_int) -> Result<Self> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        // SAFETY: takes no pointers.
        let fd = checked(unsafe { libc::syscall(libc::SYS_socket, domain, kind, 0) })?;
        let fd = RawFd::try_from(fd).map_err(|_| Errno(libc::EMFILE))?;
        Ok(Self { fd })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.fd
    }

    fn with_address(&self, call: c_long, addr: SocketAddr) -> Result<()> {
        let storage = address::store(addr);
        // SAFETY: a live address of that length.
        checked(unsafe { libc::syscall(call, self.fd, &raw const storage, address_len(addr)) })
            .map(drop)
    }

    pub(super) fn bind(&self, addr: SocketAddr) -> Result<()> {
        self.with_address(libc::SYS_bind, addr)
    }

    pub(super) fn connect(&self, addr: SocketAddr) -> Result<()> {
        self.with_address(libc::SYS_connect, addr)
    }

    fn ask_address(&self, call: c_long) -> Result<SocketAddr> {
        // SAFETY: zero bytes are a valid `sockaddr_storage`: it consists of integers.
        let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
        let mut len = socklen_t::try_from(size_of_val(&storage)).unwrap_or(0);
        // SAFETY: room for an address and its length.
        checked(unsafe { libc::syscall(call, self.fd, &raw mut storage, &raw mut len) })?;
        // SAFETY: the call has filled it.
        Ok(unsafe { address::read((&raw const storage).cast::<sockaddr>()) }?)
    }

    pub(super) fn local_addr(&self) -> Result<SocketAddr> {
        self.ask_address(libc::SYS_getsockname)
    }

    pub(super) fn peer_addr(&self) -> Result<SocketAddr> {
        self.ask_address(libc::SYS_getpeername)
    }

    pub(super) fn shutdown(&self, how: c_int) -> Result<()> {
        // SAFETY: takes no pointers.
        checked(unsafe { libc::syscall(libc::SYS_shutdown, self.fd, how) }).map(drop)
    }

    /// Whether a packet can be sent without waiting. If the kernel cannot say, the send will.
    pub(super) fn is_writable(&self) -> bool {
        let mut fds = [pollfd {
            fd: self.fd,
            events: libc::POLLOUT,
            revents: 0,
        }];
        wait::poll(&mut fds, Some(Duration::ZERO)) != Ok(0)
    }

    /// Sends a packet; without an address to the peer that the socket is connected to.
    pub(super) fn send(
        &self,
        packet: &[u8],
        to: Option<SocketAddr>,
        nonblocking: bool,
    ) -> Result<()> {
        let storage = to.map(address::store);
        let place = storage
            .as_ref()
            .map_or(std::ptr::null(), std::ptr::from_ref);
        let wait = if nonblocking { libc::MSG_DONTWAIT } else { 0 };
        // SAFETY: a live packet, and an address of that length or NULL.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_sendto,
                self.fd,
                packet.as_ptr(),
                packet.len(),
                wait | libc::MSG_NOSIGNAL,
                place,
                to.map_or(0, address_len),
            )
        };
        checked(sent).map(drop)
    }

    /// Takes a packet: its length and sender. `None`: there is none.
    pub(super) fn receive(&self, room: &mut [u8]) -> Result<Option<(usize, SocketAddr)>> {
        // SAFETY: zero bytes are a valid `sockaddr_storage`: it consists of integers.
        let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
        let mut len = socklen_t::try_from(size_of_val(&storage)).unwrap_or(0);
        // SAFETY: `room` is writable; room for an address and its length.
        let came = unsafe {
            libc::syscall(
                libc::SYS_recvfrom,
                self.fd,
                room.as_mut_ptr(),
                room.len(),
                libc::MSG_DONTWAIT,
                &raw mut storage,
                &raw mut len,
            )
        };
        match checked(came) {
            Err(Errno(libc::EAGAIN)) => Ok(None),
            Err(error) => Err(error),
            Ok(_) if len == 0 => Ok(None),
            Ok(came) => {
                // SAFETY: the call has filled it.
                let from = unsafe { address::read((&raw const storage).cast::<sockaddr>()) }?;
                Ok(Some((came, from)))
            }
        }
    }

    pub(super) fn set_option(&self, level: c_int, name: c_int, value: &[u8]) -> Result<()> {
        // SAFETY: the value is live and so long.
        let set = unsafe {
            libc::syscall(
                libc::SYS_setsockopt,
                self.fd,
                level,
                name,
                value.as_ptr().cast::<c_void>(),
                value.len(),
            )
        };
        checked(set).map(drop)
    }

    pub(super) fn get_option(&self, level: c_int, name: c_int) -> Result<Vec<u8>> {
        let mut value = vec![0_u8; 256];
        let mut len = socklen_t::try_from(value.len()).unwrap_or(0);
        // SAFETY: room of that length.
        let got = unsafe {
            libc::syscall(
                libc::SYS_getsockopt,
                self.fd,
                level,
                name,
                value.as_mut_ptr(),
                &raw mut len,
            )
        };
        checked(got)?;
        value.truncate(len as usize);
        Ok(value)
    }
}

/// The address of this host from which packets to `to` leave.
pub(super) fn local_ip_towards(to: SocketAddr) -> Result<IpAddr> {
    let domain = if to.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let probe = Udp::new(domain)?;
    probe.connect(to)?;
    Ok(probe.local_addr()?.ip().to_canonical())
}
