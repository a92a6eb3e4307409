//! Service id resolution: how a datagram service tells its queue pair (IBTA volume 1, 12.11).
//!
//! ```text
//! active     resolve ─► SidrReqSent ─(SIDR_REP)─► gone
//! passive    (SIDR_REQ) ─► SidrReqRcvd ─answer─► SidrRepSent ─► gone
//! ```
//!
//! The reply is kept for a while after the owner gave it. A repetition of the request, whose sender
//! did not hear it, gets it again instead of becoming a second request.

use alloc::boxed::Box;

use super::agent::Agent;
use super::conversation::{Conversation, ConversationState, Phase, Resend};
use super::receive::Ignored;
use super::timing::{CM_RESPONSE_TIMEOUT, MAX_CM_RETRIES, SIDR_REPLY_KEPT, cm_time};
use super::{ConversationEventKind, MadPath, Recipient, WrongState};
use crate::ids::Gid;
use crate::mad::{CmMad, CommId, Message, SidrRep, SidrReq, SidrStatus};
use crate::time::Time;

impl Agent {
    /// Asks for the queue pair of a service. The agent fills in the request id.
    ///
    /// Ends in `Resolved` (whatever the status) or Unreachable, and the conversation with it.
    /// `None` if no communication id is left.
    pub fn resolve(&mut self, now: Time, path: MadPath, mut request: SidrReq) -> Option<CommId> {
        let id = self.new_id()?;
        request.request_id = id.0;
        let mad = CmMad {
            tid: self.ids.tid(),
            message: Message::SidrReq(request),
        };
        let to = Recipient::Service(request.service_id);
        let interval = cm_time(CM_RESPONSE_TIMEOUT);
        let resend = Resend::new(now, mad.clone(), to, interval, MAX_CM_RETRIES);
        self.insert(Conversation {
            service: request.service_id,
            ..Conversation::new(id, path, mad.tid, ConversationState::SidrReqSent(resend))
        });
        self.send(path, to, mad);
        Some(id)
    }

    /// Answers a resolution request. The agent fills in request and service. The conversation is
    /// over for its owner: no event follows.
    ///
    /// # Errors
    /// No resolution request waits for an answer.
    pub fn answer(&mut self, now: Time, id: CommId, mut rep: SidrRep) -> Result<(), WrongState> {
        let state = self.phase(id);
        let (Some(Phase::SidrReqRcvd), Some(c)) = (state, self.conversations.get_mut(&id)) else {
            return Err(WrongState {
                command: "answer a resolution request",
                state,
            });
        };
        (rep.request_id, rep.service_id) = (c.remote_id.0, c.service);
        c.orphan = true;
        let mad = CmMad {
            tid: c.tid,
            message: Message::SidrRep(rep),
        };
        let (path, to) = (c.path, c.peer());
        self.set_state(
            id,
            ConversationState::SidrRepSent(Box::new(mad.clone()), now + SIDR_REPLY_KEPT),
        );
        self.send(path, to, mad);
        Ok(())
    }

    /// Whether a `SIDR_REQ` from `from` belongs to a conversation of this agent already: it is a
    /// repetition.
    #[must_use]
    pub fn knows_resolution(&self, from: Gid, request: &SidrReq) -> bool {
        self.find_resolution(from, CommId(request.request_id))
            .is_some()
    }

    pub(super) fn on_sidr_req(
        &mut self,
        now: Time,
        path: MadPath,
        tid: u64,
        request: &SidrReq,
    ) -> Result<(), Ignored> {
        let remote_id = CommId(request.request_id);
        if let Some(known) = self.find_resolution(path.remote, remote_id) {
            if self.repeats(known, tid, request) {
                self.repeat_answer(now, known);
                return Ok(());
            }
            // The peer uses the id anew, so it does not wait for the former answer.
            self.remove(known);
        }
        if self.half_open_full() {
            return Err(Ignored::Full);
        }
        let Some(id) = self.new_id() else {
            return Ok(());
        };
        self.insert(Conversation {
            remote_id,
            service: request.service_id,
            ..Conversation::new(id, path, tid, ConversationState::SidrReqRcvd)
        });
        let req = Box::new(*request);
        self.event(id, ConversationEventKind::Resolution { req, path });
        Ok(())
    }

    /// Whether a request is the one that a conversation is about. One that still waits for its
    /// owner always counts as such.
    fn repeats(&self, known: CommId, tid: u64, request: &SidrReq) -> bool {
        self.conversations.get(&known).is_some_and(|c| {
            let same = c.tid == tid && c.service == request.service_id;
            same || matches!(c.state, ConversationState::SidrReqRcvd)
        })
    }

    /// The asker did not hear our answer, or the network repeats itself. Before there is an answer,
    /// nothing goes out.
    fn repeat_answer(&mut self, now: Time, id: CommId) {
        let Some(c) = self.conversations.get(&id) else {
            return;
        };
        if let ConversationState::SidrRepSent(mad, _) = &c.state {
            let (path, to, mad) = (c.path, c.peer(), mad.clone());
            self.send(path, to, (*mad).clone());
            self.set_state(
                id,
                ConversationState::SidrRepSent(mad, now + SIDR_REPLY_KEPT),
            );
        }
    }

    pub(super) fn on_sidr_rep(&mut self, rep: &SidrRep) {
        let id = CommId(rep.request_id);
        if self.phase(id) == Some(Phase::SidrReqSent) {
            self.end(id, ConversationEventKind::Resolved(Box::new(*rep)));
        }
    }

    /// The owner of an unanswered resolution request lets go.
    pub(super) fn refuse_resolution(&mut self, now: Time, id: CommId) {
        let refused = SidrRep::refusal(&SidrReq::default(), SidrStatus::REJECT);
        let allowed = self.answer(now, id, refused);
        debug_assert_eq!(allowed, Ok(()), "only called while the request waits");
    }
}
