//! Messages to segments: what each header says, and which bytes follow.

use alloc::vec::Vec;
use core::convert::Infallible;

use super::end::StreamStop;
use super::pack::Turn;
use super::sends::{AwaitedAnswer, ResponseKind, WorkFault, Wqe};
use super::serve;
use super::transmit::{Source, open_list};
use super::{IwQp, Stream};
use crate::ids::{Key, PdId};
use crate::iwarp::ddp::{Header, HeaderBytes, Tagged, Untagged};
use crate::iwarp::mpa::Ready;
use crate::iwarp::rdmap::{
    AtomicOp, AtomicRequest, AtomicResponse, Immediate, Opcode, QUEUE_ATOMIC, QUEUE_REQUEST,
    QUEUE_SEND, ReadRequest,
};
use crate::mr::{Access, Accessor};
use crate::rc::fault::Fault;
use crate::rc::scatter::Extent;
use crate::rc::{Cx, scatter};
use crate::verbs::{Payload, RemoteAddr, SendFlags, SendOp};

/// A payload that is no longer is copied behind its header: TCP takes one piece in less time than
/// three.
const SHORT: u32 = 512;

/// Part of a message that one FPDU has.
struct FpduPart {
    offset: u32,
    len: u32,
    last: bool,
}

impl FpduPart {
    fn extent(&self) -> Extent {
        Extent {
            offset: self.offset,
            len: self.len,
        }
    }
}

impl Stream {
    /// Cuts what follows `offset` of a message of `length` bytes to what fits behind a header.
    fn cut(&self, header: usize, offset: u32, length: u32) -> FpduPart {
        let room = u32::try_from(self.max_ulpdu - header).unwrap_or(u32::MAX);
        let len = room.min(length - offset);
        FpduPart {
            offset,
            len,
            last: offset + len == length,
        }
    }

    /// Packs a message of one segment.
    pub(super) fn push_whole(&mut self, header: Header, body: &[u8]) {
        let fill = |out: &mut Vec<u8>| {
            out.extend_from_slice(body);
            Ok::<_, Infallible>(())
        };
        let header = header.emit();
        let Ok(()) = self.outgoing.push(&mut self.framing, &header, fill, None);
    }
}

impl IwQp {
    /// Packs the first message of an initiator (RFC 6581, 9).
    pub(super) fn pack_ready(&mut self, ready: Ready) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        match ready {
            Ready::Write => {
                let header = Header::Tagged(Tagged {
                    last: true,
                    opcode: Opcode::Write,
                    // siw's own, which it does not look at either.
                    stag: Key(1),
                    to: 0,
                });
                stream.push_whole(header, &[]);
            }
            Ready::Read => {
                let request = ReadRequest {
                    sink_stag: Key::default(),
                    sink_to: 0,
                    length: 0,
                    source_stag: Key(1),
                    source_to: 0,
                };
                let answer = push_read(stream, &mut self.turn, request);
                let serial = None;
                self.sends.asked.push_back(AwaitedAnswer { answer, serial });
            }
        }
    }
}

/// Packs a segment of a READ response. Returns whether the response ends with it. The key is opened
/// anew for each: the program may have taken it back since the request came.
pub(super) fn pack_response(
    stream: &mut Stream,
    turn: &mut Turn,
    cx: &Cx<'_>,
    by: Accessor,
    request: &ReadRequest,
) -> Result<bool, StreamStop> {
    let cut = stream.cut(Tagged::LEN, turn.offset, request.length);
    let at = |base: u64| base.wrapping_add(cut.offset.into());
    let header = Header::Tagged(Tagged {
        last: cut.last,
        opcode: Opcode::ReadResponse,
        stag: request.sink_stag,
        to: at(request.sink_to),
    });
    let (header, stag, to) = (header.emit(), request.source_stag, at(request.source_to));
    let span = cx
        .rights
        .open_remote(stag, by, to, cut.len.into(), Access::REMOTE_READ)
        .map_err(serve::refusal)?;
    if stream.framing.copies() || cut.len == 0 {
        let fill = |out: &mut Vec<u8>| cx.memory.append(span, out);
        stream
            .outgoing
            .push(&mut stream.framing, &header, fill, None)
            .map_err(|_| StreamStop::UNMAPPED)?;
    } else {
        let source = Source::Read { stag, to };
        stream.outgoing.push_payload(&header, source, cut.len, None);
    }
    turn.offset += cut.len;
    Ok(cut.last)
}

/// Packs a segment of a WRITE or SEND. Returns whether the work request ends with it.
pub(super) fn pack_data(
    stream: &mut Stream,
    turn: &mut Turn,
    cx: &Cx<'_>,
    pd: PdId,
    serial: u64,
    wqe: &Wqe,
) -> Result<bool, WorkFault> {
    let (header, cut) = data_header(stream, turn, wqe);
    let is_whole = cut.last && !matches!(wqe.wr.op, SendOp::WriteImm(..));
    let done = is_whole.then_some(serial);
    let (payload, range) = (&wqe.wr.payload, cut.extent());
    let lost = |_| WorkFault::Of(serial, Fault::LOCAL_KEY);
    match payload {
        Payload::Sges(sges) if !stream.framing.copies() && cut.len > SHORT => {
            open_list(cx.rights, pd, sges, range, |_| {}).map_err(lost)?;
            let offset = cut.offset;
            let source = Source::Work { serial, offset };
            stream.outgoing.push_payload(&header, source, cut.len, done);
        }
        _ => {
            let fill = |out: &mut Vec<u8>| scatter::gather(cx, pd, payload, range, out);
            stream
                .outgoing
                .push(&mut stream.framing, &header, fill, done)
                .map_err(lost)?;
        }
    }
    turn.offset += cut.len;
    if cut.last {
        if wqe.wr.op.is_send() {
            turn.take_msn(QUEUE_SEND);
        }
        turn.wrote = !is_whole;
        turn.offset = 0;
    }
    Ok(is_whole)
}

/// The header of the next segment of a WRITE or SEND, and which bytes follow.
fn data_header(stream: &Stream, turn: &Turn, wqe: &Wqe) -> (HeaderBytes, FpduPart) {
    let (offset, length) = (turn.offset, wqe.length);
    if let SendOp::Write(to) | SendOp::WriteImm(to, _) = wqe.wr.op {
        let cut = stream.cut(Tagged::LEN, offset, length);
        let header = Header::Tagged(Tagged {
            last: cut.last,
            opcode: Opcode::Write,
            stag: to.rkey,
            to: to.addr.wrapping_add(offset.into()),
        });
        return (header.emit(), cut);
    }
    let solicited = wqe.wr.flags.contains(SendFlags::SOLICITED);
    let (opcode, invalidate, prefix) = match (wqe.wr.op, solicited) {
        (SendOp::SendInvalidate(key), false) => (Opcode::SendInvalidate, key, None),
        (SendOp::SendInvalidate(key), true) => (Opcode::SendSolicitedInvalidate, key, None),
        (SendOp::SendImm(data), _) => {
            let of_write = false;
            (
                immediate_opcode(solicited),
                Key::default(),
                Some(Immediate { of_write, data }),
            )
        }
        (_, false) => (Opcode::Send, Key::default(), None),
        (_, true) => (Opcode::SendSolicited, Key::default(), None),
    };
    let before = prefix.map_or(0, |_| Immediate::LEN);
    let first = offset == 0;
    let header_len = Untagged::LEN + if first { before } else { 0 };
    let cut = stream.cut(header_len, offset, length);
    let mo = if first {
        0
    } else {
        offset + u32::try_from(before).unwrap_or(0)
    };
    let header = Header::Untagged(Untagged {
        last: cut.last,
        opcode,
        invalidate,
        queue: QUEUE_SEND,
        msn: turn.msn(QUEUE_SEND),
        mo,
    });
    let mut bytes = header.emit();
    if let Some(prefix) = prefix.filter(|_| first) {
        bytes.extend_from_slice(&prefix.emit());
    }
    (bytes, cut)
}

const fn immediate_opcode(solicited: bool) -> Opcode {
    if solicited {
        Opcode::ImmediateSolicited
    } else {
        Opcode::Immediate
    }
}

/// Packs the immediate behind a WRITE.
pub(super) fn pack_immediate(
    stream: &mut Stream,
    turn: &mut Turn,
    serial: u64,
    wqe: &Wqe,
    data: [u8; 4],
) {
    let header = Header::Untagged(Untagged {
        last: true,
        opcode: immediate_opcode(wqe.wr.flags.contains(SendFlags::SOLICITED)),
        invalidate: Key::default(),
        queue: QUEUE_SEND,
        msn: turn.take_msn(QUEUE_SEND),
        mo: 0,
    });
    let of_write = true;
    let body = Immediate { of_write, data }.emit();
    let fill = |out: &mut Vec<u8>| {
        out.extend_from_slice(&body);
        Ok::<_, Infallible>(())
    };
    let header = header.emit();
    let Ok(()) = stream
        .outgoing
        .push(&mut stream.framing, &header, fill, Some(serial));
}

/// Packs a READ request. Its sink is the first element of the list, which the response only
/// repeats: where bytes go is known here.
pub(super) fn pack_read(
    stream: &mut Stream,
    turn: &mut Turn,
    wqe: &Wqe,
    source: RemoteAddr,
) -> ResponseKind {
    let first = match &wqe.wr.payload {
        Payload::Sges(sges) => sges.first().map(|sge| (sge.lkey, sge.addr)),
        Payload::Inline(_) => None,
    };
    let (sink_stag, sink_to) = first.unwrap_or_default();
    let request = ReadRequest {
        sink_stag,
        sink_to,
        length: wqe.length,
        source_stag: source.rkey,
        source_to: source.addr,
    };
    push_read(stream, turn, request)
}

fn push_read(stream: &mut Stream, turn: &mut Turn, request: ReadRequest) -> ResponseKind {
    stream.push_whole(request_header(turn, Opcode::ReadRequest), &request.emit());
    ResponseKind::Read {
        stag: request.sink_stag,
        to: request.sink_to,
        length: request.length,
        received: 0,
    }
}

pub(super) fn pack_atomic(
    stream: &mut Stream,
    turn: &mut Turn,
    target: RemoteAddr,
    op: AtomicOp,
) -> ResponseKind {
    let id = turn.msn(QUEUE_REQUEST);
    let request = AtomicRequest {
        id,
        stag: target.rkey,
        to: target.addr,
        op,
    };
    stream.push_whole(request_header(turn, Opcode::AtomicRequest), &request.emit());
    ResponseKind::Atomic { id }
}

fn request_header(turn: &mut Turn, opcode: Opcode) -> Header {
    Header::Untagged(Untagged {
        last: true,
        opcode,
        invalidate: Key::default(),
        queue: QUEUE_REQUEST,
        msn: turn.take_msn(QUEUE_REQUEST),
        mo: 0,
    })
}

pub(super) fn pack_atomic_response(stream: &mut Stream, turn: &mut Turn, response: AtomicResponse) {
    let header = Header::Untagged(Untagged {
        last: true,
        opcode: Opcode::AtomicResponse,
        invalidate: Key::default(),
        queue: QUEUE_ATOMIC,
        msn: turn.take_msn(QUEUE_ATOMIC),
        mo: 0,
    });
    stream.push_whole(header, &response.emit());
}
