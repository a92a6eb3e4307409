//! The agent: tables of conversations, time, and the output queue.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::conversation::{Conversation, ConversationState, Phase};
use super::ids::{Ids, Random};
use super::{ConversationEventKind, Output};
use crate::ids::{Gid, Guid, Qpn};
use crate::mad::CommId;
use crate::time::Time;

/// Settings of an agent.
#[derive(Debug)]
pub struct Config {
    /// Upper bits of every communication id (slot << 22); the lower 22 are drawn.
    pub id_prefix: u32,
    /// Source that identifiers are drawn from.
    pub random: Random,
    /// Requests that may wait for the owner's answer at once; more are dropped, and their senders
    /// ask again.
    pub max_half_open: usize,
}

/// Every conversation of one process. See the module's documentation for its methods and states.
#[derive(Debug)]
pub struct Agent {
    pub(super) ids: Ids,
    pub(super) conversations: BTreeMap<CommId, Conversation>,
    /// Detects repeated requests and finds the conversation of a peer that gave up before it learnt
    /// our id.
    pub(super) by_remote_id: BTreeMap<(Guid, CommId), CommId>,
    /// Detects connections that the peer has forgotten: it uses the queue pair anew.
    pub(super) by_remote_qpn: BTreeMap<(Guid, Qpn), CommId>,
    /// Detects repeated resolution requests, by their sender and id.
    pub(super) by_resolution: BTreeMap<(Gid, CommId), CommId>,
    pub(super) deadlines: BTreeSet<(Time, CommId)>,
    pub(super) out: VecDeque<Output>,
    pub(super) half_open: usize,
    pub(super) max_half_open: usize,
}

impl Agent {
    /// An agent without conversations.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            ids: Ids::new(config.id_prefix, config.random),
            conversations: BTreeMap::new(),
            by_remote_id: BTreeMap::new(),
            by_remote_qpn: BTreeMap::new(),
            by_resolution: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            out: VecDeque::new(),
            half_open: 0,
            max_half_open: config.max_half_open,
        }
    }

    /// The next thing to send or to note, in order. Take all of them after every input and command.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// When [`on_deadline`](Self::on_deadline) wants to be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|&(at, _)| at)
    }

    /// State of a conversation, `None` if it has ended.
    #[must_use]
    pub fn phase(&self, conversation: CommId) -> Option<Phase> {
        self.conversations
            .get(&conversation)
            .map(|c| c.state.phase())
    }

    /// Number of conversations, those in timewait included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.conversations.len()
    }

    /// Whether there is no conversation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.conversations.is_empty()
    }

    /// Time has come: sends again, gives up, ends timewaits.
    pub fn on_deadline(&mut self, now: Time) {
        while let Some(&(at, id)) = self.deadlines.first()
            && at <= now
        {
            self.fire(now, id);
        }
    }

    /// A process has ended without a word. `gone` says, for a peer's GID and communication id,
    /// whether it was that process's. Its established connections count as disconnected by the
    /// peer, those in set-up as unreachable. Requests that nobody has answered yet go out again at
    /// once, if `gone` says so for the peer's GID with communication id 0.
    pub fn on_process_gone(&mut self, now: Time, gone: impl Fn(Gid, CommId) -> bool) {
        let hit: Vec<CommId> = self
            .conversations
            .values()
            .filter(|c| gone(c.path.remote, c.remote_id))
            .map(|c| c.local_id)
            .collect();
        for id in hit {
            self.peer_gone(now, id);
        }
    }

    /// Sends a request again at once, if nobody has answered it: it was lost with the process that
    /// it was given to.
    pub fn repeat_request(&mut self, id: CommId) {
        let Some(c) = self.conversations.get(&id) else {
            return;
        };
        if let ConversationState::ReqSent(resend) | ConversationState::SidrReqSent(resend) =
            &c.state
            && c.remote_id.is_none()
        {
            let (path, to, mad) = (c.path, resend.to, (*resend.mad).clone());
            self.send(path, to, mad);
        }
    }

    fn peer_gone(&mut self, now: Time, id: CommId) {
        let Some(c) = self.conversations.get(&id) else {
            return;
        };
        match &c.state {
            ConversationState::ReqSent(_) | ConversationState::SidrReqSent(_)
                if c.remote_id.is_none() =>
            {
                self.repeat_request(id);
            }
            ConversationState::Established => {
                // No DREQ came whose transaction id the DREP could repeat.
                let tid = c.tid;
                self.set_state(id, ConversationState::DreqRcvd(tid));
                self.event(id, ConversationEventKind::Disconnected { timed_out: false });
            }
            ConversationState::DreqSent(_) => {
                self.enter_timewait(now, id);
                self.event(id, ConversationEventKind::Disconnected { timed_out: false });
            }
            // A datagram service keeps no connection.
            ConversationState::DreqRcvd(_)
            | ConversationState::Timewait(_)
            | ConversationState::SidrReqSent(_)
            | ConversationState::SidrReqRcvd
            | ConversationState::SidrRepSent(..) => {}
            ConversationState::ReqSent(_)
            | ConversationState::MraReqRcvd(_)
            | ConversationState::ReqRcvd
            | ConversationState::MraReqSent
            | ConversationState::RepSent(_)
            | ConversationState::MraRepRcvd(_)
            | ConversationState::RepRcvd
            | ConversationState::MraRepSent => self.end(id, ConversationEventKind::Unreachable),
        }
    }

    fn fire(&mut self, now: Time, id: CommId) {
        let c = self
            .conversations
            .get_mut(&id)
            .expect("invariant: a deadline belongs to a conversation");
        let old = c.state.deadline();
        let again = match &mut c.state {
            ConversationState::ReqSent(r)
            | ConversationState::MraReqRcvd(r)
            | ConversationState::RepSent(r)
            | ConversationState::MraRepRcvd(r)
            | ConversationState::DreqSent(r)
            | ConversationState::SidrReqSent(r)
                if r.left > 0 =>
            {
                r.left -= 1;
                r.at = now + r.interval;
                Some((c.path, r.to, (*r.mad).clone()))
            }
            _ => None,
        };
        let Some((path, to, mad)) = again else {
            self.give_up(now, id);
            return;
        };
        let new = c.state.deadline();
        self.move_deadline(id, old, new);
        self.send(path, to, mad);
    }

    /// The last resend went unanswered, or timewait is over.
    fn give_up(&mut self, now: Time, id: CommId) {
        match self.phase(id) {
            Some(Phase::ReqSent | Phase::MraReqRcvd) => {
                // The passive side may have taken the REQ. The REJ ends its half at once.
                self.send_rej_timeout(id);
                self.end(id, ConversationEventKind::Unreachable);
            }
            Some(Phase::DreqSent) => {
                self.enter_timewait(now, id);
                self.event(id, ConversationEventKind::Disconnected { timed_out: true });
            }
            Some(Phase::Timewait) => self.end(id, ConversationEventKind::TimewaitExit),
            Some(Phase::SidrRepSent) => self.remove(id),
            _ => self.end(id, ConversationEventKind::Unreachable),
        }
    }
}
