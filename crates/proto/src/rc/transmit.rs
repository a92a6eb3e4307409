//! Sending request packets: what may go now, cut from posted work and filled from memory.

use alloc::vec::Vec;
use core::ops::Range;

use super::Cx;
use super::config::{PACKET_COST, QpShared};
use super::fault::{Fault, SendFault};
use super::requester::{Probe, Requester};
use super::scatter;
use super::scatter::{Extent, Opener};
use super::segment::{Segment, segment};
use super::send_queue::{CompletedBy, Wqe};
use crate::mr::Access;
use crate::time::Time;
use crate::verbs::QpState;
use crate::wire::{Bth, ExtHeaders, Packet, padded_len};

/// Most PSNs of one READ request.
const MAX_READ: u64 = 1 << 21;

/// A request packet.
pub(super) struct Next<'a> {
    /// Work request that the packet is of.
    pub(super) wqe: &'a Wqe,
    /// Sequence after the last packet that it accounts for.
    pub(super) to: u64,
    /// Bytes that it takes of the window.
    pub(super) cost: u64,
}

/// Facts about a request packet that went out.
pub(super) struct Went {
    /// Sequence of the first packet of its work request.
    start: u64,
    to: u64,
    cost: u64,
    /// The work request ends with this packet.
    ended: bool,
    /// The answer counts among the READs and atomics.
    counts: bool,
}

impl Next<'_> {
    /// Facts to note once the packet has gone out.
    pub(super) fn sent(&self) -> Went {
        Went {
            start: self.wqe.start,
            to: self.to,
            cost: self.cost,
            ended: self.to == self.wqe.end(),
            counts: self.wqe.counts(),
        }
    }
}

impl Requester {
    /// Whether [`transmit`](Self::transmit) would send a packet (or find that it cannot be built).
    pub(super) fn wants_transmit(&self, shared: &QpShared) -> bool {
        !self.retry.waits_for_receiver()
            && (self.probe == Probe::Wanted
                || !self.selective_repeat.is_empty()
                || self.next_request(shared).is_some())
    }

    /// Whether there is a packet that is neither a probe nor sent by selective repeat.
    pub(super) fn wants_request(&self, shared: &QpShared) -> bool {
        !self.retry.waits_for_receiver() && self.next_request(shared).is_some()
    }

    /// Returns how many bytes may be in flight now.
    pub(super) fn most(&self) -> u64 {
        self.window.current().min(self.allowance)
    }

    /// The packet that is next, if it may go out now.
    fn next_request(&self, shared: &QpShared) -> Option<Next<'_>> {
        let wqe = self.queue.at_cursor().filter(|_| self.stuck.is_none())?;
        let flight = &self.flight;
        let may_start = match shared.attr.qp_state {
            QpState::Rts => true,
            // In SQD messages that were begun go on, and no other begins (IBTA volume 1, 10.3).
            QpState::Sqd => wqe.start < flight.limit(),
            _ => return None,
        };
        let at_start = flight.next() == wqe.start;
        let waits = match wqe.answer() {
            CompletedBy::Local => true,
            CompletedBy::Ack => false,
            // What is repeated has its place already.
            CompletedBy::Read | CompletedBy::Atomic | CompletedBy::Empty => {
                flight.next() >= flight.limit()
                    // `max_rd_atomic` of ibv_modify_qp(3): the next one waits, and all behind it.
                    && flight.requests() >= usize::from(shared.attr.max_rd_atomic)
            }
        };
        // IBV_SEND_FENCE of ibv_post_send(3).
        let may_start = may_start && !(wqe.fenced() && flight.answer_due());
        if waits || at_start && (!may_start || self.waits_to_be_moved(wqe)) {
            return None;
        }
        let to = self.request_end(shared, wqe, flight.next());
        let cost = wqe.cost(flight.next(), to, shared.mtu());
        flight
            .has_room(to, cost, self.most())
            .then_some(Next { wqe, to, cost })
    }

    /// Sequence after the last packet that the request packet with this sequence accounts for. A
    /// READ request accounts for all its responses, any other for itself.
    ///
    /// A READ longer than the window allows is several requests, so that what comes back at once is
    /// bounded. Each asks for as much as the window holds. If two may be outstanding it asks for
    /// half of that, so that one is always on its way.
    pub(super) fn request_end(&self, shared: &QpShared, wqe: &Wqe, sequence: u64) -> u64 {
        if wqe.answer() != CompletedBy::Read {
            return sequence + 1;
        }
        if let Some(request) = self.flight.request_at(sequence) {
            return request.end;
        }
        let packets = self.most() / u64::from(shared.mtu() + PACKET_COST);
        let depth = u64::from(shared.attr.max_rd_atomic).clamp(1, 2);
        wqe.end()
            .min(sequence + (packets / depth).clamp(1, MAX_READ))
    }

    /// Appends the next request packet to `out`, if there is one that may go out.
    pub(super) fn transmit(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool, SendFault> {
        if self.retry.waits_for_receiver() {
            return Ok(false);
        }
        if self.probe == Probe::Wanted {
            return self.transmit_probe(shared, cx, out).map(|()| true);
        }
        if !self.selective_repeat.is_empty() && self.transmit_repeat(shared, cx, out)? {
            return Ok(true);
        }
        let Some(next) = self.next_request(shared) else {
            return Ok(false);
        };
        let ask = self.must_ask(shared, next.cost);
        let packets = self.flight.next()..next.to;
        let sent = next.sent();
        let asked = match self.emit(shared, cx, next.wqe, packets, ask, out) {
            Ok(asked) => asked,
            Err(fault) if self.queue.cursor_is_front() => return Err(fault.into()),
            // Completions are in order, so the error waits until the work before it is done.
            Err(fault) => {
                self.stuck = Some(fault);
                return Ok(false);
            }
        };
        self.on_sent(shared, cx.now, &sent, asked);
        Ok(true)
    }

    /// The next packet went out, and `asked` for an acknowledgement or not.
    pub(super) fn on_sent(&mut self, shared: &QpShared, now: Time, sent: &Went, asked: bool) {
        let sequence = self.flight.next();
        let is_new = sequence >= self.flight.limit();
        if is_new && sequence == sent.start {
            self.waiting.pass();
        }
        self.unasked = if asked { 0 } else { self.unasked + sent.cost };
        self.flight.on_sent(sent.to, sent.cost, sent.counts);
        if sent.ended {
            self.queue.advance_cursor();
        }
        self.retry
            .on_sent(shared, now, (is_new && asked).then_some(sequence));
    }

    /// Whether a packet of this cost must ask for an acknowledgement although its message goes on.
    fn must_ask(&self, shared: &QpShared, cost: u64) -> bool {
        let window = self.most();
        let next = self.flight.next() + 2;
        let full = u64::from(shared.mtu() + PACKET_COST);
        // The window must open before it is used up: so four acknowledgements for each window.
        self.unasked + cost >= window / 4 || !self.flight.has_room(next, cost + full, window)
    }

    /// Sends the oldest unacknowledged packet once more, with AckReq.
    fn transmit_probe(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), SendFault> {
        let sequence = self.flight.oldest();
        self.probe = Probe::Idle;
        let Some(wqe) = self.queue.front() else {
            return Ok(());
        };
        let until = self.request_end(shared, wqe, sequence);
        self.emit(shared, cx, wqe, sequence..until, true, out)?;
        self.mark_repeated();
        self.selective_repeat
            .on_sent(sequence..until, self.flight.limit());
        self.probe = Probe::Sent {
            until,
            limit: self.flight.next(),
        };
        Ok(())
    }

    /// Appends one packet. Returns whether it asks for an acknowledgement. On error `out` is as it
    /// was.
    pub(super) fn emit(
        &self,
        shared: &QpShared,
        cx: &Cx<'_>,
        wqe: &Wqe,
        packets: Range<u64>,
        ask: bool,
        out: &mut Vec<u8>,
    ) -> Result<bool, Fault> {
        let sequence = packets.start;
        let Some(segment) = segment(wqe, packets, shared.mtu()) else {
            return Ok(false);
        };
        let Segment { offset, len, .. } = segment;
        let ack_req = ask || segment.ends;
        let bth = Bth {
            solicited: segment.solicited,
            ack_req,
            congestion: self.selective_repeat.vouch_for(sequence),
            ..shared.bth(segment.opcode, self.flight.psn(sequence))
        };
        // The peer fetches the bytes, so a bad key must be found here.
        if wqe.rendezvous.is_some() {
            let all = Extent {
                offset: 0,
                len: wqe.length,
            };
            let who = Opener {
                pd: shared.config.pd,
                need: Access::empty(),
            };
            scatter::pieces_of(cx.rights, who, wqe.sges(), all).map_err(|_| Fault::LOCAL_KEY)?;
        }
        let begin = out.len();
        let payload_len = len as usize;
        let ext = ExtHeaders {
            xrceth: wqe.xrc_srq(),
            ..segment.ext
        };
        Packet::emit_headers(&bth, &ext, payload_len, out);
        let end = out.len() + padded_len(payload_len);
        let gathered = scatter::gather(
            cx,
            shared.config.pd,
            &wqe.wr.payload,
            Extent { offset, len },
            out,
        );
        if gathered.is_err() {
            out.truncate(begin);
            return Err(Fault::LOCAL_KEY);
        }
        out.resize(end, 0);
        Ok(ack_req)
    }
}
