//! Putting a stream in the place of a TCP connection.

use std::os::fd::RawFd;

use crate::count;
use crate::table::{self, Entry, Kind, flag};
use crate::{hide, listener, sys};

/// Options of the TCP socket that act on data, so the stream gets them.
const COPIED: [i32; 2] = [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO];
/// `net.core.wmem_max` as it is by default, which the kernel doubles. Where it allows more, a
/// writer that is far ahead finds its bytes out of the processor's caches, and takes a fifth
/// longer.
const BUFFER: i32 = 212_992;

/// Hides a TCP connection whose number a stream is about to get: it holds the port, answers
/// questions, and carries nothing. None where there is no room; such a connection stays on TCP.
pub(crate) fn hide_tcp(fd: RawFd) -> Option<RawFd> {
    table::has_room(fd).then(|| hide::hide(fd, libc::F_DUPFD_CLOEXEC))?
}

/// Whether the program has asked of a TCP socket what a stream does not do, or what is lost with
/// the open file: zero-copy sends, time stamps, an owner that gets signals.
pub(crate) fn asks_for_more(fd: RawFd) -> bool {
    /// In both layouts of the time; `libc` has one of them.
    const TIMESTAMPING: [i32; 2] = [37, 65];
    /// libc has no `F_GETSIG`.
    const F_GETSIG: i32 = 11;
    let has = |option| sys::option(fd, libc::SOL_SOCKET, option, 0).is_ok_and(|value| value != 0);
    // A group of processes is a negative owner, which looks like an error.
    let owned = |command| sys::fcntl(fd, command, 0) != Ok(0);
    has(libc::SO_ZEROCOPY)
        || TIMESTAMPING.into_iter().any(has)
        || owned(libc::F_GETOWN)
        || owned(F_GETSIG)
}

/// Puts a stream under the number of a TCP connection, which is hidden. `flags` are of the table.
pub(crate) fn replace(fd: RawFd, stream: RawFd, hidden: Option<RawFd>, flags: u8) {
    let status = sys::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0);
    let _ = sys::fcntl(
        stream,
        libc::F_SETFL,
        status & (libc::O_NONBLOCK | libc::O_ASYNC),
    );
    let _ = sys::set_option(stream, libc::SOL_SOCKET, libc::SO_SNDBUF, BUFFER);
    for option in COPIED {
        copy_timeout(fd, stream, option);
    }
    let cookie = sys::cookie(fd).unwrap_or(0);
    let resets = if resets(fd) { flag::RESETS } else { 0 };
    let descriptor = sys::fcntl(fd, libc::F_GETFD, 0).unwrap_or(0);
    let closes = descriptor & libc::FD_CLOEXEC != 0;
    let replaced = sys::dup3(stream, fd, if closes { libc::O_CLOEXEC } else { 0 });
    debug_assert!(replaced.is_ok(), "two open descriptors");
    sys::close(stream);
    table::set(
        fd,
        Entry {
            kind: Kind::StandIn,
            flags: flags | resets,
            hidden: [hidden, None],
            cookie,
        },
    );
    count::stream();
}

fn copy_timeout(from: RawFd, to: RawFd, option: i32) {
    let none = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    let time = sys::option(from, libc::SOL_SOCKET, option, none).unwrap_or(none);
    if time.tv_sec != 0 || time.tv_usec != 0 {
        let _ = sys::set_option(to, libc::SOL_SOCKET, option, time);
    }
}

/// Whether closing a TCP socket resets its connection.
pub(crate) fn resets(fd: RawFd) -> bool {
    let none = libc::linger {
        l_onoff: 0,
        l_linger: 0,
    };
    let linger = sys::option(fd, libc::SOL_SOCKET, libc::SO_LINGER, none);
    linger.is_ok_and(|linger| linger.l_onoff != 0 && linger.l_linger == 0)
}

/// A descriptor was copied: the copy gets hidden files of its own.
pub(crate) fn copied(from: RawFd, to: RawFd) {
    let entry = table::get(from);
    let has_hidden = matches!(entry.kind, Kind::StandIn | Kind::Listener);
    // The count of hidden files that a child of `vfork` sees is its parent's.
    if !has_hidden || !table::has_room(to) || !table::is_own() {
        return;
    }
    let intact = match entry.kind {
        Kind::Listener => table::listener_sockets(from).is_some(),
        _ => table::tcp(from).is_some(),
    };
    let hidden = if intact {
        let again = |fd| hide::hide(fd, libc::F_DUPFD_CLOEXEC);
        entry.hidden.map(|fd| fd.and_then(again))
    } else {
        [None; 2]
    };
    table::set(to, Entry { hidden, ..entry });
    // `exec` keeps the copy, or closes it, whatever it does with the other number.
    let descriptor = sys::fcntl(to, libc::F_GETFD, 0).unwrap_or(libc::FD_CLOEXEC);
    listener::inherit_as(to, descriptor);
}
