//! The agent's tables, which must agree with each other, and its output queue.

use alloc::boxed::Box;

use super::agent::Agent;
use super::conversation::{Conversation, ConversationState, Resend};
use super::timing::cm_time;
use super::{ConversationEvent, ConversationEventKind, MadPath, OutgoingMad, Output, Recipient};
use crate::ids::{Gid, Guid, Qpn};
use crate::mad::{CmMad, CommId};
use crate::time::Time;

#[cfg(test)]
use alloc::collections::BTreeSet;

impl Agent {
    /// The conversation under our `local` id, if its other end is `remote`.
    pub(super) fn find(&self, local: CommId, remote: CommId) -> Option<&Conversation> {
        self.conversations
            .get(&local)
            .filter(|c| !c.remote_id.is_none() && c.remote_id == remote)
    }

    pub(super) fn find_by_remote_id(&self, guid: Guid, remote: CommId) -> Option<CommId> {
        self.by_remote_id.get(&(guid, remote)).copied()
    }

    pub(super) fn find_by_remote_qpn(&self, guid: Guid, qpn: Qpn) -> Option<CommId> {
        self.by_remote_qpn.get(&(guid, qpn)).copied()
    }

    /// The conversation about the resolution request with this sender and id.
    pub(super) fn find_resolution(&self, from: Gid, request: CommId) -> Option<CommId> {
        self.by_resolution.get(&(from, request)).copied()
    }

    /// An unused communication id, `None` if too many are in use.
    pub(super) fn new_id(&mut self) -> Option<CommId> {
        let in_use = self.conversations.len();
        let conversations = &self.conversations;
        self.ids
            .comm_id(in_use, |id| conversations.contains_key(&id))
    }

    pub(super) const fn half_open_full(&self) -> bool {
        self.half_open >= self.max_half_open
    }

    /// Takes in a new conversation, with the indices if its peer is known.
    pub(super) fn insert(&mut self, c: Conversation) {
        let (id, deadline, waits) = (c.local_id, c.state.deadline(), waits_for_owner(&c.state));
        if let Some(key) = resolution_key(&c) {
            self.by_resolution.insert(key, id);
        }
        self.conversations.insert(id, c);
        self.move_deadline(id, None, deadline);
        self.half_open += usize::from(waits);
    }

    /// Enters the peer, now known, in both indices.
    pub(super) fn index(&mut self, id: CommId) {
        if let Some(c) = self.conversations.get_mut(&id) {
            (c.id_indexed, c.qpn_indexed) = (true, true);
            self.by_remote_id.insert((c.remote_guid, c.remote_id), id);
            self.by_remote_qpn.insert((c.remote_guid, c.remote_qpn), id);
        }
    }

    /// The peer may use its queue pair for something new without our taking the connection for
    /// stale.
    pub(super) fn forget_qpn(&mut self, id: CommId) {
        if let Some(c) = self.conversations.get_mut(&id)
            && core::mem::take(&mut c.qpn_indexed)
        {
            self.by_remote_qpn.remove(&(c.remote_guid, c.remote_qpn));
        }
    }

    pub(super) fn set_state(&mut self, id: CommId, state: ConversationState) {
        let Some(c) = self.conversations.get_mut(&id) else {
            return;
        };
        let old = core::mem::replace(&mut c.state, state);
        let new_deadline = c.state.deadline();
        self.half_open += usize::from(waits_for_owner(&c.state));
        self.half_open -= usize::from(waits_for_owner(&old));
        self.move_deadline(id, old.deadline(), new_deadline);
    }

    pub(super) fn enter_timewait(&mut self, now: Time, id: CommId) {
        self.forget_qpn(id);
        if let Some(c) = self.conversations.get(&id) {
            // As long as Linux's `ib_cm`: the local ACK timeout of the queue pairs.
            let until = now + cm_time(c.ack_timeout);
            self.set_state(id, ConversationState::Timewait(until));
        }
    }

    pub(super) fn remove(&mut self, id: CommId) {
        self.forget_qpn(id);
        if let Some(c) = self.conversations.remove(&id) {
            if c.id_indexed {
                self.by_remote_id.remove(&(c.remote_guid, c.remote_id));
            }
            if let Some(key) = resolution_key(&c) {
                self.by_resolution.remove(&key);
            }
            self.half_open -= usize::from(waits_for_owner(&c.state));
            self.move_deadline(id, c.state.deadline(), None);
        }
    }

    /// Removes a conversation with its last event.
    pub(super) fn end(&mut self, id: CommId, last: ConversationEventKind) {
        self.event(id, last);
        self.remove(id);
    }

    pub(super) fn move_deadline(&mut self, id: CommId, old: Option<Time>, new: Option<Time>) {
        if let Some(at) = old {
            self.deadlines.remove(&(at, id));
        }
        if let Some(at) = new {
            self.deadlines.insert((at, id));
        }
    }

    pub(super) fn send(&mut self, path: MadPath, to: Recipient, mad: CmMad) {
        self.out
            .push_back(Output::Send(Box::new(OutgoingMad { path, to, mad })));
    }

    pub(super) fn send_rej_timeout(&mut self, id: CommId) {
        if let Some(c) = self.conversations.get(&id) {
            let (path, to, mad) = (c.path, Recipient::Service(c.service), c.rej_timeout());
            self.send(path, to, mad);
        }
    }

    /// Sends a message of a conversation now, and again at its interval until the state that `into`
    /// makes is left.
    pub(super) fn send_until_answered(
        &mut self,
        now: Time,
        id: CommId,
        mad: CmMad,
        into: fn(Resend) -> ConversationState,
    ) {
        if let Some(c) = self.conversations.get(&id) {
            let (path, to) = (c.path, c.peer());
            let resend = Resend::new(now, mad.clone(), to, c.interval, c.max_cm_retries);
            self.set_state(id, into(resend));
            self.send(path, to, mad);
        }
    }

    /// Sends a message of a conversation once.
    pub(super) fn send_to_peer(&mut self, id: CommId, mad: impl FnOnce(&Conversation) -> CmMad) {
        if let Some(c) = self.conversations.get(&id) {
            let (path, to, mad) = (c.path, c.peer(), mad(c));
            self.send(path, to, mad);
        }
    }

    /// Reports an event, unless the owner has destroyed the conversation.
    pub(super) fn event(&mut self, conversation: CommId, kind: ConversationEventKind) {
        if self
            .conversations
            .get(&conversation)
            .is_some_and(|c| !c.orphan)
        {
            self.out
                .push_back(Output::Event(ConversationEvent { conversation, kind }));
        }
    }
}

/// Counts against the limit of half-open conversations.
const fn waits_for_owner(state: &ConversationState) -> bool {
    matches!(
        state,
        ConversationState::ReqRcvd | ConversationState::MraReqSent | ConversationState::SidrReqRcvd
    )
}

/// Key of a conversation in the index of resolution requests.
fn resolution_key(c: &Conversation) -> Option<(Gid, CommId)> {
    let passive = matches!(
        c.state,
        ConversationState::SidrReqRcvd | ConversationState::SidrRepSent(..)
    );
    passive.then_some((c.path.remote, c.remote_id))
}

#[cfg(test)]
impl Agent {
    /// Holds the tables against each other.
    pub(super) fn check(&self) {
        let waiting = self
            .conversations
            .values()
            .filter(|c| waits_for_owner(&c.state))
            .count();
        assert_eq!(self.half_open, waiting);
        let deadlines: BTreeSet<_> = self
            .conversations
            .values()
            .filter_map(|c| Some((c.state.deadline()?, c.local_id)))
            .collect();
        assert_eq!(self.deadlines, deadlines);
        for (key, id) in &self.by_remote_id {
            let c = &self.conversations[id];
            assert!(c.id_indexed && *key == (c.remote_guid, c.remote_id));
        }
        for (key, id) in &self.by_remote_qpn {
            let c = &self.conversations[id];
            assert!(c.qpn_indexed && *key == (c.remote_guid, c.remote_qpn));
        }
        let indexed = |flag: fn(&Conversation) -> bool| {
            self.conversations.values().filter(|c| flag(c)).count()
        };
        assert_eq!(self.by_remote_id.len(), indexed(|c| c.id_indexed));
        assert_eq!(self.by_remote_qpn.len(), indexed(|c| c.qpn_indexed));
        for (key, id) in &self.by_resolution {
            assert_eq!(resolution_key(&self.conversations[id]), Some(*key));
        }
        assert_eq!(
            self.by_resolution.len(),
            indexed(|c| resolution_key(c).is_some())
        );
    }
}
