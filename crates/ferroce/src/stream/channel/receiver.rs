//! The receiving half of a channel.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

use super::super::end::End;
use super::super::wakers::Role;
use super::{Parts, Shared, half_methods};

/// Receives the messages of the peer's [`Sender`](super::Sender).
///
/// If it is dropped while the [`Sender`](super::Sender) of this end is there, what comes is
/// discarded: the peer goes on sending, and is not told. A task or thread that serves the endpoint
/// does it.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::channel::{self, StreamRoom};
/// use ferroce::prelude::*;
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
pub struct Receiver(pub(super) Shared);

impl Receiver {
    /// The next message, which may be empty; `None` when the peer has ended its direction. Dropping
    /// the future loses nothing.
    ///
    /// # Errors
    /// [`ConnectionReset`](io::ErrorKind::ConnectionReset) if the connection ended before that,
    /// behind all messages that came.
    pub async fn recv(&mut self) -> io::Result<Option<Vec<u8>>> {
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// [`recv`](Self::recv) into a place that is used again and again, in place of what it held;
    /// false at the end.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub async fn recv_into(&mut self, to: &mut Vec<u8>) -> io::Result<bool> {
        poll_fn(|context| self.poll_recv_into(context, to)).await
    }

    /// [`recv`](Self::recv) for threads that block: they serve the endpoint while they wait.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_blocking(&mut self) -> io::Result<Option<Vec<u8>>> {
        let shared = self.0.clone();
        shared.wait(self.recv())
    }

    /// [`recv_into`](Self::recv_into) for threads that block.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_into_blocking(&mut self, to: &mut Vec<u8>) -> io::Result<bool> {
        let shared = self.0.clone();
        shared.wait(self.recv_into(to))
    }

    /// [`recv`](Self::recv) without waiting: [`WouldBlock`](io::ErrorKind::WouldBlock) where
    /// nothing has come that the endpoint has brought. Its descriptor becomes readable when
    /// something has: a loop calls [`Endpoint::dispatch`](crate::endpoint::Endpoint::dispatch)
    /// then, and this until it answers `WouldBlock`.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn try_recv(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut message = Vec::new();
        Ok(self.try_recv_into(&mut message)?.then_some(message))
    }

    /// [`recv_into`](Self::recv_into) without waiting, as [`try_recv`](Self::try_recv).
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn try_recv_into(&mut self, to: &mut Vec<u8>) -> io::Result<bool> {
        self.0.now(Role::Reader, |end| take(end, to))
    }

    /// [`recv`](Self::recv) for hand-written futures. The task that asked last is the one that is
    /// woken.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Vec<u8>>>> {
        let mut message = Vec::new();
        let came = self.poll_recv_into(context, &mut message);
        came.map_ok(|came| came.then_some(message))
    }

    /// [`recv_into`](Self::recv_into) for hand-written futures.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn poll_recv_into(
        &mut self,
        context: &mut Context<'_>,
        to: &mut Vec<u8>,
    ) -> Poll<io::Result<bool>> {
        self.0.act_for(Role::Reader, context, |end| take(end, to))
    }

    half_methods!();
}

/// Takes the oldest message; false at the end.
fn take(end: &mut End, to: &mut Vec<u8>) -> Poll<io::Result<bool>> {
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
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let discard = Arc::new(Discard(Arc::downgrade(&self.0.0)));
        discard.act(&self.0);
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

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.describe("Receiver", f)
    }
}
