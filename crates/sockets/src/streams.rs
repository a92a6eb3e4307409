//! The streams that have come for a listener's connections, and which of them is whose.

use std::cell::LazyCell;
use std::ffi::c_int;
use std::os::fd::RawFd;

use crate::address::{Connection, Meaning};
use crate::count::Reason;
use crate::diag::Diag;
use crate::lock::Held;
use crate::replace::{self, Replacement};
use crate::sys::{self, SocketEnd};
use crate::table::ListenerSockets;
use crate::{hide, stand_in, token};

/// Streams of other users that one `accept` closes. Another user can connect more of them at any
/// time, and the process's lock is held meanwhile.
const STRANGERS: u32 = 16;

/// A client's stream that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    stream: RawFd,
    /// Its status (`O_NONBLOCK`), where that is known.
    status: Option<c_int>,
    /// Cookie of its client's TCP socket, and the token. The client may have sent none yet.
    sent: Option<(u64, RawFd)>,
}

impl Waiting {
    /// Takes the client's message, if that has not been done. What the program reads begins behind
    /// it.
    fn receive(&mut self) {
        if self.sent.is_some() {
            return;
        }
        if let Ok((cookie, token, more)) = sys::receive_descriptors(self.stream) {
            more.into_iter().for_each(sys::close);
            self.sent = Some((u64::from_ne_bytes(cookie), token));
        }
    }

    /// Whether it is of this connection, by the name that its client gave it, or by the cookie of
    /// the connection's other end.
    fn is_of(&self, connection: Connection, cookie: impl FnOnce() -> Option<u64>) -> bool {
        let Some((its, _)) = self.sent else {
            return false;
        };
        match stand_in::meaning(self.stream, SocketEnd::Peer) {
            Some(Meaning::Client(named)) => named == connection,
            _ => cookie() == Some(its),
        }
    }

    /// Takes the token, if nothing else is in the way. Closes all that is of no use then.
    fn claim(self, fd: RawFd) -> Result<Replacement, Reason> {
        let claimed = self.try_claim(fd);
        self.close_token();
        if claimed.is_err() {
            sys::close(self.stream);
        }
        claimed
    }

    fn try_claim(&self, fd: RawFd) -> Result<Replacement, Reason> {
        // An accepted socket has the listener's options.
        if replace::asks_for_more(fd) {
            return Err(Reason::Options);
        }
        // A token that nobody can take back any more stays full.
        if has_ended(self.stream) {
            return Err(Reason::NotTaken);
        }
        // All that may fail comes before the token is taken.
        let cookie = sys::cookie(fd).map_err(|_| Reason::NoDescriptor)?;
        let hidden = replace::hide_tcp(fd).ok_or(Reason::NotHidden)?;
        let takes = |(_, of_client)| token::take(of_client);
        if !self.sent.is_some_and(takes) {
            hide::forget(hidden);
            return Err(Reason::NotTaken);
        }
        Ok(Replacement {
            stream: self.stream,
            status: self.status,
            hidden: Some(hidden),
            flags: 0,
            cookie,
        })
    }

    fn close_token(&self) {
        self.sent
            .into_iter()
            .for_each(|(_, token)| sys::close(token));
    }

    fn close(self) {
        self.close_token();
        sys::close(self.stream);
    }

    /// Leaves the stream for the process or thread whose connection it is, if its client still
    /// waits. False if not, or if the stash is full: the client sees its stream end, and stays on
    /// TCP.
    fn stash(self, stash: RawFd) -> bool {
        let (cookie, token) = self.sent.unzip();
        let both = [self.stream, token.unwrap_or(-1)];
        let count = if token.is_some() { 2 } else { 1 };
        let bytes = cookie.unwrap_or(0).to_ne_bytes();
        let is_stashed =
            !has_ended(self.stream) && sys::send_descriptors(stash, bytes, &both[..count]).is_ok();
        self.close();
        is_stashed
    }
}

/// The streams that have come for a listener's connections.
#[derive(Debug)]
pub(crate) struct Streams {
    sockets: ListenerSockets,
    /// What streams of the queue are to have (`SOCK_NONBLOCK`).
    status: c_int,
    /// Streams of other users that are still closed.
    strangers: u32,
    /// Those of other connections that have been taken out.
    others: Vec<Waiting>,
}

impl Streams {
    /// Those of these sockets. `status`: `SOCK_NONBLOCK` if the program's socket is to have it.
    pub(crate) const fn new(sockets: ListenerSockets, status: c_int) -> Self {
        Self {
            sockets,
            status,
            strangers: STRANGERS,
            others: Vec::new(),
        }
    }

    /// Takes the token of a connection's stream, as a rule the first one, and returns the stream.
    pub(crate) fn claim(
        &mut self,
        fd: RawFd,
        connection: Connection,
        held: &Held,
    ) -> Result<Replacement, Reason> {
        let cookie = LazyCell::new(|| {
            let Connection { client, server } = connection;
            let client = Diag::open(held)?.connection(client, server)?;
            Some(client.cookie)
        });
        let mut missed = Reason::PeerIsPlain;
        while let Some(waiting) = self.next() {
            if !waiting.is_of(connection, || *cookie) {
                self.others.push(waiting);
                continue;
            }
            match waiting.claim(fd) {
                // The client has taken it back. Its `connect` may have failed, and the same socket,
                // or one with the same ends, may have another stream in the queue.
                Err(Reason::NotTaken) => missed = Reason::NotTaken,
                claimed => return claimed,
            }
        }
        Err(missed)
    }

    /// Leaves those that were taken out for the processes and threads whose connections they are.
    /// Returns whether any is in the stash now.
    pub(crate) fn leave(&mut self) -> bool {
        let stash = self.sockets.stash;
        let stashed = self.others.drain(..).filter(|other| other.stash(stash));
        stashed.count() > 0
    }

    /// The stream that has waited longest, of a client of this user. None if there is none before
    /// `strangers` streams of other users.
    fn next(&mut self) -> Option<Waiting> {
        let stashed = self.sockets.shared.then(|| self.stashed()).flatten();
        stashed.or_else(|| self.queued())
    }

    fn stashed(&self) -> Option<Waiting> {
        let ListenerSockets { queue, stash, .. } = self.sockets;
        while let Ok((cookie, stream, token)) = sys::receive_descriptors(stash) {
            let cookie = u64::from_ne_bytes(cookie);
            let mut waiting = Waiting {
                stream,
                status: None,
                sent: token.map(|token| (cookie, token)),
            };
            if is_from_queue(stream, queue) && sys::is_own_user(stream) {
                waiting.receive();
                return Some(waiting);
            }
            waiting.close();
        }
        None
    }

    fn queued(&mut self) -> Option<Waiting> {
        while self.strangers > 0 {
            let stream = sys::accept(self.sockets.queue, self.status).ok()?;
            if sys::is_own_user(stream) {
                let mut waiting = Waiting {
                    stream,
                    status: Some(self.status),
                    sent: None,
                };
                waiting.receive();
                return Some(waiting);
            }
            sys::close(stream);
            self.strangers -= 1;
        }
        None
    }
}

/// Whether a stream of the stash was accepted from the listener's queue: it has the queue's name.
fn is_from_queue(stream: RawFd, queue: RawFd) -> bool {
    let names = [stream, queue].map(|fd| sys::name(fd, SocketEnd::Own).ok());
    let [stream, queue] = names.each_ref().map(|name| name.as_ref()?.abstract_name());
    stream.is_some() && stream == queue
}

/// Whether the client of a stream has ended, or has taken its stream back.
pub(crate) fn has_ended(stream: RawFd) -> bool {
    sys::events(stream) & libc::POLLHUP != 0
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsRawFd, IntoRawFd};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::address::{Family, listener_name};
    use crate::listener::{prepare, withdraw};

    #[test]
    fn a_stream_whose_client_is_gone_is_not_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("an address");
        let _client = TcpStream::connect(address).expect("a connection");
        let (accepted, _) = listener.accept().expect("a connection");
        for is_there in [true, false] {
            let (theirs, ours) = UnixStream::pair().expect("a pair");
            let token = token::make().expect("an eventfd");
            let waiting = Waiting {
                stream: theirs.into_raw_fd(),
                status: None,
                sent: Some((9, token)),
            };
            let ours = is_there.then_some(ours);
            let claimed = waiting.claim(accepted.as_raw_fd());
            assert_eq!(claimed.is_ok(), ours.is_some());
        }
    }

    #[test]
    fn a_stashed_stream_is_taken_only_if_it_came_from_the_queue() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let sockets = prepare(listener.as_raw_fd()).expect("hidden sockets");
        let with_stash = ListenerSockets {
            shared: true,
            ..sockets
        };
        let mut streams = Streams::new(with_stash, 0);
        let (theirs, _ours) = UnixStream::pair().expect("a pair");
        sys::send_descriptors(sockets.stash, 7_u64.to_ne_bytes(), &[theirs.as_raw_fd()])
            .expect("a datagram");
        assert!(streams.next().is_none());

        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK;
        let client = sys::socket(libc::AF_UNIX, kind, 0).expect("a socket");
        let cookie = sys::cookie(listener.as_raw_fd()).expect("a cookie");
        sys::connect(client, &listener_name(cookie, Family::V4)).expect("the queue");
        let waiting = streams.next().expect("the client's stream");
        assert!(waiting.sent.is_none(), "its client has sent nothing");
        waiting.stash(sockets.stash);
        let token = token::make().expect("an eventfd");
        sys::send_descriptors(client, 9_u64.to_ne_bytes(), &[token]).expect("a token");
        for _ in 0..2 {
            let waiting = streams.next().expect("the client's stream");
            assert_eq!(waiting.sent.map(|(cookie, _)| cookie), Some(9));
            waiting.stash(sockets.stash);
        }
        let waiting = streams.next().expect("the client's stream");
        assert!(waiting.sent.is_some_and(|(_, token)| token::take(token)));
        sys::close(client);
        waiting.stash(sockets.stash);
        assert!(streams.next().is_none(), "its client has ended");
        assert_eq!(streams.strangers, STRANGERS);
        withdraw(sockets);
    }
}
