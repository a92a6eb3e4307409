//! Packets that came before one that is missing.
//!
//! The rule is to drop them, and go-back-N brings them again. Between two of our kind they are kept: the responder reports the gap
//! as ever, and gaps that open behind it while it waits; the requester sends only what is missing (see [`repair`](super::repair)), and
//! the acknowledgement that follows speaks of all that was kept. The requester keeps READ responses in the same way, and asks for what
//! is missing. A packet is executed in its turn, never before.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::ids::Psn;
use crate::wire::{Bth, ExtHeaders, Operation, Packet};

/// Packets that are kept, at most; what is beyond has to come again.
const MAX_PACKETS: usize = 1024;
/// Payload bytes that are kept, at most: what a window holds.
const MAX_BYTES: usize = 512 << 10;

/// Gaps of a report, at most: 4 bytes each.
const MAX_GAPS: usize = 60;

/// A packet with its payload.
#[derive(Debug)]
pub(super) struct Early {
    bth: Bth,
    ext: ExtHeaders,
    payload: Box<[u8]>,
}

impl Early {
    /// As it came.
    pub(super) fn packet(&self) -> Packet<'_> {
        Packet {
            bth: self.bth,
            ext: self.ext,
            payload: &self.payload,
        }
    }

    /// The PSNs that it stands for: a READ takes one for each of its responses.
    fn span(&self, mtu: u32) -> u32 {
        let read =
            self.bth.opcode.info().map(|info| info.operation) == Some(Operation::ReadRequest);
        let length = self.ext.reth.filter(|_| read).map_or(0, |reth| reth.length);
        length.div_ceil(mtu).max(1)
    }
}

/// Packets behind a gap, in the order of their PSNs.
#[derive(Debug, Default)]
pub(super) struct EarlyPackets {
    packets: VecDeque<Early>,
    bytes: usize,
}

impl EarlyPackets {
    /// Keeps a packet that is ahead of `expected`, unless there is no room or it is here already. Returns whether it is the first one
    /// behind a gap that nobody knew of.
    pub(super) fn keep(&mut self, packet: &Packet<'_>, expected: Psn, mtu: u32) -> bool {
        let ahead = packet.bth.psn.distance(expected);
        if self.packets.len() >= MAX_PACKETS || self.bytes + packet.payload.len() > MAX_BYTES {
            return false;
        }
        let behind = |early: &Early| early.bth.psn.distance(expected) < ahead;
        // Usually it belongs at the end.
        let at = match self.packets.back() {
            Some(last) if !behind(last) => self.packets.partition_point(behind),
            _ => self.packets.len(),
        };
        if self
            .packets
            .get(at)
            .is_some_and(|early| early.bth.psn == packet.bth.psn)
        {
            return false;
        }
        let opens_gap = at == self.packets.len()
            && self
                .packets
                .back()
                .is_none_or(|last| last.bth.psn.plus(last.span(mtu)) != packet.bth.psn);
        self.bytes += packet.payload.len();
        let early = Early {
            bth: packet.bth,
            ext: packet.ext,
            payload: packet.payload.into(),
        };
        self.packets.insert(at, early);
        opens_gap
    }

    /// Takes the packet that is expected now, if it is here, and calls `take` with it.
    pub(super) fn take<R>(
        &mut self,
        expected: Psn,
        take: impl FnOnce(&Packet<'_>) -> R,
    ) -> Option<R> {
        while let Some(first) = self.packets.front()
            && first.bth.psn.distance(expected) <= 0
        {
            let early = self.pop()?;
            // What came once more in the meantime is not wanted any longer.
            if early.bth.psn == expected {
                return Some(take(&early.packet()));
            }
        }
        None
    }

    /// PSN of the first one.
    pub(super) fn first(&self) -> Option<Psn> {
        self.packets.front().map(|first| first.bth.psn)
    }

    /// Takes the first one out.
    pub(super) fn pop(&mut self) -> Option<Early> {
        let first = self.packets.pop_front()?;
        self.bytes -= first.payload.len();
        Some(first)
    }

    /// What is missing from `expected` on: distance from there, and packets.
    pub(super) fn gaps(&self, expected: Psn, mtu: u32) -> impl Iterator<Item = (u32, u32)> {
        let mut at = 0;
        self.packets.iter().filter_map(move |early| {
            let ahead = u32::try_from(early.bth.psn.distance(expected)).unwrap_or(0);
            let gap = (at, ahead.saturating_sub(at));
            at = ahead + early.span(mtu);
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

/// The gaps in a report: distance from the expected PSN, and packets that are missing. Behind them, one of no packets says how far what
/// has arrived reaches.
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

    fn keep(early: &mut EarlyPackets, psn: u32, len: usize) -> bool {
        let payload = vec![0; len];
        let packet = Packet {
            bth: Bth::new(Opcode::RC_ACKNOWLEDGE, Qpn::new(1), Psn::new(psn)),
            ext: ExtHeaders::default(),
            payload: &payload,
        };
        early.keep(&packet, Psn::new(0xff_fffe), 1024)
    }

    #[test]
    fn packets_come_back_once_each_and_in_order() {
        let mut early = EarlyPackets::default();
        for psn in [0xff_ffff, 3, 1, 3, 2, 0xff_ffff] {
            keep(&mut early, psn, 10);
        }
        let mut expected = Psn::new(0xff_ffff);
        let mut got = Vec::new();
        for _ in 0..5 {
            got.extend(early.take(expected, |packet| packet.bth.psn.get()));
            expected = expected.plus(1);
        }
        assert_eq!(got, [0xff_ffff, 1, 2, 3], "0 is still missing");
        assert!(early.is_empty() && early.bytes == 0);
    }

    #[test]
    fn what_came_again_is_forgotten() {
        let mut early = EarlyPackets::default();
        keep(&mut early, 1, 10);
        keep(&mut early, 2, 10);
        assert_eq!(early.take(Psn::new(2), |p| p.bth.psn.get()), Some(2));
        assert!(early.is_empty());
    }

    #[test]
    fn the_first_behind_a_gap_is_told() {
        let mut early = EarlyPackets::default();
        let opens = [
            (1, true),
            (2, false),
            (2, false),
            (5, true),
            (4, false),
            (6, false),
        ];
        for (psn, opens_gap) in opens {
            assert_eq!(keep(&mut early, psn, 10), opens_gap, "{psn}");
        }
        assert_eq!(early.first(), Some(Psn::new(1)));
    }

    #[test]
    fn a_report_names_the_gaps() {
        let mut early = EarlyPackets::default();
        for psn in [3, 1, 7, 0] {
            keep(&mut early, psn, 10);
        }
        let mut report = Vec::new();
        early.report(Psn::new(0xff_fffe), 1024, &mut report);
        let gaps: Vec<_> = read_report(&report).collect();
        assert_eq!(gaps, [(0, 2), (4, 1), (6, 3), (10, 0)]);
        for psn in (10..1000).step_by(2) {
            keep(&mut early, psn, 10);
        }
        report.clear();
        early.report(Psn::new(0xff_fffe), 1024, &mut report);
        assert_eq!(read_report(&report).count(), MAX_GAPS + 1);
        assert_eq!(read_report(&[1; 7]).count(), 1);
    }

    #[test]
    fn the_room_is_bounded() {
        let mut early = EarlyPackets::default();
        for psn in 0..2000 {
            keep(&mut early, psn, 4096);
        }
        assert_eq!(early.packets.len(), MAX_BYTES / 4096);
        let mut early = EarlyPackets::default();
        for psn in 0..2000 {
            keep(&mut early, psn, 0);
        }
        assert_eq!(early.packets.len(), MAX_PACKETS);
        early.clear();
        assert!(early.is_empty());
    }
}
