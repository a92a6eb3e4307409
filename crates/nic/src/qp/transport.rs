//! The transport behind a queue pair, whichever its type: what the device asks of each of them.

use ferroce_proto::ids::Qpn;
use ferroce_proto::rc::{Cx, LinkTraits, LocalCx, ModifyError, RcQp};
use ferroce_proto::time::Time;
use ferroce_proto::verbs::{AttrMask, PostError, QpAttr, QpState, RecvWr, SendWr};
use ferroce_proto::wire::Packet;

/// One per queue pair type; the methods hand on to the state machine.
#[derive(Debug)]
pub(super) enum Transport {
    Rc(Box<RcQp>),
}

impl Transport {
    pub(super) fn state(&self) -> QpState {
        match self {
            Self::Rc(rc) => rc.state(),
        }
    }

    pub(super) fn query(&self) -> QpAttr {
        match self {
            Self::Rc(rc) => rc.query(),
        }
    }

    /// The peer's queue pair, of a connected type.
    pub(super) fn dest(&self) -> Qpn {
        self.query().dest_qp_num
    }

    pub(super) fn modify(
        &mut self,
        cx: &mut Cx<'_>,
        attr: &QpAttr,
        mask: AttrMask,
    ) -> Result<(), ModifyError> {
        match self {
            Self::Rc(rc) => rc.modify(cx, attr, mask),
        }
    }

    pub(super) fn set_link(&mut self, traits: LinkTraits) {
        match self {
            Self::Rc(rc) => rc.set_link(traits),
        }
    }

    pub(super) fn post_send(&mut self, cx: &mut Cx<'_>, wr: SendWr) -> Result<(), PostError> {
        match self {
            Self::Rc(rc) => rc.post_send(cx, wr),
        }
    }

    pub(super) fn check_sends(&self, wrs: &[SendWr]) -> Result<(), PostError> {
        match self {
            Self::Rc(rc) => rc.check_sends(wrs),
        }
    }

    /// Whether binds or local invalidates are due.
    pub(super) fn wants_local(&self) -> bool {
        match self {
            Self::Rc(rc) => rc.wants_local(),
        }
    }

    /// Runs the binds and local invalidates that are due.
    pub(super) fn run_local(&mut self, cx: &mut LocalCx<'_>) {
        match self {
            Self::Rc(rc) => rc.run_local(cx),
        }
    }

    pub(super) fn post_recv(&mut self, cx: &mut Cx<'_>, wr: RecvWr) -> Result<(), PostError> {
        match self {
            Self::Rc(rc) => rc.post_recv(cx, wr),
        }
    }

    /// As [`RcQp::on_recv_available`]. Unreliable transports drop what finds no receive, so nobody waits.
    pub(super) fn on_recv_available(&mut self) -> bool {
        match self {
            Self::Rc(rc) => rc.on_recv_available(),
        }
    }

    pub(super) fn on_packet(&mut self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> bool {
        match self {
            Self::Rc(rc) => rc.on_packet(cx, packet),
        }
    }

    pub(super) fn poll_transmit(&mut self, cx: &mut Cx<'_>, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Rc(rc) => rc.poll_transmit(cx, out),
        }
    }

    pub(super) fn wants_transmit(&self) -> bool {
        match self {
            Self::Rc(rc) => rc.wants_transmit(),
        }
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        match self {
            Self::Rc(rc) => rc.deadline(),
        }
    }

    pub(super) fn on_deadline(&mut self, cx: &mut Cx<'_>) {
        match self {
            Self::Rc(rc) => rc.on_deadline(cx),
        }
    }

    pub(super) fn on_dropped(&mut self, cx: &mut Cx<'_>) {
        match self {
            Self::Rc(rc) => rc.on_dropped(cx),
        }
    }

    pub(super) fn on_peer_dead(&mut self, cx: &mut Cx<'_>) {
        match self {
            Self::Rc(rc) => rc.on_peer_dead(cx),
        }
    }
}
