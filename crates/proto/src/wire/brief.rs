//! The two kinds of packets that short messages are made of, read with a few instructions.

use super::{Aeth, Bth, Opcode, Operation, Position, Reth, Syndrome};
use crate::ids::{DEFAULT_PKEY, Msn, Psn, Qpn};

/// A packet without extension headers that only few messages have: a SEND that is one packet, or
/// its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brief<'a> {
    /// Base transport header, with the default partition key.
    pub bth: Bth,
    /// SEND or acknowledgement.
    pub kind: BriefKind<'a>,
}

/// Kind of a [`Brief`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BriefKind<'a> {
    /// RC SEND Only, with its payload.
    Send(&'a [u8]),
    /// RC Acknowledge that is one (no NAK).
    Ack,
}

/// What a receiver needs of a [`BriefKind::Send`], without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BriefSend {
    /// PSN of the packet.
    pub psn: Psn,
    /// Whether it wakes a program that waits for solicited messages only.
    pub solicited: bool,
    /// Whether it is to be acknowledged at once.
    pub ack_req: bool,
    /// Number of its bytes.
    pub len: usize,
}

impl BriefSend {
    /// A SEND with these headers and `len` bytes.
    #[must_use]
    pub const fn of(bth: &Bth, len: usize) -> Self {
        Self {
            psn: bth.psn,
            solicited: bth.solicited,
            ack_req: bth.ack_req,
            len,
        }
    }

    /// Reads the header of a packet for a queue pair, if it is one of these: [`Brief::parse`] finds
    /// the same in it. `head` are its words, as they are in memory, `rest` is how many bytes
    /// follow.
    #[must_use]
    #[inline]
    pub fn parse(head: [u32; 3], rest: usize, to: Qpn) -> Option<Self> {
        Self::parse_as(SEND, head, rest, to)
    }

    /// As [`parse`](Self::parse), for a packet with this opcode. What is behind the base transport
    /// header counts as its bytes.
    #[inline]
    fn parse_as(opcode: Opcode, head: [u32; 3], rest: usize, to: Qpn) -> Option<Self> {
        let [first, second, third] = head.map(u32::from_be);
        if first & !FREE_FLAGS != plain(opcode) || Qpn::new(second) != to || to.get() == 0 {
            return None;
        }
        let pad = (first >> PAD_SHIFT & 3) as usize;
        Some(Self {
            psn: Psn::new(third),
            solicited: first & SOLICITED != 0,
            ack_req: third >> 31 != 0,
            len: rest.checked_sub(pad)?,
        })
    }
}

/// What a receiver needs of a WRITE with immediate that is one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BriefWriteImm<'a> {
    /// Its base transport header, and the number of its bytes.
    pub message: BriefSend,
    /// Where the bytes go.
    pub reth: Reth,
    /// The immediate as on the wire.
    pub imm: [u8; 4],
    /// The bytes.
    pub payload: &'a [u8],
}

impl<'a> BriefWriteImm<'a> {
    /// Bytes between the base transport header and the payload.
    pub const EXT_LEN: usize = EXT_LEN;

    /// Reads a packet for a queue pair, if it is one of these, with the default partition key:
    /// [`Packet::parse`](super::Packet::parse) finds the same in it. `head` are the words of its
    /// header, as they are in memory, `rest` is what is behind them.
    #[must_use]
    pub fn parse(head: [u32; 3], rest: &'a [u8], to: Qpn) -> Option<Self> {
        let behind = BriefSend::parse_as(WRITE_IMM, head, rest.len(), to)?;
        let (reth, rest) = rest.split_first_chunk()?;
        let (imm, rest) = rest.split_first_chunk()?;
        let len = behind.len.checked_sub(Self::EXT_LEN)?;
        Some(Self {
            message: BriefSend { len, ..behind },
            reth: Reth::from_bytes(reth),
            imm: *imm,
            payload: rest.get(..len)?,
        })
    }

    /// What is behind the base transport header, before the payload.
    #[must_use]
    pub fn ext(reth: &Reth, imm: [u8; 4]) -> [u8; EXT_LEN] {
        let mut ext = [0; EXT_LEN];
        ext[..Reth::LEN].copy_from_slice(&reth.to_bytes());
        ext[Reth::LEN..].copy_from_slice(&imm);
        ext
    }

    /// The first word of the header of a SEND Only, as it is in memory, with the opcode of a WRITE
    /// with immediate in its place.
    #[must_use]
    pub const fn first_word(of_send: u32) -> u32 {
        of_send ^ (plain(SEND) ^ plain(WRITE_IMM)).to_be()
    }
}

/// First word of the header of a packet with the default partition key and no flags.
const fn plain(opcode: Opcode) -> u32 {
    (opcode.0 as u32) << 24 | DEFAULT_PKEY as u32
}
/// Flag SE in the first word.
const SOLICITED: u32 = 0x80 << 16;
/// Where the pad count is in the first word.
const PAD_SHIFT: u32 = 20;
/// Flags in the first word that may be as they like: SE, M, and the pad count.
const FREE_FLAGS: u32 = 0xf0 << 16;

const SEND: Opcode = Opcode::rc(Operation::Send, Position::Only);
const WRITE_IMM: Opcode = Opcode::rc(Operation::WriteImm, Position::Only);
const ACK_LEN: usize = Bth::LEN + 4;
const EXT_LEN: usize = Reth::LEN + 4;

impl<'a> Brief<'a> {
    /// Bytes of an acknowledgement.
    pub const ACK_LEN: usize = ACK_LEN;

    /// The acknowledgement with this base transport header.
    #[must_use]
    pub fn acknowledgement(bth: &Bth, msn: Msn) -> [u8; ACK_LEN] {
        let aeth = Aeth {
            syndrome: Syndrome::ACK,
            msn,
        };
        let mut packet = [0; ACK_LEN];
        packet[..Bth::LEN].copy_from_slice(&bth.to_bytes(0));
        packet[Bth::LEN..].copy_from_slice(&aeth.to_bytes());
        packet
    }

    /// Reads a packet (BTH through pad), if it is of one of these kinds.
    /// [`Packet::parse`](super::Packet::parse) finds the same in it.
    #[must_use]
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk()?;
        let bth = Bth::from_bytes(head);
        if Bth::version(head) != 0 || bth.dest_qp.get() == 0 || bth.pkey != DEFAULT_PKEY {
            return None;
        }
        let pad = usize::from(Bth::pad_count(head));
        let kind = match (bth.opcode, rest) {
            (SEND, _) => BriefKind::Send(&rest[..rest.len().checked_sub(pad)?]),
            (Opcode::RC_ACKNOWLEDGE, &[syndrome, _, _, _]) if pad == 0 => {
                match Syndrome::decode(syndrome) {
                    Syndrome::Ack(_) => BriefKind::Ack,
                    _ => return None,
                }
            }
            _ => return None,
        };
        Some(Self { bth, kind })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::wire::{ExtHeaders, Packet};

    fn packet(opcode: Opcode, aeth: Option<Aeth>, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let bth = Bth {
            ack_req: true,
            ..Bth::new(opcode, Qpn::new(7), Psn::new(9))
        };
        let ext = ExtHeaders {
            aeth,
            ..ExtHeaders::default()
        };
        Packet { bth, ext, payload }.emit(&mut out);
        out
    }

    /// Whether both say the same.
    fn is_same(packet: &Packet<'_>, brief: &Brief<'_>) -> bool {
        let same = match brief.kind {
            BriefKind::Send(payload) => packet.ext.set().is_empty() && packet.payload == payload,
            BriefKind::Ack => {
                let is_ack = |aeth: Aeth| matches!(aeth.syndrome, Syndrome::Ack(_));
                packet.ext.aeth.is_some_and(is_ack) && packet.payload.is_empty()
            }
        };
        packet.bth == brief.bth && same
    }

    #[test]
    fn sends_and_acknowledgements_are_read() {
        for len in 0..70 {
            let bytes = packet(SEND, None, &[5; 70][..len]);
            let brief = Brief::parse(&bytes).unwrap();
            assert!(matches!(brief.kind, BriefKind::Send(p) if p.len() == len));
        }
        let word = |syndrome| {
            Some(Aeth {
                syndrome,
                msn: Msn::new(3),
            })
        };
        let bytes = packet(Opcode::RC_ACKNOWLEDGE, word(Syndrome::ACK), &[]);
        assert_eq!(bytes.len(), Brief::ACK_LEN);
        assert_eq!(Brief::parse(&bytes).unwrap().kind, BriefKind::Ack);
        let nak = packet(Opcode::RC_ACKNOWLEDGE, word(Syndrome::RnrNak(1)), &[]);
        assert_eq!(Brief::parse(&nak), None);
    }

    proptest! {
        /// Whatever comes: what is read the short way is what is read the long way.
        #[test]
        fn both_ways_read_the_same(
            opcode in prop_oneof![Just(0x04u8), Just(0x0b), Just(0x11), any::<u8>()],
            key in prop_oneof![Just(0xffffu16), any::<u16>()],
            mut bytes in proptest::collection::vec(any::<u8>(), 0..90),
        ) {
            if let Some(first) = bytes.first_mut() {
                *first = opcode;
            }
            if let Some(place) = bytes.get_mut(2..4) {
                place.copy_from_slice(&key.to_be_bytes());
            }
            if let Some(brief) = Brief::parse(&bytes) {
                prop_assert!(is_same(&Packet::parse(&bytes).unwrap(), &brief));
            }
            let dest = Packet::dest_qp(&bytes).unwrap_or(Qpn::GSI);
            let send = Brief::parse(&bytes).and_then(|Brief { bth, kind }| match kind {
                BriefKind::Send(payload) => Some(BriefSend::of(&bth, payload.len())),
                BriefKind::Ack => None,
            });
            if let Some((head, rest)) = bytes.split_first_chunk::<{ Bth::LEN }>() {
                let word = |at: usize| u32::from_ne_bytes(head[4 * at..][..4].try_into().unwrap());
                let head = [word(0), word(1), word(2)];
                prop_assert_eq!(BriefSend::parse(head, rest.len(), dest), send);
                let other = Qpn::new(dest.get() ^ 1);
                prop_assert_eq!(BriefSend::parse(head, rest.len(), other), None);
                prop_assert_eq!(BriefWriteImm::parse(head, rest, other), None);
                let packet = Packet::parse(&bytes);
                let write = BriefWriteImm::parse(head, rest, dest);
                let is_one = packet.is_ok_and(|packet| {
                    packet.bth.opcode == WRITE_IMM && packet.bth.pkey == DEFAULT_PKEY
                });
                prop_assert_eq!(write.is_some(), is_one);
                if let (Some(write), Ok(packet)) = (write, packet) {
                    let message = BriefSend::of(&packet.bth, packet.payload.len());
                    prop_assert_eq!(write.message, message);
                    prop_assert_eq!(Some(write.reth), packet.ext.reth);
                    prop_assert_eq!(Some(write.imm), packet.ext.imm);
                    prop_assert_eq!(write.payload, packet.payload);
                }
            }
        }
    }
}
