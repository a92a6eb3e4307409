//! The stream as others know streams.

use std::fmt;
use std::io;
use std::task::Context;

use super::{Stream, now};
use crate::endpoint::Endpoint;

/// For loops of one's own that call [`Endpoint::dispatch`].
impl Stream {
    /// [`read`](Self::read) without waiting: [`WouldBlock`](io::ErrorKind::WouldBlock) where
    /// nothing has come that the endpoint has brought.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::io::ErrorKind;
    /// use ferroce::prelude::*;
    /// use ferroce::stream::{Stream, StreamRoom};
    /// let endpoint = Endpoint::new(&Provider::software())?;
    /// let listener = endpoint.listen("127.0.0.1:0")?;
    /// let address = listener.local_addr()?;
    /// let client = std::thread::spawn(move || -> ferroce::Result<Stream> {
    ///     let endpoint = Endpoint::new(&Provider::software())?;
    ///     Stream::connect(&endpoint.connector(), address, StreamRoom::default()).wait()
    /// });
    /// let incoming = listener.accept().wait()?;
    /// let mut stream = Stream::accept(incoming, StreamRoom::default()).wait()?;
    /// let mut client = client.join().expect("no panic")?;
    /// assert_eq!(stream.try_read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    /// assert_eq!(client.try_write(b"hello")?, 5);
    /// let mut came = [0; 8];
    /// let length = loop {
    ///     endpoint.dispatch()?; // when its descriptor is readable
    ///     match stream.try_read(&mut came) {
    ///         Err(e) if e.kind() == ErrorKind::WouldBlock => {}
    ///         answer => break answer?,
    ///     }
    /// };
    /// assert_eq!(&came[..length], b"hello");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn try_read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let endpoint = self.end_mut().connection().endpoint();
        now(self.poll_read(&mut Context::from_waker(endpoint.nudge()), to))
    }

    /// [`write`](Self::write) without waiting: [`WouldBlock`](io::ErrorKind::WouldBlock) where the
    /// peer has no room that the endpoint has heard of, or this end none to send from.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn try_write(&mut self, from: &[u8]) -> io::Result<usize> {
        let endpoint = self.end_mut().connection().endpoint();
        now(self.poll_write(&mut Context::from_waker(endpoint.nudge()), from))
    }
}

/// A [`Stream`] for threads that block: they serve its endpoint while they wait. Neither `flush`
/// nor dropping this closes it.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::io::{Read, Write};
/// use ferroce::prelude::*;
/// use ferroce::stream::{Stream, StreamRoom};
/// let endpoint = Endpoint::new(&Provider::software())?;
/// let listener = endpoint.listen("127.0.0.1:0")?;
/// let address = listener.local_addr()?;
/// let server = std::thread::spawn(move || -> std::io::Result<String> {
///     let incoming = listener.accept().wait()?;
///     let mut stream = Stream::accept(incoming, StreamRoom::default()).wait()?;
///     let mut said = String::new();
///     stream.blocking().read_to_string(&mut said)?;
///     Ok(said)
/// });
/// let connector = endpoint.connector();
/// let mut stream = Stream::connect(&connector, address, StreamRoom::default()).wait()?;
/// let mut blocking = stream.blocking();
/// blocking.write_all(b"all of it")?;
/// blocking.close()?;
/// assert_eq!(server.join().expect("no panic")?, "all of it");
/// # Ok(())
/// # }
/// ```
pub struct Blocking<'s> {
    stream: &'s mut Stream,
    endpoint: Endpoint,
}

impl<'s> Blocking<'s> {
    pub(super) fn new(stream: &'s mut Stream) -> Self {
        let endpoint = stream.connection().endpoint();
        Self { stream, endpoint }
    }

    /// [`Stream::close`].
    ///
    /// # Errors
    /// As [`Stream::close`].
    pub fn close(&mut self) -> io::Result<()> {
        on(&self.endpoint, self.stream.close())
    }
}

/// Waits in this thread.
fn on<T>(endpoint: &Endpoint, future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    endpoint.block_on(future).map_err(io::Error::from)?
}

impl io::Read for Blocking<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        on(&self.endpoint, self.stream.read(to))
    }
}

impl io::Write for Blocking<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        on(&self.endpoint, self.stream.write(from))
    }

    fn flush(&mut self) -> io::Result<()> {
        on(&self.endpoint, self.stream.flush())
    }
}

impl fmt::Debug for Blocking<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Blocking").field(&self.stream).finish()
    }
}

/// What the traits of tokio and of the `futures` family have in common, by other names of the
/// method that ends a direction.
#[cfg(any(feature = "tokio", feature = "futures-io"))]
macro_rules! common_traits {
    ($poll_close:ident) => {
        impl AsyncBufRead for Stream {
            fn poll_fill_buf(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<io::Result<&[u8]>> {
                self.get_mut().poll_fill(context)
            }

            fn consume(mut self: Pin<&mut Self>, count: usize) {
                Self::consume(&mut self, count);
            }
        }

        impl AsyncWrite for Stream {
            fn poll_write(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                from: &[u8],
            ) -> Poll<io::Result<usize>> {
                Self::poll_write(&mut self, context, from)
            }

            fn poll_flush(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                Self::poll_flush(&mut self, context)
            }

            fn $poll_close(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                Self::poll_close(&mut self, context)
            }
        }
    };
}

#[cfg(feature = "tokio")]
mod on_tokio {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};

    use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

    use crate::stream::Stream;

    impl AsyncRead for Stream {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            to: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if to.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            let bytes = ready!(self.poll_fill(context))?;
            let count = bytes.len().min(to.remaining());
            to.put_slice(&bytes[..count]);
            Self::consume(&mut self, count);
            Poll::Ready(Ok(()))
        }
    }

    common_traits!(poll_shutdown);
}

#[cfg(feature = "futures-io")]
mod on_futures {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use futures_io::{AsyncBufRead, AsyncRead, AsyncWrite};

    use crate::stream::Stream;

    impl AsyncRead for Stream {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            to: &mut [u8],
        ) -> Poll<io::Result<usize>> {
            Self::poll_read(&mut self, context, to)
        }
    }

    common_traits!(poll_close);
}
