//! Making connections: the steps of the connection manager, one after the other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use ferroce_proto::rsocket::ConnectionData;
use libc::c_int;

use super::cm_id::CmId;
use super::connection::Connection;
use super::endpoint::StreamEndpoint;
use super::errno::{Errno, Result};
use super::service::{Event, Service};
use super::socket::{Attempt, Control, Phase, Socket};
use crate::rdmacm::types::{
    RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_CONNECT_ERROR,
    RDMA_CM_EVENT_DEVICE_REMOVAL, RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED,
    RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_ROUTE_ERROR, RDMA_CM_EVENT_ROUTE_RESOLVED,
    RDMA_CM_EVENT_UNREACHABLE, RDMA_OPTION_ID_REUSEADDR, RDMA_PS_TCP,
};

/// How long the first resolution of an address may take; each further one takes twice as long.
const FIRST_TIMEOUT_MS: c_int = 1000;
/// Tries of a resolution.
const TRIES: u32 = 7;

impl Socket {
    /// `rconnect`.
    pub(super) fn connect(self: &Arc<Self>, destination: SocketAddr) -> Result<()> {
        let mut control = self.control();
        match &control.phase {
            Phase::Connected => return Ok(()),
            Phase::Connecting(_) if self.is_nonblocking() => return Err(Errno(libc::EALREADY)),
            Phase::Connecting(_) => {}
            Phase::Listening(_) | Phase::Accepting(_) => return Err(Errno(libc::EINVAL)),
            // Another thread has closed it.
            Phase::Failed if self.connection.get().is_some() => {
                return Err(Errno(libc::ENOTCONN));
            }
            Phase::Failed => {
                // Of a try that did not block.
                if let Some(error) = control.error.take() {
                    return Err(error);
                }
                self.renew(&mut control)?;
                self.begin(&mut control, destination)?;
            }
            Phase::Idle => self.begin(&mut control, destination)?,
        }
        drop(control);
        if self.is_nonblocking() {
            return Err(Errno(libc::EINPROGRESS));
        }
        self.wait(|| {
            let mut control = self.control();
            match &control.phase {
                Phase::Connecting(_) => None,
                Phase::Connected => Some(Ok(())),
                _ => Some(Err(control.error.take().unwrap_or(Errno(libc::ENOTCONN)))),
            }
        })?
    }

    fn begin(&self, control: &mut Control, destination: SocketAddr) -> Result<()> {
        control.id.resolve_addr(destination, FIRST_TIMEOUT_MS)?;
        control.error = None;
        control.phase = Phase::Connecting(Attempt {
            destination,
            tries: 1,
            endpoint: None,
        });
        Ok(())
    }

    /// A fresh identifier for another try, bound as the old one was.
    fn renew(self: &Arc<Self>, control: &mut Control) -> Result<()> {
        let service = Service::get()?;
        let id = Arc::new(CmId::create(&service, RDMA_PS_TCP)?);
        if control.options.reuse_addr {
            id.set_option(RDMA_OPTION_ID_REUSEADDR, 1)?;
        }
        service.watch(&id, self);
        control.id = Arc::clone(&id);
        control.phase = Phase::Idle;
        match control.bound {
            Some(addr) => id.bind(addr),
            None => Ok(()),
        }
    }

    /// An event of the connection manager came for this socket.
    pub(super) fn on_event(self: &Arc<Self>, key: usize, event: &Event) {
        let mut control = self.control();
        if control.id.key() != key {
            // Of an earlier try.
            return;
        }
        match &mut control.phase {
            Phase::Connecting(_) => self.on_connecting(&mut control, event),
            Phase::Accepting(listener) => {
                let listener = listener.upgrade();
                let is_up = event.kind == RDMA_CM_EVENT_ESTABLISHED;
                control.phase = if is_up {
                    Phase::Connected
                } else {
                    Phase::Failed
                };
                drop(control);
                if let Some(listener) = listener {
                    listener.on_accepted(key, is_up);
                }
                return;
            }
            Phase::Connected => {
                let ends = [RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_DEVICE_REMOVAL];
                drop(control);
                if let Some(connection) = self.connection.get()
                    && ends.contains(&event.kind)
                {
                    connection.on_disconnected(&self.waiters);
                }
                return;
            }
            Phase::Idle | Phase::Listening(_) | Phase::Failed => return,
        }
        drop(control);
        self.waiters.wake_all();
    }

    fn on_connecting(self: &Arc<Self>, control: &mut Control, event: &Event) {
        let stepped = match event.kind {
            RDMA_CM_EVENT_ADDR_RESOLVED => control.id.resolve_route(),
            RDMA_CM_EVENT_ADDR_ERROR | RDMA_CM_EVENT_ROUTE_ERROR
                if event.status.abs() == libc::ETIMEDOUT =>
            {
                try_again(control)
            }
            RDMA_CM_EVENT_ROUTE_RESOLVED => ask(control),
            RDMA_CM_EVENT_ESTABLISHED => self.establish(control, &event.private_data),
            RDMA_CM_EVENT_REJECTED => Err(Errno(libc::ECONNREFUSED)),
            RDMA_CM_EVENT_ADDR_ERROR
            | RDMA_CM_EVENT_ROUTE_ERROR
            | RDMA_CM_EVENT_CONNECT_ERROR
            | RDMA_CM_EVENT_UNREACHABLE
            | RDMA_CM_EVENT_DEVICE_REMOVAL
            | RDMA_CM_EVENT_DISCONNECTED => Err(match event.status.abs() {
                0 => Errno(libc::ECONNRESET),
                status => Errno(status),
            }),
            _ => Ok(()),
        };
        if let Err(error) = stepped {
            control.error = Some(error);
            control.phase = Phase::Failed;
        }
    }

    /// The peer has accepted.
    fn establish(self: &Arc<Self>, control: &mut Control, private_data: &[u8]) -> Result<()> {
        let peer = ConnectionData::parse(private_data).map_err(|why| {
            tracing::warn!(target: "ferroce::rdmacm", "the peer is no rsocket: {why}");
            control.id.disconnect();
            Errno(libc::ENOTSUP)
        })?;
        if let Phase::Connecting(Attempt { endpoint, .. }) = &mut control.phase
            && let Some(endpoint) = endpoint.take()
        {
            let set = self.connection.set(Connection::new(endpoint, &peer));
            set.expect("invariant: a socket with a connection does not connect");
            control.phase = Phase::Connected;
            if let Some(wait) = control.options.keep_alive() {
                Service::get()?.keep_alive(self, Instant::now() + wait);
            }
        }
        Ok(())
    }
}

/// Resolves the address once more, with more time.
fn try_again(control: &mut Control) -> Result<()> {
    let Phase::Connecting(attempt) = &mut control.phase else {
        return Ok(());
    };
    if attempt.tries == TRIES {
        return Err(Errno(libc::ETIMEDOUT));
    }
    let timeout = FIRST_TIMEOUT_MS << attempt.tries;
    attempt.tries += 1;
    let destination = attempt.destination;
    control.id.resolve_addr(destination, timeout)
}

/// The route is known: makes the connection's objects, and asks the peer.
fn ask(control: &mut Control) -> Result<()> {
    let endpoint = StreamEndpoint::new(&control.id, control.options.endpoint_sizes())?;
    let data = endpoint.connection_data().to_bytes();
    let asked = control.id.connect(&data, endpoint.is_iwarp());
    if let Phase::Connecting(attempt) = &mut control.phase {
        attempt.endpoint = Some(endpoint);
    }
    asked
}
