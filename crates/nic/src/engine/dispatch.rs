//! What comes in finds its queue pair, or its process.

mod local;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;

use ferroce_proto::ids::Qpn;
use ferroce_proto::iwarp::Chunk;
use ferroce_proto::time::Time;
use ferroce_proto::wire::{Brief, Packet};

use crate::Nic;
use crate::Qp;
use crate::base::counters::DropReason;
use crate::base::denials::{Asker, Denial};
use crate::base::numbers::LinkId;
use crate::link::wire::private_ports::Strays;
use crate::link::{Ingress, Origin};
use crate::objects::groups::GroupAt;
use crate::objects::qp::BriefTaken;
use crate::objects::qp::ShortRingOffer;

/// Packets of a round that are no stream: a message or two, or its acknowledgement.
const FEW: usize = 4;

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
    /// MADs from the wire that were taken, all told.
    taken_mads: usize,
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
        self.packets = 0;
        for qp in self.touched.drain(..) {
            qp.on_arrivals(now);
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

    /// As [`taken`](Self::taken), and MADs that conversations and listeners took.
    pub(super) fn wanted(&self) -> usize {
        self.taken + self.taken_mads
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
            let taken = nic.on_gsi_packet(came, packet).map_err(|why| (dest, why))?;
            self.taken_mads += usize::from(taken);
            return Ok(());
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
            slot => self.services.peer_processes.asker(slot),
        };
        match why {
            DropReason::Origin => counters.count_denied(asker(), Denial::Origin),
            DropReason::Unauthenticated => counters.count_denied(asker(), Denial::Unauthenticated),
            _ => {}
        }
        tracing::debug!(target: "ferroce::packet", from = %addressing.src.ip(), dest_qp = dest.get(), ?why, "dropped");
    }
}
