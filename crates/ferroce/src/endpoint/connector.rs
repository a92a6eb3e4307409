//! Making connections.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use super::addresses::{Addresses, Source, addresses};
use super::awaitable::{deadline, within};
use super::connection::{Prepared, Role};
use super::line::Line;
use super::options::Options;
use super::setup::{Setup, setup_methods};
use super::shared::Runtime;
use super::{Awaitable, Connection};
use crate::Result;
use crate::cm::{ConnectionParameters, EventKind};

/// What makes connections to listeners. It can be used again and again.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use ferroce::prelude::*;
/// use ferroce::qp::QueuePairCapacities;
/// let endpoint = Endpoint::new(&Provider::software())?;
/// let listener = endpoint.listen("127.0.0.1:0")?;
/// let address = listener.local_addr()?;
/// let server = std::thread::spawn(move || -> ferroce::Result<()> {
///     let incoming = listener.accept().wait()?;
///     assert!(incoming.peer_parameters().private_data.starts_with(b"protocol 2"));
///     incoming.accept().wait()?.disconnected().wait()
/// });
/// let connector = endpoint
///     .connector()
///     .capacities(QueuePairCapacities::new(256, 256))
///     .private_data(b"protocol 2")
///     .timeout(Duration::from_secs(3));
/// connector.connect(address).wait()?.disconnect().wait()?;
/// server.join().map_err(|_| "the server panicked")??;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Connector {
    shared: Arc<Runtime>,
    setup: Setup,
    source: Source,
    options: Options,
}

/// From where to where, and how.
struct Way {
    from: Option<SocketAddr>,
    to: SocketAddr,
    options: Options,
}

impl Connector {
    pub(super) fn new(shared: &Arc<Runtime>) -> Self {
        Self {
            shared: Arc::clone(shared),
            setup: Setup::default(),
            source: Source::default(),
            options: Options::default(),
        }
    }

    setup_methods!();

    /// The local address to connect from, which says which device to use. Port 0 means any free
    /// one. Whichever leads to the peer unless this is called. A name may stand for several
    /// addresses, of which it takes the first of the peer's family: it is looked up here, in this
    /// thread, and what goes wrong is told when something is connected.
    #[must_use]
    pub fn source(mut self, address: impl ToSocketAddrs) -> Self {
        self.source = Source::of(address);
        self
    }

    /// Whether the port of the [source](Self::source) may be one to which others are bound that
    /// allow it too ([`Id::set_reuse_address`](crate::cm::Id::set_reuse_address)).
    #[must_use]
    pub fn reuse_address(mut self, allowed: bool) -> Self {
        self.options.reuse_address = Some(allowed);
        self
    }

    /// Traffic class of what the connections send
    /// ([`Id::set_type_of_service`](crate::cm::Id::set_type_of_service)).
    #[must_use]
    pub fn type_of_service(mut self, class: u8) -> Self {
        self.options.type_of_service = Some(class);
        self
    }

    /// A future that can be waited for.
    pub(crate) fn awaitable<T>(
        &self,
        future: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Awaitable<'static, T>
    where
        T: 'static,
    {
        Awaitable::new(&self.shared, future)
    }

    /// Connects to a listener: [`prepare`](Self::prepare), then [`Prepared::establish`]. Of several
    /// addresses it takes the first that there is a way to. A name is looked up at once, in this
    /// thread. Where it is awaited, the endpoint needs a [driver](super::Endpoint::driver).
    ///
    /// # Errors
    /// The errors of both. Where nobody listens, the software device answers
    /// [`NO_LISTENER`](crate::cm::RejectReason::NO_LISTENER) after a quarter of a second: a program
    /// that is about to listen there still gets the request.
    pub fn connect(&self, to: impl ToSocketAddrs) -> Awaitable<'static, Connection> {
        let to = addresses(to);
        let span = span!("connect", to = shown(&to));
        let preparing = span.in_scope(|| self.prepare_one_of(to));
        let connecting = async move { preparing.await?.establish().await };
        Awaitable::new(&self.shared, connecting).within_span(span)
    }

    /// Finds the device and the way to a listener, and makes the queue pair
    /// (`rdma_resolve_addr(3)`, `rdma_resolve_route(3)`, `rdma_create_qp(3)`). Before the peer is
    /// asked, receives can be posted.
    ///
    /// # Errors
    /// [`Error::Unexpected`](crate::Error::Unexpected) if there is no way to the address,
    /// [`Error::TimedOut`](crate::Error::TimedOut), or those of the manual pages.
    pub fn prepare(&self, to: impl ToSocketAddrs) -> Awaitable<'static, Prepared> {
        self.prepare_one_of(addresses(to))
    }

    /// The first address that there is a way to.
    fn prepare_one_of(&self, to: Result<Addresses>) -> Awaitable<'static, Prepared> {
        let (shared, setup) = (Arc::clone(&self.shared), self.setup.clone());
        let (source, options) = (self.source.clone(), self.options);
        let span = span!("resolve", to = shown(&to));
        let resolving = async move {
            let way = |to| source.towards(to).map(|from| Way { from, to, options });
            let (first, others) = to?;
            let mut found = find(&shared, way(first)?, setup.timeout).await;
            for other in others {
                if found.is_ok() {
                    break;
                }
                found = find(&shared, way(other)?, setup.timeout).await;
            }
            let unknown = ConnectionParameters::default();
            Prepared::new(found?, setup, Role::Connects, unknown)
        };
        Awaitable::new(&self.shared, resolving).within_span(span)
    }
}

/// The first address, for a span.
fn shown(to: &Result<Addresses>) -> Option<impl tracing::Value> {
    let first = to.as_ref().ok().map(|(first, _)| first);
    first.map(tracing::field::display)
}

/// Finds the way, within that time.
async fn find(shared: &Arc<Runtime>, way: Way, limit: Duration) -> Result<Arc<Line>> {
    let resolved = Box::pin(resolve(Arc::clone(shared), way, limit));
    within(
        Arc::clone(shared),
        resolved,
        (deadline(limit), limit),
        "finding the way to the peer (rdma_resolve_addr, rdma_resolve_route)",
    )
    .await
}

async fn resolve(shared: Arc<Runtime>, way: Way, timeout: Duration) -> Result<Arc<Line>> {
    let line = Line::new(&shared)?;
    way.options.apply(&line.id)?;
    match way.from {
        Some(from) => line.id.resolve_address_from(from, way.to, timeout)?,
        None => line.id.resolve_address(way.to, timeout)?,
    }
    line.expect(EventKind::AddressResolved).await?;
    line.id.resolve_route(timeout)?;
    line.expect(EventKind::RouteResolved).await?;
    Ok(line)
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("setup", &self.setup)
            .finish_non_exhaustive()
    }
}
