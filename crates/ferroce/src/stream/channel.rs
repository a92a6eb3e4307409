//! Messages over the ends of streams.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::marker::PhantomData;
use std::net::ToSocketAddrs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::frame::Form;
use super::{Stream, StreamRoom};
use crate::endpoint::{Awaitable, Connector, Endpoint, Incoming};

/// Both halves of one end. What the other half does is done under the lock, which none holds while
/// it waits.
#[derive(Clone)]
struct Shared(Arc<Mutex<Stream>>);

impl Shared {
    fn stream(&self) -> MutexGuard<'_, Stream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn endpoint(&self) -> Endpoint {
        self.stream().connection().endpoint()
    }

    /// Waits in this thread, and serves the endpoint meanwhile.
    fn wait<T>(&self, future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let served = self.endpoint().block_on(future);
        served.map_err(io::Error::other)?
    }
}

/// Both halves of a new end.
fn halves<T>(stream: Stream) -> (Sender<T>, Receiver) {
    let shared = Shared(Arc::new(Mutex::new(stream)));
    let receiver = Receiver(shared.clone());
    let sender = Sender {
        shared,
        messages: PhantomData,
    };
    (sender, receiver)
}

/// Connects to a listener whose program [accepts](accept) channels. The connector's capacities and
/// private data do not matter. The room is that of this end: how many messages may be here unread,
/// and how long the longest is.
///
/// # Errors
/// Those of [`Connector::connect`]; [`Error::Misuse`](crate::Error::Misuse) for room of nothing,
/// [`Error::Protocol`](crate::Error::Protocol) if the peer's end is no channel.
pub fn connect<T: AsRef<[u8]> + 'static>(
    connector: &Connector,
    to: impl ToSocketAddrs,
    room: StreamRoom,
) -> Awaitable<'static, (Sender<T>, Receiver)> {
    let connector = super::connector(connector, (Form::Channel, room));
    let preparing = connector.prepare(to);
    connector.awaitable(async move {
        let end = super::connect(preparing, (Form::Channel, room)).await?;
        Ok(halves(Stream::new(end)))
    })
}

/// Accepts a request for a channel. One for something else is rejected.
///
/// # Errors
/// Those of [`Incoming::accept`], and as [`connect`].
pub fn accept<T: AsRef<[u8]> + 'static>(
    incoming: Incoming,
    room: StreamRoom,
) -> Awaitable<'static, (Sender<T>, Receiver)> {
    super::accept(incoming, (Form::Channel, room), |end| {
        halves(Stream::new(end))
    })
}

/// Sends messages to the [`Receiver`] of the peer, where each comes whole and in order.
///
/// Dropping it ends this direction: the peer receives all that was sent, then the end.
pub struct Sender<T> {
    shared: Shared,
    messages: PhantomData<fn(T)>,
}

impl<T: AsRef<[u8]>> Sender<T> {
    /// Bytes of the longest message that the peer takes.
    #[must_use]
    pub fn max_len(&self) -> usize {
        self.shared.stream().end().longest()
    }

    /// Sends a message. Ready when it is on its way, which needs that the peer has room for it.
    /// Dropping the future before that sends nothing.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for one that is [too
    /// long](Self::max_len); [`BrokenPipe`](io::ErrorKind::BrokenPipe) if the connection has ended.
    pub async fn send(&mut self, message: T) -> io::Result<()> {
        let message = message.as_ref();
        poll_fn(|context| self.poll_send(context, message)).await
    }

    /// [`send`](Self::send) for threads that block: they serve the endpoint while they wait.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_blocking(&mut self, message: T) -> io::Result<()> {
        let shared = self.shared.clone();
        shared.wait(self.send(message))
    }

    /// [`send`](Self::send) without waiting: [`WouldBlock`](io::ErrorKind::WouldBlock) where the
    /// peer has no room, as far as this end has heard.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn try_send(&mut self, message: &T) -> io::Result<()> {
        let noop = Context::from_waker(Waker::noop());
        now(self.poll_send(&noop, message.as_ref()))
    }

    /// Ready when all that was sent is in the memory of the peer.
    ///
    /// # Errors
    /// As [`send`](Self::send), if some is not and never will be.
    pub async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|context| self.shared.stream().end_mut().poll_flush(context)).await
    }

    /// Ends this direction. Ready when all that was sent is in the memory of the peer.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub async fn close(self) -> io::Result<()> {
        poll_fn(|context| self.shared.stream().end_mut().poll_close(context)).await
    }

    fn poll_send(&self, context: &Context<'_>, message: &[u8]) -> Poll<io::Result<()>> {
        let mut stream = self.shared.stream();
        let longest = stream.end().longest();
        if message.len() > longest {
            let length = message.len();
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a message of {length} bytes; the peer takes {longest} at most"),
            )));
        }
        stream.end_mut().poll_send(context, message)
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        // The end needs no room at the peer. What serves the rest finishes it.
        let noop = Context::from_waker(Waker::noop());
        let _ = self.shared.stream().end_mut().poll_close(&noop);
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stream = self.shared.stream();
        f.debug_tuple("Sender").field(stream.connection()).finish()
    }
}

/// Receives the messages of the peer's [`Sender`].
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
        let mut stream = self.0.stream();
        let end = stream.end_mut();
        match end.poll_message(context)? {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(None) => return Poll::Ready(Ok(false)),
            Poll::Ready(Some(message)) => {
                to.clear();
                to.extend_from_slice(message);
            }
        }
        end.consume(usize::MAX);
        Poll::Ready(Ok(true))
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stream = self.0.stream();
        f.debug_tuple("Receiver")
            .field(stream.connection())
            .finish()
    }
}

/// The answer, if it is there.
fn now<T>(answer: Poll<io::Result<T>>) -> io::Result<T> {
    match answer {
        Poll::Ready(answer) => answer,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}
