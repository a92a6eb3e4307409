//! Messages that end a conversation: REJ, DREQ, DREP.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::agent::Agent;
use super::conversation::{ConversationState, Phase};
use super::{ConversationEventKind, MadPath};
use crate::ids::{Gid, Guid};
use crate::mad::{Answered, CmMad, CommId, Drep, Dreq, Rej, RejReason};
use crate::time::Time;

impl Agent {
    /// The conversation that a REJ is about. A peer that gave up before it learnt our id names its
    /// own, with its GUID.
    pub(super) fn rejected(&self, rej: &Rej) -> Option<CommId> {
        if rej.reason == RejReason::TIMEOUT {
            let mut guid = [0; 8];
            guid.copy_from_slice(&rej.info[..8]);
            let guid = Guid(u64::from_be_bytes(guid));
            let found = self.find_by_remote_id(guid, rej.local_comm_id);
            // A connection that is established has our id.
            if let Some(id) = found.filter(|id| self.phase(*id) != Some(Phase::Established)) {
                return Some(id);
            }
        }
        let c = self.conversations.get(&rej.remote_comm_id)?;
        // A peer that rejects a REQ need not have an id, and this side need not know that. Later it
        // names both ids, which are harder to guess.
        let waits = matches!(c.state.phase(), Phase::ReqSent | Phase::MraReqRcvd);
        let of_req = waits
            && rej.answered == Answered::Req
            && (c.remote_id.is_none() || rej.local_comm_id.is_none());
        (of_req || c.remote_id == rej.local_comm_id).then_some(c.local_id)
    }

    pub(super) fn on_rej(&mut self, now: Time, rej: &Rej) {
        let Some(id) = self.rejected(rej) else {
            return;
        };
        // The states are those in which Linux takes it. A queue pair that may have sent
        // packets goes to timewait.
        let stays = match self.phase(id) {
            Some(
                Phase::ReqSent
                | Phase::MraReqRcvd
                | Phase::ReqRcvd
                | Phase::MraReqSent
                | Phase::RepSent
                | Phase::MraRepRcvd,
            ) => rej.reason == RejReason::STALE_CONNECTION,
            Some(Phase::RepRcvd | Phase::MraRepSent | Phase::DreqSent | Phase::Established) => true,
            Some(
                Phase::DreqRcvd
                | Phase::Timewait
                | Phase::SidrReqSent
                | Phase::SidrReqRcvd
                | Phase::SidrRepSent,
            )
            | None => return,
        };
        let event = ConversationEventKind::Rejected {
            reason: rej.reason,
            private_data: Box::new(rej.private_data.0),
        };
        if stays {
            self.event(id, event);
            self.enter_timewait(now, id);
        } else {
            self.end(id, event);
        }
    }

    pub(super) fn on_dreq(&mut self, now: Time, path: MadPath, mad: &CmMad, dreq: &Dreq) {
        let id = dreq.remote_comm_id;
        let Some(c) = self.find(id, dreq.local_comm_id) else {
            self.answer_stranger(path, dreq.local_comm_id, mad);
            return;
        };
        // IBTA volume 1, 12.9.8: such a DREQ is dropped.
        if c.local_qpn != dreq.remote_qpn {
            return;
        }
        match c.state.phase() {
            phase @ (Phase::RepSent | Phase::MraRepRcvd | Phase::Established | Phase::DreqSent) => {
                let orphan = c.orphan;
                if matches!(phase, Phase::RepSent | Phase::MraRepRcvd) {
                    // Only an established peer sends a DREQ: its RTU was lost or overtaken.
                    self.set_established(id);
                }
                self.set_state(id, ConversationState::DreqRcvd(mad.tid));
                self.event(id, ConversationEventKind::Disconnected { timed_out: false });
                if orphan {
                    // Both asked at once, and no owner is left to answer.
                    self.answer_dreq(now, id, mad.tid);
                }
            }
            // The DREP was lost, so the peer asks again.
            Phase::Timewait => self.send_to_peer(id, |c| c.drep(mad.tid)),
            // Asked before, or still being set up: the peer will ask again.
            _ => {}
        }
    }

    pub(super) fn answer_dreq(&mut self, now: Time, id: CommId, tid: u64) {
        self.send_to_peer(id, |c| c.drep(tid));
        self.enter_timewait(now, id);
    }

    /// Sends each DREQ that has no answer yet once more, without a regard to time, if `far` says so
    /// for the peer's GID. For an owner that is about to vanish: nobody will repeat them when the
    /// network loses one, and the peer would wait for ever.
    pub fn repeat_dreqs(&mut self, far: impl Fn(Gid) -> bool) {
        let unanswered: Vec<_> = self
            .conversations
            .values()
            .filter_map(|c| match &c.state {
                ConversationState::DreqSent(r) if far(c.path.remote) => {
                    Some((c.path, r.to, (*r.mad).clone()))
                }
                _ => None,
            })
            .collect();
        for (path, to, mad) in unanswered {
            self.send(path, to, mad);
        }
    }

    pub(super) fn on_drep(&mut self, now: Time, tid: u64, drep: &Drep) {
        let id = drep.remote_comm_id;
        let Some(c) = self.find(id, drep.local_comm_id) else {
            return;
        };
        let is_forgotten = c.asked_after.is_some_and(|(_, asked)| asked == tid);
        match c.state.phase() {
            // The peer has answered the question of `ask_after`: it does not know the connection.
            Phase::Established if is_forgotten => {
                self.event(id, ConversationEventKind::Disconnected { timed_out: false });
                self.enter_timewait(now, id);
            }
            Phase::DreqSent => {
                self.event(id, ConversationEventKind::Disconnected { timed_out: false });
                self.enter_timewait(now, id);
            }
            // Both asked at once, and the disconnect is reported.
            Phase::DreqRcvd => self.enter_timewait(now, id),
            _ => {}
        }
    }
}
