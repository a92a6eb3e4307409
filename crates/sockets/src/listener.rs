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
use crate::diag::Diag;
use crate::lock::Held;
use crate::sys::{self, SocketEnd};
use crate::table::{self, Entry, Kind, ListenerSockets};
use crate::{hide, lock, replace, token};

/// Bytes of the cookie that a stream begins with.
const COOKIE: usize = size_of::<u64>();
/// Looks at bytes, and waits for none.
const PEEK: c_int = libc::MSG_PEEK | libc::MSG_DONTWAIT;
/// Streams that wait for their connection, beyond what the program asks for.
const BACKLOG: c_int = 4096;
/// Streams of other users that one `accept` closes. Another user can connect more of them at any
/// time, and the process's lock is held meanwhile.
const STRANGERS: u32 = 16;
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
    Some(ListenerSockets { queue, stash })
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
fn close_to_others(stash: RawFd, name: &str) -> Result<(), c_int> {
    sys::connect(stash, name)?;
    loop {
        match sys::receive_descriptor(stash) {
            Ok((_, stranger)) => sys::close(stranger),
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
            flags: 0,
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

/// A connection was accepted: replaces it by its stream, if it has one.
pub(crate) fn accepted(listener: RawFd, fd: RawFd) {
    let entry = if table::get(listener).kind == Kind::Listener {
        table::listener_sockets(listener)
    } else {
        inherited(listener)
    };
    let Some(sockets) = entry else { return };
    let Some(connection) = connection(fd) else {
        stays(Reason::OtherHost);
        return;
    };
    let held = lock::hold();
    // Without a turn the stream may be in the hands of another process just now. Its client stays
    // on TCP then.
    let has_turn = take_turn(sockets.stash);
    let stream = take(sockets, connection, &held);
    if has_turn {
        let unlocked = sys::record_lock(sockets.stash, libc::F_UNLCK);
        debug_assert!(unlocked.is_ok(), "a lock of this process");
    }
    match stream.map(|stream| stream.put_under(fd)) {
        Some(Ok(())) => {}
        Some(Err(reason)) => stays(reason),
        None => stays(Reason::PeerIsPlain),
    }
    drop(held);
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

/// A client's stream that waits, and the cookie of its TCP socket.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    stream: RawFd,
    /// Zero while the client has sent none.
    cookie: u64,
}

impl Waiting {
    fn new(stream: RawFd, cookie: u64) -> Self {
        if cookie != 0 {
            return Self { stream, cookie };
        }
        let mut bytes = [0; COOKIE];
        let cookie = match sys::receive(stream, &mut bytes, PEEK) {
            Ok(COOKIE) => u64::from_ne_bytes(bytes),
            _ => 0,
        };
        Self { stream, cookie }
    }

    /// Leaves the stream for the process whose connection it is, if its client still waits.
    fn stash(self, stash: RawFd) {
        if !has_ended(self.stream) {
            // If the stash is full, the client sees its stream end, and stays on TCP.
            let _ = sys::send_descriptor(stash, self.cookie.to_ne_bytes(), self.stream);
        }
        sys::close(self.stream);
    }

    /// Puts the stream under the connection's number, unless its client has decided for TCP.
    fn put_under(self, fd: RawFd) -> Result<(), Reason> {
        let put = self.claim(fd);
        if put.is_err() {
            sys::close(self.stream);
        }
        put
    }

    fn claim(self, fd: RawFd) -> Result<(), Reason> {
        // An accepted socket has the listener's options.
        if replace::asks_for_more(fd) {
            return Err(Reason::Options);
        }
        // All that may fail comes before the token is taken.
        let hidden = replace::hide_tcp(fd).ok_or(Reason::NotHidden)?;
        // What the program reads begins behind the cookie.
        let is_ours = sys::receive_descriptor(self.stream).is_ok_and(|(_, of_client)| {
            let is_ours = token::take(of_client);
            sys::close(of_client);
            is_ours
        });
        if !is_ours {
            hide::forget(hidden);
            return Err(Reason::NotTaken);
        }
        replace::replace(fd, self.stream, Some(hidden), 0);
        Ok(())
    }
}

/// Takes a connection's stream from those that came, as a rule the first one. Those before it are
/// left for the processes whose connections they are.
fn take(sockets: ListenerSockets, connection: Connection, held: &Held) -> Option<Waiting> {
    let mut strangers = STRANGERS;
    let mut next = first(sockets, &mut strangers);
    next.as_ref()?;
    let client = Diag::open(held).and_then(|d| d.connection(connection.client, connection.server));
    let is_its = |waiting: &Waiting| client.is_some_and(|client| client.cookie == waiting.cookie);
    let mut passed = Vec::new();
    while let Some(other) = next.take_if(|waiting| !is_its(waiting)) {
        passed.push(other);
        next = first(sockets, &mut strangers);
    }
    for other in passed {
        other.stash(sockets.stash);
    }
    next
}

/// The stream that has waited longest, of a client of this user that has not taken it back. None if
/// there is none before `strangers` streams of other users.
fn first(sockets: ListenerSockets, strangers: &mut u32) -> Option<Waiting> {
    let ListenerSockets { queue, stash } = sockets;
    while let Ok((cookie, stream)) = sys::receive_descriptor(stash) {
        if is_from_queue(stream, queue) && sys::is_own_user(stream) && !has_ended(stream) {
            return Some(Waiting::new(stream, u64::from_ne_bytes(cookie)));
        }
        sys::close(stream);
    }
    while *strangers > 0 {
        let stream = sys::accept(queue).ok()?;
        let is_own = sys::is_own_user(stream);
        if is_own && !has_ended(stream) {
            return Some(Waiting::new(stream, 0));
        }
        sys::close(stream);
        *strangers -= u32::from(!is_own);
    }
    None
}

/// Whether a stream of the stash was accepted from the listener's queue: it has the queue's name.
fn is_from_queue(stream: RawFd, queue: RawFd) -> bool {
    let names = [stream, queue].map(|fd| sys::name(fd, SocketEnd::Own).ok());
    let [stream, queue] = names.each_ref().map(|name| name.as_ref()?.abstract_name());
    stream.is_some() && stream == queue
}

/// Whether the client of a stream has ended, or has taken its stream back. Its `connect` may have
/// failed, and the same socket have another stream in the queue.
fn has_ended(stream: RawFd) -> bool {
    sys::events(stream) & libc::POLLHUP != 0
}

/// The hidden sockets of a listener that this process got by `exec`.
fn inherited(listener: RawFd) -> Option<ListenerSockets> {
    if table::get(listener).kind != Kind::Other || !crate::exec::has_inherited() {
        return None;
    }
    let cookie = sys::cookie(listener).ok()?;
    let port = sys::name(listener, SocketEnd::Own).ok()?.internet()?.port();
    let sockets = crate::exec::find(cookie, port)?;
    enter(listener, sockets, cookie);
    Some(sockets)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::{AsRawFd, IntoRawFd};
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use super::*;

    fn datagram_socket() -> RawFd {
        let socket = UnixDatagram::unbound().expect("a socket");
        socket.set_nonblocking(true).expect("a flag");
        socket.into_raw_fd()
    }

    #[test]
    fn what_was_sent_before_the_stash_was_closed_to_others_is_discarded() {
        let name = format!("{}test/{}", crate::address::PREFIX, std::process::id());
        let [stash, stranger] = [(); 2].map(|()| datagram_socket());
        sys::bind(stash, &name).expect("a free name");
        sys::connect(stranger, &name).expect("a socket");
        let (theirs, ours) = UnixStream::pair().expect("a pair");
        for _ in 0..3 {
            sys::send_descriptor(stranger, [0; 8], theirs.as_raw_fd()).expect("a datagram");
            sys::send(stranger, b"no descriptor").expect("a datagram");
        }
        drop(theirs);
        close_to_others(stash, &name).expect("a stash");
        let received = sys::receive_descriptor(stash);
        assert_eq!(received, Err(libc::EAGAIN));
        assert!(has_ended(ours.as_raw_fd()), "no copy was kept");
        let refused = sys::send_descriptor(stranger, [0; 8], ours.as_raw_fd());
        assert_eq!(refused, Err(libc::EPERM));
        sys::close(stash);
        sys::close(stranger);
    }

    #[test]
    fn a_stashed_stream_is_taken_only_if_it_came_from_the_queue() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let sockets = prepare(listener.as_raw_fd()).expect("hidden sockets");
        let mut strangers = STRANGERS;
        let (theirs, _ours) = UnixStream::pair().expect("a pair");
        sys::send_descriptor(sockets.stash, 7_u64.to_ne_bytes(), theirs.as_raw_fd())
            .expect("a datagram");
        assert!(first(sockets, &mut strangers).is_none());

        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK;
        let client = sys::socket(libc::AF_UNIX, kind, 0).expect("a socket");
        let cookie = sys::cookie(listener.as_raw_fd()).expect("a cookie");
        sys::connect(client, &listener_name(cookie, Family::V4)).expect("the queue");
        sys::send(client, &9_u64.to_ne_bytes()).expect("a cookie");
        for _ in 0..2 {
            let waiting = first(sockets, &mut strangers).expect("the client's stream");
            assert_eq!(waiting.cookie, 9);
            waiting.stash(sockets.stash);
        }
        sys::close(client);
        assert!(first(sockets, &mut strangers).is_none());
        assert_eq!(strangers, STRANGERS);
        withdraw(sockets);
    }
}
