//! A socket on one loopback address and the port that the device has on all of them.

use std::io;
use std::mem::size_of_val;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Binds it. The kernel prefers it to the device's sockets, which are bound to all addresses, for
/// what is sent to `ip`.
pub(super) fn bind(ip: Ipv4Addr, port: u16) -> io::Result<UdpSocket> {
    let flags = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let fd = check(unsafe { libc::socket(libc::AF_INET, flags, 0) })?;
    // SAFETY: a descriptor that was just made and is nobody else's.
    let socket: UdpSocket = unsafe { OwnedFd::from_raw_fd(fd) }.into();
    let one: libc::c_int = 1;
    // SAFETY: pointer and length describe `one`.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_REUSEPORT,
            (&raw const one).cast(),
            length_of(&one),
        )
    })?;
    let at = libc::sockaddr_in {
        sin_family: libc::sa_family_t::try_from(libc::AF_INET).expect("a family"),
        sin_port: port.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(ip.octets()),
        },
        sin_zero: [0; 8],
    };
    // SAFETY: pointer and length describe `at`.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const at).cast(), length_of(&at)) })?;
    Ok(socket)
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn length_of<T>(value: &T) -> libc::socklen_t {
    libc::socklen_t::try_from(size_of_val(value)).expect("a small structure")
}
