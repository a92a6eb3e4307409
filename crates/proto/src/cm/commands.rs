//! Commands of the owner of a conversation.

use super::agent::Agent;
use super::conversation::{Conversation, ConversationState, Phase, Resend};
use super::timing::cm_time;
use super::{MadPath, Recipient, WrongState};
use crate::mad::{CmMad, CommId, Message, PrivateData, Rej, RejReason, Rep, Req};
use crate::time::Time;

impl Agent {
    /// Sends a REQ. The agent fills in the communication id; the rest is the owner's.
    /// `packet_life_time` is the path's code: it decides, with the response timeout of the REQ,
    /// when the REQ is sent again.
    ///
    /// Ends in Reply, Rejected or Unreachable. `None` if no communication id is left.
    pub fn connect(
        &mut self,
        now: Time,
        path: MadPath,
        mut req: Req,
        packet_life_time: u8,
    ) -> Option<CommId> {
        let id = self.new_id()?;
        req.local_comm_id = id;
        let tid = self.ids.tid();
        // A round trip, and the time that the peer may take to answer (as Linux's `ib_cm`).
        let interval = 2 * cm_time(packet_life_time) + cm_time(req.remote_cm_response_timeout);
        let to = Recipient::Service(req.service_id);
        let mad = CmMad {
            tid,
            message: Message::Req(req),
        };
        let resend = Resend::new(now, mad.clone(), to, interval, req.max_cm_retries);
        self.insert(Conversation {
            local_guid: req.local_ca_guid,
            local_qpn: req.local_qpn,
            service: req.service_id,
            interval,
            max_cm_retries: req.max_cm_retries,
            packet_life_time,
            ack_timeout: req.primary.local_ack_timeout,
            ..Conversation::new(id, path, tid, ConversationState::ReqSent(resend))
        });
        self.send(path, to, mad);
        Some(id)
    }

    /// The answer to a request or reply takes the owner longer: repetitions of the peer's message
    /// get an MRA.
    ///
    /// # Errors
    /// The conversation does not wait for the owner.
    pub fn delay(&mut self, id: CommId) -> Result<(), WrongState> {
        let state = match self.phase(id) {
            Some(Phase::ReqRcvd) => ConversationState::MraReqSent,
            Some(Phase::RepRcvd) => ConversationState::MraRepSent,
            state => {
                return Err(WrongState {
                    command: "delay the answer",
                    state,
                });
            }
        };
        self.set_state(id, state);
        Ok(())
    }

    /// Answers a request with a REP. The agent fills in both communication ids; the rest is the
    /// owner's, whose queue pair must be ready. Ends in Established, Rejected, Unreachable or (if
    /// the RTU was lost) Disconnected.
    ///
    /// # Errors
    /// No request waits for an answer.
    pub fn accept(&mut self, now: Time, id: CommId, mut rep: Rep) -> Result<(), WrongState> {
        let state = self.phase(id);
        let (Some(Phase::ReqRcvd | Phase::MraReqSent), Some(c)) =
            (state, self.conversations.get_mut(&id))
        else {
            return Err(WrongState {
                command: "accept",
                state,
            });
        };
        (rep.local_comm_id, rep.remote_comm_id) = (id, c.remote_id);
        c.local_guid = rep.local_ca_guid;
        // A DREQ must name this queue pair, and it may come before the RTU.
        c.local_qpn = rep.queue_pair();
        let mad = CmMad {
            tid: c.tid,
            message: Message::Rep(rep),
        };
        self.send_until_answered(now, id, mad, ConversationState::RepSent);
        Ok(())
    }

    /// Answers a request, or the reply to one, with a REJ. The conversation ends without an event
    /// (after a REP was sent: after timewait).
    ///
    /// # Errors
    /// Nothing is there to reject: the connection is established, or closing, or gone.
    pub fn reject(
        &mut self,
        now: Time,
        id: CommId,
        reason: RejReason,
        private_data: PrivateData<{ Rej::PRIVATE }>,
    ) -> Result<(), WrongState> {
        let state = self.phase(id);
        let rep_sent = match state {
            Some(
                Phase::ReqSent
                | Phase::MraReqRcvd
                | Phase::ReqRcvd
                | Phase::MraReqSent
                | Phase::RepRcvd
                | Phase::MraRepSent,
            ) => false,
            Some(Phase::RepSent | Phase::MraRepRcvd) => true,
            _ => {
                return Err(WrongState {
                    command: "reject",
                    state,
                });
            }
        };
        self.send_to_peer(id, |c| CmMad {
            tid: c.tid,
            message: Message::Rej(Rej {
                private_data,
                ..c.rej(reason)
            }),
        });
        // The peer may have got the REP and sent packets: they must be gone before the numbers are
        // used again.
        if rep_sent {
            self.enter_timewait(now, id);
        } else {
            self.remove(id);
        }
        Ok(())
    }

    /// Drops a request without an answer: its sender will ask again.
    pub fn discard(&mut self, id: CommId) {
        if matches!(
            self.phase(id),
            Some(Phase::ReqRcvd | Phase::MraReqSent | Phase::SidrReqRcvd)
        ) {
            self.remove(id);
        }
    }

    /// Answers a reply with an RTU: the owner's queue pair is ready. No event follows.
    ///
    /// # Errors
    /// No reply waits for an answer.
    pub fn establish(&mut self, id: CommId) -> Result<(), WrongState> {
        let state = self.phase(id);
        if !matches!(state, Some(Phase::RepRcvd | Phase::MraRepSent)) {
            return Err(WrongState {
                command: "establish",
                state,
            });
        }
        // The RTU is sent once. If it is lost, the peer repeats its REP, and `on_repeated_rep`
        // answers.
        self.set_state(id, ConversationState::Established);
        self.send_to_peer(id, Conversation::rtu);
        Ok(())
    }

    /// Data came on a connection whose RTU did not: it counts as established, and the event says
    /// so.
    ///
    /// # Errors
    /// No REP waits for its RTU.
    pub fn notify_established(&mut self, id: CommId) -> Result<(), WrongState> {
        let state = self.phase(id);
        if !matches!(state, Some(Phase::RepSent | Phase::MraRepRcvd)) {
            return Err(WrongState {
                command: "take the connection for established",
                state,
            });
        }
        self.set_established(id);
        Ok(())
    }

    /// Ends a connection: a DREQ, or a DREP if the peer asked first. After a DREQ, Disconnected
    /// follows.
    ///
    /// # Errors
    /// Neither established nor asked to disconnect.
    pub fn disconnect(&mut self, now: Time, id: CommId) -> Result<(), WrongState> {
        match self.conversations.get(&id).map(|c| &c.state) {
            Some(ConversationState::Established) => {
                self.send_dreq(now, id);
                Ok(())
            }
            Some(&ConversationState::DreqRcvd(tid)) => {
                self.answer_dreq(now, id, tid);
                Ok(())
            }
            state => Err(WrongState {
                command: "disconnect",
                state: state.map(ConversationState::phase),
            }),
        }
    }

    /// The owner lets go: the peer is told whatever its state calls for, and no event comes any
    /// more. What must outlive the owner (a DREQ until it is answered, timewait) the agent finishes
    /// on its own.
    pub fn destroy(&mut self, now: Time, id: CommId) {
        // The queue pair number may be used again at once, by a new request of the same peer.
        self.forget_qpn(id);
        // The peer hears what Linux sends in each state.
        match self.phase(id) {
            None => return,
            Some(Phase::ReqSent | Phase::MraReqRcvd) => {
                self.send_rej_timeout(id);
                self.remove(id);
            }
            Some(
                Phase::ReqRcvd
                | Phase::MraReqSent
                | Phase::RepRcvd
                | Phase::MraRepSent
                | Phase::RepSent
                | Phase::MraRepRcvd,
            ) => {
                let allowed =
                    self.reject(now, id, RejReason::CONSUMER_DEFINED, PrivateData::default());
                debug_assert_eq!(allowed, Ok(()), "every state of this arm can be rejected");
            }
            Some(Phase::Established | Phase::DreqRcvd) => {
                let allowed = self.disconnect(now, id);
                debug_assert_eq!(
                    allowed,
                    Ok(()),
                    "both states of this arm can be disconnected"
                );
            }
            Some(Phase::SidrReqSent) => self.remove(id),
            Some(Phase::SidrReqRcvd) => self.refuse_resolution(now, id),
            Some(Phase::DreqSent | Phase::Timewait | Phase::SidrRepSent) => {}
        }
        if let Some(c) = self.conversations.get_mut(&id) {
            c.orphan = true;
        }
    }

    pub(super) fn send_dreq(&mut self, now: Time, id: CommId) {
        if let Some(c) = self.conversations.get(&id) {
            let mad = c.dreq(self.ids.tid());
            self.send_until_answered(now, id, mad, ConversationState::DreqSent);
        }
    }
}
