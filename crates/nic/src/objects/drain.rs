//! Questions whether what was sent was taken out, or whether there is a Ferroce at all, and their
//! answers, on the wire.

use std::sync::Arc;

use ferroce_proto::ids::Qpn;
use ferroce_proto::time::Time;
use ferroce_proto::wire::Drain;

use crate::base::addressing::Addressing;
use crate::link::path::Egress;
use crate::link::{Batch, Inbound, Ingress};
use crate::objects::services::Services;

/// Hop limit of an answer.
const HOP_LIMIT: u8 = 64;

impl Services {
    /// Answers a question. Returns false if this is something else.
    ///
    /// Whose queue pair it is about does not matter: all that came in before it was taken out of
    /// the same socket.
    pub(crate) fn answer_drain(&self, inbound: &Inbound<'_>, now: Time) -> bool {
        let opened = self
            .auth()
            .map_or(Some(*inbound), |auth| inbound.opened(auth));
        let Some(inbound) = opened else {
            return false;
        };
        let asked = Drain::parse(inbound.packet).filter(|drain| drain.room.is_none());
        let came = &inbound.addressing;
        let (Some(question), false) = (asked, came.dst.is_multicast()) else {
            return false;
        };
        if let Ok((egress, buffer)) = self.wire_to(came.src)
            && !egress.is_blocked()
        {
            let answer = self.askers.answer(came.src, &question, buffer, now);
            let back = Addressing {
                src: came.dst,
                dst: came.src,
                hop_limit: HOP_LIMIT,
                ..*came
            };
            self.send_drain(&egress, back, &answer);
        }
        true
    }

    /// An answer to a question of a queue pair here: a reliable one wanted to know its peer,
    /// another one how much room there is.
    pub(crate) fn on_drain_answer(&self, came: Ingress<'_>, answer: &Drain, now: Time) {
        if let Some(qp) = self.qps.find(answer.to) {
            qp.on_echo(came, answer);
        }
        for qp in self.pacer.on_answer(came.addressing.src, answer) {
            qp.on_turn(now);
        }
    }

    /// Sends a question or an answer behind what was sent that way before.
    pub(crate) fn send_drain(&self, egress: &Arc<Egress>, addressing: Addressing, drain: &Drain) {
        let mut batch = Batch {
            addressing,
            ..egress.batch()
        };
        drain.emit(&mut batch.bytes);
        if let Some(auth) = self.auth() {
            auth.add_tag(&addressing, &mut batch.bytes);
        }
        batch.end_packet();
        // A wire link is never gone.
        let _ = egress.send(Qpn::GSI, batch);
    }
}
