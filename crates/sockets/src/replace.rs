//! Putting a stream in the place of a TCP connection.

use std::os::fd::RawFd;

use crate::count;
use crate::table::{self, Entry, Kind, flag};
use crate::{hide, sys};

/// Options of the TCP socket that act on data, so the stream gets them.
const COPIED: [i32; 2] = [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO];
/// What the kernel makes of it is at most `net.core.wmem_max`, doubled.
const BUFFER: i32 = 1 << 20;

/// Hides a TCP connection whose number a stream is about to get: it holds the port, answers
/// questions, and carries nothing. None where there is no room; such a connection stays on TCP.
pub(crate) fn hide_tcp(fd: RawFd) -> Option<RawFd> {
    table::has_room(fd).then(|| hide::hide(fd, libc::F_DUPFD_CLOEXEC))?
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
    if !matches!(entry.kind, Kind::StandIn | Kind::Listener) || !table::has_room(to) {
        return;
    }
    let keeps = |fd: RawFd| {
        let closes = sys::fcntl(fd, libc::F_GETFD, 0).unwrap_or(1) & libc::FD_CLOEXEC != 0;
        let command = if closes {
            libc::F_DUPFD_CLOEXEC
        } else {
            libc::F_DUPFD
        };
        hide::hide(fd, command)
    };
    let intact = match entry.kind {
        Kind::Listener => table::streams(from).is_some(),
        _ => table::tcp(from).is_some(),
    };
    let hidden = if intact {
        entry.hidden.map(|fd| fd.and_then(keeps))
    } else {
        [None; 2]
    };
    table::set(to, Entry { hidden, ..entry });
}
