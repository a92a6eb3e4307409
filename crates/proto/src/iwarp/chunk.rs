//! What two queue pairs of one host send to each other in place of TCP segments.
//!
//! A connection between two Ferroces of one host is set up over TCP. If the initiator can show the
//! responder's [`Ticket`](super::mpa::Ticket) at the process that gave it, the stream goes over the
//! link between the processes: the same FPDUs, cut anywhere, in order and without loss. The link
//! says which queue pair a chunk comes from.
//!
//! | bytes | |
//! |---|---|
//! | 12 | BTH: an opcode of the range for manufacturers (IBTA 9.2.1), destination queue pair |
//! | 8 | of an offer: the ticket's nonce |
//! | 18 + 18 | of an offer: addresses and ports of the initiator's TCP connection, its own first |
//! | rest | of bytes: the next ones of the stream |

use alloc::vec::Vec;
use core::net::SocketAddr;

use super::bytes::{array, u16_at, u64_at};
use crate::ids::{Gid, Psn, Qpn};
use crate::wire::{Bth, Opcode};

const OFFER: Opcode = Opcode(0xc8);
const BYTES: Opcode = Opcode(0xc9);
const END: Opcode = Opcode(0xca);
const RESET: Opcode = Opcode(0xcb);

/// Most bytes of the stream that a chunk has.
pub const MOST: usize = 32 << 10;

/// A piece of a stream, or what TCP would say beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk<'a> {
    /// The initiator shows the ticket.
    Offer(Offer),
    /// The next bytes of the stream. None in a first one of the responder accepts the offer.
    Bytes(&'a [u8]),
    /// Nothing follows.
    End,
    /// The stream is broken off.
    Reset,
}

/// Offer of the initiator, with the nonce of its ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The ticket's nonce.
    pub nonce: u64,
    /// The addresses of its TCP connection: own, peer's. They are the responder's own in the other
    /// order, unless a proxy or a translation of addresses is in between.
    pub ends: [SocketAddr; 2],
}

/// Bytes of an address with its port.
const ADDRESS: usize = 18;

impl Offer {
    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.nonce.to_be_bytes());
        for end in self.ends {
            out.extend_from_slice(&Gid::from_ip(end.ip()).0);
            out.extend_from_slice(&end.port().to_be_bytes());
        }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let end = |at| {
            let ip = Gid(array(bytes, at)?).ip();
            Some(SocketAddr::new(ip, u16_at(bytes, at + 16)?))
        };
        Some(Self {
            nonce: u64_at(bytes, 0)?,
            ends: [end(8)?, end(8 + ADDRESS)?],
        })
    }

    /// Whether its connection is the one with these ends, own and peer's.
    #[must_use]
    pub fn is_of(&self, ends: [SocketAddr; 2]) -> bool {
        let plain = |end: SocketAddr| (end.ip(), end.port());
        self.ends.map(plain) == [plain(ends[1]), plain(ends[0])]
    }
}

impl<'a> Chunk<'a> {
    /// Whether bytes are to be read by [`parse`](Self::parse), without a look at the rest.
    #[must_use]
    pub fn is_one(packet: &[u8]) -> bool {
        let first = packet.first();
        first.is_some_and(|&opcode| (OFFER.0..=RESET.0).contains(&opcode))
    }

    /// Reads one, and the queue pair that it is for; `None` if it is none.
    #[must_use]
    pub fn parse(packet: &'a [u8]) -> Option<(Qpn, Self)> {
        let (head, rest) = packet.split_first_chunk()?;
        let bth = Bth::from_bytes(head);
        let chunk = match bth.opcode {
            OFFER => Self::Offer(Offer::parse(rest)?),
            BYTES => Self::Bytes(rest),
            END => Self::End,
            RESET => Self::Reset,
            _ => return None,
        };
        Some((bth.dest_qp, chunk))
    }

    /// Appends it to `out`; bytes of the stream may be appended behind [`Bytes`](Self::Bytes).
    pub fn emit(&self, to: Qpn, out: &mut Vec<u8>) {
        let opcode = match self {
            Self::Offer(_) => OFFER,
            Self::Bytes(_) => BYTES,
            Self::End => END,
            Self::Reset => RESET,
        };
        out.extend_from_slice(&Bth::new(opcode, to, Psn::default()).to_bytes(0));
        match self {
            Self::Offer(offer) => offer.emit(out),
            Self::Bytes(bytes) => out.extend_from_slice(bytes),
            Self::End | Self::Reset => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let to = Qpn::new(0x12_3456);
        let ends = ["10.0.0.1:7", "[fd00::2]:8"].map(|end| end.parse().expect("an address"));
        let offer = Offer {
            nonce: 0xdead_beef_0bad_cafe,
            ends,
        };
        assert!(offer.is_of([ends[1], ends[0]]) && !offer.is_of(ends));
        for chunk in [
            Chunk::Offer(offer),
            Chunk::Bytes(b""),
            Chunk::Bytes(b"some"),
            Chunk::End,
            Chunk::Reset,
        ] {
            let mut bytes = Vec::new();
            chunk.emit(to, &mut bytes);
            assert!(Chunk::is_one(&bytes));
            assert_eq!(Chunk::parse(&bytes), Some((to, chunk)));
            assert_eq!(Chunk::parse(&bytes[..Bth::LEN - 1]), None);
        }
        let mut short = Vec::new();
        Chunk::Offer(offer).emit(to, &mut short);
        for len in 0..short.len() {
            assert_eq!(Chunk::parse(&short[..len]), None);
        }
        short[0] = 0xcc;
        assert!(!Chunk::is_one(&short) && Chunk::parse(&short).is_none());
        assert!(!Chunk::is_one(&[]));
    }
}
