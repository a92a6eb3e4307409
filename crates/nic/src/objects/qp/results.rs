//! Where what the transport has to say to the program goes: completions, events, counters, and the
//! receives that it takes from others.

use std::sync::Arc;

use ferroce_proto::ids::{Key, PdId, Srqn};
use ferroce_proto::iwarp::SegmentWay;
use ferroce_proto::iwarp::ddp::Header;
use ferroce_proto::mr::Piece;
use ferroce_proto::rc::{Noted, Rendezvous, SharedRecv, Sink, Taken};
use ferroce_proto::verbs::{QpEvent, QpType, Wc, WcOpcode, WcStatus};

use super::Qp;
use crate::Srq;
use crate::objects::cq::DirectDelivery;
use crate::services::direct::KnownPeer;

/// Takes what the transport has to say to the program.
pub(super) struct Results<'a, 'c> {
    qp: &'a Qp,
    delivery: &'a mut DirectDelivery<'c>,
    /// What is noted often is counted once per step: SENDs done, and received.
    sent: u32,
    received: u32,
}

impl<'a, 'c> Results<'a, 'c> {
    pub(super) const fn new(qp: &'a Qp, delivery: &'a mut DirectDelivery<'c>) -> Self {
        Self {
            qp,
            delivery,
            sent: 0,
            received: 0,
        }
    }

    fn count(&self, what: Noted, times: u32) {
        if times > 0 {
            let counters = self.qp.pd.context().device().counters();
            counters.count_noted(what, times);
        }
    }

    fn count_received(&mut self, wc: &Wc) {
        let is_send = wc.opcode == WcOpcode::Recv && wc.status == WcStatus::Success;
        self.received += u32::from(is_send);
    }

    fn xrc(&self, srq: Srqn) -> Option<Arc<Srq>> {
        self.qp.queues.xrcd.as_ref()?.domain().srq(srq)
    }
}

impl Sink for Results<'_, '_> {
    #[expect(
        clippy::inline_always,
        reason = "a completion is not to go through memory"
    )]
    #[inline(always)]
    fn send_completion(&mut self, wc: Wc, solicited: bool) -> bool {
        match wc.status {
            WcStatus::RetryExcErr => self.count(Noted::RetryExceeded, 1),
            WcStatus::RnrRetryExcErr => self.count(Noted::NotReadyExceeded, 1),
            _ => {}
        }
        let cq = self.qp.queues.send_cq.as_ref();
        cq.is_none_or(|cq| cq.deliver(wc, solicited, self.delivery))
    }

    #[expect(
        clippy::inline_always,
        reason = "a completion is not to go through memory"
    )]
    #[inline(always)]
    fn recv_completion(&mut self, wc: Wc, solicited: bool) -> bool {
        self.count_received(&wc);
        let cq = self.qp.queues.recv_cq.as_ref();
        cq.is_none_or(|cq| cq.deliver(wc, solicited, self.delivery))
    }

    fn note(&mut self, what: Noted) {
        match what {
            Noted::Sent => self.sent += 1,
            what => self.count(what, 1),
        }
    }

    fn waits_for_receiver(&mut self) {
        tracing::warn!(target: "ferroce::qp", qpn = self.qp.qpn.get(),
            "a SEND has waited for a second: its peer has not posted a receive (RNR NAK)");
    }

    fn segment(&mut self, way: SegmentWay, header: &Header, payload: usize) {
        let qpn = self.qp.qpn.get();
        match way {
            SegmentWay::In => {
                tracing::trace!(target: "ferroce::packet", qpn, ?header, payload, "in");
            }
            SegmentWay::Out => {
                tracing::trace!(target: "ferroce::packet", qpn, ?header, payload, "out");
            }
        }
    }

    fn fetch(&mut self, rendezvous: &Rendezvous, to: &[Piece<'_>]) -> bool {
        self.qp.fetch(rendezvous, &mut KnownPeer::default(), to)
    }

    fn end_grant(&mut self) {
        self.qp.services().boards.withdraw_grant(self.qp.qpn);
    }

    fn invalidated(&mut self, key: Key) {
        // A peer that still uses this key was never granted it. The entry is freed when the peer's
        // hazard clears.
        let _ = self.qp.services().boards.close_window(key);
    }

    fn event(&mut self, event: QpEvent) {
        self.qp.handles.push_async(event.into());
    }

    fn take_shared_recv(&mut self) -> Option<SharedRecv> {
        let waits = (self.qp.qp_type == QpType::Rc).then_some(self.qp);
        self.qp.queues.srq.as_ref()?.take(waits)
    }

    fn xrc_srq(&mut self, srq: Srqn) -> Option<PdId> {
        if let Some(found) = self.xrc(srq) {
            return Some(found.pd().id());
        }
        let xrcd = self.qp.queues.xrcd.as_ref()?;
        if self.qp.services().may_borrow(self.qp, xrcd, srq) {
            // No memory is open to peers there.
            return Some(xrcd.pd().id());
        }
        tracing::warn!(target: "ferroce::xrc", qpn = self.qp.qpn.get(), srq = srq.get(),
            "a message for a shared receive queue that the target's domain does not have");
        None
    }

    fn take_xrc_recv(&mut self, srq: Srqn) -> Taken {
        match (self.xrc(srq), &self.qp.queues.xrcd) {
            (Some(own), _) => own.take(Some(self.qp)).into(),
            (None, Some(xrcd)) => self.qp.services().borrow_recv(self.qp, xrcd, srq),
            (None, None) => Taken::Empty,
        }
    }

    fn xrc_completion(&mut self, srq: Srqn, wc: Wc, solicited: bool) -> bool {
        self.count_received(&wc);
        let Some(own) = self.xrc(srq) else {
            self.qp
                .services()
                .finish_borrowed(self.qp, srq, wc, solicited);
            return true;
        };
        own.complete(wc, solicited)
    }
}

impl Drop for Results<'_, '_> {
    fn drop(&mut self) {
        self.qp.tally.count_sends(self.sent, self.received);
    }
}
