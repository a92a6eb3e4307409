//! What becomes of set-ups and connections, as the events that `iw_cm` gives.

use std::io;

use ferroce_os::tcp::TcpSocket;
use ferroce_proto::ids::Qpn;
use ferroce_proto::iwarp::mpa::{Outcome, StartupError};
use ferroce_proto::time::Time;

use super::StreamHold;
use super::answer::count;
use crate::base::sync::lock;
use crate::cm::service::{CmService, Work};
use crate::cm::state::Progress;
use crate::cm::{ConnParam, EventKind, EventParam};
use crate::link::stream::Connection;

impl CmService {
    /// The connection that a queue pair has for an identifier has ended. Called with the lock of
    /// the queue pair held, so the identifier hears of it in the next step of this service.
    pub(crate) fn on_stream_ended(&self, id: u64) {
        let Some(host) = self.0.host.upgrade() else {
            return;
        };
        lock(&self.0.ended).push(id);
        self.0.wants_step();
        host.reschedule();
    }

    /// Until when connections that were refused should stay open, if this process ends.
    pub(crate) fn refused_stay_until(&self) -> Option<Time> {
        self.look(|state| state.iwarp.open_until())
    }
}

impl Work<'_> {
    /// Connections have ended.
    pub(in crate::cm) fn on_streams_ended(&mut self, ids: Vec<u64>) {
        for key in ids {
            self.tell_while_connecting(key, EventKind::Disconnected, 0, EventParam::None);
            if let Some(id) = self.state.ids.get_mut(&key) {
                id.progress = Progress::Disconnected;
                id.stream = StreamHold::None;
            }
        }
    }

    /// `rdma_disconnect` over TCP. The caller has moved its queue pair to SQD; one that is not the
    /// identifier's own is ended here.
    pub(in crate::cm) fn disconnect_over_tcp(&self, key: u64) -> Result<(), crate::Error> {
        if let StreamHold::Running(qpn) = self.state.id(key)?.stream {
            self.host.end_stream(qpn);
        }
        Ok(())
    }

    /// Ends what an identifier had of TCP.
    pub(in crate::cm) fn end_hold(&mut self, hold: StreamHold) {
        match hold {
            StreamHold::None | StreamHold::Bound(_) => {}
            StreamHold::Listening(number) => {
                self.state.iwarp.watched.remove(&number);
            }
            StreamHold::SettingUp(number) => self.refuse_stream(number, &[]),
            StreamHold::Running(qpn) => self.host.end_stream(qpn),
        }
    }

    /// TCP did not connect.
    pub(super) fn on_tcp_failure(&mut self, key: u64, error: &io::Error) {
        let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
        let kind = match errno {
            libc::ECONNREFUSED | libc::ECONNRESET => EventKind::Rejected,
            libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH => EventKind::Unreachable,
            _ => EventKind::ConnectError,
        };
        self.fail(key, kind, errno, EventParam::None);
    }

    fn fail(&mut self, key: u64, kind: EventKind, errno: i32, param: EventParam) {
        if let Some(id) = self.state.ids.get_mut(&key) {
            id.stream = StreamHold::None;
        }
        self.tell_while_connecting(key, kind, -errno, param);
    }

    /// The reply has come, or will not.
    pub(super) fn on_reply_over_tcp(
        &mut self,
        key: u64,
        qpn: Qpn,
        socket: TcpSocket,
        outcome: Outcome,
        early: Vec<u8>,
    ) {
        let (agreement, private) = match outcome {
            Outcome::Accepted { agreement, private } => (agreement, private),
            Outcome::Rejected { private } => {
                let conn = ConnParam {
                    private_data: private,
                    ..ConnParam::default()
                };
                let param = EventParam::Conn(conn);
                return self.fail(key, EventKind::Rejected, libc::ECONNRESET, param);
            }
            Outcome::Failed(error) => {
                tracing::debug!(target: "ferroce::cm", id = key, "connecting over TCP failed: {error}");
                let (kind, errno) = failure(error);
                return self.fail(key, kind, errno, EventParam::None);
            }
        };
        if let Some(id) = self.state.ids.get_mut(&key) {
            id.stream = StreamHold::Running(qpn);
        }
        let connection = Connection {
            socket,
            agreement,
            reply: Vec::new(),
            early,
            id: key,
        };
        if let Err(e) = self.host.connect_stream(qpn, connection) {
            tracing::debug!(target: "ferroce::cm", id = key, reason = %e, "no queue pair takes the connection");
            return self.fail(key, EventKind::ConnectError, e.errno, EventParam::None);
        }
        let conn = ConnParam {
            private_data: private,
            responder_resources: count(agreement.ord),
            initiator_depth: count(agreement.ird),
            ..ConnParam::default()
        };
        self.tell_while_connecting(key, EventKind::Established, 0, EventParam::Conn(conn));
    }
}

/// What siw's initiator gives for a set-up that failed (`siw_proc_mpareply`, Linux 6.1).
const fn failure(error: StartupError) -> (EventKind, i32) {
    match error {
        StartupError::TimedOut => (EventKind::Unreachable, libc::ETIMEDOUT),
        StartupError::Closed | StartupError::NotEnhanced => (EventKind::Rejected, libc::ECONNRESET),
        _ => (EventKind::ConnectError, libc::EINVAL),
    }
}
