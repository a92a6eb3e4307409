//! The C functions that carry data.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::ptr;
use std::sync::Arc;

use libc::{iovec, msghdr, off_t, sockaddr, socklen_t};

use super::buffers::{Buffers, vector};
use super::calls::{answer, read_address, write_address};
use super::errno::{Errno, Result};
use super::handle::Rsocket;
use super::socket::Socket;
use super::table;

/// Most elements of a vector (`IOV_MAX`).
const MOST_ELEMENTS: usize = 1024;

fn counted(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

impl Socket {
    /// Sends all of the buffers; less if the call does not block, or the connection ends.
    pub(super) fn send(&self, mut from: Buffers<'_>, flags: c_int) -> Result<isize> {
        let nonblocking = flags & libc::MSG_DONTWAIT != 0;
        let sent = self.on_connection(nonblocking, |connection, waiters| {
            connection.try_send(&mut from, waiters)
        });
        match sent.and_then(|sent| sent) {
            Err(error) if from.done() == 0 => Err(error),
            _ => Ok(counted(from.done())),
        }
    }

    /// Receives what there is, or with `MSG_WAITALL` as much as there is room for.
    pub(super) fn receive(&self, mut to: Buffers<'_>, flags: c_int) -> Result<usize> {
        let nonblocking = flags & libc::MSG_DONTWAIT != 0;
        let peek = flags & libc::MSG_PEEK != 0;
        let all = flags & libc::MSG_WAITALL != 0 && !nonblocking && !self.is_nonblocking();
        loop {
            let before = to.done();
            let received = self.on_connection(nonblocking, |connection, waiters| {
                connection.try_receive(&mut to, peek, waiters)
            });
            match received.and_then(|received| received) {
                Err(error) if to.done() == 0 => return Err(error),
                Ok(()) if all && to.left() > 0 && to.done() > before => {}
                _ => return Ok(to.done()),
            }
        }
    }
}

/// The buffers of a program's vector.
///
/// # Safety
/// `list` has `count` elements, which name live memory.
unsafe fn elements<'a>(list: *const iovec, count: usize) -> Result<Buffers<'a>> {
    if count > MOST_ELEMENTS {
        return Err(Errno(libc::EMSGSIZE));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { Buffers::new(list, count) })
}

/// The number of elements of a `struct msghdr`: its type is not the same in each C library.
fn any_count<T>(count: T) -> usize
where
    usize: TryFrom<T>,
{
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// The number of elements that a C program gives.
fn element_count(count: c_int) -> Result<usize> {
    let count = usize::try_from(count).map_err(|_| Errno(libc::EINVAL))?;
    if count > MOST_ELEMENTS {
        return Err(Errno(libc::EINVAL));
    }
    Ok(count)
}

/// `rsend` of `rsocket(7)`
pub unsafe extern "C" fn rsend(
    socket: c_int,
    buf: *const c_void,
    len: usize,
    flags: c_int,
) -> isize {
    let iov = vector(buf, len);
    // SAFETY: the caller's buffer.
    let buffers = unsafe { Buffers::one(&iov) };
    answer(|| table::get(socket).and_then(|socket| socket.send(buffers, flags, None)))
}

/// `rsendto` of `rsocket(7)`
pub unsafe extern "C" fn rsendto(
    socket: c_int,
    buf: *const c_void,
    len: usize,
    flags: c_int,
    destination: *const sockaddr,
    addrlen: socklen_t,
) -> isize {
    let iov = vector(buf, len);
    answer(|| {
        let socket = table::get(socket)?;
        // SAFETY: the caller's buffer and address.
        let (buffers, to) = unsafe { (Buffers::one(&iov), destined(destination, addrlen)?) };
        socket.send(buffers, flags, to)
    })
}

/// The address of a call that may have one.
///
/// # Safety
/// `addr` is NULL or points to `len` bytes.
unsafe fn destined(addr: *const sockaddr, len: socklen_t) -> Result<Option<SocketAddr>> {
    if addr.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { read_address(addr, len) }.map(Some)
}

/// `rsendmsg` of `rsocket(7)`
pub unsafe extern "C" fn rsendmsg(socket: c_int, msg: *const msghdr, flags: c_int) -> isize {
    answer(|| {
        let socket = table::get(socket)?;
        // SAFETY: the caller's header and vector.
        let (buffers, msg) = unsafe {
            (
                elements((*msg).msg_iov, any_count((*msg).msg_iovlen))?,
                &*msg,
            )
        };
        if !msg.msg_control.is_null() && msg.msg_controllen > 0 {
            return Err(Errno(libc::ENOTSUP));
        }
        // A stream ignores the name, as TCP and librdmacm do. A length of 0 is no name: the kernel
        // reads `struct msghdr` so, but not the arguments of `sendto(2)`.
        let name = match socket {
            Rsocket::Datagram(_) if msg.msg_namelen > 0 => msg.msg_name.cast::<sockaddr>(),
            _ => ptr::null_mut(),
        };
        // SAFETY: the caller's address.
        let to = unsafe { destined(name, msg.msg_namelen) }?;
        socket.send(buffers, flags, to)
    })
}

/// `rwrite` of `rsocket(7)`
pub unsafe extern "C" fn rwrite(socket: c_int, buf: *const c_void, count: usize) -> isize {
    // SAFETY: the caller's buffer.
    unsafe { rsend(socket, buf, count, 0) }
}

/// `rwritev` of `rsocket(7)`
pub unsafe extern "C" fn rwritev(socket: c_int, iov: *const iovec, count: c_int) -> isize {
    answer(|| {
        let socket = table::get(socket)?;
        // SAFETY: the caller's vector.
        let buffers = unsafe { elements(iov, element_count(count)?) }?;
        socket.send(buffers, 0, None)
    })
}

/// `rrecv` of `rsocket(7)`
pub unsafe extern "C" fn rrecv(socket: c_int, buf: *mut c_void, len: usize, flags: c_int) -> isize {
    // SAFETY: the caller's buffer.
    unsafe { rrecvfrom(socket, buf, len, flags, ptr::null_mut(), ptr::null_mut()) }
}

/// `rrecvfrom` of `rsocket(7)`: as in librdmacm, a stream's address comes with data only.
pub unsafe extern "C" fn rrecvfrom(
    socket: c_int,
    buf: *mut c_void,
    len: usize,
    flags: c_int,
    source: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> isize {
    let iov = vector(buf, len);
    answer(|| {
        let socket = table::get(socket)?;
        // SAFETY: the caller's buffer.
        let received = socket.receive(unsafe { Buffers::one(&iov) }, flags)?;
        let from = match received.from {
            None if received.len > 0 && !source.is_null() => socket.peer_addr().ok(),
            from => from,
        };
        if received.len > 0 || from.is_some() {
            // SAFETY: the caller's room.
            unsafe { write_address(from, socket.domain(), source, addrlen) };
        }
        Ok(counted(received.told(flags)))
    })
}

/// `rrecvmsg` of `rsocket(7)`
pub unsafe extern "C" fn rrecvmsg(socket: c_int, msg: *mut msghdr, flags: c_int) -> isize {
    answer(|| {
        let socket = table::get(socket)?;
        // SAFETY: the caller's header and vector.
        let buffers = unsafe { elements((*msg).msg_iov, any_count((*msg).msg_iovlen))? };
        let received = socket.receive(buffers, flags)?;
        // SAFETY: the caller's header and its room for an address. No control data come.
        unsafe {
            match received.from {
                None => (*msg).msg_namelen = 0,
                from => {
                    let (name, len) = ((*msg).msg_name, &raw mut (*msg).msg_namelen);
                    write_address(from, socket.domain(), name.cast(), len);
                }
            }
            (*msg).msg_controllen = 0;
            (*msg).msg_flags = match received.len > received.copied {
                true => libc::MSG_TRUNC,
                false => 0,
            };
        }
        Ok(counted(received.told(flags)))
    })
}

/// `rread` of `rsocket(7)`
pub unsafe extern "C" fn rread(socket: c_int, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: the caller's buffer.
    unsafe { rrecv(socket, buf, count, 0) }
}

/// `rreadv` of `rsocket(7)`
pub unsafe extern "C" fn rreadv(socket: c_int, iov: *const iovec, count: c_int) -> isize {
    answer(|| {
        let socket = table::get(socket)?;
        // SAFETY: the caller's vector.
        let buffers = unsafe { elements(iov, element_count(count)?) }?;
        let received = socket.receive(buffers, 0)?;
        Ok(counted(received.told(0)))
    })
}

/// `riowrite` of `rsocket(7)`
pub unsafe extern "C" fn riowrite(
    socket: c_int,
    buf: *const c_void,
    count: usize,
    offset: off_t,
    flags: c_int,
) -> usize {
    let iov = vector(buf, count);
    // SAFETY: the caller's buffer.
    let mut from = unsafe { Buffers::one(&iov) };
    let nonblocking = flags & libc::MSG_DONTWAIT != 0;
    let write = |socket: Arc<Socket>| {
        let done = socket.on_connection(nonblocking, |connection, waiters| {
            connection.try_write_at(&mut from, offset.cast_unsigned(), waiters)
        });
        match done.and_then(|done| done) {
            Err(error) if from.done() == 0 => Err(error),
            _ => Ok(counted(from.done())),
        }
    };
    answer(|| table::stream(socket).and_then(write)).cast_unsigned()
}
