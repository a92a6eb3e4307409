//! Packets to memory and completions. What a request does is in `rc::execute`; here is what happens
//! where RC would send a NAK.

use super::UcQp;
use crate::qp::migration;
use crate::rc::Cx;
use crate::rc::fault::{Fault, Reject};
use crate::rc::responder::Stop;
use crate::verbs::QpState;
use crate::wire::{Packet, Service};

impl UcQp {
    /// A packet for this queue pair whose addresses, `P_Key` and ICRC were right. Returns whether
    /// the queue pair receives in its state.
    ///
    /// A packet that does not have the PSN after the last one says that some are missing. The
    /// message in work is given up, and only a First or Only packet begins one again. The receive
    /// that a given up message took serves the next one.
    pub fn on_packet(&mut self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> bool {
        if !matches!(
            self.state(),
            QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe
        ) {
            return false;
        }
        let info = packet.bth.opcode.info();
        let Some(info) = info.filter(|info| info.service == Service::Uc) else {
            return true;
        };
        migration::on_packet(&mut self.shared.attr, packet.bth.migreq);
        let psn = packet.bth.psn;
        let responder = &mut self.responder;
        if psn != responder.expected || info.position.starts() {
            responder.message = None;
        }
        responder.expected = psn;
        if info.position.starts() || responder.message.is_some() {
            responder.report_established(&self.shared, cx);
            let outcome = responder.execute(&self.shared, cx, packet);
            self.settle_request(cx, outcome);
        }
        self.responder.expected = psn.plus(1);
        true
    }

    /// A request could not be carried out: it vanishes (IBTA: an error of class D). It vanishes
    /// also if it is longer than the receive that it took, which then serves the next message. Only
    /// what is wrong with our own memory or CQ ends the queue pair, as any error of a receive queue
    /// does.
    fn settle_request(&mut self, cx: &mut Cx<'_>, outcome: Result<(), Stop>) {
        match outcome {
            Ok(()) => {}
            Err(Stop::Reject(reject)) if reject == Reject::CQ_OVERFLOW => {
                if let Some(event) = reject.event {
                    cx.sink.event(event);
                }
                self.enter_error(cx, None);
            }
            Err(Stop::Reject(Reject {
                recv: Some(fault), ..
            })) if fault != Fault::MESSAGE_TOO_LONG => self.enter_error(cx, Some(fault)),
            Err(Stop::Reject(_) | Stop::NotReady | Stop::Asked | Stop::NotFetched) => {
                self.responder.message = None
            }
        }
    }
}
