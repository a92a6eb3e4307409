//! Questions between Ferroce devices: has the receiver taken out of its socket what was sent to it
//! so far? Is it a Ferroce at all?
//!
//! Nothing acknowledges unreliable messages, so their sender cannot know how much waits at the
//! receiver, and what finds no room there is lost. A Ferroce device asks now and then with a packet
//! of its own kind. The packet travels behind the data, and is answered when it is taken out. The
//! opcodes are of the range that the specification leaves to manufacturers (IBTA 9.2.1, 110xxxxx
//! and 111xxxxx). Other makes drop them, as any packet of an unknown opcode.
//!
//! | bytes | |
//! |---|---|
//! | 12 | BTH: opcode, destination queue pair, PSN: low 24 bits of the mark |
//! | 4 | `FRCE` |
//! | 4 | queue pair that the answer is for; of an answer: that the question was for |
//! | 8 | mark: a random number, so that only a host that has seen the question can answer |
//! | 4 | of an answer: bytes of socket buffer that the asker may fill |

use alloc::vec::Vec;

use super::{Bth, Opcode};
use crate::ids::{Psn, Qpn};

const ASK: Opcode = Opcode(0xc0);
const ANSWER: Opcode = Opcode(0xc1);
const MAGIC: [u8; 4] = *b"FRCE";

/// A question or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// The answer's room in bytes, as the receiver's kernel counts them; `None`: a question.
    pub room: Option<u32>,
    /// Whom it is for: of a question, the queue pair that the data before it was for.
    pub to: Qpn,
    /// The queue pair that sent it.
    pub from: Qpn,
    /// Number of the question.
    pub mark: u64,
}

impl Drain {
    /// Whether bytes are to be read by [`parse`](Self::parse), without a look at the rest.
    #[must_use]
    pub fn is_one(packet: &[u8]) -> bool {
        packet
            .first()
            .is_some_and(|&opcode| opcode == ASK.0 || opcode == ANSWER.0)
    }

    /// Reads one; `None` if it is none, or another manufacturer's.
    #[must_use]
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let (head, rest) = packet.split_first_chunk()?;
        let words: [u8; 20] = rest.try_into().ok()?;
        let (words, _) = words.as_chunks::<4>();
        let number = |i: usize| u32::from_be_bytes(words[i]);
        let bth = Bth::from_bytes(head);
        let room = match bth.opcode {
            ASK => None,
            ANSWER => Some(number(4)),
            _ => return None,
        };
        (words[0] == MAGIC).then_some(Self {
            room,
            to: bth.dest_qp,
            from: Qpn::new(number(1) & 0x00ff_ffff),
            mark: u64::from(number(2)) << 32 | u64::from(number(3)),
        })
    }

    /// Appends it to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let opcode = if self.room.is_some() { ANSWER } else { ASK };
        let [.., a, b, c] = self.mark.to_be_bytes();
        let psn = Psn::new(u32::from_be_bytes([0, a, b, c]));
        let bth = Bth::new(opcode, self.to, psn);
        out.extend_from_slice(&bth.to_bytes(0));
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.from.get().to_be_bytes());
        out.extend_from_slice(&self.mark.to_be_bytes());
        out.extend_from_slice(&self.room.unwrap_or(0).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for room in [None, Some(0), Some(77_000)] {
            let drain = Drain {
                room,
                to: Qpn::new(0x12_3456),
                from: Qpn::new(0xab_cdef),
                mark: 0xdead_beef_0bad_cafe,
            };
            let mut bytes = Vec::new();
            drain.emit(&mut bytes);
            assert!(Drain::is_one(&bytes) && bytes.len() == 32);
            assert_eq!(Drain::parse(&bytes), Some(drain));
            assert_eq!(Drain::parse(&bytes[..31]), None);
            let longer = [&bytes[..], &[0]].concat();
            assert_eq!(Drain::parse(&longer), None);
            bytes[12] ^= 1;
            assert_eq!(Drain::parse(&bytes), None, "another manufacturer's");
            bytes[0] = 0x64;
            assert!(!Drain::is_one(&bytes));
        }
    }
}
