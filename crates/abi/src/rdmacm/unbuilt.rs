//! What is not built: the socket emulation, and functions of newer librdmacm versions. Each refuses
//! with EOPNOTSUPP. `rpoll` and `rselect` serve programs that use them on plain descriptors.

use std::ffi::{c_int, c_void};

use libc::{fd_set, nfds_t, pollfd, timeval};

use crate::errno;

/// Declares functions that refuse. The arguments are never looked at, so one word stands for each.
macro_rules! refusals {
    ($($(#[$attr:meta])* $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty = $value:expr;)*) => {$(
        $(#[$attr])*
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            errno::as_errno(stringify!($name), &errno::unbuilt(stringify!($name)));
            $value
        }
    )*};
}

refusals! {
    /// `repoll_create`, of newer versions.
    repoll_create(_flags: c_int) -> c_int = -1;
    /// `repoll_ctl`, of newer versions.
    repoll_ctl(_fd: c_int, _op: c_int, _socket: c_int, _event: *mut c_void) -> c_int = -1;
    /// `repoll_wait`, of newer versions.
    repoll_wait(_fd: c_int, _events: *mut c_void, _max: c_int, _timeout: c_int) -> c_int = -1;
    /// `rsocket(7)`
    rsocket(_domain: c_int, _type: c_int, _protocol: c_int) -> c_int = -1;
    /// `rbind` of `rsocket(7)`
    rbind(_socket: c_int, _addr: *const c_void, _len: u32) -> c_int = -1;
    /// `rlisten` of `rsocket(7)`
    rlisten(_socket: c_int, _backlog: c_int) -> c_int = -1;
    /// `raccept` of `rsocket(7)`
    raccept(_socket: c_int, _addr: *mut c_void, _len: *mut c_void) -> c_int = -1;
    /// `rconnect` of `rsocket(7)`
    rconnect(_socket: c_int, _addr: *const c_void, _len: u32) -> c_int = -1;
    /// `rshutdown` of `rsocket(7)`
    rshutdown(_socket: c_int, _how: c_int) -> c_int = -1;
    /// `rclose` of `rsocket(7)`
    rclose(_socket: c_int) -> c_int = -1;
    /// `rrecv` of `rsocket(7)`
    rrecv(_socket: c_int, _buf: *mut c_void, _len: usize, _flags: c_int) -> isize = -1;
    /// `rrecvfrom` of `rsocket(7)`
    rrecvfrom(_socket: c_int, _buf: *mut c_void, _len: usize, _flags: c_int, _src: *mut c_void, _addrlen: *mut c_void) -> isize = -1;
    /// `rrecvmsg` of `rsocket(7)`
    rrecvmsg(_socket: c_int, _msg: *mut c_void, _flags: c_int) -> isize = -1;
    /// `rsend` of `rsocket(7)`
    rsend(_socket: c_int, _buf: *const c_void, _len: usize, _flags: c_int) -> isize = -1;
    /// `rsendto` of `rsocket(7)`
    rsendto(_socket: c_int, _buf: *const c_void, _len: usize, _flags: c_int, _dst: *const c_void, _addrlen: u32) -> isize = -1;
    /// `rsendmsg` of `rsocket(7)`
    rsendmsg(_socket: c_int, _msg: *const c_void, _flags: c_int) -> isize = -1;
    /// `rread` of `rsocket(7)`
    rread(_socket: c_int, _buf: *mut c_void, _count: usize) -> isize = -1;
    /// `rreadv` of `rsocket(7)`
    rreadv(_socket: c_int, _iov: *const c_void, _count: c_int) -> isize = -1;
    /// `rwrite` of `rsocket(7)`
    rwrite(_socket: c_int, _buf: *const c_void, _count: usize) -> isize = -1;
    /// `rwritev` of `rsocket(7)`
    rwritev(_socket: c_int, _iov: *const c_void, _count: c_int) -> isize = -1;
    /// `rgetpeername` of `rsocket(7)`
    rgetpeername(_socket: c_int, _addr: *mut c_void, _len: *mut c_void) -> c_int = -1;
    /// `rgetsockname` of `rsocket(7)`
    rgetsockname(_socket: c_int, _addr: *mut c_void, _len: *mut c_void) -> c_int = -1;
    /// `rsetsockopt` of `rsocket(7)`
    rsetsockopt(_socket: c_int, _level: c_int, _name: c_int, _value: *const c_void, _len: u32) -> c_int = -1;
    /// `rgetsockopt` of `rsocket(7)`
    rgetsockopt(_socket: c_int, _level: c_int, _name: c_int, _value: *mut c_void, _len: *mut c_void) -> c_int = -1;
    /// `rfcntl` of `rsocket(7)`; the third argument of the variadic C function is never looked at.
    rfcntl(_socket: c_int, _cmd: c_int) -> c_int = -1;
    /// `riomap` of `rsocket(7)`
    riomap(_socket: c_int, _buf: *mut c_void, _len: usize, _prot: c_int, _flags: c_int, _offset: i64) -> i64 = -1;
    /// `riounmap` of `rsocket(7)`
    riounmap(_socket: c_int, _buf: *mut c_void, _len: usize) -> c_int = -1;
    /// `riowrite` of `rsocket(7)`
    riowrite(_socket: c_int, _buf: *const c_void, _count: usize, _offset: i64, _flags: c_int) -> usize = usize::MAX;
}

/// `rpoll` of `rsocket(7)`: all descriptors are plain ones. A cancellation point.
pub unsafe extern "C" fn rpoll(fds: *mut pollfd, nfds: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller's array.
    unsafe { libc::poll(fds, nfds, timeout) }
}

/// `rselect` of `rsocket(7)`: all descriptors are plain ones. A cancellation point.
pub unsafe extern "C" fn rselect(
    nfds: c_int,
    readfds: *mut fd_set,
    writefds: *mut fd_set,
    exceptfds: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller's sets.
    unsafe { libc::select(nfds, readfds, writefds, exceptfds, timeout) }
}
