//! The sending half of a channel.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, Waker};

use super::super::end::End;
use super::super::wakers::Role;
use super::{Shared, half_methods};

/// Sends messages to the [`Receiver`](super::Receiver) of the peer, where each comes whole and in
/// order.
///
/// Dropping it ends this direction: the peer receives all that was sent, then the end. Programs
/// that must know that it has arrived [close](Self::close) it.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::channel::{self, StreamRoom};
/// use ferroce::prelude::*;
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
pub struct Sender(pub(super) Shared);

impl Sender {
    /// Bytes of the longest message: the shorter of both ends' rooms
    /// ([`StreamRoom::bytes`](crate::stream::StreamRoom::bytes)).
    #[must_use]
    pub fn max_len(&self) -> usize {
        self.0.0.longest
    }

    /// Sends a message, which may be empty: its bytes are copied into registered memory of the
    /// channel, and nothing is allocated for it. Ready when it is on its way, which needs that the
    /// peer has room for it. Dropping the future before that sends nothing.
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
    /// peer has no room, as far as this end has heard. The endpoint's descriptor becomes readable
    /// when it has: a loop calls [`Endpoint::dispatch`](crate::endpoint::Endpoint::dispatch) then,
    /// and this again.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn try_send(&mut self, message: impl AsRef<[u8]>) -> io::Result<()> {
        let message = self.short_enough(message.as_ref())?;
        self.0.now(Role::Writer, |end| end.poll_send(message))
    }

    /// [`send`](Self::send) for hand-written futures. The task that asked last, by any `poll_*` of
    /// this half, is the one that is woken.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn poll_send(&mut self, context: &mut Context<'_>, message: &[u8]) -> Poll<io::Result<()>> {
        let message = self.short_enough(message)?;
        let send = |end: &mut End| end.poll_send(message);
        self.0.act_for(Role::Writer, context, send)
    }

    /// Ready when all that was sent is in the memory of the peer; over iWARP, where a SEND
    /// completes earlier, when TCP has taken it.
    ///
    /// # Errors
    /// As [`send`](Self::send), if some is not and never will be.
    pub async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|context| self.poll_flush(context)).await
    }

    /// [`flush`](Self::flush) for threads that block: they serve the endpoint while they wait.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn flush_blocking(&mut self) -> io::Result<()> {
        let shared = self.0.clone();
        shared.wait(self.flush())
    }

    /// [`flush`](Self::flush) without waiting: [`WouldBlock`](io::ErrorKind::WouldBlock) where some
    /// is on its way. The endpoint's descriptor becomes readable when that has changed.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn try_flush(&mut self) -> io::Result<()> {
        self.0.now(Role::Writer, End::poll_flush)
    }

    /// [`flush`](Self::flush) for hand-written futures.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.act_for(Role::Writer, context, End::poll_flush)
    }

    /// Ends this direction: the peer receives all that was sent, then the end. Ready as
    /// [`flush`](Self::flush) is.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub async fn close(mut self) -> io::Result<()> {
        poll_fn(|context| self.poll_close(context)).await
    }

    /// [`close`](Self::close) for threads that block: they serve the endpoint while they wait.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn close_blocking(self) -> io::Result<()> {
        let shared = self.0.clone();
        shared.wait(self.close())
    }

    /// [`close`](Self::close) without waiting, to be called until it no longer answers
    /// [`WouldBlock`](io::ErrorKind::WouldBlock). The first call ends this direction.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn try_close(&mut self) -> io::Result<()> {
        self.0.now(Role::Writer, End::poll_close)
    }

    /// [`close`](Self::close) for hand-written futures.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.act_for(Role::Writer, context, End::poll_close)
    }

    half_methods!();

    /// The message, unless it is too long.
    fn short_enough<'m>(&self, message: &'m [u8]) -> io::Result<&'m [u8]> {
        let (length, longest) = (message.len(), self.max_len());
        if length <= longest {
            return Ok(message);
        }
        let reason = format!(
            "a message of {length} bytes, where the shorter of both ends' rooms has {longest}"
        );
        Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // The end needs no room at the peer. The endpoint finishes it, and no loop waits for it.
        let _ = self.poll_close(&mut Context::from_waker(Waker::noop()));
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.describe("Sender", f)
    }
}
