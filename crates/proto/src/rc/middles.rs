//! Middle packets of one message that came together: one look at the message, the rights and the receive for all of them.
//!
//! It makes the same changes as the general way ([`RcQp::on_packet`]) with one packet after the other, so either may follow the other at
//! any time. What is not as usual is left to that one: all questions come before the first change.

use super::config::Shared;
use super::message::Message;
use super::responder::Responder;
use super::{Cx, RcQp};
use crate::ids::{DEFAULT_PKEY, Psn};
use crate::mr::{Access, Span};
use crate::verbs::{PathMigState, QpState, QpType};
use crate::wire::{Bth, Opcode};

/// Fewer packets are no gain.
const FEWEST: usize = 2;

impl RcQp {
    /// Takes the first of these packets (each BTH through pad), as many as are Middle packets of the SEND or WRITE in work and in their
    /// turn, as [`on_packet`](Self::on_packet) would one by one. Returns how many; the next one is for `on_packet`.
    pub fn on_middles(&mut self, cx: &mut Cx<'_>, packets: &[&[u8]]) -> usize {
        let attr = &self.shared.attr;
        let usual = matches!(attr.qp_state, QpState::Rts | QpState::Rtr)
            && attr.path_mig_state != PathMigState::Rearm
            && self.shared.config.qp_type == QpType::Rc;
        if usual {
            self.responder.take_middles(&self.shared, cx, packets)
        } else {
            0
        }
    }
}

impl Responder {
    fn take_middles(&mut self, shared: &Shared, cx: &Cx<'_>, packets: &[&[u8]]) -> usize {
        let Some(message) = self.message.filter(|_| self.early.is_empty()) else {
            return 0;
        };
        let mtu = shared.mtu();
        let opcode = message.middle();
        let is_next = |&(packet, ahead): &(&&[u8], u32)| {
            is_middle(packet, opcode, (self.expected.plus(ahead), mtu))
        };
        let count = packets.iter().zip(0..).take_while(is_next).count();
        let bytes = u32::try_from(count).ok().and_then(|n| n.checked_mul(mtu));
        let Some(bytes) = bytes.filter(|_| count >= FEWEST) else {
            return 0;
        };
        let Some(span) = self.open_next(shared, cx, (&message, bytes)) else {
            return 0;
        };
        let taken = write(cx, span, &packets[..count]);
        if taken > 0 {
            self.took_middles(mtu, message, &packets[..taken]);
        }
        taken
    }

    /// Where the next `bytes` of the message go, if that is one piece, they do not end it and its key opens them all.
    fn open_next<'r>(
        &self,
        shared: &Shared,
        cx: &Cx<'r>,
        (message, bytes): (&Message, u32),
    ) -> Option<Span<'r>> {
        let received = match message {
            Message::Write(write) => return write.open_next(shared, cx, bytes),
            Message::Send { received, .. } => *received,
        };
        let recv = self.held.as_ref()?;
        let [sge] = recv.wr.sges[..] else {
            return None;
        };
        let fits = received
            .checked_add(bytes)
            .is_some_and(|after| after <= sge.length.min(super::MAX_MESSAGE));
        let at = sge.addr.wrapping_add(received.into());
        let need = Access::LOCAL_WRITE;
        let opened = cx.rights.open(sge.lkey, recv.pd, at, bytes.into(), need);
        opened.ok().filter(|_| fits)
    }

    /// These packets are in their places.
    fn took_middles(&mut self, mtu: u32, message: Message, packets: &[&[u8]]) {
        self.begin_in_turn();
        let count = u32::try_from(packets.len()).expect("invariant: their bytes were counted");
        self.message = Some(message.after(count * mtu));
        self.expected = self.expected.plus(count);
        if packets
            .iter()
            .any(|packet| read(packet).is_some_and(|bth| bth.ack_req))
        {
            self.replies.owe_ack();
        }
    }
}

/// The header of a packet without pad, of the only version.
fn read(packet: &[u8]) -> Option<Bth> {
    let head = packet.first_chunk()?;
    let plain = Bth::version(head) == 0 && Bth::pad_count(head) == 0;
    plain.then(|| Bth::from_bytes(head))
}

/// Whether it is this packet, full, with the default partition key.
fn is_middle(packet: &[u8], opcode: Opcode, (psn, mtu): (Psn, u32)) -> bool {
    packet.len() == Bth::LEN + mtu as usize
        && read(packet)
            .is_some_and(|bth| bth.opcode == opcode && bth.psn == psn && bth.pkey == DEFAULT_PKEY)
}

/// Puts payloads one behind the other. Returns how many it could; for the next the general way finds the same.
fn write(cx: &Cx<'_>, span: Span<'_>, packets: &[&[u8]]) -> usize {
    let mut rest = span;
    let place = |packet: &&&[u8]| {
        let payload = &packet[Bth::LEN..];
        let (here, later) = rest.split_at(payload.len());
        rest = later;
        cx.memory.write(here, payload).is_ok()
    };
    packets.iter().take_while(place).count()
}
