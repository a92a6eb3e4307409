//! What comes in finds its queue pair, or its process.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferroce_os::ring::{SharedArea, SharedShortRing};
use ferroce_os::unix::LocalUser;
use ferroce_proto::auth::handshake::AuthMessage;
use ferroce_proto::ids::Qpn;
use ferroce_proto::iwarp::Chunk;
use ferroce_proto::time::Time;
use ferroce_proto::wire::{Brief, Drain, Packet, ROCE_UDP_PORT};

use crate::Nic;
use crate::Qp;
use crate::base::counters::DropReason;
use crate::base::denials::{Asker, Denial};
use crate::base::numbers::LinkId;
use crate::base::numbers::slot_of;
use crate::cm::{Speaker, Via};
use crate::link::local::{
    ConnectError, Frame, LocalFrame, RETURNED, ShortRingEvent, ShortRingNotice,
};
use crate::link::path::{Ingress, Origin};
use crate::link::wire::private_ports::{PortFlow, Strays};
use crate::link::{Inbound, InboundRun};
use crate::objects::groups::GroupAt;
use crate::objects::qp::BriefTaken;
use crate::objects::qp::ShortRingOffer;
use crate::services::auth::{Auth, is_of_device};

/// Packets of a round that are no stream: a message or two, or its acknowledgement.
const FEW: usize = 4;

/// Returned packets that are remembered, at most: those of a few rounds.
const MOST_RETURNED: usize = 1024;

/// Sorts the packets of a round.
#[derive(Debug, Default)]
pub(super) struct Dispatch {
    /// Queue pairs that got packets and may have something to say. The last one is likely to get
    /// the next packet too.
    touched: Vec<Arc<Qp>>,
    /// The last notice that was sent: one says it for many packets.
    noticed: Option<(Qpn, Qpn)>,
    /// Packets of this round.
    packets: usize,
    /// Packets from the wire that queue pairs of this process took, or other processes, all told.
    taken: usize,
    /// What came from other processes of this host and was for no queue pair, all told.
    unwanted: usize,
    /// Packets from the wire that other processes took, all told.
    passed_on: usize,
    /// Of these, packets that the processes did not want, as they have said since.
    returned: usize,
    /// Packets from the wire that processes have passed on and that nobody wanted, by slot.
    unwelcome: BTreeMap<u16, usize>,
    strays: Strays,
    /// Short rings that other processes offer.
    offers: Vec<ShortRingOffer>,
    /// Links on which a process wants to know which paths there are.
    questions: Vec<LinkId>,
    /// Where the packet in hand came from, if it came over the wire.
    src_port: u16,
}

impl Dispatch {
    /// Lets queue pairs that got packets answer, all of them at once.
    pub(super) fn give_turns(&mut self, now: Time) {
        self.noticed = None;
        let few = std::mem::take(&mut self.packets) <= FEW;
        for qp in self.touched.drain(..) {
            qp.on_turn(few, now);
        }
    }

    /// As [`give_turns`](Self::give_turns), where a program polls and the device thread looks after
    /// what is left undone. After few packets, acknowledgements may wait for what the program says
    /// to them.
    pub(super) fn give_polled_turns(&mut self, now: Time) {
        if self.packets > FEW {
            return self.give_turns(now);
        }
        self.noticed = None;
        self.packets = 0;
        for qp in self.touched.drain(..) {
            qp.on_polled_turn(now);
        }
    }

    /// Packets from the wire that were wanted, so far.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    /// Packets from the wire that other processes took, so far.
    pub(super) fn passed_on(&self) -> usize {
        self.passed_on
    }

    /// Packets that other processes took and did not want, up to `most`.
    pub(super) fn take_returned(&mut self, most: usize) -> usize {
        let taken = self.returned.min(most);
        self.returned -= taken;
        taken
    }

    /// What came from other processes of this host and was for no queue pair, so far. A MAD is:
    /// anybody may send them.
    pub(super) fn unwanted(&self) -> usize {
        self.unwanted
    }

    /// Links on which a process has asked which paths there are.
    pub(super) fn take_questions(&mut self) -> Vec<LinkId> {
        std::mem::take(&mut self.questions)
    }

    /// The short rings that were offered.
    pub(super) fn take_offers(&mut self) -> Vec<ShortRingOffer> {
        std::mem::take(&mut self.offers)
    }

    /// Sorts a frame from another process of this host.
    pub(super) fn on_local(&mut self, nic: &Nic, frame: LocalFrame<'_>, now: Time) {
        match frame {
            LocalFrame::Packet {
                origin,
                addressing,
                bytes,
            } => self.on_local_packet(nic, Ingress { origin, addressing }, bytes, now),
            LocalFrame::Forwarded {
                from_slot,
                by,
                inbound,
            } => self.on_forwarded(nic, from_slot, by, &inbound, now),
            LocalFrame::Mad {
                from_slot: slot,
                by,
                src,
                dst,
                mad,
            } => {
                self.unwanted += 1;
                let speaker = Speaker::Link { slot, by };
                nic.cm().on_mad(src, dst, mad, Via::Local(speaker));
            }
            LocalFrame::Board {
                from_slot,
                pid,
                link,
                board,
            } => nic.services.boards.acquaint(from_slot, pid, link, board),
            LocalFrame::ShortRing {
                origin,
                area,
                notice,
            } => self.on_short_ring_notice(nic, origin, area, notice, now),
            LocalFrame::Returned => {
                self.returned = (self.returned + RETURNED).min(MOST_RETURNED);
            }
            LocalFrame::Question(link) => self.questions.push(link),
            LocalFrame::Lending { from_slot, lending } => {
                nic.services.on_lending(from_slot, &lending)
            }
            LocalFrame::Sharing { from_slot, sharing } => {
                nic.services.on_sharing(from_slot, &sharing)
            }
            LocalFrame::Unshared { from_slot, number } => {
                nic.services.boards.on_unshared(from_slot, number);
            }
            LocalFrame::Dropped { qpn, by } => {
                self.unwanted += 1;
                if let Some(qp) = nic.services.qps.find(qpn) {
                    qp.on_dropped(by, now);
                }
            }
        }
    }

    /// A packet of another process's queue pair.
    #[inline]
    fn on_local_packet(&mut self, nic: &Nic, came: Ingress<'_>, bytes: &[u8], now: Time) {
        let brief = self.deliver_brief(nic, came, bytes, now);
        let taken = brief.unwrap_or_else(|| {
            if Chunk::is_one(bytes) {
                return self.deliver_chunk(nic, came.origin, bytes, now);
            }
            self.deliver(nic, came, bytes, now)
        });
        if let Err((by, why)) = taken {
            self.unwanted += 1;
            nic.drop_packet(came, by, why);
            self.send_notice(nic, came.origin, by);
        }
    }

    /// A packet of the wire that another process has received and takes for ours.
    fn on_forwarded(
        &mut self,
        nic: &Nic,
        from_slot: u16,
        by: LocalUser,
        inbound: &Inbound<'_>,
        now: Time,
    ) {
        if !nic.services.takes_wire_from(by, inbound.addressing.dst) {
            self.unwanted += 1;
            nic.counters()
                .count_denied(by.relation.into(), Denial::Origin);
            return;
        }
        if !nic.services.admits_host(inbound.addressing.src.ip()) {
            self.unwanted += 1;
            return nic.deny_host();
        }
        let taken = self.taken;
        self.on_own(nic, inbound, now);
        if self.taken == taken {
            self.unwanted += 1;
            self.give_back(nic, from_slot, by);
        } else {
            self.on_stray(nic, inbound);
        }
    }

    /// Another process says something about a short ring of its ring.
    fn on_short_ring_notice(
        &mut self,
        nic: &Nic,
        origin: Origin,
        area: &Arc<SharedArea>,
        notice: ShortRingNotice,
        now: Time,
    ) {
        match notice.word {
            // One that the ring does not have is never accepted.
            ShortRingEvent::Offer(number) => {
                let offer =
                    SharedShortRing::of(area, notice.short_ring).map(|short_ring| ShortRingOffer {
                        origin,
                        short_ring,
                        number,
                        to: notice.to,
                    });
                self.offers.extend(offer);
            }
            ShortRingEvent::Run(at) => match nic.services.qps.find(notice.to) {
                Some(qp) => qp.on_run_of_short_ring(origin, notice.short_ring, at, now),
                // Nobody would look at what is put in.
                None => self.send_notice(nic, origin, notice.to),
            },
        }
    }

    /// Packets that came over the wire together. A stream's are given to its queue pair together.
    pub(super) fn on_inbound_run(&mut self, nic: &Nic, run: &InboundRun<'_>, now: Time) {
        if !nic.services.admits_host(run.addressing.src.ip()) {
            for inbound in run.singly() {
                self.on_unlisted(nic, &inbound, now);
            }
            return;
        }
        let of_stream = run.packets.chunk_by(|a, b| dest_qp(a) == dest_qp(b));
        for packets in of_stream {
            let run = InboundRun { packets, ..*run };
            if !self.deliver_run(nic, &run, now) {
                for inbound in run.singly() {
                    self.on_inbound(nic, &inbound, now);
                }
            }
        }
    }

    /// A packet from a host that this process does not deal with. Another process of this host may,
    /// and the connection manager looks for itself.
    fn on_unlisted(&mut self, nic: &Nic, inbound: &Inbound<'_>, now: Time) {
        let dest = dest_qp(inbound.packet).filter(|dest| {
            let is_elsewhere =
                *dest != Qpn::MULTICAST && slot_of(*dest) != nic.services.numbers.slot();
            *dest == Qpn::GSI || is_elsewhere
        });
        if dest.is_none() || Drain::is_one(inbound.packet) {
            return nic.deny_host();
        }
        self.on_inbound(nic, inbound, now);
    }

    /// Gives packets with the same destination to that queue pair of this process. Returns false if
    /// there is no such, or if they are not all for it.
    fn deliver_run(&mut self, nic: &Nic, run: &InboundRun<'_>, now: Time) -> bool {
        let Some(dest) = run.packets.first().and_then(|packet| dest_qp(packet)) else {
            return false;
        };
        let is_own = slot_of(dest) == nic.services.numbers.slot()
            && dest != Qpn::GSI
            && dest != Qpn::MULTICAST
            && !run.addressing.dst.is_multicast()
            && !run
                .packets
                .iter()
                .any(|packet| Drain::is_one(packet) || AuthMessage::is_one(packet));
        if !is_own {
            return false;
        }
        let Some(qp) = self.find(nic, dest) else {
            return false;
        };
        qp.on_wire_packet(now);
        let dropped = qp.on_run(run, now);
        self.taken += run.packets.len().saturating_sub(dropped.len());
        for why in dropped {
            nic.drop_packet(run.came(), dest, why);
        }
        self.packets += run.packets.len();
        true
    }

    /// A packet that came over the wire; it may be for any process of this host.
    fn on_inbound(&mut self, nic: &Nic, inbound: &Inbound<'_>, now: Time) {
        if Drain::is_one(inbound.packet) && nic.services.answer_drain(inbound, now) {
            return;
        }
        let Some(dest) = dest_qp(inbound.packet) else {
            nic.counters().count_dropped(DropReason::Malformed);
            return;
        };
        if dest == Qpn::GSI
            || dest == Qpn::MULTICAST
            || slot_of(dest) == nic.services.numbers.slot()
        {
            self.on_own(nic, inbound, now);
            return;
        }
        let egress = nic.services.neighbours.reach_for_stray(slot_of(dest));
        if matches!(egress, Err(ConnectError::NotNow { .. })) {
            nic.counters().count_denied(Asker::Host, Denial::NoLink);
        }
        if egress.is_ok_and(|egress| egress.send_frame(&Frame::Forwarded(*inbound))) {
            nic.counters().count_forwarded();
            self.taken += 1;
            self.passed_on += 1;
        } else {
            nic.counters().count_dropped(DropReason::Forward);
        }
    }

    /// A packet for a queue pair of this process went to another one first. If that goes on, its
    /// flow gets a socket. What comes from the shared port is no flow: it may be of several
    /// processes.
    fn on_stray(&mut self, nic: &Nic, inbound: &Inbound<'_>) {
        let found =
            dest_qp(inbound.packet).is_some_and(|dest| nic.services.qps.find(dest).is_some());
        if found
            && inbound.src_port != ROCE_UDP_PORT
            && !inbound.addressing.dst.is_multicast()
            && self.strays.count(PortFlow::of(inbound))
        {
            nic.services
                .expect_flow(&inbound.addressing, inbound.src_port);
        }
    }

    /// A packet from the wire for this process.
    fn on_own(&mut self, nic: &Nic, inbound: &Inbound<'_>, now: Time) {
        match nic.services.auth() {
            Some(auth) => self.on_own_tagged(nic, auth, inbound, now),
            None => self.on_own_open(nic, inbound, now),
        }
    }

    /// As [`on_own`](Self::on_own), where a key is set.
    fn on_own_tagged(&mut self, nic: &Nic, auth: &Auth, inbound: &Inbound<'_>, now: Time) {
        if AuthMessage::is_one(inbound.packet) {
            return nic.services.on_handshake(auth, inbound, now);
        }
        let dest = dest_qp(inbound.packet).unwrap_or_default();
        if is_of_device(inbound.packet) {
            return match inbound.opened(auth) {
                Some(opened) => self.on_own_open(nic, &opened, now),
                None => nic.drop_packet(inbound.came(), dest, DropReason::Unauthenticated),
            };
        }
        let run = InboundRun {
            addressing: inbound.addressing,
            src_port: inbound.src_port,
            packets: &[inbound.packet],
        };
        if !self.deliver_run(nic, &run, now) {
            // A group's packets have no peer that could have tagged them.
            let why = if inbound.addressing.dst.is_multicast() {
                DropReason::Unauthenticated
            } else {
                DropReason::NoQp
            };
            nic.drop_packet(inbound.came(), dest, why);
        }
    }

    /// A packet from the wire for this process that needs no tag, or that had a right one.
    fn on_own_open(&mut self, nic: &Nic, inbound: &Inbound<'_>, now: Time) {
        if let Some(answer) = Drain::parse(inbound.packet).filter(|drain| drain.room.is_some()) {
            nic.services.on_drain_answer(inbound.came(), &answer, now);
            return;
        }
        self.src_port = inbound.src_port;
        match self.deliver(nic, inbound.came(), inbound.packet, now) {
            // Anybody may send management datagrams.
            Ok(()) if dest_qp(inbound.packet) == Some(Qpn::GSI) => {}
            Ok(()) => self.taken += 1,
            Err((by, why)) => nic.drop_packet(inbound.came(), by, why),
        }
        self.src_port = 0;
    }

    /// Gives a packet of another process of this host to its queue pair the short way, as
    /// [`deliver`](Self::deliver). `None`: it is to go the general way, since it is not as usual,
    /// or somebody wants to read of every packet.
    fn deliver_brief(
        &mut self,
        nic: &Nic,
        came: Ingress<'_>,
        bytes: &[u8],
        now: Time,
    ) -> Option<Result<(), (Qpn, DropReason)>> {
        let brief = Brief::parse(bytes)?;
        if tracing::enabled!(target: "ferroce::packet", tracing::Level::TRACE) {
            return None;
        }
        let dest = brief.bth.dest_qp;
        let known = self.touched.last().filter(|last| last.qpn() == dest);
        let found = if known.is_some() {
            None
        } else {
            nic.services.qps.find(dest)
        };
        let qp = known.or(found.as_ref())?;
        let taken = qp.on_brief(came, &brief, bytes.len(), now);
        if taken == Ok(BriefTaken::Unusual) {
            return None;
        }
        self.packets += 1;
        if let Some(found) = found.filter(|_| taken != Ok(BriefTaken::Quiet)) {
            self.touched.push(found);
        }
        Some(taken.map(drop).map_err(|why| (dest, why)))
    }

    /// Gives a piece of a stream to its queue pair, as [`deliver`](Self::deliver).
    fn deliver_chunk(
        &mut self,
        nic: &Nic,
        origin: Origin,
        bytes: &[u8],
        now: Time,
    ) -> Result<(), (Qpn, DropReason)> {
        let (dest, chunk) =
            Chunk::parse(bytes).ok_or_else(|| (Qpn::default(), DropReason::Malformed))?;
        self.packets += 1;
        let qp = self.find(nic, dest).ok_or((dest, DropReason::NoQp))?;
        qp.on_chunk(origin, chunk, now).map_err(|why| (dest, why))
    }

    /// Gives a packet to its queue pair. An error says why that was not possible, and which queue
    /// pair it was for.
    fn deliver(
        &mut self,
        nic: &Nic,
        came: Ingress<'_>,
        bytes: &[u8],
        now: Time,
    ) -> Result<(), (Qpn, DropReason)> {
        came.addressing.read(bytes, |packet| match packet {
            Ok(packet) => self.deliver_packet(nic, came, packet, bytes.len(), now),
            Err(why) => Err((dest_qp(bytes).unwrap_or_default(), why)),
        })
    }

    fn deliver_packet(
        &mut self,
        nic: &Nic,
        came: Ingress<'_>,
        packet: &Packet<'_>,
        len: usize,
        now: Time,
    ) -> Result<(), (Qpn, DropReason)> {
        let dest = packet.bth.dest_qp;
        self.packets += 1;
        if dest == Qpn::GSI {
            return nic.on_gsi_packet(came, packet).map_err(|why| (dest, why));
        }
        // A group's packets name no queue pair, and others are not sent to groups.
        if (dest == Qpn::MULTICAST) != came.addressing.dst.is_multicast() {
            return Err((dest, DropReason::Address));
        }
        if dest == Qpn::MULTICAST {
            return self.deliver_to_group(nic, came, packet, len, now);
        }
        let src_port = self.src_port;
        let qp = self.find(nic, dest).ok_or((dest, DropReason::NoQp))?;
        if src_port != 0 {
            qp.on_wire_packet(now);
        }
        qp.on_packet(came, packet, len, now)
            .map_err(|why| (dest, why))
    }

    /// Gives a packet (and its length) to every queue pair that is attached to its group. An error
    /// says that none is.
    fn deliver_to_group(
        &mut self,
        nic: &Nic,
        came: Ingress<'_>,
        packet: &Packet<'_>,
        len: usize,
        now: Time,
    ) -> Result<(), (Qpn, DropReason)> {
        let at = GroupAt {
            group: came.addressing.dst,
            ifindex: came.addressing.ifindex,
        };
        let attached = nic.services.groups.attached(at);
        let sender = packet.ext.deth.map(|deth| deth.src_qp);
        let local = nic.services.is_local(came.addressing.src.ip());
        for &qpn in attached.ok_or((Qpn::MULTICAST, DropReason::NoQp))?.iter() {
            let given = match self.find(nic, qpn) {
                Some(qp) if sender.is_some_and(|sender| !qp.wants_from(local, sender)) => Ok(()),
                Some(qp) => qp.on_packet(came, packet, len, now),
                None => Err(DropReason::NoQp),
            };
            if let Err(why) = given {
                nic.drop_packet(came, qpn, why);
            }
        }
        Ok(())
    }

    /// The queue pair with a number, noted for a turn.
    fn find(&mut self, nic: &Nic, qpn: Qpn) -> Option<&Arc<Qp>> {
        if self.touched.last().is_none_or(|last| last.qpn() != qpn) {
            self.touched.push(nic.services.qps.find(qpn)?);
        }
        self.touched.last()
    }

    /// Gives back a packet from the wire that another process passed on and nobody wants. That
    /// process reads the socket, so it must know that a stranger's packets take its time and this
    /// one's.
    fn give_back(&mut self, nic: &Nic, from_slot: u16, by: LocalUser) {
        // What another user's link brings is held up here.
        if !by.relation.is_own_user() {
            return;
        }
        let count = self.unwelcome.entry(from_slot).or_default();
        *count += 1;
        if *count < RETURNED {
            return;
        }
        *count = 0;
        if let Some(egress) = nic.services.neighbours.reach_quickly(from_slot) {
            egress.send_frame(&Frame::Dropped {
                qpn: Qpn::SMI,
                by: nic.services.numbers.qpn(0),
            });
        }
    }

    /// Tells a process that a packet of its queue pair was dropped here.
    fn send_notice(&mut self, nic: &Nic, origin: Origin, by: Qpn) {
        let Some(qpn) = origin.qpn() else { return };
        if slot_of(by) != nic.services.numbers.slot()
            || self.noticed.replace((qpn, by)) == Some((qpn, by))
        {
            return;
        }
        if let Some(egress) = nic.services.neighbours.reach_quickly(origin.slot()) {
            egress.send_frame(&Frame::Dropped { qpn, by });
        }
    }
}

/// The destination of a packet, without a look at the rest.
fn dest_qp(packet: &[u8]) -> Option<Qpn> {
    let bytes = packet.get(4..8)?.try_into().ok()?;
    Some(Qpn::new(u32::from_be_bytes(bytes)))
}

impl Nic {
    /// Counts what comes from a host that `FERROCE_PEERS` leaves out.
    fn deny_host(&self) {
        self.services
            .counters
            .count_denied(Asker::Host, Denial::Peers);
    }

    /// Counts a packet that is thrown away.
    fn drop_packet(&self, Ingress { origin, addressing }: Ingress<'_>, dest: Qpn, why: DropReason) {
        let device = self.services.devices.with_address(addressing.dst.ip());
        let counters = device
            .as_ref()
            .map_or(&*self.services.counters, |d| d.counters());
        counters.count_dropped(why);
        let asker = || match origin.slot() {
            0 => Asker::Host,
            slot => self.services.neighbours.asker(slot),
        };
        match why {
            DropReason::Origin => counters.count_denied(asker(), Denial::Origin),
            DropReason::Unauthenticated => counters.count_denied(asker(), Denial::Unauthenticated),
            _ => {}
        }
        tracing::debug!(target: "ferroce::packet", from = %addressing.src.ip(), dest_qp = dest.get(), ?why, "dropped");
    }
}
