//! Messages over the ends of streams.

mod receiver;
mod sender;

use std::fmt;
use std::io;
use std::net::ToSocketAddrs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake};

use super::end::End;
use super::frame::Form;
use super::wakers::{Role, Wakers};
use super::{Stream, StreamRoom, now};
use crate::endpoint::{Awaitable, Connection, Connector, Incoming};

pub use receiver::Receiver;
pub use sender::Sender;

/// What both halves of one end share.
#[derive(Clone)]
struct Shared(Arc<Parts>);

struct Parts {
    /// Invariant: no code of the program runs under the lock, nor does any thread wait under it.
    /// Enforced by: the halves reach the end by [`Shared::act`] only, which wakes when it has let
    /// go of the lock; [`Shared::act_for`] notes the waker before.
    /// If broken: a waker that uses the other half stands still.
    stream: Mutex<Stream>,
    /// Dropped behind the stream, which may hand it to a thread that finishes it.
    connection: Arc<Connection>,
    /// Tasks that wait for this end.
    wakers: Arc<Wakers>,
    /// Bytes of one message at most.
    longest: usize,
}

impl Shared {
    fn new(end: End) -> Self {
        Self(Arc::new(Parts {
            connection: Arc::clone(end.connection()),
            wakers: Arc::clone(end.wakers()),
            longest: end.longest(),
            stream: Mutex::new(Stream::new(end)),
        }))
    }

    fn stream(&self) -> MutexGuard<'_, Stream> {
        self.0.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acts for a task, which is woken when there is something to do.
    fn act_for<R>(&self, role: Role, context: &Context<'_>, act: impl FnOnce(&mut End) -> R) -> R {
        self.0.wakers.set(role, context);
        self.act(act)
    }

    /// Acts for no task. What came is there to be read.
    fn act<R>(&self, act: impl FnOnce(&mut End) -> R) -> R {
        let (done, must_wake) = {
            let mut stream = self.stream();
            let end = stream.end_mut();
            end.progress();
            (act(end), end.must_wake())
        };
        if must_wake {
            self.0.wakers.wake_by_ref();
        }
        done
    }

    /// The answer now, if it is there.
    fn now<T>(
        &self,
        role: Role,
        act: impl FnOnce(&mut End) -> Poll<io::Result<T>>,
    ) -> io::Result<T> {
        let endpoint = self.0.connection.endpoint();
        now(self.act_for(role, &Context::from_waker(endpoint.nudge()), act))
    }

    /// Waits in this thread, and serves the endpoint meanwhile.
    fn wait<T>(&self, future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let served = self.0.connection.endpoint().block_on(future);
        served.map_err(io::Error::from)?
    }

    fn describe(&self, half: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple(half).field(&self.0.connection).finish()
    }
}

/// The methods that both halves have.
macro_rules! half_methods {
    () => {
        /// The connection below, which both halves have. Work of one's own on its queue pair
        /// confuses both ends.
        #[must_use]
        pub fn connection(&self) -> &crate::endpoint::Connection {
            &self.0.0.connection
        }

        /// The peer's address: [`Connection::peer_addr`](crate::endpoint::Connection::peer_addr).
        ///
        /// # Errors
        /// It has none of the internet protocol.
        pub fn peer_addr(&self) -> io::Result<std::net::SocketAddr> {
            self.connection().peer_addr()
        }

        /// How long what was sent has to arrive once both halves are dropped: 10 seconds unless
        /// this is called, on either half. See
        /// [`Stream::set_linger`](crate::stream::Stream::set_linger).
        pub fn set_linger(&mut self, limit: std::time::Duration) {
            self.0.stream().set_linger(limit);
        }

        /// Ends the connection now, in both directions. What is on its way may be lost: the peer
        /// finds [`ConnectionReset`](io::ErrorKind::ConnectionReset) behind what came, and so does
        /// the other half here.
        pub fn abort(self) {
            self.0.act(super::End::abort);
        }
    };
}
use half_methods;

/// Both halves of a new end.
fn halves(end: End) -> (Sender, Receiver) {
    let shared = Shared::new(end);
    (Sender(shared.clone()), Receiver(shared))
}

/// Connects to a listener whose program [accepts](accept) channels. The connector's capacities and
/// private data do not matter. The room is that of this end: how many messages may be here unread,
/// and how long they are at most. The longest message, in either direction, is the shorter of both
/// ends' rooms: see [`Sender::max_len`]. Where it is awaited, the endpoint needs a
/// [driver](crate::endpoint::Endpoint::driver).
///
/// # Errors
/// Those of [`Connector::connect`]; [`Error::Misuse`](crate::Error::Misuse) for room of nothing,
/// [`Error::Protocol`](crate::Error::Protocol) if the peer's end is no channel.
pub fn connect(
    connector: &Connector,
    to: impl ToSocketAddrs,
    room: StreamRoom,
) -> Awaitable<'static, (Sender, Receiver)> {
    let connector = super::connector(connector, Form::Channel, room);
    let preparing = connector.prepare(to);
    connector.awaitable(async move {
        let end = super::connect(preparing, Form::Channel, room).await?;
        Ok(halves(end))
    })
}

/// Accepts a request for a channel. One for something else is rejected. Where it is awaited, the
/// endpoint needs a [driver](crate::endpoint::Endpoint::driver).
///
/// # Errors
/// Those of [`Incoming::accept`], and as [`connect`].
pub fn accept(incoming: Incoming, room: StreamRoom) -> Awaitable<'static, (Sender, Receiver)> {
    super::accept(incoming, Form::Channel, room, halves)
}
