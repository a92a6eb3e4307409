//! The reorder buffer: packets that came before one that is missing.
//!
//! The rule is to drop them, and go-back-N brings them again. Between two Ferroces they are kept.
//! The responder reports the gap as ever, and gaps that open behind it while it waits. The
//! requester sends only what is missing (see [`selective_repeat`](super::selective_repeat)), and
//! the acknowledgement that follows speaks of all that was kept. The requester keeps READ responses
//! in the same way, and asks for what is missing. A packet is executed in its turn, never before.
//!
//! `RoCEv2` has no authentication, so a kept packet may be forged. Without this buffer a forged
//! packet counts only if its PSN is exactly the expected one; with it, it must not count more
//! easily:
//! * A kept packet is executed only behind a packet with [`Bth::VOUCHED`]. That says that the
//!   requester has read the report, and has sent all that the report says is kept. A forged packet
//!   that waits for PSNs not yet sent is never vouched for.
//! * A packet that arrives in its turn is compared with a kept one of the same PSN. If they differ,
//!   both are dropped and asked for again.
//! * Nothing is kept for longer than [`LIFETIME`], or further ahead than [`WINDOW`] and what kept
//!   READs account for.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use crate::ids::Psn;
use crate::time::Time;
use crate::wire::{Bth, ExtHeaders, Operation, Packet};

/// Packets that are kept, at most; what is beyond has to come again.
const MAX_PACKETS: usize = 1024;
/// PSNs ahead of the expected one that are kept, besides those of READ requests that are kept.
const WINDOW: u32 = 1024;
/// Responses of a READ request that is kept, at most. No Ferroce asks for more at once over a wire:
/// its window holds fewer packets.
const MAX_SPAN: u32 = 4096;
/// A kept packet that is not reached by then is dropped, and its gap is not reported any more.
/// Several retransmissions have failed by then: a probe waits no longer than this.
const LIFETIME: Duration = Duration::from_secs(1);
/// Payload bytes that are kept, at most: what a window holds.
const MAX_BYTES: usize = 512 << 10;

/// Gaps of a report, at most: 4 bytes each.
const MAX_GAPS: usize = 60;

/// A packet with its payload.
#[derive(Debug)]
pub(super) struct BufferedPacket {
    bth: Bth,
    ext: ExtHeaders,
    payload: Box<[u8]>,
    came: Time,
}

/// Outcome for a packet that is ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// The packet opens a gap that was not known, or takes a packet with it that has other bytes.
    /// The peer is to hear of what is missing.
    News,
    /// The peer need not hear of it.
    Known,
    /// The peer cannot have sent it so far ahead: it is dropped without a word.
    Refused,
}

impl BufferedPacket {
    /// The packet as it came.
    pub(super) fn packet(&self) -> Packet<'_> {
        Packet {
            bth: self.bth,
            ext: self.ext,
            payload: &self.payload,
        }
    }

    /// The PSNs that it stands for.
    fn span(&self, mtu: u32) -> u32 {
        span(&self.packet(), mtu)
    }

    /// Whether this packet says the same. The answer to a request for a part has another position
    /// than the answer to the whole.
    fn agrees(&self, packet: &Packet<'_>) -> bool {
        let what = |bth: &Bth| bth.opcode.info().map(|info| info.operation);
        let same = if what(&packet.bth).is_some_and(Operation::is_response) {
            what(&self.bth) == what(&packet.bth) && self.ext.atomic_ack == packet.ext.atomic_ack
        } else {
            self.bth.opcode == packet.bth.opcode && self.ext == packet.ext
        };
        same && *self.payload == *packet.payload
    }
}

/// The PSNs that a packet stands for: a READ takes one for each of its responses.
fn span(packet: &Packet<'_>, mtu: u32) -> u32 {
    let read = packet.bth.opcode.info().map(|info| info.operation) == Some(Operation::ReadRequest);
    let length = packet
        .ext
        .reth
        .filter(|_| read)
        .map_or(0, |reth| reth.length);
    length.div_ceil(mtu).max(1)
}

/// Packets behind a gap, in the order of their PSNs.
#[derive(Debug, Default)]
pub(super) struct ReorderBuffer {
    packets: VecDeque<BufferedPacket>,
    bytes: usize,
    /// PSNs of kept READ requests, besides one each.
    spans: u32,
    /// Nothing came before that.
    since: Time,
}

impl ReorderBuffer {
    /// Keeps a packet that is ahead of `expected`, unless there is no room, or it is too far ahead,
    /// or here already. `reads` is how many READ requests of more than one response may be kept.
    pub(super) fn keep(
        &mut self,
        packet: &Packet<'_>,
        expected: Psn,
        mtu: u32,
        reads: u8,
        now: Time,
    ) -> Kept {
        let ahead = packet.bth.psn.distance(expected);
        let behind = |kept: &BufferedPacket| kept.bth.psn.distance(expected) < ahead;
        // Usually it belongs at the end.
        let at = match self.packets.back() {
            Some(last) if !behind(last) => self.packets.partition_point(behind),
            _ => self.packets.len(),
        };
        let other = self.packets.get(at);
        if let Some(other) = other.filter(|other| other.bth.psn == packet.bth.psn) {
            if other.agrees(packet) {
                return Kept::Known;
            }
            // Which of them is the peer's nobody can tell.
            self.remove(at, mtu);
            return Kept::News;
        }
        let span = span(packet, mtu);
        if u32::try_from(ahead).is_ok_and(|ahead| ahead > WINDOW + self.spans)
            || span > 1 && (span > MAX_SPAN || self.reads(mtu) >= usize::from(reads))
        {
            return Kept::Refused;
        }
        if self.packets.len() >= MAX_PACKETS || self.bytes + packet.payload.len() > MAX_BYTES {
            return Kept::Known;
        }
        let opens_gap = at == self.packets.len()
            && self
                .packets
                .back()
                .is_none_or(|last| last.bth.psn.plus(last.span(mtu)) != packet.bth.psn);
        if self.packets.is_empty() {
            self.since = now;
        }
        self.bytes += packet.payload.len();
        self.spans += span - 1;
        let kept = BufferedPacket {
            bth: packet.bth,
            ext: packet.ext,
            payload: packet.payload.into(),
            came: now,
        };
        self.packets.insert(at, kept);
        if opens_gap { Kept::News } else { Kept::Known }
    }

    /// READ requests of more than one response that are kept.
    fn reads(&self, mtu: u32) -> usize {
        if self.spans == 0 {
            return 0;
        }
        self.packets.iter().filter(|p| p.span(mtu) > 1).count()
    }

    fn remove(&mut self, at: usize, mtu: u32) -> Option<BufferedPacket> {
        let kept = self.packets.remove(at)?;
        self.bytes -= kept.payload.len();
        self.spans -= kept.span(mtu) - 1;
        Some(kept)
    }

    /// Drops what has waited for too long.
    pub(super) fn expire(&mut self, mtu: u32, now: Time) {
        if self.packets.is_empty() || now.since(self.since) < LIFETIME {
            return;
        }
        self.packets.retain(|kept| now.since(kept.came) < LIFETIME);
        self.bytes = self.packets.iter().map(|kept| kept.payload.len()).sum();
        self.spans = self.packets.iter().map(|kept| kept.span(mtu) - 1).sum();
        self.since = self
            .packets
            .iter()
            .map(|kept| kept.came)
            .min()
            .unwrap_or(now);
    }

    /// A packet has come in its turn: takes out what is kept with its PSN. Returns false if that
    /// has other bytes.
    pub(super) fn meet(&mut self, packet: &Packet<'_>, mtu: u32) -> bool {
        while let Some(first) = self.packets.front() {
            match first.bth.psn.distance(packet.bth.psn) {
                1.. => return true,
                0 => return self.pop(mtu).is_none_or(|kept| kept.agrees(packet)),
                // It was taken already, from another packet.
                _ => self.pop(mtu),
            };
        }
        true
    }

    /// Takes the packet that is expected now, if it is here, and calls `take` with it.
    pub(super) fn take<R>(
        &mut self,
        expected: Psn,
        mtu: u32,
        take: impl FnOnce(&Packet<'_>) -> R,
    ) -> Option<R> {
        while let Some(first) = self.packets.front()
            && first.bth.psn.distance(expected) <= 0
        {
            let kept = self.pop(mtu)?;
            // What came once more in the meantime is not wanted any longer.
            if kept.bth.psn == expected {
                return Some(take(&kept.packet()));
            }
        }
        None
    }

    /// PSN of the first one.
    pub(super) fn first(&self) -> Option<Psn> {
        self.packets.front().map(|first| first.bth.psn)
    }

    /// Takes the first one out.
    pub(super) fn pop(&mut self, mtu: u32) -> Option<BufferedPacket> {
        self.remove(0, mtu)
    }

    /// The gaps from `expected` on: distance from there, and packets. If the expected packet is
    /// here, it is asked for once more: only the peer can say that it is the right one.
    pub(super) fn gaps(&self, expected: Psn, mtu: u32) -> impl Iterator<Item = (u32, u32)> {
        let mut at = 0;
        self.packets.iter().filter_map(move |kept| {
            let ahead = u32::try_from(kept.bth.psn.distance(expected)).unwrap_or(0);
            let gap = match ahead {
                0 => (0, 1),
                _ => (at, ahead.saturating_sub(at)),
            };
            at = ahead + kept.span(mtu);
            (gap.1 > 0).then_some(gap)
        })
    }

    /// How far from `expected` the last one ends.
    pub(super) fn end(&self, expected: Psn, mtu: u32) -> u32 {
        self.packets.back().map_or(0, |last| {
            let ahead = u32::try_from(last.bth.psn.distance(expected)).unwrap_or(0);
            ahead + last.span(mtu)
        })
    }

    /// Appends a report of what is missing from `expected` on to `out`: see [`read_report`].
    pub(super) fn report(&self, expected: Psn, mtu: u32, out: &mut Vec<u8>) {
        let gaps = self.gaps(expected, mtu).take(MAX_GAPS);
        let end = (self.end(expected, mtu), 0);
        // Others get none.
        let end = Some(end).filter(|_| !self.is_empty());
        for (at, len) in gaps.chain(end) {
            if at + len > u16::MAX.into() {
                return;
            }
            for number in [at, len] {
                let [.., high, low] = number.to_be_bytes();
                out.extend([high, low]);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Forgets all, and gives the memory back.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// The gaps in a report: distance from the expected PSN, and packets that are missing. Behind them,
/// one of no packets says how far what has arrived reaches.
pub(super) fn read_report(report: &[u8]) -> impl Iterator<Item = (u16, u16)> + Clone {
    let gaps = report.chunks_exact(4).take(MAX_GAPS + 1);
    gaps.map(|gap| {
        (
            u16::from_be_bytes([gap[0], gap[1]]),
            u16::from_be_bytes([gap[2], gap[3]]),
        )
    })
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::ids::Qpn;
    use crate::wire::Opcode;

    fn keep(buffer: &mut ReorderBuffer, psn: u32, len: usize) -> bool {
        let payload = vec![0; len];
        let packet = Packet {
            bth: Bth::new(Opcode::RC_ACKNOWLEDGE, Qpn::new(1), Psn::new(psn)),
            ext: ExtHeaders::default(),
            payload: &payload,
        };
        let expected = Psn::new(0xff_fffe);
        buffer.keep(&packet, expected, 1024, 1, Time(0)) == Kept::News
    }

    #[test]
    fn packets_come_back_once_each_and_in_order() {
        let mut buffer = ReorderBuffer::default();
        for psn in [0xff_ffff, 3, 1, 3, 2, 0xff_ffff] {
            keep(&mut buffer, psn, 10);
        }
        let mut expected = Psn::new(0xff_ffff);
        let mut got = Vec::new();
        for _ in 0..5 {
            got.extend(buffer.take(expected, 1024, |packet| packet.bth.psn.get()));
            expected = expected.plus(1);
        }
        assert_eq!(got, [0xff_ffff, 1, 2, 3], "0 is still missing");
        assert!(buffer.is_empty() && buffer.bytes == 0);
    }

    #[test]
    fn what_came_again_is_forgotten() {
        let mut buffer = ReorderBuffer::default();
        keep(&mut buffer, 1, 10);
        keep(&mut buffer, 2, 10);
        assert_eq!(buffer.take(Psn::new(2), 1024, |p| p.bth.psn.get()), Some(2));
        assert!(buffer.is_empty());
    }

    #[test]
    fn the_first_behind_a_gap_is_told() {
        let mut buffer = ReorderBuffer::default();
        let opens = [
            (1, true),
            (2, false),
            (2, false),
            (5, true),
            (4, false),
            (6, false),
        ];
        for (psn, opens_gap) in opens {
            assert_eq!(keep(&mut buffer, psn, 10), opens_gap, "{psn}");
        }
        assert_eq!(buffer.first(), Some(Psn::new(1)));
    }

    #[test]
    fn a_report_names_the_gaps() {
        let mut buffer = ReorderBuffer::default();
        for psn in [3, 1, 7, 0] {
            keep(&mut buffer, psn, 10);
        }
        let mut report = Vec::new();
        buffer.report(Psn::new(0xff_fffe), 1024, &mut report);
        let gaps: Vec<_> = read_report(&report).collect();
        assert_eq!(gaps, [(0, 2), (4, 1), (6, 3), (10, 0)]);
        for psn in (10..1000).step_by(2) {
            keep(&mut buffer, psn, 10);
        }
        report.clear();
        buffer.report(Psn::new(0xff_fffe), 1024, &mut report);
        assert_eq!(read_report(&report).count(), MAX_GAPS + 1);
        assert_eq!(read_report(&[1; 7]).count(), 1);
    }

    #[test]
    fn the_room_is_bounded() {
        let mut buffer = ReorderBuffer::default();
        for psn in 0..2000 {
            keep(&mut buffer, psn, 4096);
        }
        assert_eq!(buffer.packets.len(), MAX_BYTES / 4096);
        let mut buffer = ReorderBuffer::default();
        for psn in 0..2000 {
            keep(&mut buffer, psn, 0);
        }
        // The first is 2 ahead.
        assert_eq!(buffer.packets.len(), WINDOW as usize - 1);
        buffer.clear();
        assert!(buffer.is_empty());
    }

    fn read(psn: u32, packets: u32) -> Packet<'static> {
        let opcode = Opcode::rc(Operation::ReadRequest, crate::wire::Position::Only);
        let reth = crate::wire::Reth {
            va: 0,
            rkey: crate::ids::Key(0),
            length: packets * 1024,
        };
        Packet {
            bth: Bth::new(opcode, Qpn::new(1), Psn::new(psn)),
            ext: ExtHeaders {
                reth: Some(reth),
                ..ExtHeaders::default()
            },
            payload: &[],
        }
    }

    #[test]
    fn only_kept_reads_make_the_window_longer() {
        let mut buffer = ReorderBuffer::default();
        let first = Psn::new(0);
        let mut keep = |packet: Packet<'_>| buffer.keep(&packet, first, 1024, 2, Time(0));
        assert_eq!(keep(read(1025, 1)), Kept::Refused);
        assert_eq!(keep(read(1, MAX_SPAN + 1)), Kept::Refused);
        assert_eq!(keep(read(1, 2000)), Kept::News);
        assert_eq!(keep(read(2001, 2000)), Kept::Known);
        assert_eq!(keep(read(4001, 2)), Kept::Refused, "more than are granted");
        assert_eq!(keep(read(4001, 1)), Kept::Known);
        assert_eq!(keep(read(1024 + 2 * 1999, 1)), Kept::News);
        assert_eq!(keep(read(1025 + 2 * 1999, 1)), Kept::Refused);
    }

    #[test]
    fn packets_that_differ_are_both_dropped() {
        let mut buffer = ReorderBuffer::default();
        let first = Psn::new(0);
        assert_eq!(
            buffer.keep(&read(1, 1), first, 1024, 2, Time(0)),
            Kept::News
        );
        assert_eq!(
            buffer.keep(&read(1, 1), first, 1024, 2, Time(0)),
            Kept::Known
        );
        assert_eq!(
            buffer.keep(&read(1, 2), first, 1024, 2, Time(0)),
            Kept::News
        );
        assert!(buffer.is_empty() && buffer.spans == 0);
        buffer.keep(&read(1, 1), first, 1024, 2, Time(0));
        assert!(buffer.meet(&read(0, 1), 1024) && !buffer.is_empty());
        assert!(!buffer.meet(&read(1, 2), 1024) && buffer.is_empty());
        buffer.keep(&read(1, 1), first, 1024, 2, Time(0));
        assert!(buffer.meet(&read(1, 1), 1024) && buffer.is_empty());
    }

    #[test]
    fn what_is_not_reached_is_dropped() {
        let mut buffer = ReorderBuffer::default();
        let first = Psn::new(0);
        let at = |part: u32| Time(0) + LIFETIME / 2 * part;
        buffer.keep(&read(1, 100), first, 1024, 1, at(0));
        buffer.keep(&read(500, 1), first, 1024, 1, at(1));
        buffer.expire(1024, at(1));
        assert_eq!(buffer.packets.len(), 2);
        buffer.expire(1024, at(2));
        assert_eq!((buffer.packets.len(), buffer.spans), (1, 0));
        assert_eq!(buffer.gaps(Psn::new(0), 1024).next(), Some((0, 500)));
        buffer.expire(1024, at(3));
        assert!(buffer.is_empty());
    }

    #[test]
    fn what_is_reached_is_asked_for_once_more() {
        let mut buffer = ReorderBuffer::default();
        for psn in [5, 6, 9] {
            buffer.keep(&read(psn, 1), Psn::new(4), 1024, 1, Time(0));
        }
        let gaps: Vec<_> = buffer.gaps(Psn::new(5), 1024).collect();
        assert_eq!(gaps, [(0, 1), (2, 2)]);
    }
}
