//! Long SENDs and WRITEs with immediate within a host, by *rendezvous*. The requester sends where
//! its bytes are, and the responder's owner fetches them from there to where they belong. One copy
//! takes the place of those that packets make.
//!
//! A WRITE with immediate takes a receive, so it needs the responder anyway. So any number of them
//! can be on their way. No byte of one is in place before the receive of the one before it was
//! there.
//!
//! A rendezvous is one packet with one PSN, whatever the length. It is ordered, waited for, refused
//! and acknowledged as any SEND. Its bytes stay where they are until it is acknowledged, as those
//! of any SEND do. Three things end the responder's right to fetch them. The region is
//! deregistered, or the queue pair leaves its states, or its owner is told that work is about to be
//! flushed ([`Sink::end_grant`](super::Sink::end_grant)). Each packet carries a *token*, which is
//! not valid from then on. A responder that fetches checks the token once more after the copy.
//!
//! A message that cannot be fetched is answered by a NAK of our own, and goes by packets, with as
//! many PSNs as that needs. Nothing that was sent after the rendezvous was taken, so all of it gets
//! new numbers. The responder does not take the same PSN for a rendezvous again, so both ends agree
//! about what has become of it.

use super::back_off::BackOff;
use super::config::{QpShared, packets_of};
use super::execute::allows;
use super::fault::{Fault, Reject};
use super::requester::Requester;
use super::responder::{Responder, Stop};
use super::scatter;
use super::scatter::{Extent, Opener};
use super::target::{HeldReceive, Target};
use super::{Cx, RcQp};
use crate::ids::{Key, Psn, Qpn};
use crate::mr::{Access, Accessor, Piece, Pieces, Rights};
use crate::verbs::{Payload, QpType, SendOp, SendWr, WcImm, WcOpcode};
use crate::wire::{AtomicEth, NakCode, Packet, Reth};

/// Below this many bytes packets are as fast: a copy between processes begins with a microsecond of
/// looking for pages.
pub const MIN_RENDEZVOUS: u32 = 8 << 10;
/// In a stream SENDs of this many bytes at most are copied twice, at both ends at the same time,
/// if there is a fast way for that. One copy of more takes less time.
pub(super) const MOST_COPIED: u32 = 8 << 10;
/// Above it the step that fetches would hold up others for long.
pub const MAX_RENDEZVOUS: u32 = 16 << 20;
/// Bytes that are fetched at once: in between the requester may take its memory back.
pub(super) const PART: u32 = 1 << 20;

/// Bytes of a peer that are to be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rendezvous {
    /// The peer's queue pair.
    pub from: Qpn,
    /// Number that makes the rendezvous valid.
    pub token: u64,
    /// Key of the peer's region.
    pub key: Key,
    /// First byte, in the region's `iova` range.
    pub addr: u64,
    /// Bytes, at least 1.
    pub len: u32,
}

/// The requester's part of rendezvous.
#[derive(Debug, Default)]
pub(super) struct RendezvousSender {
    /// Token that makes a rendezvous valid; none: no work request goes so.
    pub(super) token: Option<u64>,
    /// See [`RcQp::set_rendezvous_threshold`].
    threshold: u32,
    back_off: BackOff,
}

impl RendezvousSender {
    /// Returns the token for a work request that is to go by rendezvous.
    pub(super) fn token_for(&mut self, wr: &SendWr) -> Option<u64> {
        let kind = matches!(
            wr.op,
            SendOp::Send | SendOp::SendImm(_) | SendOp::WriteImm(..)
        );
        let Payload::Sges(sges) = &wr.payload else {
            return None;
        };
        let [sge] = sges[..] else {
            return None;
        };
        let threshold = if wr.op == SendOp::Send {
            self.threshold()
        } else {
            0
        };
        let token = self.token_of(sge.length, threshold).filter(|_| kind)?;
        if !self.tries() {
            self.back_off.pass();
            return None;
        }
        Some(token)
    }

    /// Returns the token for a work request with `length` bytes in one piece, more than
    /// `threshold`, if it is to go by rendezvous.
    pub(super) fn token_of(&self, length: u32, threshold: u32) -> Option<u64> {
        let lengths = MIN_RENDEZVOUS.max(threshold + 1)..=MAX_RENDEZVOUS;
        self.token.filter(|_| lengths.contains(&length))
    }

    /// Most bytes of a plain SEND in a stream that goes some other way.
    pub(super) fn threshold(&self) -> u32 {
        match self.tries() {
            true => self.threshold.min(MOST_COPIED),
            false => self.threshold,
        }
    }

    /// Whether a rendezvous is to be tried, after the last refusal.
    pub(super) fn tries(&self) -> bool {
        self.back_off.tries()
    }

    /// The peer has taken a rendezvous.
    pub(super) fn on_taken(&mut self) {
        self.back_off.on_taken();
    }
}

impl RcQp {
    /// From here long SENDs go by rendezvous, with this token. The path leads to a process of this
    /// host, which can look at what the owner publishes. Until the queue pair goes to ERR or RESET.
    pub fn begin_rendezvous(&mut self, token: u64) {
        if self.shared.config.qp_type == QpType::Rc {
            self.requester.rendezvous.token = Some(token);
        }
    }

    /// There is a faster way than packets for SENDs of `bytes` bytes or less that are posted from
    /// here on. They go by rendezvous only if they are longer than 8 KiB or alone
    /// ([`prepare_long`](Self::prepare_long)), and the peer can fetch them.
    pub fn set_rendezvous_threshold(&mut self, bytes: u32) {
        self.requester.rendezvous.threshold = bytes;
    }

    /// What a packet of the peer says of the bytes of a SEND, if [`take_fast`](Self::take_fast) may
    /// fetch them: of more, the peer would have to be asked in between whether it takes its memory
    /// back.
    #[must_use]
    pub fn rendezvous_in(&self, request: AtomicEth) -> Option<Rendezvous> {
        let found = Rendezvous::of(self.shared.attr.dest_qp_num, request)?;
        (found.len <= PART).then_some(found)
    }

    /// Returns the token with which SENDs go by rendezvous now.
    #[must_use]
    pub fn rendezvous(&self) -> Option<u64> {
        self.requester.rendezvous.token
    }
}

impl Rendezvous {
    /// What a packet of a queue pair says of the bytes of a message.
    fn of(from: Qpn, request: AtomicEth) -> Option<Self> {
        let len = u32::try_from(request.compare).ok()?;
        let is_some_length = (1..=MAX_RENDEZVOUS).contains(&len);
        is_some_length.then_some(Self {
            from,
            token: request.swap_or_add,
            key: request.rkey,
            addr: request.va,
            len,
        })
    }
}

impl Requester {
    /// The peer cannot fetch the bytes of the oldest packet, a rendezvous.
    pub(super) fn on_not_fetched(&mut self, shared: &QpShared) {
        if self
            .queue
            .front()
            .is_none_or(|wqe| wqe.rendezvous.is_none())
        {
            return;
        }
        self.rendezvous.back_off.on_refused();
        self.send_by_packets(shared);
    }

    /// Messages that went by rendezvous go by packets. Nothing was taken of what was sent and not
    /// acknowledged.
    pub(super) fn send_by_packets(&mut self, shared: &QpShared) {
        self.go_back();
        self.flight.abandon();
        self.queue.renumber(|wqe| {
            if wqe.rendezvous.take().is_some() {
                wqe.packets = packets_of(wqe.length, shared.attr.path_mtu);
            }
        });
    }
}

impl Responder {
    /// A message whose bytes are to be fetched: a SEND's into a receive, or a WRITE's to where the
    /// packet says. What it needs is what it would need with its bytes.
    pub(super) fn on_rendezvous(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        request: AtomicEth,
        target: Target,
    ) -> Result<(), Stop> {
        let psn = packet.bth.psn;
        let rendezvous = Rendezvous::of(shared.attr.dest_qp_num, request)
            .filter(|found| may_write(shared, packet.ext.reth.as_ref(), found.len))
            .ok_or_else(|| Reject::invalid(psn))?;
        let len = rendezvous.len;
        self.take_recv(shared, cx, target)?;
        let place = match packet.ext.reth {
            Some(reth) => RendezvousDestination::Region(reth, target.accessor(shared)),
            None => RendezvousDestination::Receive,
        };
        let opcode = self.check_place(cx, &place, len, psn)?;
        if self.not_fetched == Some(psn) {
            // The requester is about to send it by packets.
            return Err(Stop::NotFetched);
        }
        self.fetch(cx, &rendezvous, &place)?;
        let imm = packet.ext.imm.map(WcImm::Imm);
        self.complete_recv(shared, cx, packet, opcode, len, imm)?;
        self.finish_message();
        self.took(packet.bth.ack_req);
        Ok(())
    }

    /// Whether `len` bytes may go to their place. Returns what completes.
    fn check_place(
        &self,
        cx: &Cx<'_>,
        place: &RendezvousDestination,
        len: u32,
        psn: Psn,
    ) -> Result<WcOpcode, Reject> {
        match place {
            RendezvousDestination::Receive => {
                let room = |recv: &HeldReceive| scatter::total(&recv.wr.sges);
                let fits = self.held.as_ref().map_or(0, room) >= u64::from(len);
                let too_long =
                    || Reject::recv(NakCode::InvalidRequest, psn, Fault::MESSAGE_TOO_LONG);
                fits.then_some(WcOpcode::Recv).ok_or_else(too_long)
            }
            RendezvousDestination::Region(reth, by) => cx
                .rights
                .open_remote(reth.rkey, *by, reth.va, len.into(), Access::REMOTE_WRITE)
                .map(|_| WcOpcode::RecvRdmaWithImm)
                .map_err(|_| Reject::access(psn)),
        }
    }

    /// Fetches the bytes of a rendezvous.
    fn fetch(
        &self,
        cx: &mut Cx<'_>,
        rendezvous: &Rendezvous,
        place: &RendezvousDestination,
    ) -> Result<(), Stop> {
        let rights = cx.rights;
        let mut done = 0;
        while done < rendezvous.len {
            let len = (rendezvous.len - done).min(PART);
            let pieces = self
                .pieces(rights, place, Extent { offset: done, len })
                .ok_or(Stop::NotFetched)?;
            let part = Rendezvous {
                addr: rendezvous.addr.wrapping_add(u64::from(done)),
                len,
                ..*rendezvous
            };
            if !cx.sink.fetch(&part, &pieces) {
                return Err(Stop::NotFetched);
            }
            done += len;
        }
        Ok(())
    }

    /// Bytes of the place of a message.
    fn pieces<'a>(
        &self,
        rights: &'a Rights,
        place: &RendezvousDestination,
        extent: Extent,
    ) -> Option<Pieces<'a>> {
        match place {
            RendezvousDestination::Receive => {
                let recv = self.held.as_ref()?;
                let who = Opener {
                    pd: recv.pd,
                    need: Access::LOCAL_WRITE,
                };
                scatter::pieces_of(rights, who, &recv.wr.sges, extent).ok()
            }
            RendezvousDestination::Region(reth, by) => {
                let at = reth.va.wrapping_add(u64::from(extent.offset));
                let need = Access::REMOTE_WRITE;
                let span = rights.open_remote(reth.rkey, *by, at, extent.len.into(), need);
                Some(Pieces::from_buf([Piece::Registered(span.ok()?)]))
            }
        }
    }
}

/// Where the bytes of a rendezvous go.
enum RendezvousDestination {
    /// Into the receive in hand.
    Receive,
    /// To where the requester says, if that is open to the accessor.
    Region(Reth, Accessor),
}

/// Whether a queue pair takes a message of `len` bytes to that place, if it names one.
fn may_write(shared: &QpShared, to: Option<&Reth>, len: u32) -> bool {
    to.is_none_or(|reth| reth.length == len && allows(shared, Access::REMOTE_WRITE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_of_a_stream_are_fetched_from_a_length_on_unless_the_peer_cannot() {
        let mut sender = RendezvousSender {
            token: Some(7),
            threshold: 16 << 10,
            ..RendezvousSender::default()
        };
        let is_fetched = |sender: &RendezvousSender, length| {
            let threshold = sender.threshold();
            sender.token_of(length, threshold).is_some()
        };
        assert!(!is_fetched(&sender, MOST_COPIED) && is_fetched(&sender, MOST_COPIED + 1));
        sender.back_off.on_refused();
        assert!(!is_fetched(&sender, 16 << 10) && is_fetched(&sender, (16 << 10) + 1));
        sender.back_off = BackOff::default();
        sender.threshold = 0;
        assert!(is_fetched(&sender, MIN_RENDEZVOUS) && !is_fetched(&sender, MIN_RENDEZVOUS - 1));
    }
}
