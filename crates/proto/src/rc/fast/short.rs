//! A short message at once: what most calls of `ibv_post_send` come to.
//!
//! [`RcQp::poll_transmit`] finds out packet by packet what of all that may be going on goes first.
//! When a program posts a short message mostly nothing is going on. All earlier ones are sent, none
//! is sent again, and the window is open. The responder owes nothing or just an acknowledgement.
//! [`RcQp::poll_short`] asks once whether that is so, and then does what `poll_transmit` would do
//! until there is nothing more to send. It leaves the same packets and the same state behind;
//! everything else it leaves alone.

use alloc::vec::Vec;

use crate::ids::Psn;
use crate::rc::config::{PACKET_COST, QpShared};
use crate::rc::fault::Fault;
use crate::rc::requester::{Probe, Requester};
use crate::rc::scatter;
use crate::rc::scatter::Extent;
use crate::rc::send_queue::Wqe;
use crate::rc::transmit::Next;
use crate::rc::{Cx, RcQp};
use crate::verbs::{QpState, QpType, SendOp};
use crate::wire::{Bth, pad_count, padded_len};

/// Bytes of a short message at most. A longer one costs so much by its bytes that nothing else
/// counts.
pub const MAX_SHORT: u32 = 1024;
/// Bytes of a WRITE that may go before an acknowledgement: a turn to transmit.
const MAX_AHEAD: u32 = 64 << 10;

impl RcQp {
    /// Whether [`post_send`](Self::post_send) and [`poll_short`](Self::poll_short) look at the
    /// time. Otherwise any earlier time will do.
    #[inline]
    #[must_use]
    pub fn needs_time_to_send(&self) -> bool {
        self.requester.retry.times_sends(&self.shared)
    }

    /// Whether READs or atomics are under way: an answer that passes theirs says that they are
    /// lost.
    #[must_use]
    pub fn awaits_answers(&self) -> bool {
        self.requester.flight.requests() > 0
    }

    /// PSN of the next request packet.
    #[must_use]
    pub fn next_psn(&self) -> Psn {
        self.requester.next_psn()
    }

    /// PSN of the oldest packet that is not acknowledged, or of the next if all are.
    #[must_use]
    pub fn oldest_psn(&self) -> Psn {
        self.requester.flight.psn(self.requester.flight.oldest())
    }

    /// Appends the packet of a short message to `out`, behind the acknowledgement if one is owed.
    /// There must be nothing else to send, and the window open. Returns how long the first is if
    /// there are two, 0 if there is one. `None`: nothing has changed, see
    /// [`poll_transmit`](Self::poll_transmit).
    pub fn poll_short(&mut self, cx: &mut Cx<'_>, out: &mut Vec<u8>) -> Option<usize> {
        let owes = self.responder.wants_transmit();
        // READ responses and NAKs go by `poll_transmit`, which takes turns with the requester.
        if owes && !self.responder.owes_only_ack() {
            return None;
        }
        let next = self.requester.next_short(&self.shared)?;
        let begin = out.len();
        if owes {
            let said = self.responder.transmit(&self.shared, cx, out);
            debug_assert!(
                matches!(said, Ok(true)),
                "an acknowledgement cannot be refused"
            );
        }
        let acknowledgement = out.len() - begin;
        if self
            .requester
            .emit_short(&self.shared, cx, &next, out)
            .is_err()
        {
            // What fails is found, and completed, in its turn.
            out.truncate(begin);
            if owes {
                self.responder.replies.owe_ack();
            }
            return None;
        }
        let sent = next.sent();
        self.requester.on_sent(&self.shared, cx.now, &sent, true);
        // Both halves have been asked, and have nothing more.
        self.requester_turn = true;
        Some(acknowledgement)
    }
}

impl Requester {
    /// Packets of the only message that there is to send, if an acknowledgement may follow it.
    pub(in crate::rc) fn packets_ahead_of_ack(&self) -> u32 {
        let may = |wqe: &&Wqe| match wqe.wr.op {
            // Nobody is told that it has come.
            SendOp::Write(_) => wqe.length <= MAX_AHEAD,
            _ => wqe.packets == 1 && wqe.length <= MAX_SHORT,
        };
        if self.probe == Probe::Wanted || !self.selective_repeat.is_empty() {
            return 0;
        }
        let message = self.queue.last_at_cursor().filter(may);
        message.map_or(0, |wqe| wqe.packets)
    }

    /// The next packet, if it is all that there is to send, a whole short message, and may go out
    /// now.
    #[inline]
    fn next_short(&self, shared: &QpShared) -> Option<Next<'_>> {
        let wqe = self.queue.last_at_cursor()?;
        let is_whole = wqe.packets == 1 && wqe.length <= MAX_SHORT && wqe.rendezvous.is_none();
        let goes_by_packet = match wqe.wr.op {
            SendOp::Send | SendOp::SendImm(_) | SendOp::SendInvalidate(_) => true,
            // A WRITE within a host may need no packet: its owner copies the bytes.
            SendOp::Write(_) | SendOp::WriteImm(..) => self.direct(shared).is_none(),
            _ => false,
        };
        let flight = &self.flight;
        // Behind a rewind the next packet is a retransmission, which the general way counts.
        let is_new = flight.next() == wqe.start && flight.next() == flight.limit();
        let nothing_else = self.probe != Probe::Wanted
            && self.selective_repeat.is_empty()
            && self.stuck.is_none()
            && !self.retry.waits_for_receiver();
        // A fence waits for READs and atomics (IBV_SEND_FENCE, ibv_post_send(3)). In SQD no new
        // message may start (IBTA volume 1, 10.3).
        let may = shared.attr.qp_state == QpState::Rts
            && shared.config.qp_type == QpType::Rc
            && !(wqe.fenced() && flight.answer_due());
        let (to, cost) = (
            flight.next() + 1,
            u64::from(PACKET_COST) + u64::from(wqe.length),
        );
        let has_room = || flight.has_room(to, cost, self.most());
        let goes = is_whole && goes_by_packet && is_new && nothing_else && may && has_room();
        goes.then_some(Next { wqe, to, cost })
    }

    /// Appends the packet of a short message. On error `out` may have grown.
    #[inline]
    fn emit_short(
        &self,
        shared: &QpShared,
        cx: &Cx<'_>,
        Next { wqe, to, .. }: &Next<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        // Other operations have extension headers.
        if wqe.wr.op != SendOp::Send {
            let packets = self.flight.next()..*to;
            return self.emit(shared, cx, wqe, packets, true, out).map(drop);
        }
        let len = wqe.length as usize;
        let end = out.len() + Bth::LEN + padded_len(len);
        out.reserve(end - out.len());
        let header = self.send_header(shared, wqe.wr.flags);
        out.extend_from_slice(&header.to_bytes(pad_count(len)));
        scatter::gather(
            cx,
            shared.config.pd,
            &wqe.wr.payload,
            Extent {
                offset: 0,
                len: wqe.length,
            },
            out,
        )
        .map_err(|_| Fault::LOCAL_KEY)?;
        out.resize(end, 0);
        Ok(())
    }
}
