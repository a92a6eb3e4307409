//! Connections.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::awaitable::{deadline, within};
use super::line::Line;
use super::setup::{Parts, Setup};
use super::{Awaitable, Endpoint};
use crate::cm::{ConnectionParameters, EventKind};
use crate::cq::{CompletionQueue, Outcome};
use crate::device::Context;
use crate::mem::{Access, Buffer, MemoryRegion, ProtectionDomain};
use crate::qp::QueuePair;
use crate::{Error, Result};

/// A reliable connection: a queue pair and what belongs to it. When it is dropped, work that has
/// not completed is flushed, and the connection ends.
///
/// Work is posted to its [`queue_pair`](Self::queue_pair). Its completions are brought by the
/// [`Endpoint`]: to futures, which can be awaited or [waited for](Self::wait), and to
/// [`CompletionQueue::poll`].
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::mem::{Access, RemoteRegion};
/// use ferroce::prelude::*;
/// let endpoint = Endpoint::new(&Provider::software())?;
/// let listener = endpoint.listen("127.0.0.1:0")?;
/// let address = listener.local_addr()?;
/// let server = std::thread::spawn(move || -> ferroce::Result<MemoryRegion> {
///     let prepared = listener.accept().wait()?.prepare()?;
///     // A region that the client may write to: it learns of it as it is accepted.
///     let board = prepared.connection().region(64, Access::Remote)?;
///     let told = board.remote().to_bytes();
///     let connection = prepared.private_data(&told).establish().wait()?;
///     connection.disconnected().wait()?;
///     Ok(board)
/// });
/// let connection = endpoint.connect(address).wait()?;
/// let told = &connection.peer_parameters().private_data;
/// let board = RemoteRegion::from_bytes(told).ok_or("no region was told")?;
/// let queue_pair = connection.queue_pair();
/// connection.complete(queue_pair.submit_inline(Operation::Write(board.at(0)), b"was here")?)?;
/// connection.disconnect().wait()?;
/// let mut written = [0; 8];
/// server.join().map_err(|_| "the server panicked")??.read(0, &mut written)?;
/// assert_eq!(&written, b"was here");
/// # Ok(())
/// # }
/// ```
pub struct Connection {
    // In this order they go.
    queue_pair: QueuePair,
    completions: CompletionQueue,
    domain: ProtectionDomain,
    line: Arc<Line>,
    peer: ConnectionParameters,
}

impl Connection {
    /// Returns the connection's queue pair.
    #[must_use]
    pub fn queue_pair(&self) -> &QueuePair {
        &self.queue_pair
    }

    /// Where its work completes. The endpoint drives it.
    #[must_use]
    pub fn completions(&self) -> &CompletionQueue {
        &self.completions
    }

    /// Its protection domain, which it shares with the endpoint's other connections on the device.
    #[must_use]
    pub fn domain(&self) -> &ProtectionDomain {
        &self.domain
    }

    /// What the peer said when the connection was made. Its private data may have zeros behind it.
    #[must_use]
    pub fn peer_parameters(&self) -> &ConnectionParameters {
        &self.peer
    }

    /// Its own address (`rdma_get_local_addr(3)`).
    ///
    /// # Errors
    /// It has none of the internet protocol.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.line.id.local_addr()
    }

    /// The peer's address (`rdma_get_peer_addr(3)`).
    ///
    /// # Errors
    /// It has none of the internet protocol.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.line.id.peer_addr()
    }

    /// The device that it is on.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "an invariant")]
    pub fn context(&self) -> Context {
        let met = self.line.id.context();
        met.expect("invariant: a queue pair was made on it")
    }

    /// The endpoint that it is of.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        Endpoint(Arc::clone(&self.line.shared))
    }

    /// A buffer of that many zeroed bytes.
    ///
    /// # Errors
    /// As [`Buffer::new`].
    pub fn buffer(&self, length: usize) -> Result<Buffer> {
        Buffer::new(&self.domain, length)
    }

    /// A buffer with these bytes.
    ///
    /// # Errors
    /// As [`Buffer::new`].
    pub fn buffer_of(&self, bytes: &[u8]) -> Result<Buffer> {
        let mut buffer = self.buffer(bytes.len())?;
        buffer.copy_from_slice(bytes);
        Ok(buffer)
    }

    /// A memory region of that many zeroed bytes.
    ///
    /// # Errors
    /// As [`MemoryRegion::new`].
    pub fn region(&self, length: usize, access: Access) -> Result<MemoryRegion> {
        MemoryRegion::new(&self.domain, length, access)
    }

    /// Waits for a future of its endpoint in this thread, and serves that endpoint meanwhile
    /// ([`Endpoint::block_on`]). A future of another endpoint ends only if something serves that
    /// one. The thread sleeps while nothing happens: see the
    /// [guides](crate::guides#which-call-waits) for threads that spin instead.
    ///
    /// # Errors
    /// As [`Endpoint::dispatch`].
    pub fn wait<F: Future>(&self, future: F) -> Result<F::Output> {
        self.endpoint().block_on(future)
    }

    /// Waits for work in this thread as [`wait`](Self::wait) does, with one result: failed work is
    /// an error, too. Work on a buffer gives that back, a SEND as well as a receive, which has what
    /// came:
    ///
    /// ```
    /// # use ferroce::prelude::*;
    /// # fn talk(connection: &Connection) -> ferroce::Result<()> {
    /// let queue_pair = connection.queue_pair();
    /// let receive = queue_pair.receive_buffer(connection.buffer(64)?)?;
    /// let said = connection.buffer_of(b"hi")?;
    /// connection.complete(queue_pair.submit_buffer(Operation::Send, said)?)?;
    /// let (done, answer) = connection.complete(receive)?;
    /// assert_eq!(done.bytes as usize, answer.len());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`wait`](Self::wait); [`Error::Work`] if the work failed.
    pub fn complete<F: Future<Output: Outcome>>(
        &self,
        work: F,
    ) -> Result<<F::Output as Outcome>::Done> {
        self.endpoint().complete(work)
    }

    /// Ends the connection (`rdma_disconnect(3)`): work that has not completed is flushed on both
    /// sides. Ready when the peer has agreed, or was asked often enough. Other peers than those of
    /// an [`Endpoint`] may take long to agree. It borrows nothing, so it can be kept beside the
    /// connection.
    ///
    /// # Errors
    /// Those of `rdma_disconnect(3)`, but not that the connection has ended already.
    pub fn disconnect(&self) -> Awaitable<'static, ()> {
        let line = Arc::clone(&self.line);
        Awaitable::new(&self.line.shared, async move {
            match line.id.disconnect() {
                Err(e) if !line.has_ended() => return Err(e),
                _ => {}
            }
            line.ended().await;
            Ok(())
        })
        .within_span(span!("disconnect", queue_pair = self.queue_pair.number()))
    }

    /// Ready when the connection has ended, on either side. What came before is with its
    /// completions; receives that are posted are flushed.
    ///
    /// # Errors
    /// None of its own.
    pub fn disconnected(&self) -> Awaitable<'_, ()> {
        Awaitable::new(&self.line.shared, async {
            self.line.ended().await;
            Ok(())
        })
    }

    /// Ends the connection now, and what is posted, without waiting for the peer to agree.
    pub(crate) fn abort(&self) {
        // Each is an error if there is nothing left to end.
        let _ = self.line.id.disconnect();
        let _ = self.queue_pair.flush();
    }

    /// Whether the connection has ended, as far as the endpoint was served.
    #[must_use]
    pub fn is_disconnected(&self) -> bool {
        self.line.has_ended()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("queue_pair", &self.queue_pair)
            .finish_non_exhaustive()
    }
}

/// A connection that is ready to be made: receives can be posted, so that the peer's first message
/// finds one. Dropping it tells a peer that asked that it was rejected.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::prelude::*;
/// let endpoint = Endpoint::new(&Provider::software())?;
/// let listener = endpoint.listen("127.0.0.1:0")?;
/// let address = listener.local_addr()?;
/// let server = std::thread::spawn(move || -> ferroce::Result<Vec<u8>> {
///     let prepared = listener.accept().wait()?.prepare()?;
///     let room = prepared.connection().buffer(64)?;
///     let receive = prepared.connection().queue_pair().receive_buffer(room)?;
///     let connection = prepared.establish().wait()?;
///     Ok(connection.complete(receive)?.1.to_vec())
/// });
/// let connection = endpoint.connect(address).wait()?;
/// let first = connection.buffer_of(b"first")?;
/// connection.complete(connection.queue_pair().submit_buffer(Operation::Send, first)?)?;
/// assert_eq!(server.join().expect("no panic")?, b"first");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Prepared {
    connection: Connection,
    setup: Setup,
    role: Role,
}

/// Which end asks for the connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    Connects,
    Accepts,
}

/// Bytes of private data that an answer takes (REP).
const ANSWER: usize = 196;

impl Role {
    /// Why the connection is not made.
    fn explain(self, error: Error, line: &Line) -> Error {
        match self {
            Self::Connects => error,
            Self::Accepts => line.explain(error),
        }
    }
}

impl Prepared {
    pub(super) fn new(
        line: Arc<Line>,
        mut setup: Setup,
        role: Role,
        peer: ConnectionParameters,
    ) -> Result<Self> {
        let Parts {
            queue_pair,
            completions,
            domain,
        } = setup.make(&line).map_err(|e| role.explain(e, &line))?;
        let connection = Connection {
            queue_pair,
            completions,
            domain,
            line,
            peer,
        };
        Ok(Self {
            connection,
            setup,
            role,
        })
    }

    /// The connection that is to be. Receives can be posted already, sends not yet.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Bytes for the other program, in place of those that were set before: what is known only now,
    /// such as the key of a memory region.
    #[must_use]
    pub fn private_data(mut self, bytes: &[u8]) -> Self {
        self.setup.parameters.private_data = bytes.to_vec();
        self
    }

    /// Agrees with the peer (`rdma_connect(3)` or `rdma_accept(3)`).
    ///
    /// # Errors
    /// [`Error::Rejected`] with the peer's reason and private data, [`Error::TimedOut`],
    /// [`Error::Unexpected`] if the peer cannot be reached, [`Error::GivenUp`] if the peer that
    /// asked is gone, or those of the manual pages.
    pub fn establish(self) -> Awaitable<'static, Connection> {
        let shared = Arc::clone(&self.connection.line.shared);
        let span = span!(
            "establish",
            queue_pair = self.connection.queue_pair.number()
        );
        Awaitable::new(&shared, async move {
            let limit = self.setup.timeout;
            let shared = Arc::clone(&self.connection.line.shared);
            let agreed = Box::pin(self.agree());
            within(
                shared,
                agreed,
                (deadline(limit), limit),
                "agreeing with the peer (rdma_connect, rdma_accept)",
            )
            .await
        })
        .within_span(span)
    }

    async fn agree(self) -> Result<Connection> {
        let Self {
            mut connection,
            setup,
            role,
        } = self;
        let line = &connection.line;
        let asked = match role {
            Role::Connects => line.id.connect(&setup.parameters),
            Role::Accepts => line.id.accept(&setup.parameters),
        };
        // The kernel rejects a request that it could not accept, so that cannot be asked then.
        let too_long = setup.parameters.private_data.len() > ANSWER;
        asked.map_err(|e| if too_long { e } else { role.explain(e, line) })?;
        let event = line.expect(EventKind::Established).await;
        let event = event.map_err(|e| role.explain(e, line))?;
        if matches!(role, Role::Connects) {
            connection.peer = event.parameters;
        }
        Ok(connection)
    }
}
