//! Long SENDs within a host: the requester *offers* its bytes, and the responder's owner fetches them from the requester's memory into
//! the receive. One copy in place of those that packets make.
//!
//! An offer is one packet with one PSN, whatever the length, and is ordered, waited for, refused and acknowledged as any SEND. Its bytes
//! stay where they are until it is acknowledged, as those of any SEND do. Three things end a requester's right to have them fetched:
//! the region is deregistered, the queue pair leaves its states, or its owner is told that work is about to be flushed
//! ([`Sink::end_offers`](super::Sink::end_offers)): the *token* that is in each offer is valid no longer then, and whoever fetches looks
//! at it after the copy once more.
//!
//! What cannot be fetched is answered by a NAK of our own, and goes by packets, with as many PSNs as that needs: nothing of what was
//! sent after the offer was taken, so all of it gets new numbers. The responder does not take the same
//! PSN for an offer again, so both ends agree about what has become of it.

use super::config::{Shared, packets_of};
use super::reluctance::Reluctance;
use super::requester::Requester;
use super::responder::{Responder, Stop};
use super::scatter;
use super::{Cx, RcQp};
use crate::ids::{Key, Qpn};
use crate::mr::Access;
use crate::verbs::{Payload, QpType, SendOp, SendWr};
use crate::wire::AtomicEth;

/// Below this many bytes packets are as fast: a copy between processes begins with a microsecond of looking for pages.
pub const MIN_OFFER: u32 = 8 << 10;
/// Above it the step that fetches would hold up others for long.
pub const MAX_OFFER: u32 = 16 << 20;
/// Bytes that are fetched at once: in between the requester may take its memory back.
const PART: u32 = 1 << 20;

/// Bytes that a peer offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The peer's queue pair.
    pub from: Qpn,
    /// What makes the offer valid.
    pub token: u64,
    /// Key of the peer's region.
    pub key: Key,
    /// First byte, in the region's `iova` range.
    pub addr: u64,
    /// Bytes, at least 1.
    pub len: u32,
}

/// What a requester knows of offering.
#[derive(Debug, Default)]
pub(super) struct Offers {
    /// What makes them valid; none: none is made.
    pub(super) token: Option<u64>,
    reluctance: Reluctance,
}

impl Offers {
    /// The token for a work request that is to be offered.
    pub(super) fn token_for(&mut self, wr: &SendWr) -> Option<u64> {
        let token = self.token?;
        let (SendOp::Send | SendOp::SendImm(_), Payload::Sges(sges)) = (&wr.op, &wr.payload) else {
            return None;
        };
        let [sge] = sges[..] else {
            return None;
        };
        if !(MIN_OFFER..=MAX_OFFER).contains(&sge.length) {
            return None;
        }
        if !self.reluctance.tries() {
            self.reluctance.pass();
            return None;
        }
        Some(token)
    }

    /// An offer was taken.
    pub(super) fn on_taken(&mut self) {
        self.reluctance.on_taken();
    }
}

impl RcQp {
    /// From here long SENDs are offered, with this token: the path leads to a process of this host, which can look at what the owner
    /// publishes. Until the queue pair goes to ERR or RESET.
    pub fn offer_sends(&mut self, token: u64) {
        if self.shared.config.qp_type == QpType::Rc {
            self.requester.offers.token = Some(token);
        }
    }

    /// The token with which SENDs are offered now.
    #[must_use]
    pub fn offers(&self) -> Option<u64> {
        self.requester.offers.token
    }
}

impl Requester {
    /// The peer cannot fetch what the oldest packet offers.
    pub(super) fn on_not_fetched(&mut self, shared: &Shared) {
        if self.queue.front().is_none_or(|wqe| wqe.offered.is_none()) {
            return;
        }
        self.offers.reluctance.on_refused();
        self.send_offered(shared);
    }

    /// What is offered goes by packets. Of what was sent and not acknowledged nothing was taken.
    pub(super) fn send_offered(&mut self, shared: &Shared) {
        self.go_back();
        self.flight.abandon();
        self.queue.renumber(|wqe| {
            if wqe.offered.take().is_some() {
                wqe.packets = packets_of(wqe.length, shared.attr.path_mtu);
            }
        });
    }
}

impl Responder {
    /// Fetches what is offered into the receive in hand.
    pub(super) fn fetch(
        &mut self,
        shared: &Shared,
        cx: &mut Cx<'_>,
        (request, len): (&AtomicEth, u32),
    ) -> Result<(), Stop> {
        let Some(recv) = &self.held else {
            return Err(Stop::NotReady);
        };
        let rights = cx.rights;
        let who = (recv.pd, Access::LOCAL_WRITE);
        let mut done = 0;
        while done < len {
            let part = (len - done).min(PART);
            let pieces = scatter::pieces_of(rights, who, &recv.wr.sges, (done, part))
                .map_err(|_| Stop::NotFetched)?;
            let offer = Offer {
                from: shared.attr.dest_qp_num,
                token: request.swap_or_add,
                key: request.rkey,
                addr: request.va.wrapping_add(u64::from(done)),
                len: part,
            };
            if !cx.sink.fetch(&offer, &pieces) {
                return Err(Stop::NotFetched);
            }
            done += part;
        }
        Ok(())
    }
}
