//! Stream sockets: their states, and how connections come about.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

use ferroce_proto::rsocket::Shutdown;
use libc::c_int;

use super::cm_id::CmId;
use super::connection::Connection;
use super::endpoint::StreamEndpoint;
use super::errno::{Errno, Result};
use super::listen::Listener;
use super::options::Options;
use super::service::Service;
use super::wait::{Awaited, Signals, Waiters, until, wait_unless};
use crate::rdmacm::lock;
use crate::rdmacm::types::RDMA_PS_TCP;

/// How long `rclose` and `rshutdown` wait for the peer to take what was sent. A program can have
/// `rclose` wait less by `SO_LINGER`.
const LINGER: Duration = Duration::from_secs(10);

/// A connection that is being made.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) destination: SocketAddr,
    pub(super) tries: u32,
    pub(super) endpoint: Option<StreamEndpoint>,
}

/// State of a socket.
#[derive(Debug)]
pub(super) enum Phase {
    /// New, or bound.
    Idle,
    Listening(Listener),
    Connecting(Attempt),
    /// The socket came from a connect request; the peer has yet to say that the connection stands.
    Accepting(Weak<Socket>),
    /// There is a connection, or was one.
    Connected,
    /// Connecting failed.
    Failed,
}

/// What changes rarely.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) id: Arc<CmId>,
    pub(super) phase: Phase,
    pub(super) options: Options,
    /// Why connecting failed, until the program was told.
    pub(super) error: Option<Errno>,
    /// The address that the program has bound it to.
    pub(super) bound: Option<SocketAddr>,
}

/// A stream socket.
///
/// Lock order: `control`, then the lock of the connection, then the list of waiters.
#[derive(Debug)]
pub(super) struct Socket {
    domain: c_int,
    nonblocking: AtomicBool,
    control: Mutex<Control>,
    pub(super) connection: OnceLock<Connection>,
    pub(super) waiters: Waiters,
}

impl Awaited for Socket {
    fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    fn arm(&self) {
        if let Some(connection) = self.connection.get() {
            connection.endpoint.queue().arm();
        }
    }

    fn fds(&self, add: &mut dyn FnMut(RawFd)) {
        if let Some(connection) = self.connection.get() {
            add(connection.endpoint.queue().fd());
        }
    }

    fn take_events(&self) {
        if let Some(connection) = self.connection.get()
            && connection.endpoint.queue().take_events()
        {
            self.waiters.wake_others();
        }
    }
}

impl Socket {
    /// A new socket.
    pub(super) fn create(domain: c_int) -> Result<Arc<Self>> {
        let service = Service::get()?;
        let id = Arc::new(CmId::create(&service, RDMA_PS_TCP)?);
        let socket = Self::assemble(domain, Arc::clone(&id), Options::default(), Phase::Idle);
        service.watch(&id, &socket);
        Ok(socket)
    }

    pub(super) fn assemble(
        domain: c_int,
        id: Arc<CmId>,
        options: Options,
        phase: Phase,
    ) -> Arc<Self> {
        Arc::new(Self {
            domain,
            nonblocking: AtomicBool::new(false),
            control: Mutex::new(Control {
                id,
                phase,
                options,
                error: None,
                bound: None,
            }),
            connection: OnceLock::new(),
            waiters: Waiters::default(),
        })
    }

    pub(super) fn domain(&self) -> c_int {
        self.domain
    }

    pub(super) fn control(&self) -> MutexGuard<'_, Control> {
        lock(&self.control)
    }

    pub(super) fn connection(&self) -> Option<&Connection> {
        self.connection.get()
    }

    pub(super) fn set_nonblocking(&self, on: bool) {
        self.nonblocking.store(on, Ordering::Release);
    }

    pub(super) fn is_nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Acquire)
    }

    /// Tries until `attempt` gives something, asleep in between.
    pub(super) fn wait<T>(&self, attempt: impl FnMut() -> Option<T>) -> Result<T> {
        wait_unless(false, self, attempt)
    }

    /// As [`wait`](Self::wait), with `None` at the deadline.
    fn wait_by<T>(
        &self,
        deadline: Option<Instant>,
        attempt: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>> {
        until(&[self], &[], deadline, Signals::AsRead, attempt)
    }

    /// As [`wait`](Self::wait), with one try only for a call that does not block.
    pub(super) fn wait_unless<T>(
        &self,
        nonblocking: bool,
        attempt: impl FnMut() -> Option<T>,
    ) -> Result<T> {
        wait_unless(nonblocking || self.is_nonblocking(), self, attempt)
    }

    /// The connection that a call is about, once it is made.
    pub(super) fn connected(&self, nonblocking: bool) -> Result<&Connection> {
        if let Some(connection) = self.connection.get() {
            return Ok(connection);
        }
        self.wait_unless(nonblocking, || {
            let mut control = self.control();
            match &control.phase {
                Phase::Connecting(_) => None,
                Phase::Connected => self.connection.get().map(Ok),
                _ => Some(Err(control.error.take().unwrap_or(Errno(libc::ENOTCONN)))),
            }
        })?
    }

    /// Runs a call on the connection: with one try if it does not block.
    pub(super) fn on_connection<T>(
        &self,
        nonblocking: bool,
        mut attempt: impl FnMut(&Connection, &Waiters) -> Option<T>,
    ) -> Result<T> {
        let connection = self.connected(nonblocking)?;
        self.wait_unless(nonblocking, || attempt(connection, &self.waiters))
    }

    /// `rbind`.
    pub(super) fn bind(&self, addr: SocketAddr) -> Result<()> {
        let mut control = self.control();
        control.id.bind(addr)?;
        control.bound = control.id.local_addr();
        Ok(())
    }

    /// Sends a keepalive if that is still wanted, and says when the next is due.
    pub(super) fn keep_alive(&self) -> Option<Duration> {
        let wait = self.control().options.keep_alive()?;
        let connection = self.connection.get()?;
        connection.keep_alive(&self.waiters);
        (!connection.lock().is_over()).then_some(wait)
    }

    /// `rshutdown`: waits until all that was sent has arrived, or never will, for [`LINGER`] at
    /// most.
    ///
    /// # Errors
    /// ENOTCONN; EINTR; ETIMEDOUT if the peer cannot even be told.
    pub(super) fn shutdown(&self, how: Shutdown) -> Result<()> {
        let connection = self.connection.get().ok_or(Errno(libc::ENOTCONN))?;
        self.shutdown_by(connection, how, Instant::now() + LINGER)
    }

    fn shutdown_by(&self, connection: &Connection, how: Shutdown, deadline: Instant) -> Result<()> {
        let told = self.wait_by(Some(deadline), || {
            connection.try_shutdown(how, &self.waiters).then_some(())
        })?;
        told.ok_or(Errno(libc::ETIMEDOUT))?;
        // What takes longer may still arrive, as after `shutdown(2)`.
        let flushed = || connection.is_flushed(&self.waiters).then_some(());
        self.wait_by(Some(deadline), flushed).map(drop)
    }

    /// `rclose`: ends what there is. A peer that takes nothing holds the program up for [`LINGER`]
    /// at most, and loses what it has not taken.
    pub(super) fn close(&self) {
        if let Some(connection) = self.connection.get() {
            let wanted = self.control().options.linger();
            let deadline = Instant::now() + wanted.map_or(LINGER, |wanted| wanted.min(LINGER));
            let shut = || self.shutdown_by(connection, Shutdown::Both, deadline);
            // A signal must not cut the last bytes off.
            while shut() == Err(Errno(libc::EINTR)) {}
            connection.cut(&self.waiters);
        }
        let ended = std::mem::replace(&mut self.control().phase, Phase::Failed);
        // Connections that nobody accepted end here, with no lock held.
        drop(ended);
        self.waiters.wake_all();
    }

    /// `SO_ERROR`.
    pub(super) fn take_error(&self) -> c_int {
        let error = self.control().error.take();
        match (error, self.connection.get()) {
            (Some(Errno(errno)), _) => errno,
            (None, Some(connection)) => connection.take_error(),
            (None, None) => 0,
        }
    }

    /// What can be done without waiting, of what is asked for (`poll(2)`).
    pub(super) fn revents(&self, events: i16) -> i16 {
        let control = self.control();
        let (readable, writable) = (
            libc::POLLIN | libc::POLLRDNORM,
            libc::POLLOUT | libc::POLLWRNORM,
        );
        match &control.phase {
            Phase::Listening(listener) if listener.is_idle() => 0,
            Phase::Listening(_) => readable & events,
            Phase::Connecting(_) | Phase::Accepting(_) => 0,
            Phase::Idle => writable & events | libc::POLLHUP,
            Phase::Failed => {
                let error = if control.error.is_some() {
                    libc::POLLERR
                } else {
                    0
                };
                (readable | writable) & events | libc::POLLHUP | error
            }
            Phase::Connected => {
                drop(control);
                let connection = self.connection.get();
                connection.map_or(0, |connection| connection.revents(events, &self.waiters))
            }
        }
    }

    /// `rgetsockname`.
    pub(super) fn local_addr(&self) -> Option<SocketAddr> {
        self.control().id.local_addr()
    }

    /// `rgetpeername`.
    pub(super) fn peer_addr(&self) -> Result<SocketAddr> {
        let control = self.control();
        match control.phase {
            Phase::Connected => control.id.peer_addr().ok_or(Errno(libc::ENOTCONN)),
            _ => Err(Errno(libc::ENOTCONN)),
        }
    }
}
