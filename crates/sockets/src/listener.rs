//! The server's side: a TCP listener, and beside it a Unix socket that takes streams.
//!
//! A client connects its stream *before* it sends its SYN, and sends over it the cookie of its TCP
//! socket and a token. So when `accept(2)` returns a connection, its stream is in the queue, or it
//! will never be. The server takes the token, and with it the stream. A client whose token nobody
//! takes in time takes it back, and stays on TCP.
//!
//! Invariant: both ends of a connection use the stream, or both use TCP.
//! Enforced by: a token is taken once (`token`).
//! If broken: one end waits for bytes that went the other way.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use crate::address::{Connection, End, Family, listener_name, port_name, stash_name};
use crate::count::{Reason, stays};
use crate::replace::Status;
use crate::streams::Streams;
use crate::sys::{self, SocketEnd};
use crate::table::{self, Entry, Kind, ListenerSockets, flag};
use crate::{hide, lock};

/// Streams that wait for their connection, beyond what the program asks for.
const BACKLOG: c_int = 4096;
/// How long `accept` tries to get the stash from another process. One that is stopped may have it.
const TURN: Duration = Duration::from_micros(500);

/// Makes the hidden sockets, before the program's socket listens.
pub(crate) fn prepare(fd: RawFd) -> Option<ListenerSockets> {
    let family = tcp_family(fd)?;
    if table::get(fd).kind == Kind::Listener || !table::has_room(fd) {
        return None;
    }
    if sys::option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 0) != Ok(0) {
        stays(Reason::SharedPort);
        return None;
    }
    let cookie = sys::cookie(fd).ok()?;
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK;
    let queue = hide::moved(sys::socket(libc::AF_UNIX, kind, 0).ok()?)?;
    let named = sys::bind(queue, &listener_name(cookie, family));
    let stash = named.and_then(|()| sys::listen(queue, BACKLOG)).ok();
    let Some(stash) = stash.and_then(|()| stash_of(fd, cookie)) else {
        hide::forget(queue);
        return None;
    };
    Some(ListenerSockets {
        queue,
        stash,
        shared: false,
    })
}

/// A datagram socket that is connected to itself: what is sent to it waits in it, for all processes
/// that have it.
fn stash_of(fd: RawFd, cookie: u64) -> Option<RawFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK;
    let stash = hide::moved(sys::socket(libc::AF_UNIX, kind, 0).ok()?)?;
    let port = sys::name(fd, SocketEnd::Own)
        .ok()
        .and_then(|name| name.internet());
    let names = [
        port.map(|at| port_name(at.port())),
        Some(stash_name(cookie)),
    ];
    let mut names = names.into_iter().flatten();
    let name = names.find(|name| sys::bind(stash, name).is_ok());
    if name.is_some_and(|name| close_to_others(stash, &name).is_ok()) {
        return Some(stash);
    }
    hide::forget(stash);
    None
}

/// Connects a stash to itself: it takes no other socket's datagrams then (EPERM). Another user may
/// have sent some since it got its name, so they are discarded.
fn close_to_others(stash: RawFd, name: &[u8]) -> Result<(), c_int> {
    sys::connect(stash, name)?;
    loop {
        match sys::receive_descriptors(stash) {
            Ok((_, first, second)) => [Some(first), second]
                .into_iter()
                .flatten()
                .for_each(sys::close),
            // A datagram without a descriptor.
            Err(libc::EMFILE) => {}
            Err(libc::EAGAIN) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Shows the listener to clients, when it listens.
pub(crate) fn publish(fd: RawFd, sockets: ListenerSockets) {
    let keeps = sys::fcntl(fd, libc::F_GETFD, 0).unwrap_or(libc::FD_CLOEXEC);
    enter(fd, sockets, sys::cookie(fd).unwrap_or(0));
    inherit_as(fd, keeps);
}

fn enter(fd: RawFd, sockets: ListenerSockets, cookie: u64) {
    table::set(
        fd,
        Entry {
            kind: Kind::Listener,
            flags: if sockets.shared { flag::SHARED } else { 0 },
            hidden: [Some(sockets.queue), Some(sockets.stash)],
            cookie,
        },
    );
}

/// Gives up what `prepare` made: the program's socket does not listen.
pub(crate) fn withdraw(sockets: ListenerSockets) {
    hide::forget(sockets.queue);
    hide::forget(sockets.stash);
}

/// Lets `exec` close the hidden sockets of a listener if, and only if, it closes the listener.
pub(crate) fn inherit_as(fd: RawFd, descriptor_flags: c_int) {
    if let Some(sockets) = table::listener_sockets(fd) {
        for hidden in [sockets.queue, sockets.stash] {
            let _ = sys::fcntl(hidden, libc::F_SETFD, descriptor_flags);
        }
    }
}

/// Address family of a TCP socket; none of others.
pub(crate) fn tcp_family(fd: RawFd) -> Option<Family> {
    let ask = |option| sys::option(fd, libc::SOL_SOCKET, option, 0).ok();
    let family = match ask(libc::SO_DOMAIN)? {
        libc::AF_INET => Family::V4,
        libc::AF_INET6 => Family::V6,
        _ => return None,
    };
    // A raw socket has it, too; it is never noted as fresh, and the kernel lets none listen.
    (ask(libc::SO_PROTOCOL)? == libc::IPPROTO_TCP).then_some(family)
}

/// A connection was accepted, with these flags of `accept4(2)`: replaces it by its stream if it has
/// one.
pub(crate) fn accepted(listener: RawFd, fd: RawFd, flags: c_int) {
    let kind = table::get(listener).kind;
    let is_inherited = kind == Kind::Other && crate::exec::has_inherited();
    if kind != Kind::Listener && !is_inherited {
        return;
    }
    let Some(connection) = connection(fd) else {
        stays(Reason::OtherHost);
        return;
    };
    let held = lock::hold();
    // Another thread may have made its entry meanwhile.
    let is_new = is_inherited && table::get(listener).kind == Kind::Other;
    let entry = if is_new {
        inherited(listener)
    } else {
        table::listener_sockets(listener)
    };
    let Some(sockets) = entry else { return };
    let mut streams = Streams::new(sockets, flags & libc::SOCK_NONBLOCK);
    // Without a turn the stream may be in the hands of another process just now. Its client stays
    // on TCP then.
    let has_turn = sockets.shared && take_turn(sockets.stash);
    let claimed = streams.claim(fd, connection, &held);
    if streams.leave() {
        table::add_flags(listener, flag::SHARED);
    }
    if has_turn {
        let unlocked = sys::record_lock(sockets.stash, libc::F_UNLCK);
        debug_assert!(unlocked.is_ok(), "a lock of this process");
    }
    match claimed {
        Ok(replacement) => replacement.put_under(fd, Status::accepted(flags)),
        Err(reason) => stays(reason),
    }
}

/// The two ends of an accepted connection within the host.
fn connection(fd: RawFd) -> Option<Connection> {
    let end = |which| End::new(sys::name(fd, which).ok()?.internet()?);
    let connection = Connection {
        client: end(SocketEnd::Peer)?,
        server: end(SocketEnd::Own)?,
    };
    connection.is_within_host().then_some(connection)
}

/// Gets the stash for this process, if no other one has it for long.
fn take_turn(stash: RawFd) -> bool {
    let mut until = None;
    loop {
        match sys::record_lock(stash, libc::F_WRLCK) {
            Ok(()) => return true,
            Err(libc::EAGAIN | libc::EACCES) => {}
            Err(_) => return false,
        }
        let now = Instant::now();
        if now > *until.get_or_insert(now + TURN) {
            return false;
        }
        sys::give_way();
    }
}

/// The hidden sockets of a listener that this process got by `exec`.
fn inherited(listener: RawFd) -> Option<ListenerSockets> {
    let cookie = sys::cookie(listener).ok()?;
    let port = sys::name(listener, SocketEnd::Own).ok()?.internet()?.port();
    let sockets = crate::exec::find(cookie, port)?;
    enter(listener, sockets, cookie);
    Some(sockets)
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, IntoRawFd};
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use super::*;
    use crate::streams::has_ended;

    fn datagram_socket() -> RawFd {
        let socket = UnixDatagram::unbound().expect("a socket");
        socket.set_nonblocking(true).expect("a flag");
        socket.into_raw_fd()
    }

    #[test]
    fn what_was_sent_before_the_stash_was_closed_to_others_is_discarded() {
        let name = format!("{}test/{}", crate::address::PREFIX, std::process::id());
        let [stash, stranger] = [(); 2].map(|()| datagram_socket());
        sys::bind(stash, name.as_bytes()).expect("a free name");
        sys::connect(stranger, name.as_bytes()).expect("a socket");
        let (theirs, ours) = UnixStream::pair().expect("a pair");
        for _ in 0..3 {
            sys::send_descriptors(stranger, [0; 8], &[theirs.as_raw_fd()]).expect("a datagram");
            sys::send(stranger, b"no descriptor").expect("a datagram");
        }
        drop(theirs);
        close_to_others(stash, name.as_bytes()).expect("a stash");
        let received = sys::receive_descriptors(stash);
        assert_eq!(received, Err(libc::EAGAIN));
        assert!(has_ended(ours.as_raw_fd()), "no copy was kept");
        let refused = sys::send_descriptors(stranger, [0; 8], &[ours.as_raw_fd()]);
        assert_eq!(refused, Err(libc::EPERM));
        sys::close(stash);
        sys::close(stranger);
    }
}
