//! The two kinds of packets that short messages are made of, read with a few instructions.

use super::{Aeth, Bth, Opcode, Operation, Position, Syndrome};
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

/// Facts about a [`BriefKind::Send`] that its receiver needs, without its bytes.
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
    /// Its bytes are fetched ([`Opcode::RENDEZVOUS`]): it has one PSN, whatever its length.
    pub is_fetched: bool,
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
            is_fetched: false,
        }
    }

    /// Reads the header of a packet for a queue pair, if it is one of these: [`Brief::parse`] finds
    /// the same in it. `head` are its words, as they are in memory, `rest` is how many bytes
    /// follow.
    #[must_use]
    #[inline]
    pub fn parse(head: [u32; 3], rest: usize, to: Qpn) -> Option<Self> {
        let pad = (u32::from_be(head[0]) >> PAD_SHIFT & 3) as usize;
        Self::of_words(PLAIN, head, rest.checked_sub(pad)?, to)
    }

    /// As [`parse`](Self::parse), for the header of a packet that says where the bytes of a SEND
    /// are, which are `len` by what follows it ([`Opcode::RENDEZVOUS`]).
    #[must_use]
    pub fn parse_rendezvous(head: [u32; 3], len: usize, to: Qpn) -> Option<Self> {
        let has_pad = u32::from_be(head[0]) >> PAD_SHIFT & 3 != 0;
        let message = Self::of_words(RENDEZVOUS, head, len, to).filter(|_| !has_pad)?;
        Some(Self {
            is_fetched: true,
            ..message
        })
    }

    /// A message of `len` bytes for a queue pair, if its header begins with `plain`, but for flags.
    #[inline]
    fn of_words(plain: u32, head: [u32; 3], len: usize, to: Qpn) -> Option<Self> {
        let [first, second, third] = head.map(u32::from_be);
        if first & !FREE_FLAGS != plain || Qpn::new(second) != to || to.get() == 0 {
            return None;
        }
        Some(Self {
            psn: Psn::new(third),
            solicited: first & SOLICITED != 0,
            ack_req: third >> 31 != 0,
            len,
            is_fetched: false,
        })
    }
}

/// First word of the header of a SEND Only, with the default partition key and no flags.
const PLAIN: u32 = (SEND.0 as u32) << 24 | DEFAULT_PKEY as u32;
/// The same of [`Opcode::RENDEZVOUS`].
const RENDEZVOUS: u32 = (Opcode::RENDEZVOUS.0 as u32) << 24 | DEFAULT_PKEY as u32;
/// Flag SE in the first word.
const SOLICITED: u32 = 0x80 << 16;
/// Where the pad count is in the first word.
const PAD_SHIFT: u32 = 20;
/// Flags in the first word that may be as they like: SE, M, and the pad count.
const FREE_FLAGS: u32 = 0xf0 << 16;

const SEND: Opcode = Opcode::rc(Operation::Send, Position::Only);
const ACK_LEN: usize = Bth::LEN + 4;

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
            opcode in prop_oneof![Just(0x04u8), Just(0x11), any::<u8>()],
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
            }
        }
    }
}
