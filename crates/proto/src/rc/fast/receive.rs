//! The short way of the usual cases. One is a SEND of one packet, in its turn, into a receive of
//! one piece of memory. The other is an acknowledgement.
//!
//! The short way makes the same changes as the general one ([`RcQp::on_packet`],
//! [`RcQp::poll_transmit`]), in the same order. So either may follow the other at any time. What is
//! not as usual is left to that one: all questions come before the first change.

use super::send::is_usual;
use crate::ids::Psn;
use crate::mr::{Access, AddrRange, Opens, Span, Unmapped};
use crate::rc::config::{QpShared, packets_of};
use crate::rc::fault::Reject;
use crate::rc::post::check_recv;
use crate::rc::responder::{Responder, recv_completion};
use crate::rc::{Cx, RcQp, Sink};
use crate::verbs::{QpState, RecvWr, Wc};
use crate::wire::{Brief, BriefKind, BriefSend, Opcode};

impl RcQp {
    /// As [`on_packet`](Self::on_packet), for a packet that is brief, if all is as usual. `None`:
    /// nothing has changed, and `on_packet` must be called with it.
    #[inline]
    pub fn on_brief(&mut self, cx: &mut Cx<'_>, brief: &Brief<'_>) -> Option<bool> {
        match brief.kind {
            BriefKind::Send(payload)
                // A payload above the path MTU is answered by a NAK, which `on_packet` makes.
                if self.is_ready_to_take() && payload.len() <= self.shared.mtu() as usize =>
            {
                let (message, memory) = (BriefSend::of(&brief.bth, payload.len()), cx.memory);
                let outcome = self.responder.take_brief(
                    &self.shared,
                    &mut &*cx.rights,
                    |span| memory.write(span, payload),
                    cx.sink,
                    &message,
                )?;
                let taken = outcome.is_ok();
                self.settle_request(cx, outcome);
                Some(taken)
            }
            BriefKind::Ack if is_usual(&self.shared) => {
                // An acknowledgement of nothing outstanding may end the wait for a receiver: see
                // `on_stale`.
                let sequence = self.requester.flight.sequence_of(brief.bth.psn).ok()?;
                let outcome = self.requester.acknowledge(&self.shared, cx, sequence + 1);
                self.settle_send(cx, outcome.map(drop));
                Some(true)
            }
            BriefKind::Send(_) | BriefKind::Ack => None,
        }
    }

    /// PSN of the next request.
    #[must_use]
    pub fn expected(&self) -> Psn {
        self.responder.expected()
    }

    /// The acknowledgement that [`poll_transmit`](Self::poll_transmit) would produce, where that is
    /// all that it has to send (see [`owes_only_ack`](Self::owes_only_ack)): once it is sent, call
    /// [`on_ack_sent`](Self::on_ack_sent).
    #[must_use]
    pub fn ack(&self) -> [u8; Brief::ACK_LEN] {
        let (psn, msn) = self.responder.acknowledged();
        let bth = self.shared.bth(Opcode::RC_ACKNOWLEDGE, psn);
        Brief::acknowledgement(&bth, msn)
    }

    /// The acknowledgement that [`ack`](Self::ack) gave is sent.
    pub fn on_ack_sent(&mut self) {
        self.requester_turn = true;
        self.responder.replies.on_ack_sent();
    }

    /// An acknowledgement is owed for what was taken, though nothing asked for one.
    pub fn owe_ack(&mut self) {
        self.responder.replies.owe_ack();
    }

    /// Whether a receive work request of `sges` pieces can be queued without consequences now
    /// ([`post_recv_quietly`](Self::post_recv_quietly)).
    #[inline]
    #[must_use]
    pub fn takes_recv_quietly(&self, sges: usize) -> bool {
        // In ERR the receive is flushed at once. A requester that waits for a receive is told of
        // it.
        self.state() != QpState::Err
            && !self.responder.is_waited_for()
            && check_recv(&self.shared, sges, self.responder.queued()).is_ok()
    }

    /// Queues a receive work request for which [`takes_recv_quietly`](Self::takes_recv_quietly)
    /// says so.
    #[expect(
        clippy::inline_always,
        reason = "a work request is not to go through memory"
    )]
    #[inline(always)]
    pub fn post_recv_quietly(&mut self, wr: RecvWr) {
        debug_assert!(self.takes_recv_quietly(wr.sges.len()));
        self.responder.recv.push_back(wr);
    }
}

impl Responder {
    /// Takes a SEND between two messages, if it is what is expected and there is a receive of one
    /// piece for it that is open: `write` copies its bytes there. It has as many PSNs as packets of
    /// its bytes would have, unless they are fetched.
    #[expect(
        clippy::inline_always,
        reason = "a completion is not to go through memory"
    )]
    #[inline(always)]
    pub(in crate::rc) fn take_brief(
        &mut self,
        shared: &QpShared,
        opens: &mut impl Opens,
        write: impl FnOnce(Span<'_>) -> Result<(), Unmapped>,
        sink: &mut (impl Sink + ?Sized),
        message: &BriefSend,
    ) -> Option<Result<(), Reject>> {
        // A duplicate gets its acknowledgement again, a gap its NAK: both by the general way.
        if message.psn != self.expected {
            return None;
        }
        if message.is_fetched && self.not_fetched == Some(message.psn) {
            return None;
        }
        let recv = self.recv.pop_front()?;
        let Some(byte_len) = place(shared, (opens, write), &recv, message.len) else {
            // The message gets an error or the general way, which must find the receive in its
            // place.
            self.recv.push_front(recv);
            return None;
        };
        let wc = Wc {
            byte_len,
            ..recv_completion(shared, &recv)
        };
        self.begin_in_turn();
        let more = byte_len > shared.mtu() && !message.is_fetched;
        if more {
            self.took_all_but_last(packets_of(byte_len, shared.attr.path_mtu));
        }
        // The message counts as taken only when the program can learn of it: so no acknowledgement
        // is owed yet.
        if !sink.recv_completion(wc, message.solicited) {
            return Some(Err(Reject::CQ_OVERFLOW));
        }
        self.finish_message();
        self.took(message.ack_req);
        Some(Ok(()))
    }

    /// A message of several packets was taken at once.
    #[cold]
    fn took_all_but_last(&mut self, packets: u32) {
        self.expected = self.expected.plus(packets - 1);
    }
}

/// Writes a message of so many bytes to the one piece of a receive, if that has room for it and is
/// open. Returns how many those are.
#[expect(clippy::inline_always, reason = "each message goes this way")]
#[inline(always)]
fn place(
    shared: &QpShared,
    (opens, write): (
        &mut impl Opens,
        impl FnOnce(Span<'_>) -> Result<(), Unmapped>,
    ),
    recv: &RecvWr,
    len: usize,
) -> Option<u32> {
    let [sge] = recv.sges[..] else {
        return None;
    };
    let byte_len = u32::try_from(len).ok()?;
    // The general way ends the queue pair with a local length error.
    if byte_len > sge.length {
        return None;
    }
    if byte_len > 0 {
        let range = AddrRange {
            addr: sge.addr,
            len: u64::from(byte_len),
        };
        let opened = opens.open(sge.lkey, shared.config.pd, range, Access::LOCAL_WRITE);
        // A copy that fails half way is made once more, and fails again.
        write(opened.ok()?).ok()?;
    }
    Some(byte_len)
}
