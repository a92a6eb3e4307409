//! The C functions that make, connect, ask and end rsockets.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Duration;

use libc::{fd_set, nfds_t, off_t, pollfd, sockaddr, socklen_t, timeval};

use super::datagram::DatagramSocket;
use super::errno::{Errno, Result};
use super::handle::Rsocket;
use super::poll;
use super::socket::Socket;
use super::table::{self, Kind};
use crate::errno::{errno, set_errno};
use crate::rdmacm::sockaddr as address;
use crate::rdmacm::types::AF_IB;

/// Runs a call and returns what it answers in C: its value, or -1 and `errno`.
///
/// A call that succeeds leaves `errno` as it was, as a system call does. librdmacm's `rstream` asks
/// for `errno` after `rrecv` has returned 0, and reads for ever if that is an EAGAIN of ours.
pub(super) fn answer<T: From<i8>>(call: impl FnOnce() -> Result<T>) -> T {
    let before = errno();
    match call() {
        Ok(value) => {
            set_errno(before);
            value
        }
        Err(Errno(errno)) => {
            set_errno(errno);
            T::from(-1)
        }
    }
}

pub(super) fn zero_or(call: impl FnOnce() -> Result<()>) -> c_int {
    answer(|| call().map(|()| 0))
}

/// Reads the address that a program passed.
///
/// # Safety
/// `addr` is NULL or points to `len` bytes.
pub(super) unsafe fn read_address(addr: *const sockaddr, len: socklen_t) -> Result<SocketAddr> {
    if addr.is_null() || (len as usize) < size_of::<libc::sa_family_t>() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: the caller's address has a family.
    let family = c_int::from(unsafe { (*addr).sa_family });
    let needed = match family {
        libc::AF_INET | libc::AF_INET6 => address::length(family),
        AF_IB => size_of::<crate::rdmacm::types::sockaddr_ib>(),
        _ => return Err(Errno(libc::EAFNOSUPPORT)),
    };
    if (len as usize) < needed {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: long enough for its family.
    Ok(unsafe { address::read(addr) }?)
}

/// Writes an address as far as there is room, and its true length.
///
/// # Safety
/// Both are NULL, or `addr` has the bytes that `len` says.
pub(super) unsafe fn write_address(
    given: Option<SocketAddr>,
    domain: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) {
    if addr.is_null() || len.is_null() {
        return;
    }
    let unspecified = if domain == libc::AF_INET {
        SocketAddr::from(([0; 4], 0))
    } else {
        SocketAddr::from(([0_u16; 8], 0))
    };
    let given = given.unwrap_or(unspecified);
    let storage = address::store(given);
    let family = if given.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let full = address::length(family);
    // SAFETY: the caller's promise; the storage is at least as long.
    unsafe {
        let room = usize::try_from(*len).unwrap_or(0).min(full);
        std::ptr::copy_nonoverlapping((&raw const storage).cast::<u8>(), addr.cast(), room);
        *len = socklen_t::try_from(full).unwrap_or(0);
    }
}

fn create(domain: c_int, kind: c_int, protocol: c_int) -> Result<RawFd> {
    const FLAGS: c_int = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    if ![libc::AF_INET, libc::AF_INET6, AF_IB].contains(&domain) {
        return Err(Errno(libc::EAFNOSUPPORT));
    }
    let socket = match (kind & !FLAGS, protocol) {
        (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => Rsocket::Stream(Socket::create(domain)?),
        (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) if domain != AF_IB => {
            Rsocket::Datagram(DatagramSocket::create(domain)?)
        }
        _ => return Err(Errno(libc::ENOTSUP)),
    };
    socket.set_nonblocking(kind & libc::SOCK_NONBLOCK != 0);
    table::insert(Kind::Socket(socket), kind & libc::SOCK_CLOEXEC != 0)
}

/// `rsocket(7)`
pub unsafe extern "C" fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    answer(|| create(domain, kind, protocol))
}

/// `rbind` of `rsocket(7)`
pub unsafe extern "C" fn rbind(socket: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    zero_or(|| {
        let socket = table::get(socket)?;
        // SAFETY: the caller's address.
        socket.bind(unsafe { read_address(addr, len) }?)
    })
}

/// `rlisten` of `rsocket(7)`
pub unsafe extern "C" fn rlisten(socket: c_int, backlog: c_int) -> c_int {
    zero_or(|| table::stream(socket).and_then(|socket| socket.listen(backlog)))
}

/// `raccept` of `rsocket(7)`
pub unsafe extern "C" fn raccept(socket: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    answer(|| {
        let listener = table::stream(socket)?;
        // First, as `accept(2)` does: without a descriptor the connection stays in the queue.
        let reserved = table::reserve(false)?;
        let accepted = listener.accept()?;
        let peer = accepted.peer_addr().ok();
        let domain = accepted.domain();
        let fd = reserved.give(Kind::Socket(Rsocket::Stream(accepted)));
        // SAFETY: the caller's room.
        unsafe { write_address(peer, domain, addr, len) };
        Ok(fd)
    })
}

/// `rconnect` of `rsocket(7)`
pub unsafe extern "C" fn rconnect(socket: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    zero_or(|| {
        let socket = table::get(socket)?;
        // SAFETY: the caller's address.
        socket.connect(unsafe { read_address(addr, len) }?)
    })
}

/// `rshutdown` of `rsocket(7)`
pub unsafe extern "C" fn rshutdown(socket: c_int, how: c_int) -> c_int {
    zero_or(|| table::get(socket).and_then(|socket| socket.shutdown(how)))
}

/// `rclose` of `rsocket(7)`
pub unsafe extern "C" fn rclose(socket: c_int) -> c_int {
    zero_or(|| {
        let removed = table::remove(socket)?;
        if let Kind::Socket(Rsocket::Stream(socket)) = removed {
            socket.close();
        }
        Ok(())
    })
}

/// `rgetsockname` of `rsocket(7)`
pub unsafe extern "C" fn rgetsockname(
    socket: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    zero_or(|| {
        let socket = table::get(socket)?;
        // SAFETY: the caller's room.
        unsafe { write_address(socket.local_addr(), socket.domain(), addr, len) };
        Ok(())
    })
}

/// `rgetpeername` of `rsocket(7)`
pub unsafe extern "C" fn rgetpeername(
    socket: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    zero_or(|| {
        let socket = table::get(socket)?;
        let peer = socket.peer_addr()?;
        // SAFETY: the caller's room.
        unsafe { write_address(Some(peer), socket.domain(), addr, len) };
        Ok(())
    })
}

/// `rsetsockopt` of `rsocket(7)`
pub unsafe extern "C" fn rsetsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    zero_or(|| {
        let socket = table::get(socket)?;
        if value.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: `value` is the caller's, of `len` bytes.
        let value = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), len as usize) };
        socket.set_option(level, name, value)
    })
}

/// `rgetsockopt` of `rsocket(7)`
pub unsafe extern "C" fn rgetsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    zero_or(|| {
        let socket = table::get(socket)?;
        if value.is_null() || len.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        let bytes = socket.get_option(level, name)?;
        // SAFETY: `value` is the caller's room, of `*len` bytes; `room` is no more.
        unsafe {
            let room = bytes.len().min(*len as usize);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast(), room);
            *len = socklen_t::try_from(room).unwrap_or(0);
        }
        Ok(())
    })
}

fn fcntl(fd: RawFd, command: c_int, argument: c_int) -> Result<c_int> {
    let socket = table::get(fd)?;
    match command {
        libc::F_GETFL => {
            let nonblocking = if socket.is_nonblocking() {
                libc::O_NONBLOCK
            } else {
                0
            };
            Ok(libc::O_RDWR | nonblocking)
        }
        libc::F_SETFL => {
            socket.set_nonblocking(argument & libc::O_NONBLOCK != 0);
            Ok(0)
        }
        libc::F_GETFD | libc::F_SETFD => table::descriptor_flags(fd, command, argument),
        _ => Err(Errno(libc::ENOTSUP)),
    }
}

/// `rfcntl` of `rsocket(7)`. The C function is variadic; an `int` comes in the same place.
pub unsafe extern "C" fn rfcntl(socket: c_int, command: c_int, argument: c_int) -> c_int {
    answer(|| fcntl(socket, command, argument))
}

/// `riomap` of `rsocket(7)`
pub unsafe extern "C" fn riomap(
    socket: c_int,
    buf: *mut c_void,
    len: usize,
    prot: c_int,
    _flags: c_int,
    offset: off_t,
) -> off_t {
    answer(|| {
        let socket = table::stream(socket)?;
        let connection = socket.connection().ok_or(Errno(libc::EINVAL))?;
        // SAFETY: the caller's memory, which stays until it is unmapped.
        unsafe { connection.map((buf, len), prot, offset) }
    })
}

/// `riounmap` of `rsocket(7)`
pub unsafe extern "C" fn riounmap(socket: c_int, buf: *mut c_void, len: usize) -> c_int {
    zero_or(|| {
        let socket = table::stream(socket)?;
        let connection = socket.connection().ok_or(Errno(libc::EINVAL))?;
        connection.unmap(buf.addr(), len)
    })
}

/// `rpoll` of `rsocket(7)`
pub unsafe extern "C" fn rpoll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let fds = match count {
        0 => &mut [],
        // SAFETY: the caller's array, which nobody else uses during the call.
        _ => unsafe { std::slice::from_raw_parts_mut(fds, count) },
    };
    answer(|| poll::poll(fds, timeout).map(|ready| c_int::try_from(ready).unwrap_or(c_int::MAX)))
}

/// `rselect` of `rsocket(7)`
pub unsafe extern "C" fn rselect(
    count: c_int,
    readfds: *mut fd_set,
    writefds: *mut fd_set,
    exceptfds: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    answer(|| {
        // SAFETY: the caller's time and sets.
        let ready = unsafe {
            let timeout = poll::duration(timeout)?;
            poll::select(count, [readfds, writefds, exceptfds], timeout)?
        };
        Ok(c_int::try_from(ready).unwrap_or(c_int::MAX))
    })
}
