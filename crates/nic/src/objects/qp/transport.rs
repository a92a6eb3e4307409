//! The transport behind a queue pair, whichever its type: what the device asks of each of them.

use ferroce_proto::ids::{Msn, Psn, Qpn};
use ferroce_proto::iwarp::IwQp;
use ferroce_proto::mr::{Pieces, Rights};
use ferroce_proto::rc::{Cx, Direct, DirectRun, Grant, LinkTraits, LocalCx, ModifyError, RcQp};
use ferroce_proto::time::Time;
use ferroce_proto::uc::UcQp;
use ferroce_proto::ud::{GrhRoute, UdQp};
use ferroce_proto::verbs::{
    AttrMask, Datagram, Mtu, PostError, QpAttr, QpState, RecvWr, SendOp, SendWr,
};
use ferroce_proto::wire::{Brief, Packet};

use super::within_host::peer_of;
use crate::link::path::{Admitted, Path};

/// One per queue pair type; the methods hand on to the state machine.
#[derive(Debug)]
pub(super) enum Transport {
    Rc(Box<RcQp>),
    Uc(Box<UcQp>),
    Ud(Box<UdQp>),
    /// Over a TCP connection.
    Iwarp(Box<IwQp>),
}

impl Transport {
    pub(super) fn state(&self) -> QpState {
        match self {
            Self::Rc(rc) => rc.state(),
            Self::Uc(uc) => uc.state(),
            Self::Ud(ud) => ud.state(),
            Self::Iwarp(iwarp) => iwarp.state(),
        }
    }

    pub(super) fn query(&self) -> QpAttr {
        match self {
            Self::Rc(rc) => rc.query(),
            Self::Uc(uc) => uc.query(),
            Self::Ud(ud) => ud.query(),
            Self::Iwarp(iwarp) => iwarp.query(),
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
            Self::Uc(uc) => uc.modify(cx, attr, mask),
            Self::Ud(ud) => ud.modify(cx, attr, mask),
            Self::Iwarp(iwarp) => iwarp.modify(cx, attr, mask),
        }
    }

    pub(super) fn set_link(&mut self, traits: LinkTraits) {
        match self {
            Self::Rc(rc) => rc.set_link(traits),
            Self::Uc(uc) => uc.set_link(traits),
            Self::Ud(_) | Self::Iwarp(_) => {}
        }
    }

    /// As [`RcQp::next_direct`], on a path within the host.
    pub(super) fn next_direct(&self, path: &Path) -> Option<Direct> {
        match self {
            Self::Rc(rc) => rc.next_direct(),
            Self::Iwarp(iwarp) => iwarp.next_direct(peer_of(path)),
            Self::Uc(_) | Self::Ud(_) => None,
        }
    }

    /// As [`RcQp::direct_pieces`]; `None`: a local key does not open them.
    pub(super) fn direct_pieces<'a>(&'a self, rights: &'a Rights, len: u32) -> Option<Pieces<'a>> {
        match self {
            Self::Rc(rc) => rc.direct_pieces(rights, len).ok(),
            Self::Iwarp(iwarp) => iwarp.direct_pieces(rights, len).ok(),
            Self::Uc(_) | Self::Ud(_) => None,
        }
    }

    /// As [`RcQp::direct_run`].
    pub(super) fn direct_run(&self) -> DirectRun {
        match self {
            Self::Rc(rc) => rc.direct_run(),
            Self::Iwarp(_) | Self::Uc(_) | Self::Ud(_) => DirectRun::new(),
        }
    }

    /// As [`RcQp::run_pieces`]; `None`: a local key does not open them.
    pub(super) fn run_pieces<'a>(&'a self, rights: &'a Rights) -> Option<Pieces<'a>> {
        match self {
            Self::Rc(rc) => rc.run_pieces(rights).ok(),
            Self::Iwarp(_) | Self::Uc(_) | Self::Ud(_) => None,
        }
    }

    /// As [`RcQp::on_direct`].
    pub(super) fn on_direct(&mut self, cx: &mut Cx<'_>, len: u32) {
        match self {
            Self::Rc(rc) => rc.on_direct(cx, len),
            Self::Iwarp(iwarp) => iwarp.on_direct(cx, len),
            Self::Uc(_) | Self::Ud(_) => {}
        }
    }

    /// As [`RcQp::on_direct_run`].
    pub(super) fn on_direct_run(&mut self, cx: &mut Cx<'_>, count: usize) {
        match self {
            Self::Rc(rc) => rc.on_direct_run(cx, count),
            Self::Iwarp(_) | Self::Uc(_) | Self::Ud(_) => {}
        }
    }

    /// As [`RcQp::on_direct_atomic`].
    pub(super) fn on_direct_atomic(&mut self, cx: &mut Cx<'_>, original: u64) {
        match self {
            Self::Rc(rc) => rc.on_direct_atomic(cx, original),
            Self::Iwarp(iwarp) => iwarp.on_direct_atomic(cx, original),
            Self::Uc(_) | Self::Ud(_) => {}
        }
    }

    /// As [`RcQp::refuse_direct`].
    pub(super) fn refuse_direct(&mut self) {
        match self {
            Self::Rc(rc) => rc.refuse_direct(),
            Self::Iwarp(iwarp) => iwarp.refuse_direct(),
            Self::Uc(_) | Self::Ud(_) => {}
        }
    }

    /// As [`RcQp::grant`], on a path within the host.
    pub(super) fn grant(&self, path: &Path) -> Option<Grant> {
        match self {
            Self::Rc(rc) => rc.grant(),
            Self::Iwarp(iwarp) => iwarp.grant(peer_of(path)),
            Self::Uc(_) | Self::Ud(_) => None,
        }
    }

    /// Sets the port's MTU, which is that of datagrams.
    pub(super) fn set_mtu(&mut self, mtu: Mtu) {
        match self {
            Self::Ud(ud) => ud.set_mtu(mtu),
            Self::Rc(_) | Self::Uc(_) | Self::Iwarp(_) => {}
        }
    }

    /// Whether a packet has another queue key than the queue pair's.
    pub(super) fn refuses_key(&self, packet: &Packet<'_>) -> bool {
        match self {
            Self::Ud(ud) => ud.refuses_key(packet),
            Self::Rc(_) | Self::Uc(_) | Self::Iwarp(_) => false,
        }
    }

    #[inline]
    pub(super) fn post_send(&mut self, cx: &mut Cx<'_>, wr: SendWr) -> Result<(), PostError> {
        match self {
            Self::Rc(rc) => rc.post_send(cx, wr),
            Self::Uc(uc) => uc.post_send(cx, wr),
            Self::Ud(ud) => ud.post_send(cx, wr),
            Self::Iwarp(iwarp) => iwarp.post_send(cx, wr),
        }
    }

    /// As [`RcQp::needs_time_to_send`].
    pub(super) fn needs_time_to_send(&self) -> bool {
        match self {
            Self::Rc(rc) => rc.needs_time_to_send(),
            Self::Uc(_) | Self::Ud(_) | Self::Iwarp(_) => true,
        }
    }

    pub(super) fn check_sends(&self, wrs: &[SendWr]) -> Result<(), PostError> {
        match self {
            Self::Rc(rc) => rc.check_sends(wrs),
            Self::Uc(uc) => uc.check_sends(wrs),
            Self::Ud(ud) => ud.check_sends(wrs),
            Self::Iwarp(iwarp) => iwarp.check_sends(wrs),
        }
    }

    /// The bind or local invalidate that is due.
    pub(super) fn next_local(&self) -> Option<SendOp> {
        match self {
            Self::Rc(rc) => rc.next_local(),
            Self::Uc(uc) => uc.next_local(),
            Self::Ud(_) => None,
            Self::Iwarp(iwarp) => iwarp.next_local(),
        }
    }

    /// Runs the bind or local invalidate that is due.
    pub(super) fn run_local(&mut self, cx: &mut LocalCx<'_>) {
        match self {
            Self::Rc(rc) => rc.run_local(cx),
            Self::Uc(uc) => uc.run_local(cx),
            Self::Ud(_) => {}
            Self::Iwarp(iwarp) => iwarp.run_local(cx),
        }
    }

    pub(super) fn post_recv(&mut self, cx: &mut Cx<'_>, wr: RecvWr) -> Result<(), PostError> {
        match self {
            Self::Rc(rc) => rc.post_recv(cx, wr),
            Self::Uc(uc) => uc.post_recv(cx, wr),
            Self::Ud(ud) => ud.post_recv(cx, wr),
            Self::Iwarp(iwarp) => iwarp.post_recv(cx, wr),
        }
    }

    /// As [`RcQp::on_recv_available`]. Unreliable transports drop what finds no receive, so nobody
    /// waits.
    pub(super) fn on_recv_available(&mut self) -> bool {
        match self {
            Self::Rc(rc) => rc.on_recv_available(),
            Self::Uc(_) | Self::Ud(_) | Self::Iwarp(_) => false,
        }
    }

    /// As [`RcQp::on_recv_answer`]. Only XRC asks.
    pub(super) fn on_recv_answer(&mut self, there: bool) {
        if let Self::Rc(rc) = self {
            rc.on_recv_answer(there);
        }
    }

    pub(super) fn on_packet(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        _: Admitted,
        route: &GrhRoute,
    ) -> bool {
        match self {
            Self::Rc(rc) => rc.on_packet(cx, packet),
            Self::Uc(uc) => uc.on_packet(cx, packet),
            Self::Ud(ud) => ud.on_packet(cx, packet, route),
            // It has no number on the wire: packets are not for it.
            Self::Iwarp(_) => false,
        }
    }

    /// As [`RcQp::on_receive_batch`].
    pub(super) fn on_receive_batch(
        &mut self,
        cx: &mut Cx<'_>,
        packets: &[&[u8]],
        _: Admitted,
    ) -> usize {
        match self {
            Self::Rc(rc) => rc.on_receive_batch(cx, packets),
            Self::Uc(_) | Self::Ud(_) | Self::Iwarp(_) => 0,
        }
    }

    /// As [`RcQp::on_brief`]. Only reliable queue pairs have this way.
    pub(super) fn on_brief(
        &mut self,
        cx: &mut Cx<'_>,
        brief: &Brief<'_>,
        _: Admitted,
    ) -> Option<bool> {
        match self {
            Self::Rc(rc) => rc.on_brief(cx, brief),
            Self::Uc(_) | Self::Ud(_) | Self::Iwarp(_) => None,
        }
    }

    pub(super) fn poll_transmit(&mut self, cx: &mut Cx<'_>, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Rc(rc) => rc.poll_transmit(cx, out),
            Self::Uc(uc) => uc.poll_transmit(cx, out),
            Self::Ud(ud) => ud.poll_transmit(cx, out),
            Self::Iwarp(_) => false,
        }
    }

    /// Where the next packet goes, if it has a destination of its own.
    pub(super) fn next_datagram(&self) -> Option<Datagram> {
        match self {
            Self::Rc(_) | Self::Uc(_) | Self::Iwarp(_) => None,
            Self::Ud(ud) => ud.next_datagram(),
        }
    }

    pub(super) fn wants_transmit(&self) -> bool {
        match self {
            Self::Rc(rc) => rc.wants_transmit(),
            Self::Uc(uc) => uc.wants_transmit(),
            Self::Ud(ud) => ud.wants_transmit(),
            Self::Iwarp(iwarp) => iwarp.wants_transmit() || iwarp.has_event(),
        }
    }

    /// As [`RcQp::next_psn`]. Only reliable queue pairs have short rings, which ask for that.
    pub(super) fn next_request(&self) -> Option<Psn> {
        match self {
            Self::Rc(rc) => Some(rc.next_psn()),
            Self::Uc(_) | Self::Ud(_) | Self::Iwarp(_) => None,
        }
    }

    /// PSN of the request that is expected, of a reliable queue pair.
    pub(super) fn expected(&self) -> Option<Psn> {
        match self {
            Self::Rc(rc) => Some(rc.expected()),
            Self::Uc(_) | Self::Ud(_) | Self::Iwarp(_) => None,
        }
    }

    /// As [`RcQp::owes_only_ack`].
    pub(super) fn owes_only_ack(&self) -> bool {
        matches!(self, Self::Rc(rc) if rc.owes_only_ack())
    }

    /// The message whose acknowledgement is all that is to be sent, if the last packet ended one.
    pub(super) fn owed_ack(&self) -> Option<Msn> {
        match self {
            Self::Rc(rc) if rc.is_between_messages() && rc.owes_only_ack() => Some(rc.msn()),
            _ => None,
        }
    }

    /// As [`RcQp::is_unanswered`].
    pub(super) fn is_unanswered(&self) -> bool {
        matches!(self, Self::Rc(rc) if rc.is_unanswered())
    }

    /// As [`RcQp::is_send_queue_full`].
    #[inline]
    pub(super) fn is_send_queue_full(&self) -> bool {
        matches!(self, Self::Rc(rc) if rc.is_send_queue_full())
    }

    /// As [`RcQp::let_ack_follow`].
    pub(super) fn let_ack_follow(&mut self) {
        if let Self::Rc(rc) = self {
            rc.let_ack_follow();
        }
    }

    /// As [`RcQp::poll_last_word`].
    pub(super) fn poll_last_word(&mut self, cx: &mut Cx<'_>, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Rc(rc) => rc.poll_last_word(cx, out),
            Self::Uc(_) | Self::Ud(_) | Self::Iwarp(_) => false,
        }
    }

    /// As [`RcQp::owe_parting_ack`].
    pub(super) fn owe_parting_ack(&mut self) {
        if let Self::Rc(rc) = self {
            rc.owe_parting_ack();
        }
    }

    #[inline]
    pub(super) fn deadline(&self) -> Option<Time> {
        match self {
            Self::Rc(rc) => rc.deadline(),
            Self::Iwarp(iwarp) => iwarp.deadline(),
            Self::Uc(_) | Self::Ud(_) => None,
        }
    }

    pub(super) fn on_deadline(&mut self, cx: &mut Cx<'_>) {
        match self {
            Self::Rc(rc) => rc.on_deadline(cx),
            Self::Iwarp(iwarp) => iwarp.on_deadline(cx.now),
            Self::Uc(_) | Self::Ud(_) => {}
        }
    }

    pub(super) fn on_dropped(&mut self, cx: &mut Cx<'_>) {
        match self {
            Self::Rc(rc) => rc.on_dropped(cx),
            Self::Uc(_) | Self::Ud(_) | Self::Iwarp(_) => {}
        }
    }

    /// The peer is a Ferroce, too.
    pub(super) fn meet_ferroce_peer(&mut self) {
        if let Self::Rc(rc) = self {
            rc.meet_ferroce_peer();
        }
    }

    /// Whether a packet with the MigReq bit over the alternate path makes that the path.
    pub(super) fn is_armed(&self) -> bool {
        match self {
            Self::Rc(rc) => rc.is_armed(),
            Self::Uc(uc) => uc.is_armed(),
            Self::Ud(_) | Self::Iwarp(_) => false,
        }
    }

    /// Whether a packet is one that the peer may send now, as far as the transport can tell. UC
    /// takes any PSN as the next: what comes before may be lost.
    pub(super) fn may_be_sent_now(&self, packet: &Packet<'_>) -> bool {
        match self {
            Self::Rc(rc) => rc.may_be_sent_now(packet),
            Self::Uc(_) => true,
            Self::Ud(_) | Self::Iwarp(_) => false,
        }
    }

    /// The alternate path is the path from here.
    pub(super) fn migrate(&mut self, cx: &mut Cx<'_>) {
        match self {
            Self::Rc(rc) => rc.migrate(cx),
            Self::Uc(uc) => uc.migrate(cx),
            Self::Ud(_) | Self::Iwarp(_) => {}
        }
    }

    /// Whether it has migrated by itself since it was asked last.
    pub(super) fn take_migrated(&mut self) -> bool {
        match self {
            Self::Rc(rc) => rc.take_migrated(),
            Self::Uc(_) | Self::Ud(_) | Self::Iwarp(_) => false,
        }
    }

    /// A completion queue of the queue pair is lost.
    pub(super) fn on_cq_overflow(&mut self, cx: &mut Cx<'_>) {
        match self {
            Self::Rc(rc) => rc.on_cq_overflow(cx),
            Self::Uc(uc) => uc.on_cq_overflow(cx),
            Self::Ud(ud) => ud.on_cq_overflow(cx),
            Self::Iwarp(iwarp) => iwarp.on_cq_overflow(cx),
        }
    }

    pub(super) fn on_peer_dead(&mut self, cx: &mut Cx<'_>) {
        match self {
            Self::Rc(rc) => rc.on_peer_dead(cx),
            Self::Uc(_) | Self::Ud(_) | Self::Iwarp(_) => {}
        }
    }
}
