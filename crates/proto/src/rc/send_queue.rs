//! The send queue: work requests with the packet sequence numbers that they take.
//!
//! Packets are counted from the move to RTS in 64 bits ("sequence"). The PSN on the wire is the low
//! 24 bits of that, plus the initial PSN. Each work request gets its numbers when it is posted, so
//! a packet's content follows from its sequence alone. Going back is only a matter of setting the
//! next sequence.

use alloc::collections::VecDeque;

use super::config::{PACKET_COST, QpShared, packets_of};
use super::scatter;
use crate::ids::Srqn;
use crate::verbs::{Payload, SendFlags, SendOp, SendTo, SendWr, Sge};

/// Kind of answer to a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompletedBy {
    /// An acknowledgement of its last packet, or of a later one.
    Ack,
    /// READ responses.
    Read,
    /// An atomic acknowledgement.
    Atomic,
    /// A single READ response without data (ATOMIC WRITE, FLUSH).
    Empty,
    /// Nothing: it is done here.
    Local,
}

/// A posted send work request.
#[derive(Debug)]
pub(crate) struct Wqe {
    pub(crate) wr: SendWr,
    /// Sequence of its first packet.
    pub(crate) start: u64,
    /// PSNs that it takes.
    pub(super) packets: u32,
    /// SEND, WRITE with immediate: it goes by rendezvous, in one packet with this token.
    pub(super) rendezvous: Option<u64>,
    /// Bytes of the message; READ: to be read; atomic: 8.
    pub(super) length: u32,
    /// READ: some of it was asked for again, so an answer may start in the middle of what was asked
    /// for first.
    pub(super) repeated: bool,
    /// WRITE with immediate: its bytes are in place, one packet is left to tell of it.
    pub(super) placed: bool,
}

impl Wqe {
    /// Sequence after its last packet.
    pub(crate) fn end(&self) -> u64 {
        self.start + u64::from(self.packets)
    }

    pub(crate) fn answer(&self) -> CompletedBy {
        match self.wr.op {
            SendOp::Read(_) => CompletedBy::Read,
            SendOp::AtomicWrite(_) | SendOp::Flush(_) => CompletedBy::Empty,
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => CompletedBy::Atomic,
            SendOp::LocalInvalidate(_) | SendOp::BindWindow(_) => CompletedBy::Local,
            _ => CompletedBy::Ack,
        }
    }

    /// Bytes that all of its packets take of the window: of a rendezvous as those of one packet.
    #[inline]
    pub(super) fn weight(&self, mtu: u32) -> u32 {
        match self.rendezvous {
            None => self.length,
            Some(_) => self.length.min(mtu),
        }
    }

    /// XRC: the shared receive queue that every packet names.
    pub(super) fn xrc_srq(&self) -> Option<Srqn> {
        match self.wr.to {
            SendTo::XrcSrq(srq) => Some(srq),
            _ => None,
        }
    }

    pub(super) fn fenced(&self) -> bool {
        self.wr.flags.contains(SendFlags::FENCE)
    }

    /// Where READ and atomic results go.
    pub(super) fn sges(&self) -> &[Sge] {
        match &self.wr.payload {
            Payload::Sges(sges) => sges,
            Payload::Inline(_) => &[],
        }
    }

    /// Message bytes before the packet with this sequence (which is in the work request, or its
    /// end).
    pub(super) fn offset(&self, sequence: u64, mtu: u32) -> u32 {
        let bytes = (sequence - self.start) * u64::from(mtu);
        u32::try_from(bytes).map_or(self.length, |bytes| bytes.min(self.length))
    }

    /// Whether it takes a place among the outstanding READs and atomics.
    pub(super) fn counts(&self) -> bool {
        matches!(
            self.answer(),
            CompletedBy::Read | CompletedBy::Atomic | CompletedBy::Empty
        )
    }

    /// Cost of the packets `from .. to` in the window.
    pub(super) fn cost(&self, from: u64, to: u64, mtu: u32) -> u64 {
        (to - from) * u64::from(PACKET_COST)
            + u64::from(self.offset(to, mtu) - self.offset(from, mtu))
    }
}

/// Posted work requests that are not yet retired, oldest first.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    ring: VecDeque<Wqe>,
    /// Index of the work request that the next packet belongs to.
    cursor: usize,
    /// Sequence that the next posted work request starts with.
    tail: u64,
}

impl SendQueue {
    pub(crate) fn len(&self) -> usize {
        self.ring.len()
    }

    pub(crate) fn front(&self) -> Option<&Wqe> {
        self.ring.front()
    }

    /// All of them, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Wqe> {
        self.ring.iter()
    }

    pub(super) fn front_mut(&mut self) -> Option<&mut Wqe> {
        self.ring.front_mut()
    }

    /// The bytes of the oldest work request, of which nothing was sent, are in place: its last
    /// packet is left.
    pub(super) fn place_front(&mut self) {
        if let Some(wqe) = self.ring.front_mut() {
            wqe.start += u64::from(wqe.packets) - 1;
            (wqe.packets, wqe.placed) = (1, true);
        }
    }

    /// The work request that the next packet belongs to.
    pub(super) fn at_cursor(&self) -> Option<&Wqe> {
        self.ring.get(self.cursor)
    }

    /// The same, if it was posted last.
    pub(super) fn last_at_cursor(&self) -> Option<&Wqe> {
        let is_last = self.cursor + 1 == self.ring.len();
        self.ring.back().filter(|_| is_last)
    }

    /// Whether all has been sent, up to this sequence.
    #[inline]
    pub(super) fn is_sent(&self, next: u64) -> bool {
        self.cursor == self.ring.len() && self.tail == next
    }

    /// The work request that a packet belongs to.
    pub(super) fn find(&self, sequence: u64) -> Option<&Wqe> {
        let index = self.ring.partition_point(|wqe| wqe.end() <= sequence);
        self.ring.get(index).filter(|wqe| wqe.start <= sequence)
    }

    /// Whether the next packet belongs to the oldest work request.
    pub(super) fn cursor_is_front(&self) -> bool {
        self.cursor == 0
    }

    pub(super) fn advance_cursor(&mut self) {
        self.cursor += 1;
    }

    pub(super) fn rewind_cursor(&mut self) {
        self.cursor = 0;
    }

    /// Removes the oldest work request.
    pub(crate) fn pop(&mut self) -> Option<Wqe> {
        self.cursor = self.cursor.saturating_sub(1);
        self.ring.pop_front()
    }

    /// Removes the oldest work request, which nobody needs any more.
    pub(super) fn drop_front(&mut self) {
        self.cursor = self.cursor.saturating_sub(1);
        self.ring.pop_front();
    }

    /// Lets `change` say how many packets each work request has, and numbers them anew. Nothing of
    /// them is outstanding.
    pub(super) fn renumber(&mut self, mut change: impl FnMut(&mut Wqe)) {
        let mut at = self.ring.front().map_or(self.tail, |wqe| wqe.start);
        for wqe in &mut self.ring {
            change(wqe);
            wqe.start = at;
            at = wqe.end();
        }
        self.tail = at;
    }

    /// Appends a work request that passed the checks of posting; `rendezvous`: with this token.
    #[inline]
    pub(crate) fn push(&mut self, wr: SendWr, shared: &QpShared, rendezvous: Option<u64>) {
        let length = match wr.op {
            SendOp::LocalInvalidate(_) | SendOp::BindWindow(_) => 0,
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => 8,
            _ => u32::try_from(payload_len(&wr.payload))
                .expect("invariant: the post checks limit messages to 2^31 bytes"),
        };
        let packets = match wr.op {
            SendOp::LocalInvalidate(_) | SendOp::BindWindow(_) => 0,
            _ if rendezvous.is_some() => 1,
            _ => packets_of(length, shared.attr.path_mtu),
        };
        let wqe = Wqe {
            wr,
            start: self.tail,
            packets,
            rendezvous,
            length,
            repeated: false,
            placed: false,
        };
        self.tail = wqe.end();
        self.ring.push_back(wqe);
    }
}

impl SendQueue {
    /// Appends a message that has been sent, behind others that have; `rendezvous`: with this
    /// token. Returns the bytes that it takes of the window, and its packets.
    #[expect(
        clippy::inline_always,
        reason = "a few words, which are not to go through memory"
    )]
    #[inline(always)]
    pub(super) fn push_sent(
        &mut self,
        wr: SendWr,
        shared: &QpShared,
        rendezvous: Option<u64>,
    ) -> (u32, u32) {
        let length = u32::try_from(payload_len(&wr.payload))
            .expect("invariant: what is sent at once is shorter than that");
        let packets = if length <= shared.mtu() || rendezvous.is_some() {
            1
        } else {
            packets_of(length, shared.attr.path_mtu)
        };
        let wqe = Wqe {
            wr,
            start: self.tail,
            packets,
            rendezvous,
            length,
            repeated: false,
            placed: false,
        };
        let weight = wqe.weight(shared.mtu());
        self.ring.push_back(wqe);
        self.tail += u64::from(packets);
        self.cursor += 1;
        (weight, packets)
    }
}

/// Bytes of a payload.
#[inline]
pub(crate) fn payload_len(payload: &Payload) -> u64 {
    match payload {
        Payload::Sges(sges) => scatter::total(sges),
        Payload::Inline(bytes) => bytes.len() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Key, PdId, Qpn};
    use crate::rc::segment::segment;
    use crate::rc::{MAX_MESSAGE, RcConfig};
    use crate::verbs::{Mtu, QpCap, QpType, RemoteAddr, Sges};
    use crate::wire::Position;
    use alloc::vec;

    const PLACE: RemoteAddr = RemoteAddr {
        addr: 0x1000,
        rkey: Key(1),
    };

    fn queue(mtu: Mtu, ops: &[(SendOp, u32)]) -> SendQueue {
        let mut shared = QpShared::new(RcConfig {
            qpn: Qpn::new(2),
            qp_type: QpType::Rc,
            pd: PdId(1),
            cap: QpCap::default(),
            sq_sig_all: false,
            shared_recv: false,
        });
        shared.attr.path_mtu = mtu;
        let mut queue = SendQueue::default();
        for &(op, length) in ops {
            let sge = Sge {
                addr: 0,
                length,
                lkey: Key(1),
            };
            let wr = SendWr {
                to: SendTo::Peer,
                wr_id: 0,
                op,
                flags: SendFlags::empty(),
                payload: Payload::Sges(Sges::from_buf([sge])),
            };
            queue.push(wr, &shared, None);
        }
        queue
    }

    #[test]
    fn the_longest_message_is_cut_without_loss() {
        for mtu in [Mtu::B256, Mtu::B4096] {
            let queue = queue(mtu, &[(SendOp::Write(PLACE), MAX_MESSAGE)]);
            let wqe = queue.front().unwrap();
            assert_eq!(wqe.packets, MAX_MESSAGE / mtu.bytes());
            let last = segment(wqe, wqe.end() - 1..wqe.end(), mtu.bytes()).unwrap();
            assert_eq!(last.offset, MAX_MESSAGE - mtu.bytes());
            assert_eq!(last.len, mtu.bytes());
            assert_eq!(last.opcode.info().unwrap().position, Position::Last);
            assert_eq!(last.ext.reth, None);
            let first = segment(wqe, 0..1, mtu.bytes()).unwrap();
            assert_eq!(first.ext.reth.unwrap().length, MAX_MESSAGE);
        }
    }

    #[test]
    fn the_longest_read_is_asked_for_in_pieces() {
        let queue = queue(Mtu::B256, &[(SendOp::Read(PLACE), MAX_MESSAGE)]);
        let wqe = queue.front().unwrap();
        let (mut at, mut bytes) = (0, 0_u64);
        while at < wqe.end() {
            let to = at + 4;
            let reth = segment(wqe, at..to, 256).unwrap().ext.reth.unwrap();
            assert_eq!(reth.va, PLACE.addr + bytes);
            assert_eq!(reth.length, 4 * 256);
            bytes += u64::from(reth.length);
            at = to;
        }
        assert_eq!(bytes, u64::from(MAX_MESSAGE));
    }

    #[test]
    fn sequences_follow_each_other_and_every_message_has_at_least_one() {
        let ops = [
            (SendOp::Send, 0),
            (SendOp::Read(PLACE), 0),
            (SendOp::LocalInvalidate(Key(1)), 0),
            (SendOp::Send, 257),
            (
                SendOp::FetchAdd {
                    remote: PLACE,
                    add: 1,
                },
                8,
            ),
        ];
        let queue = queue(Mtu::B256, &ops);
        let packets: vec::Vec<_> = queue.ring.iter().map(|w| (w.start, w.packets)).collect();
        assert_eq!(packets, [(0, 1), (1, 1), (2, 0), (2, 2), (4, 1)]);
    }
}
