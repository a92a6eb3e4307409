//! What conversations bring, as events of identifiers.

use ferroce_proto::cm::{ConversationEvent, ConversationEventKind as Kind, ack_timeout};
use ferroce_proto::mad::{CommId, RejReason, Rep};

use super::channel::QueuedEvent;
use super::service::Work;
use super::state::{ConnectionAttr, Progress};
use super::{ConnParam, Event, EventKind, EventParam};

impl Work<'_> {
    /// Tells the program what happened to a conversation.
    pub(super) fn on_event(&mut self, event: ConversationEvent) {
        let conversation = event.conversation;
        let event = match event.kind {
            Kind::Request { req, path } => return self.on_request(conversation, &req, path),
            Kind::Resolution { req, path } => return self.on_resolution(conversation, &req, path),
            other => other,
        };
        let Some(&key) = self.state.by_conversation.get(&conversation) else {
            return;
        };
        match event {
            Kind::Request { .. } | Kind::Resolution { .. } => {}
            Kind::Resolved(rep) => self.on_resolved(key, &rep),
            Kind::Reply(rep) => self.on_reply(key, conversation, &rep),
            Kind::Established => {
                self.tell_while_connecting(key, EventKind::Established, 0, EventParam::None);
            }
            Kind::Rejected {
                reason,
                private_data,
            } => self.on_rejected(key, reason, private_data.to_vec()),
            Kind::Unreachable => {
                self.tell_while_connecting(
                    key,
                    EventKind::Unreachable,
                    -libc::ETIMEDOUT,
                    EventParam::None,
                );
            }
            Kind::Disconnected { timed_out } => self.on_disconnected(key, timed_out),
            Kind::TimewaitExit => self.on_timewait_exit(key),
        }
        self.part_from_ended(conversation);
    }

    /// The peer said no: its reason and private data go to the program.
    fn on_rejected(&mut self, key: u64, reason: RejReason, private_data: Vec<u8>) {
        let conn = ConnParam {
            private_data,
            ..ConnParam::default()
        };
        let status = reason.0.into();
        self.tell_while_connecting(key, EventKind::Rejected, status, EventParam::Conn(conn));
    }

    fn on_disconnected(&mut self, key: u64, timed_out: bool) {
        let status = if timed_out { -libc::ETIMEDOUT } else { 0 };
        self.tell_while_connecting(key, EventKind::Disconnected, status, EventParam::None);
        if let Some(id) = self.state.ids.get_mut(&key) {
            id.progress = Progress::Disconnected;
        }
    }

    /// The peer accepted: its queue pair is known.
    fn on_reply(&mut self, key: u64, conversation: CommId, rep: &Rep) {
        let Some(id) = self.state.ids.get_mut(&key) else {
            return;
        };
        let life_time = id.route.map_or(0, |route| route.packet_life_time);
        let from_path = ack_timeout(rep.target_ack_delay, life_time);
        id.connection = ConnectionAttr {
            remote_qpn: rep.queue_pair(),
            sq_psn: rep.starting_psn,
            responder_resources: rep.initiator_depth,
            initiator_depth: rep.responder_resources,
            retry_count: id.connection.retry_count,
            rnr_retry: rep.rnr_retry_count,
            peers_rnr_retry: id.connection.peers_rnr_retry,
            timeout: id.options.ack_timeout.unwrap_or(from_path),
            peer_known: true,
        };
        let conn = ConnParam {
            private_data: rep.private_data.0.to_vec(),
            responder_resources: rep.initiator_depth,
            initiator_depth: rep.responder_resources,
            flow_control: rep.flow_control,
            retry_count: 0,
            rnr_retry_count: rep.rnr_retry_count,
            srq: rep.srq,
            qp_num: rep.queue_pair(),
            ece: rep.ece,
        };
        // The program needs its time to fetch the event.
        if let Err(error) = self.state.agent.delay(conversation) {
            tracing::debug!(target: "ferroce::cm", id = key, %error, "reply overtaken");
        }
        self.tell_while_connecting(key, EventKind::ConnectResponse, 0, EventParam::Conn(conn));
    }

    /// Packets of the connection are gone. Only an identifier that heard of the end gets the event.
    fn on_timewait_exit(&mut self, key: u64) {
        if self
            .state
            .ids
            .get(&key)
            .is_some_and(|id| id.progress == Progress::Disconnected)
        {
            self.tell(key, EventKind::TimewaitExit, 0, EventParam::None);
        }
    }

    /// If a conversation is over: its id can be drawn again.
    pub(super) fn part_from_ended(&mut self, conversation: CommId) {
        if self.state.agent.phase(conversation).is_none()
            && let Some(key) = self.state.by_conversation.remove(&conversation)
            && let Some(id) = self.state.ids.get_mut(&key)
        {
            id.conversation = None;
        }
    }

    /// What is of no interest any more once Disconnected was reported.
    pub(super) fn tell_while_connecting(
        &mut self,
        key: u64,
        kind: EventKind,
        status: i32,
        param: EventParam,
    ) {
        if self
            .state
            .ids
            .get(&key)
            .is_some_and(|id| id.progress == Progress::Connecting)
        {
            self.tell(key, kind, status, param);
        }
    }

    /// Queues an event for the owner of an identifier.
    pub(super) fn tell(&mut self, key: u64, kind: EventKind, status: i32, param: EventParam) {
        let Some(id) = self.state.ids.get(&key).filter(|id| id.takes_events) else {
            return;
        };
        // If it is gone, its owner has let go of the last reference, and the end of the identifier
        // waits for our lock. If not, this reference goes into the event: it must not be the last
        // one to go while we hold the lock.
        let Some(handle) = id.handle.upgrade() else {
            return;
        };
        tracing::debug!(target: "ferroce::cm", id = key, ?kind, status, local = ?id.src, peer = ?id.dst, "event");
        let event = Event {
            id: handle,
            listen_id: None,
            kind,
            status,
            param,
        };
        id.channel.push(QueuedEvent { event, place: None });
    }
}
