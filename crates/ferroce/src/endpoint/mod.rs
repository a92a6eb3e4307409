//! Endpoints: listeners, connectors and connections that are served together.

/// A span of what an endpoint does, for the program's own subscriber.
macro_rules! span {
    ($($what:tt)*) => {
        tracing::debug_span!(target: "ferroce::endpoint", $($what)*)
    };
}

pub(crate) mod addresses;
mod awaitable;
mod background;
mod block;
mod builder;
mod connection;
mod connector;
mod line;
mod listener;
mod look;
mod options;
mod setup;
mod shared;
mod timers;

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::net::ToSocketAddrs;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::Waker;

pub use awaitable::Awaitable;
pub use builder::ListenerBuilder;
pub use connection::{Connection, Prepared};
pub use connector::Connector;
pub use listener::{Incoming, Listener};

use crate::cq::Outcome;
use crate::driver::Driver;
use crate::{Error, Provider, Result};
pub(crate) use look::Server;
pub(crate) use setup::SENDS_OR_RECEIVES;
pub(crate) use shared::Runtime;

thread_local! {
    /// Address of the endpoint that a loop in this thread dispatches at this moment, or 0.
    static DISPATCHING: Cell<usize> = const { Cell::new(0) };
}

/// Whether a loop in this thread dispatches it at this moment.
fn is_dispatching(endpoint: &Arc<Runtime>) -> bool {
    DISPATCHING.get() == Arc::as_ptr(endpoint).addr()
}

/// Where listeners and connections come from, and what brings them their events. Clones are the
/// same one.
///
/// It has one descriptor ([`AsFd`]) for everything that happens to them: events of the connection
/// manager, completions, and time limits. However many connections there are, they share a few
/// descriptors and one thread can serve them all, in one of these ways:
/// - [`Awaitable::wait`] and [`block_on`](Self::block_on) serve the endpoint while they wait:
///   nothing else is needed in a program whose threads block;
/// - a [`Driver`] serves it in a thread, an event loop, or a task of any runtime, for futures that
///   are polled elsewhere.
///
/// All connections on one device share a [`ProtectionDomain`](crate::mem::ProtectionDomain): what
/// was registered for one can be used with all.
///
/// ```
/// use ferroce::Provider;
/// use ferroce::endpoint::Endpoint;
/// use ferroce::qp::Operation;
/// let endpoint = Endpoint::new(&Provider::software())?;
/// let listener = endpoint.listen("127.0.0.1:0")?;
/// let address = listener.local_addr().unwrap();
/// let server = std::thread::spawn(move || -> ferroce::Result<()> {
///     let connection = listener.accept().wait()?.accept().wait()?;
///     let hello = connection.buffer_of(b"hello")?;
///     let (sent, _buffer) = connection.wait(connection.queue_pair().submit_buffer(Operation::Send, hello).unwrap())?;
///     sent.unwrap();
///     connection.disconnected().wait()
/// });
/// let connection = endpoint.connect(address).wait()?;
/// let receive = connection.queue_pair().receive_buffer(connection.buffer(64)?).unwrap();
/// let (received, buffer) = connection.wait(receive)?;
/// received.unwrap();
/// assert_eq!(&*buffer, b"hello");
/// connection.disconnect().wait()?;
/// server.join().unwrap()?;
/// # Ok::<(), ferroce::Error>(())
/// ```
#[derive(Clone)]
pub struct Endpoint(Arc<Runtime>);

impl Endpoint {
    /// Makes one.
    ///
    /// # Errors
    /// ENODEV if the provider has no device, or out of descriptors: it takes four, and one per
    /// device that its connections are on.
    pub fn new(provider: &Provider) -> Result<Self> {
        Runtime::new(provider.event_channel()?).map(|shared| Self(Arc::new(shared)))
    }

    /// Listens at a local address (`rdma_listen(3)`). Port 0 means any free one; an unspecified
    /// address means all of this host. A name may stand for several addresses, of which it takes
    /// the first that it can: it is looked up here, as [`std::net`] does, in this thread.
    ///
    /// # Errors
    /// EADDRINUSE if the port is taken, EADDRNOTAVAIL if the address is not of this host.
    pub fn listen(&self, address: impl ToSocketAddrs) -> Result<Listener> {
        self.listener().listen(address)
    }

    /// What makes listeners otherwise than by default.
    pub fn listener(&self) -> ListenerBuilder {
        ListenerBuilder::new(&self.0)
    }

    /// [`listen`](Self::listen) with another [backlog](ListenerBuilder::backlog) than 1024.
    ///
    /// # Errors
    /// As [`listen`](Self::listen).
    pub fn listen_with_backlog(
        &self,
        address: impl ToSocketAddrs,
        backlog: u16,
    ) -> Result<Listener> {
        self.listener().backlog(backlog).listen(address)
    }

    /// What makes connections otherwise than by default.
    #[must_use]
    pub fn connector(&self) -> Connector {
        Connector::new(&self.0)
    }

    /// Connects to a listener, with defaults: see [`Connector::connect`]. Where it is awaited, the
    /// endpoint needs a [driver](Self::driver).
    pub fn connect(&self, to: impl ToSocketAddrs) -> Awaitable<'static, Connection> {
        self.connector().connect(to)
    }

    /// What serves the endpoint for futures that are polled elsewhere. There may be several.
    ///
    /// Futures of an endpoint that nothing serves are never ready. On tokio the driver is
    /// `tokio::spawn(endpoint.driver().run_on_tokio())`; see [`Driver`].
    #[must_use]
    pub fn driver(&self) -> Driver {
        Driver::of_endpoint(&self.0)
    }

    /// Serves what there is to serve, without waiting. Event loops that have its descriptor
    /// ([`AsFd`]) call this when it is readable, and once at the beginning.
    ///
    /// # Errors
    /// A queue overflowed, or a device is gone.
    pub fn dispatch(&self) -> Result<()> {
        let before = DISPATCHING.replace(Arc::as_ptr(&self.0).addr());
        let dispatched = self.0.dispatch();
        DISPATCHING.set(before);
        dispatched
    }

    /// The waker of a loop that waits for its descriptor.
    pub(crate) fn nudge(&self) -> &Waker {
        self.0.nudge()
    }

    /// Waits for a future in this thread, and serves the endpoint meanwhile. The future may be of
    /// anything that completes through this endpoint, or elsewhere.
    ///
    /// # Errors
    /// As [`dispatch`](Self::dispatch).
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output> {
        block::on(&self.0, future)
    }
}

impl Endpoint {
    /// [`block_on`](Self::block_on) of work, with one result: failed work is an error, too.
    ///
    /// # Errors
    /// As [`block_on`](Self::block_on); [`Error::Work`] if the work failed.
    pub fn complete<F: Future<Output: Outcome>>(
        &self,
        work: F,
    ) -> Result<<F::Output as Outcome>::Done> {
        self.block_on(work)?.outcome()
    }
}

impl AsFd for Endpoint {
    /// Readable while there is something to serve.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Endpoint")
    }
}

/// Of an identifier that should have met its device by now.
fn no_device() -> Error {
    Error::Misuse("the connection manager has not told which device the identifier is on")
}
