//! The agent: tables of conversations, time, and the output queue.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use super::conversation::{Conversation, Phase, Resend, State};
use super::ids::Ids;
use super::timing::cm_time;
use super::{Event, EventKind, MadPath, Outgoing, Output, Recipient};
use crate::ids::{Gid, Guid, Qpn};
use crate::mad::{CmMad, CommId};
use crate::time::Time;

/// What an agent needs to know of its surroundings.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Upper bits of every communication id (slot << 22); the lower 22 are drawn.
    pub id_prefix: u32,
    /// Seed of identifiers.
    pub seed: u64,
    /// Requests that may wait for the owner's answer at once; more are dropped, and their senders ask again.
    pub max_half_open: usize,
}

/// Every conversation of one process. See the module's documentation for its methods and states.
#[derive(Debug)]
pub struct Agent {
    pub(super) ids: Ids,
    pub(super) conversations: BTreeMap<CommId, Conversation>,
    /// Detects repeated requests and finds the conversation of a peer that gave up before it learnt our id.
    by_remote_id: BTreeMap<(Guid, CommId), CommId>,
    /// Detects connections that the peer has forgotten: it uses the queue pair anew.
    by_remote_qpn: BTreeMap<(Guid, Qpn), CommId>,
    deadlines: BTreeSet<(Time, CommId)>,
    out: VecDeque<Output>,
    half_open: usize,
    max_half_open: usize,
}

impl Agent {
    /// An agent without conversations.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        Self {
            ids: Ids::new(config.id_prefix, config.seed),
            conversations: BTreeMap::new(),
            by_remote_id: BTreeMap::new(),
            by_remote_qpn: BTreeMap::new(),
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

    /// A process has ended without a word. `gone` says, for a peer's GID and communication id, whether it was that process's.
    /// Its established connections count as disconnected by the peer, those in set-up as unreachable. Requests that nobody
    /// has answered yet go out again at once, if `gone` says so for the peer's GID with communication id 0.
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

    fn peer_gone(&mut self, now: Time, id: CommId) {
        let Some(c) = self.conversations.get(&id) else {
            return;
        };
        match &c.state {
            State::ReqSent(resend) if c.remote_id.is_none() => {
                let (path, to, mad) = (c.path, resend.to, (*resend.mad).clone());
                self.send(path, to, mad);
            }
            State::Established => {
                let tid = c.tid;
                self.set_state(id, State::DreqRcvd(tid));
                self.event(id, EventKind::Disconnected { timed_out: false });
            }
            State::DreqSent(_) => {
                self.enter_timewait(now, id);
                self.event(id, EventKind::Disconnected { timed_out: false });
            }
            State::DreqRcvd(_) | State::Timewait(_) => {}
            State::ReqSent(_)
            | State::MraReqRcvd(_)
            | State::ReqRcvd
            | State::MraReqSent
            | State::RepSent(_)
            | State::MraRepRcvd(_)
            | State::RepRcvd
            | State::MraRepSent => self.end(id, EventKind::Unreachable),
        }
    }

    fn fire(&mut self, now: Time, id: CommId) {
        let c = self
            .conversations
            .get_mut(&id)
            .expect("invariant: a deadline belongs to a conversation");
        let old = c.state.deadline();
        let again = match &mut c.state {
            State::ReqSent(r)
            | State::MraReqRcvd(r)
            | State::RepSent(r)
            | State::MraRepRcvd(r)
            | State::DreqSent(r)
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
                self.send_rej_timeout(id);
                self.end(id, EventKind::Unreachable);
            }
            Some(Phase::DreqSent) => {
                self.enter_timewait(now, id);
                self.event(id, EventKind::Disconnected { timed_out: true });
            }
            Some(Phase::Timewait) => self.end(id, EventKind::TimewaitExit),
            _ => self.end(id, EventKind::Unreachable),
        }
    }

    // Tables.

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

    pub(super) const fn half_open_full(&self) -> bool {
        self.half_open >= self.max_half_open
    }

    /// Takes in a new conversation, with the indices if its peer is known.
    pub(super) fn insert(&mut self, c: Conversation) {
        let (id, deadline, waits) = (c.local_id, c.state.deadline(), waits_for_owner(&c.state));
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

    /// The peer may use its queue pair for something new without our taking the connection for stale.
    pub(super) fn forget_qpn(&mut self, id: CommId) {
        if let Some(c) = self.conversations.get_mut(&id)
            && core::mem::take(&mut c.qpn_indexed)
        {
            self.by_remote_qpn.remove(&(c.remote_guid, c.remote_qpn));
        }
    }

    pub(super) fn set_state(&mut self, id: CommId, state: State) {
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
            let until = now + cm_time(c.ack_timeout);
            self.set_state(id, State::Timewait(until));
        }
    }

    pub(super) fn remove(&mut self, id: CommId) {
        self.forget_qpn(id);
        if let Some(c) = self.conversations.remove(&id) {
            if c.id_indexed {
                self.by_remote_id.remove(&(c.remote_guid, c.remote_id));
            }
            self.half_open -= usize::from(waits_for_owner(&c.state));
            self.move_deadline(id, c.state.deadline(), None);
        }
    }

    /// Removes a conversation with its last event.
    pub(super) fn end(&mut self, id: CommId, last: EventKind) {
        self.event(id, last);
        self.remove(id);
    }

    fn move_deadline(&mut self, id: CommId, old: Option<Time>, new: Option<Time>) {
        if let Some(at) = old {
            self.deadlines.remove(&(at, id));
        }
        if let Some(at) = new {
            self.deadlines.insert((at, id));
        }
    }

    // Outputs.

    pub(super) fn send(&mut self, path: MadPath, to: Recipient, mad: CmMad) {
        self.out
            .push_back(Output::Send(Box::new(Outgoing { path, to, mad })));
    }

    pub(super) fn send_rej_timeout(&mut self, id: CommId) {
        if let Some(c) = self.conversations.get(&id) {
            let (path, to, mad) = (c.path, Recipient::Service(c.service), c.rej_timeout());
            self.send(path, to, mad);
        }
    }

    /// Sends a message of a conversation now, and again at its interval until the state that `into` makes is left.
    pub(super) fn send_until_answered(
        &mut self,
        now: Time,
        id: CommId,
        mad: CmMad,
        into: fn(Resend) -> State,
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
    pub(super) fn event(&mut self, conversation: CommId, kind: EventKind) {
        if self
            .conversations
            .get(&conversation)
            .is_some_and(|c| !c.orphan)
        {
            self.out
                .push_back(Output::Event(Event { conversation, kind }));
        }
    }
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
    }
}

/// Counts against the limit of half-open conversations.
const fn waits_for_owner(state: &State) -> bool {
    matches!(state, State::ReqRcvd | State::MraReqSent)
}

impl Resend {
    /// First transmission at `now`, then `retries` more.
    pub(super) fn new(
        now: Time,
        mad: CmMad,
        to: Recipient,
        interval: Duration,
        retries: u8,
    ) -> Self {
        Self {
            mad: Box::new(mad),
            to,
            at: now + interval,
            interval,
            left: retries,
        }
    }
}
