//! SENDs that are longer than what the shortest way takes, and those that are queued. Each goes as
//! one packet all the same, to where the peer looks.

use super::send::{cost_of, is_usual, open, payload_of};
use crate::mr::{Opens, Piece};
use crate::rc::RcQp;
use crate::rc::config::{QpShared, packets_of};
use crate::rc::requester::Requester;
use crate::verbs::{PlainPayload, PlainSend};
use crate::wire::pad_count;

/// A SEND of any length that goes as one packet. It takes as many PSNs as packets of the path MTU:
/// [`cut`](super::cut::cut) makes those of it.
#[derive(Clone, Copy, Debug)]
pub struct LongMessage<'a> {
    /// Header of the one packet, with the first PSN; as words in memory.
    pub head: [u32; 3],
    /// Bytes behind that, without pad.
    pub payload: Piece<'a>,
    /// Bytes of each of the packets that its PSNs stand for, but the last one.
    pub packet: u32,
    /// Number of these.
    pub packets: u32,
}

impl RcQp {
    /// As [`prepare_fast`](Self::prepare_fast), for a message that may be as long as several
    /// packets.
    pub fn prepare_long<'r>(
        &self,
        opens: &'r mut impl Opens,
        send: &PlainSend<'r>,
    ) -> Option<LongMessage<'r>> {
        debug_assert!(self.fast_head().is_some());
        if self.is_send_queue_full() {
            return None;
        }
        self.long_message(opens, send)
    }

    /// The next work request that is queued and not sent, if it is a SEND of one piece. `None` also
    /// if anything else is to be sent before it.
    #[must_use]
    pub fn next_queued(&self) -> Option<PlainSend<'_>> {
        let (shared, requester) = (&self.shared, &self.requester);
        let wqe = requester.queue.at_cursor()?;
        let is_next = is_usual(shared)
            && requester.is_quiet(shared)
            && requester.flight.next() == wqe.start
            && !requester.peer_gone
            && wqe.rendezvous.is_none();
        wqe.wr.as_plain().filter(|_| is_next)
    }

    /// As [`prepare_long`](Self::prepare_long), for [`next_queued`](Self::next_queued). Once the
    /// message is where the peer finds it, call [`commit_queued`](Self::commit_queued).
    pub fn prepare_queued<'r>(&'r self, opens: &'r mut impl Opens) -> Option<LongMessage<'r>> {
        self.long_message(opens, &self.next_queued()?)
    }

    /// The queued SEND that [`prepare_queued`](Self::prepare_queued) has prepared is sent.
    pub fn commit_queued(&mut self) {
        let requester = &mut self.requester;
        let wqe = requester.queue.at_cursor();
        let (length, packets) = wqe.map_or((0, 0), |wqe| (wqe.length, wqe.packets));
        requester.queue.advance_cursor();
        requester.on_message_sent(length, packets);
        self.requester_turn = true;
    }

    /// A SEND that may go out now as one packet, however long it is.
    fn long_message<'r>(
        &self,
        opens: &'r mut impl Opens,
        send: &PlainSend<'r>,
    ) -> Option<LongMessage<'r>> {
        let shared = &self.shared;
        let len = payload_of(shared, send)?;
        let packets = packets_of(len, shared.attr.path_mtu);
        if !self.requester.has_room_for(shared, len, packets) {
            return None;
        }
        let payload = match send.payload {
            PlainPayload::Inline(data) => Piece::Inline(data),
            PlainPayload::Sge(sge) => Piece::Registered(open(shared, opens, sge)?),
        };
        let header = self.requester.send_header(shared, send.flags);
        Some(LongMessage {
            head: header.to_words(pad_count(len as usize)),
            payload,
            packet: shared.mtu(),
            packets,
        })
    }
}

impl Requester {
    /// Whether a message of so many packets may go, none of which but the last one would ask for an
    /// acknowledgement.
    fn has_room_for(&self, shared: &QpShared, len: u32, packets: u32) -> bool {
        let (flight, window) = (&self.flight, self.most());
        let to = flight.next() + u64::from(packets);
        if packets == 1 {
            return flight.has_room(to, cost_of(len, 1), window);
        }
        let cost = cost_of(len, packets) + cost_of(shared.mtu(), 1);
        self.unasked + cost < window / 4
            && flight.bytes() + cost <= window
            && flight.has_room(to + 1, cost, window)
    }
}
