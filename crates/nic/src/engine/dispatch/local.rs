//! What other processes of this host send.

use std::sync::Arc;

use ferroce_os::ring::{SharedArea, SharedShortRing};
use ferroce_os::unix::LocalUser;
use ferroce_proto::ids::Qpn;
use ferroce_proto::iwarp::Chunk;
use ferroce_proto::time::Time;

use super::Dispatch;
use crate::Nic;
use crate::base::denials::Denial;
use crate::base::numbers::slot_of;
use crate::cm::{Speaker, Via};
use crate::link::Inbound;
use crate::link::local::{Frame, LocalFrame, RETURNED, ShortRingEvent, ShortRingNotice};
use crate::link::{Ingress, Origin};
use crate::objects::qp::ShortRingOffer;

/// Returned packets that are remembered, at most: those of a few rounds.
const MOST_RETURNED: usize = 1024;

impl Dispatch {
    /// Sorts a frame from another process of this host.
    pub(in crate::engine) fn on_local(&mut self, nic: &Nic, frame: LocalFrame<'_>, now: Time) {
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
                let via = Via::Local(Speaker::Link { slot, by });
                nic.cm().on_mad(src, dst, mad, via);
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
            LocalFrame::Dropped { qpn, by } => self.on_notice_of_drop(nic, qpn, by, now),
        }
    }

    /// Another process has dropped a packet of one of our queue pairs.
    fn on_notice_of_drop(&mut self, nic: &Nic, qpn: Qpn, by: Origin, now: Time) {
        self.unwanted += 1;
        if let Some(qp) = nic.services.qps.find(qpn) {
            qp.on_dropped(by, now);
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
        if let Some(egress) = nic.services.peer_processes.reach_quickly(from_slot) {
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
        if let Some(egress) = nic.services.peer_processes.reach_quickly(origin.slot()) {
            egress.send_frame(&Frame::Dropped { qpn, by });
        }
    }
}
