//! Bytes in order over a connection.

pub(crate) mod channel;
mod credits;
mod end;
mod frame;
mod lost;
mod room;
mod traits;
mod wakers;

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::ToSocketAddrs;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::endpoint::{Awaitable, Connection, Connector, Incoming, Prepared};
use crate::{Error, Result};
use end::End;
use frame::{Form, Offer};
use wakers::Role;

pub use room::StreamRoom;
pub use traits::Blocking;

/// A stream of bytes in both directions over a reliable connection, like a TCP stream.
///
/// The bytes travel in SENDs into buffers that the other end keeps posted; an end without room left
/// to send to waits until the peer's program has read. So a message never finds no receive, and a
/// slow reader slows its peer down, in that direction only.
///
/// # The end
/// - [`close`](Self::close) ends one direction: the peer reads what was written, then the end of
///   the stream. Reading goes on.
/// - A connection that ends before the peer has closed is an error for the reader
///   ([`ConnectionReset`](io::ErrorKind::ConnectionReset)), after all bytes that came: like a file
///   that was cut, it shows.
/// - Dropping a stream ends both directions: what was written arrives, and the end behind it, as
///   when a socket of TCP is closed. A thread of the endpoint sees to it, for 10 seconds at most
///   unless [`set_linger`](Self::set_linger) says otherwise; the drop itself does not wait. The
///   memory and the queue pair go when the peer has everything, or the time is over. Then the peer
///   sees the error.
/// - Returning from `main` and `exit(3)` wait for such threads. A process that ends otherwise (by a
///   signal, or in a child of `fork(2)`) finishes nothing; a program that must know that the peer
///   has it [closes](Self::close) or [flushes](Self::flush).
/// - [`abort`](Self::abort) drops what is on its way, and tells the peer by the error.
///
/// # Over iWARP
/// A SEND over iWARP completes when TCP has taken it, not when the peer has it (RFC 5040, 5.5). So
/// [`flush`](Self::flush) and [`close`](Self::close) are ready then, and a connection that fails
/// later may still lose bytes: the peer's reader finds the error. A program that must know that
/// they arrived has the peer answer.
///
/// # Ways to use it
/// Its own methods are futures that need nothing but a task or thread that serves the
/// [`Endpoint`](crate::endpoint::Endpoint). With the feature `tokio` it has tokio's `AsyncRead`,
/// `AsyncBufRead` and `AsyncWrite`, with the feature `futures-io` those of the `futures` family;
/// [`blocking`](Self::blocking) has [`std::io`]'s. None of their futures loses or repeats a byte if
/// it is dropped. One task may read while another one writes (`split` of either library).
///
/// Both ends must be streams. To other programs it is a connection with SENDs.
///
/// # Streams and rsockets
/// This protocol is ours: it needs no memory that the peer may write to, works with async, and
/// tells an end from a cut. Programs in C have rsockets (`rsocket(7)` of librdmacm, which
/// `ferroce run` serves), whose protocol is another one: to talk to a program that uses them, use
/// them.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::io::{Read, Write};
/// use ferroce::prelude::*;
/// use ferroce::stream::{Stream, StreamRoom};
/// let endpoint = Endpoint::new(&Provider::software())?;
/// let listener = endpoint.listen("127.0.0.1:0")?;
/// let address = listener.local_addr()?;
/// let server = std::thread::spawn(move || -> std::io::Result<()> {
///     let incoming = listener.accept().wait()?;
///     let mut stream = Stream::accept(incoming, StreamRoom::default()).wait()?;
///     let mut text = String::new();
///     stream.blocking().read_to_string(&mut text)?;
///     stream.blocking().write_all(text.to_uppercase().as_bytes())
/// });
/// let mut stream = Stream::connect(&endpoint.connector(), address, StreamRoom::default()).wait()?;
/// stream.blocking().write_all(b"hello")?;
/// endpoint.block_on(stream.close())??; // this direction only
/// let mut answer = String::new();
/// stream.blocking().read_to_string(&mut answer)?;
/// assert_eq!(answer, "HELLO");
/// server.join().map_err(|_| "the server panicked")??;
/// # Ok(())
/// # }
/// ```
pub struct Stream {
    /// There until it is dropped.
    end: Option<End>,
    linger: Duration,
}

/// How long what was written has to arrive, from the drop on.
const LINGER: Duration = Duration::from_secs(10);

impl Stream {
    /// Connects to a listener whose program [accepts](Self::accept) streams. The connector's
    /// capacities and private data do not matter.
    ///
    /// # Errors
    /// Those of [`Connector::connect`]; [`Error::Misuse`] for room of nothing, [`Error::Protocol`]
    /// if the peer's end is no stream.
    pub fn connect(
        connector: &Connector,
        to: impl ToSocketAddrs,
        room: StreamRoom,
    ) -> Awaitable<'static, Self> {
        let connector = self::connector(connector, Form::Stream, room);
        let preparing = connector.prepare(to);
        connector
            .awaitable(async move { connect(preparing, Form::Stream, room).await.map(Self::new) })
    }

    /// Accepts a request for a stream. One for something else is rejected.
    ///
    /// # Errors
    /// Those of [`Incoming::accept`]; [`Error::Misuse`] for room of nothing, [`Error::Protocol`] if
    /// the peer's end is no stream.
    pub fn accept(incoming: Incoming, room: StreamRoom) -> Awaitable<'static, Self> {
        accept(incoming, Form::Stream, room, Self::new)
    }

    fn new(end: End) -> Self {
        Self {
            end: Some(end),
            linger: LINGER,
        }
    }

    fn end(&self) -> &End {
        self.end.as_ref().expect(UNDROPPED)
    }

    fn end_mut(&mut self) -> &mut End {
        self.end.as_mut().expect(UNDROPPED)
    }

    /// Reads what is there, at least one byte; 0 is the end of the stream, or no room in `to`.
    ///
    /// # Errors
    /// [`ConnectionReset`](io::ErrorKind::ConnectionReset) if the connection ended before the peer
    /// closed its end.
    pub async fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| self.poll_read(context, to)).await
    }

    /// Writes some bytes, at least one unless there are none; how many. It returns when they are on
    /// their way: see [`flush`](Self::flush).
    ///
    /// # Errors
    /// [`BrokenPipe`](io::ErrorKind::BrokenPipe) if the connection or this direction has ended.
    pub async fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        poll_fn(|context| self.poll_write(context, from)).await
    }

    /// Writes all bytes. If it is dropped, nobody knows how many were written.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn write_all(&mut self, from: &[u8]) -> io::Result<()> {
        let mut rest = from;
        while !rest.is_empty() {
            let written = self.write(rest).await?;
            rest = &rest[written..];
        }
        Ok(())
    }

    /// Ready when all that was written is in the memory of the peer; [over iWARP](Self#over-iwarp)
    /// earlier.
    ///
    /// # Errors
    /// As [`write`](Self::write), if some is not and never will be.
    pub async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|context| self.poll_flush(context)).await
    }

    /// Ends this direction: the peer reads all that was written, then the end. Ready when it is in
    /// the memory of the peer; [over iWARP](Self#over-iwarp) earlier.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub async fn close(&mut self) -> io::Result<()> {
        poll_fn(|context| self.poll_close(context)).await
    }

    /// How long what was written has to arrive once the stream is dropped: 10 seconds unless this
    /// is called. Nothing of it waits for the peer's program, only for its device. With no time at
    /// all dropping is [aborting](Self::abort).
    pub fn set_linger(&mut self, limit: Duration) {
        self.linger = limit;
    }

    /// Ends the connection now. What is on its way may be lost, and the peer's reader finds
    /// [`ConnectionReset`](io::ErrorKind::ConnectionReset) behind what came.
    pub fn abort(mut self) {
        self.linger = Duration::ZERO;
    }

    /// For threads that block: [`io::Read`] and [`io::Write`].
    pub fn blocking(&mut self) -> Blocking<'_> {
        Blocking::new(self)
    }

    /// The connection below. Work of one's own on its queue pair confuses both ends.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        self.end().connection()
    }

    /// [`read`](Self::read) for hand-written futures.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        to: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if to.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let filled = match self.poll_fill(context)? {
            Poll::Ready(bytes) => {
                let count = bytes.len().min(to.len());
                to[..count].copy_from_slice(&bytes[..count]);
                count
            }
            Poll::Pending => return Poll::Pending,
        };
        self.consume(filled);
        Poll::Ready(Ok(filled))
    }

    /// The bytes that are there, without taking them; none at the end of the stream.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let end = self.end_mut();
        end.act_for(Role::Reader, context, |_| ());
        end.poll_fill()
    }

    /// Takes that many of the bytes that [`poll_fill`](Self::poll_fill) gave.
    pub fn consume(&mut self, count: usize) {
        let end = self.end_mut();
        end.consume(count);
        end.wake();
    }

    /// [`write`](Self::write) for hand-written futures.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.end_mut()
            .act_for(Role::Writer, context, |end| end.poll_write(from))
    }

    /// [`flush`](Self::flush) for hand-written futures.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end_mut()
            .act_for(Role::Writer, context, End::poll_flush)
    }

    /// [`close`](Self::close) for hand-written futures.
    ///
    /// # Errors
    /// As [`close`](Self::close).
    pub fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end_mut()
            .act_for(Role::Writer, context, End::poll_close)
    }
}

const UNDROPPED: &str = "invariant: only dropping takes it";

/// Connects to an end of the same form.
async fn connect(
    preparing: Awaitable<'static, Prepared>,
    form: Form,
    room: StreamRoom,
) -> Result<End> {
    room.check(form)?;
    let prepared = preparing.await.map_err(|e| room.explain(e))?;
    let (prepared, receives) = with_receives(prepared, room)?;
    let connection = prepared.establish().await?;
    let told = &connection.peer_parameters().private_data;
    let offer = Offer::parse(form, told).ok_or_else(|| form.wanted())?;
    Ok(End::new(connection, receives, room, (form, offer)))
}

/// Returns a connector with these settings.
fn connector(of: &Connector, form: Form, room: StreamRoom) -> Connector {
    of.clone()
        .private_data(&room.offer().to_bytes(form))
        .capacities(room.capacities())
}

/// Accepts an end of the same form, and rejects others.
fn accept<T: 'static>(
    incoming: Incoming,
    form: Form,
    room: StreamRoom,
    new: impl FnOnce(End) -> T + Send + 'static,
) -> Awaitable<'static, T> {
    let incoming = incoming
        .private_data(&room.offer().to_bytes(form))
        .capacities(room.capacities());
    incoming.awaitable(move |incoming| async move {
        room.check(form)?;
        let Some(offer) = Offer::parse(form, &incoming.peer_parameters().private_data) else {
            let said: &[u8] = match form {
                Form::Stream => b"a ferroce stream is wanted here",
                Form::Channel => b"a ferroce channel is wanted here",
            };
            incoming.reject(said)?;
            return Err(form.wanted());
        };
        let prepared = incoming.prepare().map_err(|e| room.explain(e))?;
        let (prepared, receives) = with_receives(prepared, room)?;
        let connection = prepared.establish().await?;
        Ok(new(End::new(connection, receives, room, (form, offer))))
    })
}

/// Posts the receives, so that the peer's first message finds one.
fn with_receives(prepared: Prepared, room: StreamRoom) -> Result<(Prepared, room::Receives)> {
    let receives = room::post_receives(prepared.connection(), room)?;
    Ok((prepared, receives))
}

/// The answer, if it is there.
fn now<T>(answer: Poll<io::Result<T>>) -> io::Result<T> {
    match answer {
        Poll::Ready(answer) => answer,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Some(mut end) = self.end.take() else {
            return;
        };
        let endpoint = end.connection().endpoint();
        let mut close =
            move |context: &Context<'_>| end.act_for(Role::Writer, context, End::poll_close);
        let noop = Context::from_waker(Waker::noop());
        if self.linger.is_zero() || close(&noop).is_ready() {
            return;
        }
        endpoint.finish(
            self.linger,
            poll_fn(move |context| {
                let closed = close(context);
                closed.map_err(|e| Error::io("closing a stream", e))
            }),
        );
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stream").field(self.connection()).finish()
    }
}
