//! Listening: the service accepts connections, and the program takes them when it likes.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use ferroce_proto::rsocket::ConnectionData;
use libc::c_int;

use super::cm_id::CmId;
use super::connection::Connection;
use super::endpoint::StreamEndpoint;
use super::errno::{Errno, Result};
use super::options::Options;
use super::service::Service;
use super::socket::{Phase, Socket};

/// Connections that wait to be accepted: at least and at most, whatever the program says.
const BACKLOG: (usize, usize) = (128, 4096);

/// What a listener has.
#[derive(Debug)]
pub(super) struct Listener {
    limit: usize,
    /// Connected, for the program to accept.
    ready: VecDeque<Arc<Socket>>,
    /// Accepted by the service, and not yet heard of the peer again. By [`CmId::key`].
    pending: HashMap<usize, Arc<Socket>>,
}

impl Listener {
    /// Whether no connection waits to be accepted.
    pub(super) fn is_idle(&self) -> bool {
        self.ready.is_empty()
    }
}

impl Socket {
    /// `rlisten`.
    pub(super) fn listen(&self, backlog: c_int) -> Result<()> {
        let limit = usize::try_from(backlog)
            .unwrap_or(0)
            .clamp(BACKLOG.0, BACKLOG.1);
        let mut control = self.control();
        match &mut control.phase {
            Phase::Listening(listener) => {
                listener.limit = limit;
                return Ok(());
            }
            Phase::Idle => {}
            _ => return Err(Errno(libc::EINVAL)),
        }
        // Before, since a request may come at once.
        control.phase = Phase::Listening(Listener {
            limit,
            ready: VecDeque::new(),
            pending: HashMap::new(),
        });
        let listening = control.id.listen(backlog);
        if listening.is_err() {
            control.phase = Phase::Idle;
        }
        listening
    }

    /// `raccept`: the oldest connection that was not accepted.
    pub(super) fn accept(&self) -> Result<Arc<Self>> {
        self.wait_unless(false, || match &mut self.control().phase {
            Phase::Listening(listener) => listener.ready.pop_front().map(Ok),
            _ => Some(Err(Errno(libc::EINVAL))),
        })?
    }

    /// A connect request came for this listener: accepts it for the program.
    pub(super) fn on_request(self: &Arc<Self>, service: &Service, id: CmId, private_data: &[u8]) {
        if let Err(Errno(errno)) = self.take_request(service, &Arc::new(id), private_data) {
            tracing::debug!(target: "ferroce::rdmacm", errno, "an rsocket's connect request is turned down");
        }
    }

    fn take_request(
        self: &Arc<Self>,
        service: &Service,
        id: &Arc<CmId>,
        private_data: &[u8],
    ) -> Result<()> {
        let refuse = |error: Errno| {
            id.reject();
            error
        };
        let peer = ConnectionData::parse(private_data).map_err(|why| {
            tracing::warn!(target: "ferroce::rdmacm", "a connect request is no rsocket's: {why}");
            refuse(Errno(libc::EPROTO))
        })?;
        let options = self.room().map_err(refuse)?;
        let endpoint = StreamEndpoint::new(id, options.endpoint_sizes()).map_err(refuse)?;
        let answer = endpoint.connection_data().to_bytes();
        let is_iwarp = endpoint.is_iwarp();
        let phase = Phase::Accepting(Arc::downgrade(self));
        let child = Self::assemble(self.domain(), Arc::clone(id), options, phase);
        let set = child.connection.set(Connection::new(endpoint, &peer));
        set.expect("invariant: a new socket has no connection");
        service.watch(id, &child);
        if let Phase::Listening(listener) = &mut self.control().phase {
            listener.pending.insert(id.key(), Arc::clone(&child));
        }
        let accepted = id.accept(&answer, is_iwarp);
        if accepted.is_err() {
            self.on_accepted(id.key(), false);
        }
        accepted
    }

    /// What a new connection inherits, if one more may wait.
    fn room(&self) -> Result<Options> {
        let control = self.control();
        match &control.phase {
            Phase::Listening(Listener {
                limit,
                ready,
                pending,
            }) if ready.len() + pending.len() < *limit => Ok(control.options.clone()),
            _ => Err(Errno(libc::ECONNREFUSED)),
        }
    }

    /// What became of a connection that waited for the peer.
    pub(super) fn on_accepted(&self, key: usize, is_up: bool) {
        let mut gone = None;
        if let Phase::Listening(listener) = &mut self.control().phase
            && let Some(socket) = listener.pending.remove(&key)
        {
            if is_up {
                // Of a failure nobody hears: the connection works without keepalives.
                let _ = socket.start_keep_alive();
                listener.ready.push_back(socket);
            } else {
                gone = Some(socket);
            }
        }
        drop(gone);
        self.waiters.wake_all();
    }
}
