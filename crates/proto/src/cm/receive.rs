//! Messages that set a connection up: REQ, MRA, REP, RTU.

use alloc::boxed::Box;
use core::time::Duration;

use super::agent::Agent;
use super::answer::{answer_unknown, reject_request};
use super::conversation::{Conversation, ConversationState, Phase, Resend};
use super::timing::{MRA_SERVICE_TIMEOUT, ack_timeout, cm_time};
use super::{ConversationEventKind, MadPath, Recipient};
use crate::ids::Gid;
use crate::mad::{Answered, CmMad, CommId, Message, Mra, Rej, RejReason, Rep, Req, Rtu};
use crate::time::Time;

/// A peer is asked no sooner again whether it knows a connection.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// Why a MAD changes nothing, and is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// The MAD names a conversation, and comes from another address than that of the peer.
    Address,
    /// The MAD answers a request of this agent with another transaction id than that of the
    /// request.
    Transaction,
    /// As many requests wait for the owner's answer as there may be.
    Full,
}

impl Agent {
    /// A MAD came from `from` to our address `to`.
    ///
    /// # Errors
    /// Why it was ignored, although it makes sense.
    pub fn on_mad(&mut self, now: Time, from: Gid, to: Gid, mad: &CmMad) -> Result<(), Ignored> {
        let path = MadPath::reply(from, to);
        self.check_sender(from, mad)?;
        match &mad.message {
            Message::Req(req) => return self.on_req(now, path, mad.tid, req),
            Message::Mra(mra) => self.on_mra(now, mra),
            Message::Rep(rep) => self.on_rep(now, path, mad, rep),
            Message::Rtu(rtu) => self.on_rtu(rtu),
            Message::Rej(rej) => self.on_rej(now, rej),
            Message::Dreq(dreq) => self.on_dreq(now, path, mad, dreq),
            Message::Drep(drep) => self.on_drep(now, mad.tid, drep),
            Message::SidrReq(request) => return self.on_sidr_req(now, path, mad.tid, request),
            Message::SidrRep(rep) => self.on_sidr_rep(rep),
        }
        Ok(())
    }

    /// Checks that a message for one of our conversations comes from the address of the
    /// conversation's peer, and answers a request that was sent. The sender of another one has read
    /// or guessed the ids.
    fn check_sender(&self, from: Gid, mad: &CmMad) -> Result<(), Ignored> {
        match self.named(&mad.message) {
            Some(c) if c.path.remote != from => Err(Ignored::Address),
            Some(c) if !answers(c, mad) => Err(Ignored::Transaction),
            _ => Ok(()),
        }
    }

    /// Whether a message names one of our conversations.
    #[must_use]
    pub fn knows(&self, message: &Message) -> bool {
        self.named(message).is_some()
    }

    /// The conversation that a message names.
    fn named(&self, message: &Message) -> Option<&Conversation> {
        let id = match message {
            Message::Rej(rej) => self.rejected(rej),
            other => other.remote_comm_id(),
        };
        self.conversations.get(&id?)
    }

    /// Whether a REQ belongs to a conversation of this agent already: it is a repetition.
    #[must_use]
    pub fn knows_request(&self, req: &Req) -> bool {
        self.find_by_remote_id(req.local_ca_guid, req.local_comm_id)
            .is_some()
    }

    fn on_req(&mut self, now: Time, path: MadPath, tid: u64, req: &Req) -> Result<(), Ignored> {
        // 0 stands for "not known", so no answer could name this request.
        if req.local_comm_id.is_none() {
            return Ok(());
        }
        // As in Linux: GUID and id tell a repetition, GUID and queue pair a stale connection.
        if let Some(known) = self.find_by_remote_id(req.local_ca_guid, req.local_comm_id) {
            self.on_repeated_req(known, path, tid, req);
            return Ok(());
        }
        if let Some(old) = self.find_by_remote_qpn(req.local_ca_guid, req.local_qpn) {
            let rej = reject_request(tid, req, RejReason::STALE_CONNECTION);
            self.send(path, Recipient::Conversation(req.local_comm_id), rej);
            self.ask_after(now, old, path.remote);
            return Ok(());
        }
        // A flood of requests must not take the memory of the process. The peer asks again.
        if self.half_open_full() {
            return Err(Ignored::Full);
        }
        let Some(id) = self.new_id() else {
            return Ok(());
        };
        self.insert(Conversation {
            remote_id: req.local_comm_id,
            remote_guid: req.local_ca_guid,
            remote_qpn: req.local_qpn,
            service: req.service_id,
            // The REP is sent again after the time that the peer may take to answer it.
            interval: cm_time(req.local_cm_response_timeout),
            max_cm_retries: req.max_cm_retries,
            ack_timeout: req.primary.local_ack_timeout,
            ..Conversation::new(id, path, tid, ConversationState::ReqRcvd)
        });
        self.index(id);
        self.event(
            id,
            ConversationEventKind::Request {
                req: Box::new(*req),
                path,
            },
        );
        Ok(())
    }

    /// The asker did not hear from us, or the network repeats itself.
    fn on_repeated_req(&mut self, id: CommId, path: MadPath, tid: u64, req: &Req) {
        match self.phase(id) {
            Some(Phase::MraReqSent) => {
                self.send_to_peer(id, |c| c.mra(Answered::Req, MRA_SERVICE_TIMEOUT));
            }
            // The old connection of these ids is over, and its packets may still be on their way.
            Some(Phase::Timewait) => {
                let rej = reject_request(tid, req, RejReason::STALE_CONNECTION);
                self.send(path, Recipient::Conversation(req.local_comm_id), rej);
            }
            // Our REP goes out again by its own timer.
            _ => {}
        }
    }

    /// A REQ names the queue pair of this connection, so the peer may have forgotten the
    /// connection. A REQ is easily forged, in the peer's name too: the peer is asked.
    fn ask_after(&mut self, now: Time, old: CommId, from: Gid) {
        let Some(c) = self.conversations.get_mut(&old) else {
            return;
        };
        // Only an established connection can be stale: the others end by their own retries.
        if c.path.remote != from || c.state.phase() != Phase::Established {
            return;
        }
        let recent = c.asked_after.is_some_and(|(at, _)| now < at + ASK_INTERVAL);
        if recent {
            return;
        }
        let tid = self.ids.tid();
        c.asked_after = Some((now, tid));
        let (path, to, question) = (c.path, c.remote_id, c.question(tid));
        self.send(path, Recipient::Conversation(to), question);
    }

    /// The peer's answer to a REQ names the queue pair of this connection, so the peer has
    /// forgotten the connection. Only its own word counts: another address may claim any queue
    /// pair.
    fn close_stale(&mut self, now: Time, old: CommId, from: Gid) {
        let by_peer = self
            .conversations
            .get(&old)
            .is_some_and(|c| c.path.remote == from);
        if by_peer && self.phase(old) == Some(Phase::Established) {
            self.send_dreq(now, old);
        }
    }

    /// The peer needs more time: its service timeout counts from now. A second MRA for the same
    /// message changes nothing, so the wait is bounded by the retries.
    fn on_mra(&mut self, now: Time, mra: &Mra) {
        let id = mra.remote_comm_id;
        let Some(c) = self.conversations.get_mut(&id) else {
            return;
        };
        // The service timeout of the MRA, and the time of the path.
        let interval = cm_time(mra.service_timeout) + cm_time(c.ack_timeout);
        let more = |resend: &Resend| Resend {
            interval,
            at: now + interval,
            ..resend.clone()
        };
        let state = match (&c.state, mra.answered) {
            (ConversationState::ReqSent(resend), Answered::Req) => {
                ConversationState::MraReqRcvd(more(resend))
            }
            (ConversationState::RepSent(resend), Answered::Rep)
                if c.remote_id == mra.local_comm_id =>
            {
                ConversationState::MraRepRcvd(more(resend))
            }
            _ => return,
        };
        // A later REJ or REP must name this id.
        c.remote_id = mra.local_comm_id;
        self.set_state(id, state);
    }

    fn on_rep(&mut self, now: Time, path: MadPath, mad: &CmMad, rep: &Rep) {
        let id = rep.remote_comm_id;
        match self.phase(id) {
            Some(Phase::ReqSent | Phase::MraReqRcvd) => {
                self.on_first_rep(now, path.remote, id, rep)
            }
            Some(phase) => self.on_repeated_rep(id, phase, rep),
            None => self.answer_stranger(path, rep.local_comm_id, mad),
        }
    }

    fn on_first_rep(&mut self, now: Time, from: Gid, id: CommId, rep: &Rep) {
        if self
            // Another conversation has this peer and id already: the REP repeats that one's, or is
            // forged.
            .find_by_remote_id(rep.local_ca_guid, rep.local_comm_id)
            .is_some()
        {
            return;
        }
        // The REP names a queue pair that is connected here (Linux rejects so).
        if let Some(old) = self.find_by_remote_qpn(rep.local_ca_guid, rep.queue_pair()) {
            self.reject_stale_rep(id, rep);
            self.close_stale(now, old, from);
            return;
        }
        let Some(c) = self.conversations.get_mut(&id) else {
            return;
        };
        c.remote_id = rep.local_comm_id;
        c.remote_guid = rep.local_ca_guid;
        c.remote_qpn = rep.queue_pair();
        // The path's part of the timeout stays; the responder's delay was a guess until now.
        c.ack_timeout = ack_timeout(rep.target_ack_delay, c.packet_life_time);
        self.index(id);
        self.set_state(id, ConversationState::RepRcvd);
        self.event(id, ConversationEventKind::Reply(Box::new(*rep)));
    }

    /// The REP names a queue pair of a connection that we still have. Our REQ goes out again by its
    /// own timer.
    fn reject_stale_rep(&mut self, id: CommId, rep: &Rep) {
        if let Some(c) = self.conversations.get(&id) {
            let rej = Rej {
                local_comm_id: id,
                remote_comm_id: rep.local_comm_id,
                answered: Answered::Rep,
                ..Rej::new(RejReason::STALE_CONNECTION)
            };
            let (path, mad) = (
                c.path,
                CmMad {
                    tid: c.tid,
                    message: Message::Rej(rej),
                },
            );
            self.send(path, Recipient::Conversation(rep.local_comm_id), mad);
        }
    }

    /// The passive side did not hear our answer to its REP.
    fn on_repeated_rep(&mut self, id: CommId, phase: Phase, rep: &Rep) {
        if self.find(id, rep.local_comm_id).is_none() {
            return;
        }
        // The same two answers as Linux gives.
        match phase {
            Phase::Established => self.send_to_peer(id, Conversation::rtu),
            Phase::MraRepSent => {
                self.send_to_peer(id, |c| c.mra(Answered::Rep, MRA_SERVICE_TIMEOUT))
            }
            _ => {}
        }
    }

    fn on_rtu(&mut self, rtu: &Rtu) {
        let id = rtu.remote_comm_id;
        let phase = self.find(id, rtu.local_comm_id).map(|c| c.state.phase());
        if matches!(phase, Some(Phase::RepSent | Phase::MraRepRcvd)) {
            self.set_established(id);
        }
    }

    pub(super) fn set_established(&mut self, id: CommId) {
        self.set_state(id, ConversationState::Established);
        self.event(id, ConversationEventKind::Established);
    }

    pub(super) fn answer_stranger(&mut self, path: MadPath, remote: CommId, mad: &CmMad) {
        if let Some(answer) = answer_unknown(mad) {
            self.send(path, Recipient::Conversation(remote), answer);
        }
    }
}

/// Whether a message may be an answer to a request that waits for its first one. Answers repeat the
/// transaction id (IBTA volume 1, chapter 13, `TransactionID`; Linux does so). Later messages name
/// both communication ids.
fn answers(c: &Conversation, mad: &CmMad) -> bool {
    let waits = matches!(
        c.state.phase(),
        Phase::ReqSent | Phase::MraReqRcvd | Phase::SidrReqSent
    );
    !waits || mad.tid == c.tid
}
