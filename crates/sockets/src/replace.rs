//! Putting a stream in the place of a TCP connection.

use std::os::fd::RawFd;

use crate::count;
use crate::table::{self, Entry, Kind, flag};
use crate::{hide, listener, short, sys};

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

/// Whether the program has asked of a TCP socket what a stream does not do: zero-copy sends, time
/// stamps, urgent data in their place, readiness from a number of bytes on.
pub(crate) fn asks_for_more(fd: RawFd) -> bool {
    /// The kernel answers with all flags, by whichever layout of the time they were set. `libc` has
    /// the other one's number on some machines.
    const TIMESTAMPING: i32 = 37;
    let above = |least: i32, option| {
        sys::option(fd, libc::SOL_SOCKET, option, 0).is_ok_and(|value| value > least)
    };
    [libc::SO_ZEROCOPY, TIMESTAMPING, libc::SO_OOBINLINE]
        .into_iter()
        .any(|option| above(0, option))
        || above(1, libc::SO_RCVLOWAT)
}

/// Whether a socket has what is lost with the open file: an owner that gets signals. One that has
/// just been accepted has none.
pub(crate) fn is_owned(fd: RawFd) -> bool {
    /// libc has no `F_GETSIG`.
    const F_GETSIG: i32 = 11;
    // A group of processes is a negative owner, which looks like an error.
    let owned = |command| sys::fcntl(fd, command, 0) != Ok(0);
    owned(libc::F_GETOWN) || owned(F_GETSIG)
}

/// What a number and its open file say of calls and of `exec`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status {
    /// `O_NONBLOCK`, `O_ASYNC`
    status: i32,
    closes: bool,
}

impl Status {
    /// Asks the descriptor.
    pub(crate) fn of(fd: RawFd) -> Self {
        let status = sys::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0);
        let descriptor = sys::fcntl(fd, libc::F_GETFD, 0).unwrap_or(0);
        Self {
            status: status & (libc::O_NONBLOCK | libc::O_ASYNC),
            closes: descriptor & libc::FD_CLOEXEC != 0,
        }
    }

    /// That of what `accept4(2)` with these flags has just returned.
    pub(crate) const fn accepted(flags: i32) -> Self {
        Self {
            status: flags & libc::SOCK_NONBLOCK,
            closes: flags & libc::SOCK_CLOEXEC != 0,
        }
    }
}

/// A stream that is to get a TCP connection's number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replacement {
    pub(crate) stream: RawFd,
    /// Its status (`O_NONBLOCK`), where that is known.
    pub(crate) status: Option<i32>,
    /// The TCP connection.
    pub(crate) hidden: Option<RawFd>,
    /// Bits of the table.
    pub(crate) flags: u8,
    /// `SO_COOKIE` of the TCP connection.
    pub(crate) cookie: u64,
}

impl Replacement {
    /// Puts the stream under the number of the TCP connection, which has this status.
    pub(crate) fn put_under(self, fd: RawFd, to_have: Status) {
        let Self {
            stream,
            hidden,
            cookie,
            ..
        } = self;
        if self.status != Some(to_have.status) {
            let _ = sys::fcntl(stream, libc::F_SETFL, to_have.status);
        }
        let _ = sys::set_option(stream, libc::SOL_SOCKET, libc::SO_SNDBUF, BUFFER);
        for option in COPIED {
            copy_timeout(fd, stream, option);
        }
        let resets = if resets(fd) { flag::RESETS } else { 0 };
        let returns = to_have.status & libc::O_NONBLOCK != 0;
        let sleeps = if returns { flag::RETURNS } else { flag::SLEEPS };
        let closes = if to_have.closes { libc::O_CLOEXEC } else { 0 };
        let replaced = sys::dup3(stream, fd, closes);
        debug_assert!(replaced.is_ok(), "two open descriptors");
        sys::close(stream);
        table::set(
            fd,
            Entry {
                kind: Kind::StandIn,
                flags: self.flags | resets | sleeps,
                hidden: [hidden, None],
                cookie,
            },
        );
        count::stream();
    }
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
    short::forget(from);
    let intact = match entry.kind {
        Kind::Listener => {
            // What one number puts into the stash the other one has to find.
            table::add_flags(from, flag::SHARED);
            table::listener_sockets(from).is_some()
        }
        _ => table::tcp(from).is_some(),
    };
    let hidden = if intact {
        let again = |fd| hide::hide(fd, libc::F_DUPFD_CLOEXEC);
        entry.hidden.map(|fd| fd.and_then(again))
    } else {
        [None; 2]
    };
    let flags = table::get(from).flags;
    table::set(
        to,
        Entry {
            hidden,
            flags,
            ..entry
        },
    );
    // `exec` keeps the copy, or closes it, whatever it does with the other number.
    let descriptor = sys::fcntl(to, libc::F_GETFD, 0).unwrap_or(libc::FD_CLOEXEC);
    listener::inherit_as(to, descriptor);
}
