//! Listeners.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::addresses;
use super::connection::{Prepared, Role};
use super::line::Line;
use super::options::Options;
use super::setup::{Setup, setup_methods};
use super::shared::Runtime;
use super::{Awaitable, Connection, Endpoint};
use crate::Result;
use crate::cm::ConnectionParameters;

/// What hears connect requests at an address. When it is dropped, those that were not taken are
/// rejected.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::prelude::*;
/// let endpoint = Endpoint::new(&Provider::software())?;
/// let listener = endpoint.listen("127.0.0.1:0")?;
/// let address = listener.local_addr()?;
/// let server = std::thread::spawn(move || -> ferroce::Result<()> {
///     // The first one is told why it is turned away.
///     listener.accept().wait()?.reject(b"come back later")?;
///     let connection = listener.accept().wait()?.accept().wait()?;
///     connection.disconnected().wait()
/// });
/// let refused = endpoint.connect(address).wait().unwrap_err();
/// assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
/// endpoint.connect(address).wait()?.disconnect().wait()?;
/// server.join().map_err(|_| "the server panicked")??;
/// # Ok(())
/// # }
/// ```
pub struct Listener {
    line: Arc<Line>,
}

impl Listener {
    pub(super) fn new(
        shared: &Arc<Runtime>,
        address: SocketAddr,
        backlog: u16,
        options: Options,
    ) -> Result<Self> {
        let line = Line::new(shared)?;
        options.apply(&line.id)?;
        line.id.bind(address)?;
        line.id.listen(backlog)?;
        Ok(Self { line })
    }

    /// Returns the port that it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.line.id.port()
    }

    /// Its address (`rdma_get_local_addr(3)`), with the port that it got.
    ///
    /// # Errors
    /// It has none of the internet protocol.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.line.id.local_addr()
    }

    /// The oldest connect request. Dropping the future loses none. Several threads or tasks may
    /// wait. The address is listened at for as long as a future of it is there. Where it is
    /// awaited, the endpoint needs a [driver](Endpoint::driver): without one it waits for ever.
    ///
    /// # Errors
    /// [`Error::Unexpected`](crate::Error::Unexpected) if the device is gone.
    pub fn accept(&self) -> Awaitable<'static, Incoming> {
        let listening = Arc::clone(&self.line);
        Awaitable::new(&self.line.shared, async move {
            loop {
                if let (event, Some(line)) = listening.heard().await? {
                    return Ok(Incoming::new(line, event.parameters, event.peer));
                }
            }
        })
        .within_span(span!("listen", port = self.port()))
    }

    /// The oldest connect request that the endpoint has brought, if there is one. For loops of
    /// one's own, after [`Endpoint::dispatch`].
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn try_accept(&self) -> Result<Option<Incoming>> {
        while let Some((event, line)) = self.line.try_heard()? {
            if let Some(line) = line {
                return Ok(Some(Incoming::new(line, event.parameters, event.peer)));
            }
        }
        Ok(None)
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("port", &self.port())
            .finish()
    }
}

/// A connect request. Dropping it rejects.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::prelude::*;
/// let endpoint = Endpoint::new(&Provider::software())?;
/// let listener = endpoint.listen("127.0.0.1:0")?;
/// let address = listener.local_addr()?;
/// let client = std::thread::spawn(move || -> ferroce::Result<Connection> {
///     endpoint.connector().private_data(b"your name").connect(address).wait()
/// });
/// let incoming = listener.accept().wait()?;
/// assert!(incoming.peer_parameters().private_data.starts_with(b"your name"));
/// incoming.reject(b"nobody")?;
/// let rejected = client.join().expect("no panic");
/// assert!(matches!(rejected, Err(ferroce::Error::Rejected { .. })), "{rejected:?}");
/// # Ok(())
/// # }
/// ```
pub struct Incoming {
    line: Arc<Line>,
    setup: Setup,
    asked: ConnectionParameters,
    peer: Option<SocketAddr>,
}

impl Incoming {
    fn new(line: Arc<Line>, asked: ConnectionParameters, peer: Option<SocketAddr>) -> Self {
        Self {
            line,
            setup: Setup::default(),
            asked,
            peer,
        }
    }

    setup_methods!();

    /// Hands it to another endpoint of the same provider (`rdma_migrate_id(3)`): what is made of it
    /// is served there. So one listener can feed several endpoints, each with a thread of its own.
    ///
    /// # Errors
    /// [`Error::Misuse`](crate::Error::Misuse) for an endpoint of another provider. It is rejected
    /// then.
    pub fn migrate(self, to: &Endpoint) -> Result<Self> {
        let line = self.line.migrate(&to.0)?;
        Ok(Self { line, ..self })
    }

    /// What is to be done with it, as a future that can be waited for.
    pub(crate) fn awaitable<T, F>(
        self,
        work: impl FnOnce(Self) -> F + Send + 'static,
    ) -> Awaitable<'static, T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
        T: 'static,
    {
        let shared = Arc::clone(&self.line.shared);
        Awaitable::new(&shared, work(self))
    }

    /// What the peer said: its private data, which may have zeros behind it, and how many READs and
    /// atomics it wants to have outstanding and to serve, from this side's point of view.
    #[must_use]
    pub fn peer_parameters(&self) -> &ConnectionParameters {
        &self.asked
    }

    /// The peer's address.
    ///
    /// # Errors
    /// It has none of the internet protocol.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        addresses::peer(self.peer)
    }

    /// Agrees: [`prepare`](Self::prepare), then [`Prepared::establish`].
    ///
    /// # Errors
    /// The errors of both.
    pub fn accept(self) -> Awaitable<'static, Connection> {
        let shared = Arc::clone(&self.line.shared);
        let span = span!("accept", peer = ?self.peer);
        let accepting = async move { self.prepare()?.establish().await };
        Awaitable::new(&shared, accepting).within_span(span)
    }

    /// Makes the queue pair (`rdma_create_qp(3)`). Before the peer is answered, receives can be
    /// posted.
    ///
    /// # Errors
    /// [`Error::GivenUp`](crate::Error::GivenUp) if the peer is gone; those of the manual page.
    pub fn prepare(mut self) -> Result<Prepared> {
        let parameters = &mut self.setup.parameters;
        // Neither side may have more outstanding than the other serves.
        parameters.responder_resources = parameters
            .responder_resources
            .min(self.asked.responder_resources);
        parameters.initiator_depth = parameters.initiator_depth.min(self.asked.initiator_depth);
        Prepared::new(self.line, self.setup, Role::Accepts, self.asked)
    }

    /// Turns it down, with at most 148 bytes for the other program (`rdma_reject(3)`). The peer is
    /// told reason 28, the consumer's.
    ///
    /// # Errors
    /// Those of the manual page.
    pub fn reject(self, private_data: &[u8]) -> Result<()> {
        self.line.id.reject(private_data)
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming")
            .field("peer", &self.peer)
            .field("asked", &self.asked)
            .finish_non_exhaustive()
    }
}
