//! Messages over the ends of streams.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::ToSocketAddrs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use super::end::End;
use super::frame::Form;
use super::wakers::{Role, Wakers};
use super::{Stream, StreamRoom, now};
use crate::endpoint::{Awaitable, Connector, Endpoint, Incoming};

/// What both halves of one end share.
#[derive(Clone)]
struct Shared(Arc<Parts>);

struct Parts {
    /// Invariant: no code of the program runs under the lock, nor does any thread wait under it.
    /// Enforced by: the halves reach the end by [`Shared::act_for`] only, which notes wakers before
    /// it takes the lock, and wakes when it has let go of it.
    /// If broken: a waker that uses the other half stands still.
    stream: Mutex<Stream>,
    /// Tasks that wait for this end.
    wakers: Arc<Wakers>,
    /// Bytes of one message at most.
    longest: usize,
}

impl Shared {
    fn new(end: End) -> Self {
        let (wakers, longest) = (Arc::clone(end.wakers()), end.longest());
        Self(Arc::new(Parts {
            stream: Mutex::new(Stream::new(end)),
            wakers,
            longest,
        }))
    }

    fn stream(&self) -> MutexGuard<'_, Stream> {
        self.0.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acts for a task, which is woken when there is something to do.
    fn act_for<R>(&self, role: Role, context: &Context<'_>, act: impl FnOnce(&mut End) -> R) -> R {
        self.0.wakers.set(role, context);
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

    fn endpoint(&self) -> Endpoint {
        self.stream().connection().endpoint()
    }

    /// Waits in this thread, and serves the endpoint meanwhile.
    fn wait<T>(&self, future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let served = self.endpoint().block_on(future);
        served.map_err(io::Error::other)?
    }

    fn describe(&self, half: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Where it is written to is anyone's code, too.
        let connection = format!("{:?}", self.stream().connection());
        f.debug_tuple(half)
            .field(&format_args!("{connection}"))
            .finish()
    }
}

/// Reads for a receiver that is gone, in the threads that serve the endpoint.
struct Discard(Weak<Parts>);

impl Discard {
    /// Discards what is there, and is woken by what comes.
    fn act(self: Arc<Self>, shared: &Shared) {
        let waker = Waker::from(self);
        shared.act_for(Role::Reader, &Context::from_waker(&waker), End::discard);
    }
}

impl Wake for Discard {
    fn wake(self: Arc<Self>) {
        if let Some(parts) = self.0.upgrade() {
            self.act(&Shared(parts));
        }
    }
}

/// Both halves of a new end.
fn halves(end: End) -> (Sender, Receiver) {
    let shared = Shared::new(end);
    (Sender(shared.clone()), Receiver(shared))
}

/// Connects to a listener whose program [accepts](accept) channels. The connector's capacities and
/// private data do not matter. The room is that of this end: how many messages may be here unread,
/// and how long they are at most. The longest message, in either direction, is the shorter of both
/// ends' rooms: see [`Sender::max_len`].
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

/// Accepts a request for a channel. One for something else is rejected.
///
/// # Errors
/// Those of [`Incoming::accept`], and as [`connect`].
pub fn accept(incoming: Incoming, room: StreamRoom) -> Awaitable<'static, (Sender, Receiver)> {
    super::accept(incoming, Form::Channel, room, halves)
}

/// Sends messages to the [`Receiver`] of the peer, where each comes whole and in order.
///
/// Dropping it ends this direction: the peer receives all that was sent, then the end.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::channel;
/// use ferroce::prelude::*;
/// use ferroce::stream::StreamRoom;
/// let room = StreamRoom::new(2, 64);
/// let endpoint = Endpoint::new(&Provider::software())?;
/// let listener = endpoint.listen("127.0.0.1:0")?;
/// let address = listener.local_addr()?;
/// let server = std::thread::spawn(move || {
///     let incoming = listener.accept().wait()?;
///     channel::accept(incoming, room).wait()
/// });
/// let connecting = channel::connect(&endpoint.connector(), address, room);
/// let (mut sender, _answers) = connecting.wait()?;
/// let _peer = server.join().expect("no panic")?;
/// assert_eq!(sender.max_len(), 64);
/// let refused = sender.send_blocking("a".repeat(65)).unwrap_err();
/// assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
/// sender.send_blocking("short enough")?;
/// # Ok(())
/// # }
/// ```
pub struct Sender(Shared);

impl Sender {
    /// Bytes of the longest message: the shorter of both ends' rooms ([`StreamRoom::bytes`]).
    #[must_use]
    pub fn max_len(&self) -> usize {
        self.0.0.longest
    }

    /// Sends a message: its bytes are copied into registered memory of the channel, and nothing is
    /// allocated for it. Ready when it is on its way, which needs that the peer has room for it.
    /// Dropping the future before that sends nothing.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for one that is [too
    /// long](Self::max_len); [`BrokenPipe`](io::ErrorKind::BrokenPipe) if the connection has ended.
    pub async fn send(&mut self, message: impl AsRef<[u8]>) -> io::Result<()> {
        let message = message.as_ref();
        poll_fn(|context| self.poll_send(context, message)).await
    }

    /// [`send`](Self::send) for threads that block: they serve the endpoint while they wait.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_blocking(&mut self, message: impl AsRef<[u8]>) -> io::Result<()> {
        let shared = self.0.clone();
        shared.wait(self.send(message))
    }

    /// [`send`](Self::send) without waiting: [`WouldBlock`](io::ErrorKind::WouldBlock) where the
    /// peer has no room, as far as this end has heard.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn try_send(&mut self, message: impl AsRef<[u8]>) -> io::Result<()> {
        let noop = Context::from_waker(Waker::noop());
        now(self.poll_send(&noop, message.as_ref()))
    }

    /// Ready when all that was sent is in the memory of the peer; over iWARP, where a SEND
    /// completes earlier, when TCP has taken it.
    ///
    /// # Errors
    /// As [`send`](Self::send), if some is not and never will be.
    pub async fn flush(&mut self) -> io::Result<()> {
        let flush =
            |context: &mut Context<'_>| self.0.act_for(Role::Writer, context, End::poll_flush);
        poll_fn(flush).await
    }

    /// Ends this direction. Ready as [`flush`](Self::flush) is.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub async fn close(self) -> io::Result<()> {
        poll_fn(|context| self.poll_close(context)).await
    }

    fn poll_send(&self, context: &Context<'_>, message: &[u8]) -> Poll<io::Result<()>> {
        let (length, longest) = (message.len(), self.max_len());
        if length > longest {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "a message of {length} bytes, where the shorter of both ends' rooms has {longest}"
                ),
            )));
        }
        let send = |end: &mut End| end.poll_send(message);
        self.0.act_for(Role::Writer, context, send)
    }

    fn poll_close(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        self.0.act_for(Role::Writer, context, End::poll_close)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // The end needs no room at the peer. The endpoint finishes it.
        let _ = self.poll_close(&Context::from_waker(Waker::noop()));
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.describe("Sender", f)
    }
}

/// Receives the messages of the peer's [`Sender`].
///
/// If it is dropped while the [`Sender`] of this end is there, what comes is discarded: the peer
/// goes on sending, and is not told. A task or thread that serves the endpoint does it.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::channel;
/// use ferroce::prelude::*;
/// use ferroce::stream::StreamRoom;
/// let room = StreamRoom::new(4, 64);
/// let endpoint = Endpoint::new(&Provider::software())?;
/// let listener = endpoint.listen("127.0.0.1:0")?;
/// let address = listener.local_addr()?;
/// let server = std::thread::spawn(move || -> std::io::Result<Vec<Vec<u8>>> {
///     let incoming = listener.accept().wait()?;
///     let (_, mut receiver) = channel::accept(incoming, room).wait()?;
///     let mut all = Vec::new();
///     while let Some(message) = receiver.recv_blocking()? {
///         all.push(message);
///     }
///     Ok(all)
/// });
/// let connecting = channel::connect(&endpoint.connector(), address, room);
/// let (mut sender, _) = connecting.wait()?;
/// sender.send_blocking("one")?;
/// sender.send_blocking("two")?;
/// drop(sender); // the receiver's end
/// assert_eq!(server.join().expect("no panic")?, [b"one", b"two"]);
/// # Ok(())
/// # }
/// ```
pub struct Receiver(Shared);

impl Receiver {
    /// The next message; `None` when the peer has ended its direction. Dropping the future loses
    /// nothing.
    ///
    /// # Errors
    /// [`ConnectionReset`](io::ErrorKind::ConnectionReset) if the connection ended before that,
    /// behind all messages that came.
    pub async fn recv(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut message = Vec::new();
        Ok(self.recv_into(&mut message).await?.then_some(message))
    }

    /// [`recv`](Self::recv) into a place that is used again and again, in place of what it held;
    /// false at the end.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub async fn recv_into(&mut self, to: &mut Vec<u8>) -> io::Result<bool> {
        poll_fn(|context| self.poll_recv(context, to)).await
    }

    /// [`recv`](Self::recv) for threads that block: they serve the endpoint while they wait.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_blocking(&mut self) -> io::Result<Option<Vec<u8>>> {
        let shared = self.0.clone();
        shared.wait(self.recv())
    }

    /// [`recv`](Self::recv) without waiting: [`WouldBlock`](io::ErrorKind::WouldBlock) where
    /// nothing has come that the endpoint has brought.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn try_recv(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut message = Vec::new();
        let noop = Context::from_waker(Waker::noop());
        let came = now(self.poll_recv(&noop, &mut message))?;
        Ok(came.then_some(message))
    }

    fn poll_recv(&self, context: &Context<'_>, to: &mut Vec<u8>) -> Poll<io::Result<bool>> {
        let receive = |end: &mut End| -> Poll<io::Result<bool>> {
            match end.poll_message()? {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(Ok(false)),
                Poll::Ready(Some(message)) => {
                    to.clear();
                    to.extend_from_slice(message);
                }
            }
            end.consume(usize::MAX);
            Poll::Ready(Ok(true))
        };
        self.0.act_for(Role::Reader, context, receive)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let discard = Arc::new(Discard(Arc::downgrade(&self.0.0)));
        discard.act(&self.0);
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.describe("Receiver", f)
    }
}
