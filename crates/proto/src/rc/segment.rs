//! Cutting a work request into packets.

use core::ops::Range;

use super::send_queue::Wqe;
use crate::verbs::{Flush, RemoteAddr, SendFlags, SendOp};
use crate::wire::{AtomicEth, ExtHeaders, Feth, Opcode, Operation, Position, Reth};

/// A request packet, without its PSN and payload bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) opcode: Opcode,
    pub(crate) ext: ExtHeaders,
    /// Message bytes before the payload.
    pub(crate) offset: u32,
    /// Payload bytes.
    pub(crate) len: u32,
    /// The message ends with this packet (READ and atomic requests: always).
    pub(crate) ends: bool,
    /// SE bit.
    pub(crate) solicited: bool,
}

/// The packet of `wqe` that accounts for `packets`, whose first is its own sequence (READ: that
/// many responses). `None` for work requests that send nothing.
#[expect(clippy::too_many_lines, reason = "a table of the operations")]
pub(crate) fn segment(wqe: &Wqe, packets: Range<u64>, mtu: u32) -> Option<Segment> {
    let (sequence, to) = (packets.start, packets.end);
    let offset = wqe.offset(sequence, mtu);
    let last = sequence + 1 == wqe.end();
    let position = Position::from_ends(sequence == wqe.start, last);
    let len = wqe.offset(sequence + 1, mtu) - offset;
    let message = |operation, reth, tail: ExtHeaders| {
        let ext = if last { tail } else { ExtHeaders::default() };
        Segment {
            opcode: Opcode::rc(operation, position),
            ext: ExtHeaders {
                reth: reth_if(position.starts(), reth, wqe.length),
                ..ext
            },
            offset,
            len,
            ends: last,
            solicited: last && wqe.wr.flags.contains(SendFlags::SOLICITED),
        }
    };
    let request = |operation, ext| Segment {
        opcode: Opcode::rc(operation, Position::Only),
        ext,
        offset,
        len: 0,
        ends: true,
        solicited: false,
    };
    let none = ExtHeaders::default();
    let imm = |imm| ExtHeaders {
        imm: Some(imm),
        ..none
    };
    if let Some(token) = wqe.rendezvous {
        return rendezvous(wqe, token);
    }
    Some(match wqe.wr.op {
        SendOp::Send => message(Operation::Send, None, none),
        SendOp::SendImm(data) => message(Operation::SendImm, None, imm(data)),
        SendOp::SendInvalidate(key) => message(
            Operation::SendInvalidate,
            None,
            ExtHeaders {
                ieth: Some(key),
                ..none
            },
        ),
        // The SE bit of a WRITE means something only where the WRITE takes a receive.
        SendOp::Write(to) => Segment {
            solicited: false,
            ..message(Operation::Write, Some(to), none)
        },
        SendOp::AtomicWrite(to) => Segment {
            solicited: false,
            ..message(Operation::AtomicWrite, Some(to), none)
        },
        SendOp::WriteImm(to, data) if wqe.placed => Segment {
            opcode: Opcode::PLACED_IMM,
            ext: ExtHeaders {
                reth: reth_if(true, Some(to), wqe.length),
                ..imm(data)
            },
            offset: 0,
            len: 0,
            ..message(Operation::WriteImm, None, none)
        },
        SendOp::WriteImm(to, data) => message(Operation::WriteImm, Some(to), imm(data)),
        SendOp::Read(from) => request(
            Operation::ReadRequest,
            ExtHeaders {
                reth: Some(Reth {
                    va: from.addr.wrapping_add(u64::from(offset)),
                    rkey: from.rkey,
                    length: wqe.offset(to, mtu) - offset,
                }),
                ..none
            },
        ),
        SendOp::CompareSwap {
            remote,
            compare,
            swap,
        } => request(Operation::CompareSwap, atomic(remote, swap, compare)),
        SendOp::FetchAdd { remote, add } => request(Operation::FetchAdd, atomic(remote, add, 0)),
        SendOp::Flush(flush) => request(Operation::Flush, flush_headers(&flush)),
        SendOp::LocalInvalidate(_) | SendOp::BindWindow(_) => return None,
    })
}

/// The packet that says where a message's bytes are to be fetched.
fn rendezvous(wqe: &Wqe, token: u64) -> Option<Segment> {
    let [sge] = wqe.sges() else {
        return None;
    };
    let place = RemoteAddr {
        addr: sge.addr,
        rkey: sge.lkey,
    };
    let (opcode, imm, to) = match wqe.wr.op {
        SendOp::WriteImm(to, imm) => (Opcode::RENDEZVOUS_WRITE_IMM, Some(imm), Some(to)),
        SendOp::SendImm(imm) => (Opcode::RENDEZVOUS_IMM, Some(imm), None),
        _ => (Opcode::RENDEZVOUS, None, None),
    };
    Some(Segment {
        opcode,
        ext: ExtHeaders {
            imm,
            reth: reth_if(true, to, wqe.length),
            ..atomic(place, token, u64::from(wqe.length))
        },
        offset: 0,
        len: 0,
        ends: true,
        solicited: wqe.wr.flags.contains(SendFlags::SOLICITED),
    })
}

fn flush_headers(flush: &Flush) -> ExtHeaders {
    ExtHeaders {
        feth: Some(Feth::new(flush.placement, flush.selectivity)),
        reth: reth_if(true, Some(flush.remote), flush.length),
        ..ExtHeaders::default()
    }
}

fn reth_if(starts: bool, to: Option<RemoteAddr>, length: u32) -> Option<Reth> {
    to.filter(|_| starts).map(|to| Reth {
        va: to.addr,
        rkey: to.rkey,
        length,
    })
}

fn atomic(remote: RemoteAddr, swap_or_add: u64, compare: u64) -> ExtHeaders {
    ExtHeaders {
        atomic: Some(AtomicEth {
            va: remote.addr,
            rkey: remote.rkey,
            swap_or_add,
            compare,
        }),
        ..ExtHeaders::default()
    }
}
