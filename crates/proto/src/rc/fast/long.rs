//! SENDs that are longer than what the shortest way takes, and those that are queued. Each goes as
//! one packet all the same, to where the peer looks.

use super::send::{cost_of, is_usual, open, payload_of};
use crate::mr::{Opens, Piece};
use crate::rc::RcQp;
use crate::rc::config::{QpShared, packets_of};
use crate::rc::rendezvous::PART;
use crate::rc::requester::Requester;
use crate::rc::send_queue::Wqe;
use crate::verbs::{PlainPayload, PlainSend};
use crate::wire::{AtomicEth, Bth, Opcode, pad_count};

/// A SEND of any length that goes as one packet. It takes as many PSNs as packets of the path MTU:
/// [`cut`](super::cut::cut) makes those of it. If it goes by rendezvous, it takes one.
#[derive(Clone, Copy, Debug)]
pub struct LongMessage<'a> {
    /// Header of the one packet, with the first PSN; as words in memory.
    pub head: [u32; 3],
    /// What is behind that, without pad.
    pub body: LongBody<'a>,
    /// Bytes of each of the packets that its PSNs stand for, but the last one.
    pub packet: u32,
    /// Number of these.
    pub packets: u32,
}

/// What is behind the header of a SEND that goes as one packet.
#[derive(Clone, Copy, Debug)]
pub enum LongBody<'a> {
    /// Its bytes.
    Bytes(Piece<'a>),
    /// Where its bytes are, as an [`AtomicEth`]: it goes by rendezvous.
    Place([u8; AtomicEth::LEN]),
}

impl LongBody<'_> {
    /// Number of bytes behind the header.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(piece) => piece.len(),
            Self::Place(place) => place.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the message goes by rendezvous.
    #[must_use]
    pub const fn is_place(&self) -> bool {
        matches!(self, Self::Place(_))
    }
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
        let length = payload_of(&self.shared, send)?;
        let rendezvous = &self.requester.rendezvous;
        // One copy takes less time than two, one after the other.
        let is_alone = !self.is_unanswered() && rendezvous.tries();
        let threshold = if is_alone { 0 } else { rendezvous.threshold() };
        let token = rendezvous.token_of(length, threshold);
        // The general way counts the messages until the next try, and takes what is fetched in
        // several parts.
        if token.is_some() && (length > PART || !rendezvous.tries()) {
            return None;
        }
        self.long_message(opens, send, token)
    }

    /// Bytes behind its header that the next work request takes as one packet, if it is queued, not
    /// sent, and a SEND of one piece. `None` also if anything else is to be sent before it.
    #[must_use]
    pub fn next_queued(&self) -> Option<usize> {
        let (wqe, send) = self.queued_send()?;
        let is_place = wqe.rendezvous.is_some() && wqe.length <= PART;
        Some(if is_place {
            AtomicEth::LEN
        } else {
            send.payload.len()
        })
    }

    /// The work request of [`next_queued`](Self::next_queued).
    fn queued_send(&self) -> Option<(&Wqe, PlainSend<'_>)> {
        let (shared, requester) = (&self.shared, &self.requester);
        let wqe = requester.queue.at_cursor()?;
        let is_next = is_usual(shared)
            && requester.is_quiet(shared)
            && requester.flight.next() == wqe.start
            && !requester.peer_gone;
        let send = wqe.wr.as_plain().filter(|_| is_next)?;
        Some((wqe, send))
    }

    /// As [`prepare_long`](Self::prepare_long), for [`next_queued`](Self::next_queued). Once the
    /// message is where the peer finds it, call [`commit_queued`](Self::commit_queued).
    pub fn prepare_queued<'r>(&'r self, opens: &'r mut impl Opens) -> Option<LongMessage<'r>> {
        let (wqe, send) = self.queued_send()?;
        self.long_message(opens, &send, wqe.rendezvous)
    }

    /// The queued SEND that [`prepare_queued`](Self::prepare_queued) has prepared is sent.
    pub fn commit_queued(&mut self) {
        let (requester, mtu) = (&mut self.requester, self.shared.mtu());
        let wqe = requester.queue.at_cursor();
        let (weight, packets) = wqe.map_or((0, 0), |wqe| (wqe.weight(mtu), wqe.packets));
        requester.queue.advance_cursor();
        requester.on_message_sent(weight, packets);
        self.requester_turn = true;
    }

    /// A SEND that may go out now as one packet, however long it is; by rendezvous, if there is a
    /// `token`.
    fn long_message<'r>(
        &self,
        opens: &'r mut impl Opens,
        send: &PlainSend<'r>,
        token: Option<u64>,
    ) -> Option<LongMessage<'r>> {
        let shared = &self.shared;
        let len = payload_of(shared, send)?;
        if let Some(token) = token {
            return self.rendezvous_message(opens, send, (len, token));
        }
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
            body: LongBody::Bytes(payload),
            packet: shared.mtu(),
            packets,
        })
    }

    /// The packet of a SEND of `len` bytes that says where they are.
    fn rendezvous_message<'r>(
        &self,
        opens: &mut impl Opens,
        send: &PlainSend<'_>,
        (len, token): (u32, u64),
    ) -> Option<LongMessage<'r>> {
        let shared = &self.shared;
        let PlainPayload::Sge(sge) = send.payload else {
            return None;
        };
        // The peer fetches the bytes, so a bad key must be found here.
        let is_open = open(shared, opens, sge).is_some();
        if !is_open
            || !self
                .requester
                .has_room_for(shared, len.min(shared.mtu()), 1)
        {
            return None;
        }
        let place = AtomicEth {
            va: sge.addr,
            rkey: sge.lkey,
            swap_or_add: token,
            compare: len.into(),
        };
        let header = Bth {
            opcode: Opcode::RENDEZVOUS,
            ..self.requester.send_header(shared, send.flags)
        };
        Some(LongMessage {
            head: header.to_words(0),
            body: LongBody::Place(place.to_bytes()),
            packet: shared.mtu(),
            packets: 1,
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
