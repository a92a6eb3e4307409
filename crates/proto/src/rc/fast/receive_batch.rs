//! Middle packets of one message, or of the answer to a READ, that came together. The message, the
//! rights and the receive are looked at once for all of them.
//!
//! A batch makes the same changes as the general way ([`RcQp::on_packet`]) with one packet after
//! the other. So either may follow the other at any time. What is not as usual is left to that one:
//! all questions come before the first change.

use crate::ids::{DEFAULT_PKEY, Psn};
use crate::mr::{Access, Span};
use crate::rc::config::QpShared;
use crate::rc::message::PartialMessage;
use crate::rc::requester::{Probe, Requester};
use crate::rc::responder::Responder;
use crate::rc::send_queue::CompletedBy;
use crate::rc::{Cx, RcQp};
use crate::verbs::{PathMigState, QpState, QpType};
use crate::wire::{Bth, Opcode, Operation, Position};

const RESPONSE: Opcode = Opcode::rc(Operation::ReadResponse, Position::Middle);
/// Fewer packets are no gain.
const FEWEST: usize = 2;

impl RcQp {
    /// Takes the first of these packets (each BTH through pad), as [`on_packet`](Self::on_packet)
    /// would one by one. It takes as many as are in their turn and Middle packets of one message.
    /// That is the SEND or WRITE in work, or the answer to the oldest READ. Returns how many; the
    /// next one is for `on_packet`.
    pub fn on_receive_batch(&mut self, cx: &mut Cx<'_>, packets: &[&[u8]]) -> usize {
        let attr = &self.shared.attr;
        // In REARM a packet with MigReq changes the path. XRC packets carry one more header.
        let usual = matches!(attr.qp_state, QpState::Rts | QpState::Rtr)
            && attr.path_mig_state != PathMigState::Rearm
            && self.shared.config.qp_type == QpType::Rc;
        if !usual {
            return 0;
        }
        let is_answer = packets.first().and_then(|packet| packet.first()) == Some(&RESPONSE.0);
        if !is_answer {
            self.responder.take_batch(&self.shared, cx, packets)
        } else if attr.qp_state == QpState::Rts {
            // Before RTS nothing was sent that could have an answer.
            self.requester.take_batch(&self.shared, cx, packets)
        } else {
            0
        }
    }
}

impl Requester {
    fn take_batch(&mut self, shared: &QpShared, cx: &Cx<'_>, packets: &[&[u8]]) -> usize {
        let (mtu, first) = (shared.mtu(), self.flight.oldest());
        let psn = self.flight.psn(first);
        let is_next =
            |&(packet, ahead): &(&&[u8], u32)| is_middle(packet, RESPONSE, psn.plus(ahead), mtu);
        let of_run = packets.iter().take(self.batch_due()).zip(0..);
        let count = of_run.take_while(is_next).count();
        if count < FEWEST {
            return 0;
        }
        let Some(span) = self.open_next(shared, cx, count) else {
            return 0;
        };
        let taken = write(cx, span, &packets[..count]);
        if taken > 0 {
            self.took_batch(shared, cx, first + taken as u64);
        }
        taken
    }

    /// So many answers from the oldest packet on are Middle packets, if nothing else is to be
    /// looked after with them.
    fn batch_due(&self) -> usize {
        let (first, next) = (self.flight.oldest(), self.flight.next());
        // A reorder buffer, a probe or a later acknowledgement has work to do after each answer.
        let usual =
            self.probe == Probe::Idle && self.reorder.is_empty() && self.acknowledged_to <= first;
        let request = self.flight.request_at(first);
        // The First response has an AETH, so a batch starts behind it.
        let batch = request.filter(|request| usual && request.start < first);
        let count = batch.map_or(0, |request| {
            // The Last response completes the work request, and has an AETH.
            (request.end - 1).min(next).saturating_sub(first)
        });
        usize::try_from(count).unwrap_or(0)
    }

    /// Where the next `count` full answers to the oldest READ go, if that is one piece that its key
    /// opens.
    fn open_next<'r>(&self, shared: &QpShared, cx: &Cx<'r>, count: usize) -> Option<Span<'r>> {
        let wqe = self
            .queue
            .front()
            .filter(|wqe| wqe.answer() == CompletedBy::Read)?;
        let [sge] = wqe.sges() else {
            return None;
        };
        let offset = u64::from(wqe.offset(self.flight.oldest(), shared.mtu()));
        let bytes = count as u64 * u64::from(shared.mtu());
        let at = sge.addr.wrapping_add(offset);
        let opened = cx
            .rights
            .open(sge.lkey, shared.config.pd, at, bytes, Access::LOCAL_WRITE);
        opened
            .ok()
            .filter(|_| offset + bytes <= u64::from(sge.length))
    }

    /// The answers before `to` are in their places.
    fn took_batch(&mut self, shared: &QpShared, cx: &Cx<'_>, to: u64) {
        while let Some(wqe) = self.queue.front() {
            let next = self.flight.oldest() + 1;
            let bytes = self.flight.on_acknowledged(shared, wqe, next);
            if next >= to {
                self.on_progress(shared, cx.now, bytes);
                return;
            }
            // The window opens by each of them; all else looks at where they end.
            self.window.on_progress(bytes);
        }
    }
}

impl Responder {
    fn take_batch(&mut self, shared: &QpShared, cx: &Cx<'_>, packets: &[&[u8]]) -> usize {
        let Some(message) = self.message.filter(|_| self.reorder.is_empty()) else {
            return 0;
        };
        let mtu = shared.mtu();
        let opcode = message.middle();
        let is_next = |&(packet, ahead): &(&&[u8], u32)| {
            is_middle(packet, opcode, self.expected.plus(ahead), mtu)
        };
        let count = packets.iter().zip(0..).take_while(is_next).count();
        let bytes = u32::try_from(count).ok().and_then(|n| n.checked_mul(mtu));
        let Some(bytes) = bytes.filter(|_| count >= FEWEST) else {
            return 0;
        };
        let Some(span) = self.open_next(shared, cx, &message, bytes) else {
            return 0;
        };
        let taken = write(cx, span, &packets[..count]);
        if taken > 0 {
            self.took_batch(mtu, message, &packets[..taken]);
        }
        taken
    }

    /// Where the next `bytes` of the message go, if that is one piece, they do not end it and its
    /// key opens them all.
    fn open_next<'r>(
        &self,
        shared: &QpShared,
        cx: &Cx<'r>,
        message: &PartialMessage,
        bytes: u32,
    ) -> Option<Span<'r>> {
        let received = match message {
            PartialMessage::Write(write) => return write.open_next(shared, cx, bytes),
            PartialMessage::Send { received, .. } => *received,
        };
        let recv = self.held.as_ref()?;
        let [sge] = recv.wr.sges[..] else {
            return None;
        };
        // Otherwise the general way ends the queue pair with a local length error.
        let fits = received
            .checked_add(bytes)
            .is_some_and(|after| after <= sge.length.min(crate::rc::MAX_MESSAGE));
        let at = sge.addr.wrapping_add(received.into());
        let need = Access::LOCAL_WRITE;
        let opened = cx.rights.open(sge.lkey, recv.pd, at, bytes.into(), need);
        opened.ok().filter(|_| fits)
    }

    /// These packets are in their places.
    fn took_batch(&mut self, mtu: u32, message: PartialMessage, packets: &[&[u8]]) {
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
    // A Middle packet with pad is a violation, and another version is dropped: both by `on_packet`.
    let plain = Bth::version(head) == 0 && Bth::pad_count(head) == 0;
    plain.then(|| Bth::from_bytes(head))
}

/// Whether it is this packet, full, with the default partition key.
fn is_middle(packet: &[u8], opcode: Opcode, psn: Psn, mtu: u32) -> bool {
    packet.len() == Bth::LEN + mtu as usize
        && read(packet)
            .is_some_and(|bth| bth.opcode == opcode && bth.psn == psn && bth.pkey == DEFAULT_PKEY)
}

/// Puts payloads one behind the other. Returns how many it could; for the next the general way
/// finds the same.
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
