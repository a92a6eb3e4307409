//! The shortest way of a short SEND: it is posted, and its packet written to where the peer looks, in one.
//!
//! It leaves the same packets and the same state behind as [`RcQp::post_send`] with [`RcQp::poll_short`] after it, where nothing is
//! under way but other SENDs and no timer runs. All that is asked once, before the first change; whatever is not so goes
//! the general way.

use super::RcQp;
use super::config::{PACKET_COST, Shared};
use super::requester::{Probe, Requester};
use crate::mr::{Access, Memory, Rights};
use crate::verbs::{Payload, PathMigState, QpState, QpType, SendFlags, SendOp, SendTo, SendWr};
use crate::wire::{Bth, Opcode, Operation, Position, pad_count, padded_len};

/// The opcode of a SEND in one packet.
const SEND_ONLY: Opcode = Opcode::rc(Operation::Send, Position::Only);

impl RcQp {
    /// Writes the packet of a SEND that could go out now to the beginning of `room`, if nothing else has to be said or done before or with
    /// it. Returns how long it is. Nothing has changed: once the packet is where the peer finds it, call
    /// [`sent_swiftly`](Self::sent_swiftly).
    #[inline]
    pub fn write_swiftly(
        &self,
        (rights, memory): (&Rights, &dyn Memory),
        wr: &SendWr,
        room: &mut [u8],
    ) -> Option<usize> {
        let shared = &self.shared;
        let is_plain = wr.op == SendOp::Send && wr.to == SendTo::Peer;
        let may = is_plain && is_usual(shared) && !self.responder.wants_transmit();
        let len = payload_of_one(shared, wr)?;
        let (bytes, end) = (len as usize, Bth::LEN + padded_len(len as usize));
        if !may || !self.requester.is_at_rest(shared, len) || end > room.len() {
            return None;
        }
        let header = self.requester.send_header(shared, wr.flags, bytes);
        room[..Bth::LEN].copy_from_slice(&header);
        let (place, pad) = room[Bth::LEN..end].split_at_mut(bytes);
        match &wr.payload {
            Payload::Inline(data) => place.copy_from_slice(data),
            Payload::Sges(sges) => {
                let sge = sges.first()?;
                let (pd, none) = (shared.config.pd, Access::empty());
                let span = rights.open(sge.lkey, pd, sge.addr, len.into(), none);
                memory.read(span.ok()?, place).ok()?;
            }
        }
        pad.fill(0);
        Some(end)
    }

    /// Queues a SEND whose packet [`write_swiftly`](Self::write_swiftly) has written and the peer can find.
    #[inline]
    pub fn sent_swiftly(&mut self, wr: SendWr) {
        let requester = &mut self.requester;
        let length = requester.queue.push_sent(wr);
        requester.waiting.pass();
        requester.unasked = 0;
        let cost = u64::from(PACKET_COST) + u64::from(length);
        requester
            .flight
            .on_sent(requester.flight.next() + 1, cost, false);
        self.requester_turn = true;
    }
}

impl Requester {
    /// Whether all that was posted is sent, is waiting for nothing but acknowledgements of SENDs or WRITEs and not timed, and one more
    /// packet with so many bytes may go.
    #[inline]
    fn is_at_rest(&self, shared: &Shared, len: u32) -> bool {
        let flight = &self.flight;
        let next = flight.next();
        let cost = u64::from(PACKET_COST) + u64::from(len);
        next == flight.limit()
            && self.queue.is_sent(next)
            && self.queue.len() < shared.config.cap.max_send_wr as usize
            && flight.requests() == 0
            && self.probe == Probe::Idle
            && self.repairs.is_empty()
            && self.stuck.is_none()
            && !self.peer_gone
            && self.retry.is_at_rest(shared)
            && flight.has_room(next + 1, cost, self.most())
    }

    /// All headers of the next packet, if that is a SEND.
    #[inline]
    pub(super) fn send_header(
        &self,
        shared: &Shared,
        flags: SendFlags,
        len: usize,
    ) -> [u8; Bth::LEN] {
        let bth = Bth {
            solicited: flags.contains(SendFlags::SOLICITED),
            ack_req: true,
            ..shared.bth(SEND_ONLY, self.next_psn())
        };
        bth.to_bytes(pad_count(len))
    }
}

/// Whether the queue pair is one that sends, and no packet of it can change its path.
#[inline]
fn is_usual(shared: &Shared) -> bool {
    shared.config.qp_type == QpType::Rc
        && shared.attr.qp_state == QpState::Rts
        && shared.attr.path_mig_state != PathMigState::Rearm
}

/// Bytes of a message of one packet that is in one piece, or inline.
#[inline]
fn payload_of_one(shared: &Shared, wr: &SendWr) -> Option<u32> {
    let cap = &shared.config.cap;
    let len = match &wr.payload {
        Payload::Sges(sges) if sges.len() == 1 && cap.max_send_sge > 0 => sges[0].length,
        Payload::Inline(data) if data.len() <= cap.max_inline_data as usize => {
            u32::try_from(data.len()).ok()?
        }
        _ => return None,
    };
    (len <= shared.mtu()).then_some(len)
}
