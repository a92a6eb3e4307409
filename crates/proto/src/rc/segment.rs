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
pub(crate) fn segment(wqe: &Wqe, packets: Range<u64>, mtu: u32) -> Option<Segment> {
    if let Some(token) = wqe.rendezvous {
        return rendezvous(wqe, token);
    }
    match wqe.wr.op {
        SendOp::Read(from) => Some(read(wqe, from, packets, mtu)),
        SendOp::CompareSwap {
            remote,
            compare,
            swap,
        } => Some(request(
            Operation::CompareSwap,
            atomic(remote, swap, compare),
        )),
        // The compare field has no meaning here. The kernel's soft-RoCE sends 0, too.
        SendOp::FetchAdd { remote, add } => {
            Some(request(Operation::FetchAdd, atomic(remote, add, 0)))
        }
        SendOp::Flush(flush) => Some(request(Operation::Flush, flush_headers(&flush))),
        _ => message(wqe, packets.start, mtu),
    }
}

/// A packet of a SEND or WRITE.
fn message(wqe: &Wqe, sequence: u64, mtu: u32) -> Option<Segment> {
    let none = ExtHeaders::default();
    let imm = |imm| ExtHeaders {
        imm: Some(imm),
        ..none
    };
    let last = sequence + 1 == wqe.end();
    // The SE bit is in the last packet, and means something only where the message takes a receive
    // (IBV_SEND_SOLICITED, ibv_post_send(3)).
    let asked = last && wqe.wr.flags.contains(SendFlags::SOLICITED);
    let (operation, to, tail, solicited) = match wqe.wr.op {
        SendOp::Send => (Operation::Send, None, none, asked),
        SendOp::SendImm(data) => (Operation::SendImm, None, imm(data), asked),
        SendOp::SendInvalidate(key) => {
            let ieth = ExtHeaders {
                ieth: Some(key),
                ..none
            };
            (Operation::SendInvalidate, None, ieth, asked)
        }
        SendOp::Write(to) => (Operation::Write, Some(to), none, false),
        SendOp::AtomicWrite(to) => (Operation::AtomicWrite, Some(to), none, false),
        SendOp::WriteImm(to, data) if wqe.placed => {
            return Some(Segment {
                opcode: Opcode::PLACED_IMM,
                ext: ExtHeaders {
                    reth: reth_if(true, Some(to), wqe.length),
                    ..imm(data)
                },
                offset: 0,
                len: 0,
                ends: last,
                solicited: asked,
            });
        }
        SendOp::WriteImm(to, data) => (Operation::WriteImm, Some(to), imm(data), asked),
        _ => return None,
    };
    let position = Position::from_ends(sequence == wqe.start, last);
    let offset = wqe.offset(sequence, mtu);
    Some(Segment {
        opcode: Opcode::rc(operation, position),
        // The address is in the first packet, the immediate or the key in the last.
        ext: ExtHeaders {
            reth: reth_if(position.starts(), to, wqe.length),
            ..if last { tail } else { none }
        },
        offset,
        len: wqe.offset(sequence + 1, mtu) - offset,
        ends: last,
        solicited,
    })
}

/// A request for the responses `packets` of a READ: all of them, or what a retry still lacks. (IBTA
/// 9.4.4.)
fn read(wqe: &Wqe, from: RemoteAddr, packets: Range<u64>, mtu: u32) -> Segment {
    let offset = wqe.offset(packets.start, mtu);
    let reth = Reth {
        va: from.addr.wrapping_add(u64::from(offset)),
        rkey: from.rkey,
        length: wqe.offset(packets.end, mtu) - offset,
    };
    let ext = ExtHeaders {
        reth: Some(reth),
        ..ExtHeaders::default()
    };
    Segment {
        offset,
        ..request(Operation::ReadRequest, ext)
    }
}

/// A request of one packet without payload.
fn request(operation: Operation, ext: ExtHeaders) -> Segment {
    Segment {
        opcode: Opcode::rc(operation, Position::Only),
        ext,
        offset: 0,
        len: 0,
        ends: true,
        solicited: false,
    }
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
