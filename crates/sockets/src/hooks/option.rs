//! What a socket says of itself, and is told.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;

use crate::address::Family;
use crate::errno::{self, kept};
use crate::next::hooks;
use crate::stand_in::{self, StandIn};
use crate::sys::{self, Address, SocketEnd};
use crate::table::{self, Kind, flag};
use crate::{filter, replace};

/// Options that TCP would use on the bytes themselves: a stream has nothing of them.
const REFUSED: [c_int; 4] = [
    libc::TCP_ULP,
    libc::TCP_REPAIR,
    libc::TCP_MD5SIG,
    // `TCP_MD5SIG_EXT`
    32,
];

fn is_refused(level: c_int, option: c_int) -> bool {
    match level {
        libc::IPPROTO_TCP => REFUSED.contains(&option),
        // A stream copies, and tells nobody when it has done so.
        libc::SOL_SOCKET => option == libc::SO_ZEROCOPY,
        _ => false,
    }
}

/// Whether an option of `SOL_SOCKET` is answered by the stream.
fn is_of_stream(option: c_int) -> bool {
    matches!(
        option,
        libc::SO_ERROR | libc::SO_RCVTIMEO | libc::SO_SNDTIMEO | libc::SO_RCVLOWAT
    )
}

/// Whether setting an option of `SOL_SOCKET` must reach the stream.
fn acts_on_stream(option: c_int) -> bool {
    is_of_stream(option)
        || matches!(
            option,
            libc::SO_SNDBUF | libc::SO_RCVBUF | libc::SO_OOBINLINE
        )
}

/// `TCP_ESTABLISHED`, which `TCP_INFO` begins with.
const ESTABLISHED: c_int = 1;

/// The answer of a stand-in whose TCP connection this process does not have. `None`: the option is
/// not set, and its value has no bytes.
fn alone(stand_in: StandIn, level: c_int, option: c_int) -> Option<c_int> {
    Some(match (level, option) {
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => match stand_in.family {
            Family::V4 => libc::AF_INET,
            Family::V6 => libc::AF_INET6,
        },
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_TCP,
        (libc::IPPROTO_TCP, libc::TCP_INFO) => ESTABLISHED,
        // sshd refuses a connection whose packets name their route.
        (libc::IPPROTO_IP, libc::IP_OPTIONS)
        | (
            libc::IPPROTO_IPV6,
            libc::IPV6_HOPOPTS | libc::IPV6_RTHDR | libc::IPV6_RTHDRDSTOPTS | libc::IPV6_DSTOPTS,
        ) => return None,
        _ => 0,
    })
}

/// Whether a stand-in without its TCP connection answers by itself: the kernel would say what a
/// Unix socket says.
fn is_foreign(level: c_int, option: c_int) -> bool {
    level != libc::SOL_SOCKET || matches!(option, libc::SO_DOMAIN | libc::SO_PROTOCOL)
}

/// The stand-in that a descriptor is, if it has to be asked. One of which nothing is known is asked
/// where a Unix socket would answer; where it refuses, `unless_refused` asks later.
fn known_or_asked(fd: RawFd, level: c_int, option: c_int) -> Option<StandIn> {
    let known = table::get(fd).kind == Kind::StandIn;
    let answers = !table::is_known(fd) && level == libc::SOL_SOCKET && is_foreign(level, option);
    (known || answers)
        .then(|| kept(|| stand_in::of(fd)))
        .flatten()
}

/// The result of a call on a descriptor; if a Unix socket refused an option of TCP, and is a
/// stand-in, that of `go`.
fn unless_refused(
    fd: RawFd,
    level: c_int,
    call: impl FnOnce() -> c_int,
    go: impl FnOnce(StandIn) -> c_int,
) -> c_int {
    let before = errno::now();
    let result = call();
    let refused = result < 0
        && level != libc::SOL_SOCKET
        && matches!(errno::now(), libc::EOPNOTSUPP | libc::ENOPROTOOPT);
    let stand_in = refused.then(|| kept(|| stand_in::of(fd))).flatten();
    stand_in.map_or(result, |stand_in| {
        errno::set(before);
        go(stand_in)
    })
}

unsafe fn answer(value: Option<c_int>, to: *mut c_void, room: *mut libc::socklen_t) -> c_int {
    if to.is_null() || room.is_null() {
        return errno::fail(libc::EFAULT);
    }
    let bytes = value.map(c_int::to_ne_bytes);
    let bytes = bytes.as_ref().map_or(&[][..], |bytes| &bytes[..]);
    // SAFETY: neither is null, and the program says at `room` how long the memory at `to` is.
    unsafe {
        let length = bytes.len().min(*room as usize);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast::<u8>(), length);
        *room = libc::socklen_t::try_from(length).unwrap_or(0);
    }
    0
}

/// Shows a stand-in's address in place of the stream's name: as its TCP socket says, which has no
/// peer after a reset. `go` asks the kernel, which checks the program's pointers.
///
/// # Safety
/// `room` is null, or the length of the memory at `to`. It is read only if the TCP socket is lost.
unsafe fn shown(
    fd: c_int,
    which: SocketEnd,
    to: *mut libc::sockaddr,
    room: *mut libc::socklen_t,
    go: impl Fn(c_int) -> c_int,
) -> c_int {
    let is_unix = || kept(|| sys::name(fd, which)).is_ok_and(|name| name.is_unix());
    // A filter may forbid another call than the program's own.
    let asks = !filter::is_installed() && is_unix();
    let Some(stand_in) = asks.then(|| kept(|| stand_in::of(fd))).flatten() else {
        return go(fd);
    };
    if let Some(tcp) = kept(|| table::tcp(fd)) {
        return go(tcp);
    }
    if to.is_null() || room.is_null() {
        return errno::fail(libc::EFAULT);
    }
    let address = match which {
        SocketEnd::Own => stand_in.own,
        SocketEnd::Peer => stand_in.peer,
    };
    // SAFETY: neither is null, and the caller vouches for the length.
    unsafe { Address::from(address).write(to, room) };
    0
}

hooks! {
    getsockname: fn(fd: c_int, to: *mut libc::sockaddr, room: *mut libc::socklen_t) -> c_int, |next| {
        // SAFETY: what the program passed; the function's contract is the kernel's.
        unsafe { shown(fd, SocketEnd::Own, to, room, |fd| next()(fd, to, room)) }
    }

    getpeername: fn(fd: c_int, to: *mut libc::sockaddr, room: *mut libc::socklen_t) -> c_int, |next| {
        // SAFETY: what the program passed; the function's contract is the kernel's.
        unsafe { shown(fd, SocketEnd::Peer, to, room, |fd| next()(fd, to, room)) }
    }

    getsockopt: fn(
        fd: c_int,
        level: c_int,
        option: c_int,
        to: *mut c_void,
        room: *mut libc::socklen_t
    ) -> c_int, |next| {
        let stand_in = known_or_asked(fd, level, option);
        let of_stream = level == libc::SOL_SOCKET && is_of_stream(option);
        // SAFETY: the program's memory.
        unsafe {
            match (stand_in.filter(|_| !of_stream), kept(|| table::tcp(fd))) {
                (Some(_), Some(tcp)) => next()(tcp, level, option, to, room),
                (Some(stand_in), None) if is_foreign(level, option) => {
                    answer(alone(stand_in, level, option), to, room)
                }
                _ => {
                    let ask = || next()(fd, level, option, to, room);
                    unless_refused(fd, level, ask, |stand_in| {
                        answer(alone(stand_in, level, option), to, room)
                    })
                }
            }
        }
    }

    setsockopt: fn(
        fd: c_int,
        level: c_int,
        option: c_int,
        from: *const c_void,
        length: libc::socklen_t
    ) -> c_int, |next| {
        // SAFETY: the program's memory.
        let set = |fd| unsafe { next()(fd, level, option, from, length) };
        let refused = is_refused(level, option);
        if known_or_asked(fd, level, option).is_none() {
            let taken = |_| if refused { errno::fail(libc::ENOPROTOOPT) } else { 0 };
            return unless_refused(fd, level, || set(fd), taken);
        }
        if refused {
            return errno::fail(libc::ENOPROTOOPT);
        }
        let tcp = kept(|| table::tcp(fd));
        let acts = level == libc::SOL_SOCKET && acts_on_stream(option);
        let result = match tcp {
            Some(tcp) => set(tcp),
            None if is_foreign(level, option) || !acts => return 0,
            None => 0,
        };
        if result == 0 && level == libc::SOL_SOCKET && option == libc::SO_LINGER {
            kept(|| match tcp.is_some_and(replace::resets) {
                true => table::add_flags(fd, flag::RESETS),
                false => table::remove_flags(fd, flag::RESETS),
            });
        }
        if acts && option == libc::SO_RCVLOWAT {
            table::add_flags(fd, flag::AT_LEAST);
        }
        if result == 0 && acts { set(fd) } else { result }
    }
}
