//! The packets of a SEND that came as one, whatever its length.

use alloc::vec::Vec;

use crate::verbs::Mtu;
use crate::wire::{Bth, Opcode, Operation, Position, pad_count, padded_len};

/// Cuts a SEND into the packets that the general way sends: `whole` is the one packet that it came
/// as, `packet` are the bytes of each of them. Anything else, and what fits into one, stays as it
/// is. `None`: no path has packets of so many bytes, or there is no header.
#[must_use]
pub fn cut(whole: &[u8], packet: u32) -> Option<Vec<Vec<u8>>> {
    let (head, rest) = whole.split_first_chunk()?;
    Mtu::at_most(packet).filter(|mtu| mtu.bytes() == packet)?;
    let bth = Bth::from_bytes(head);
    let len = rest.len().checked_sub(Bth::pad_count(head).into())?;
    let payloads = rest[..len].chunks(packet as usize);
    let count = payloads.len();
    if bth.opcode != Opcode::rc(Operation::Send, Position::Only) || count <= 1 {
        return Some(Vec::from([whole.to_vec()]));
    }
    let packet_of = |(index, payload): (u32, &[u8])| {
        let ends = index as usize + 1 == count;
        let bth = Bth {
            opcode: Opcode::rc(Operation::Send, Position::from_ends(index == 0, ends)),
            psn: bth.psn.plus(index),
            solicited: bth.solicited && ends,
            ack_req: bth.ack_req && ends,
            ..bth
        };
        let mut bytes = bth.to_bytes(pad_count(payload.len())).to_vec();
        bytes.extend_from_slice(payload);
        bytes.resize(Bth::LEN + padded_len(payload.len()), 0);
        bytes
    };
    Some((0..).zip(payloads).map(packet_of).collect())
}
