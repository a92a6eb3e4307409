//! Two iWARP queue pairs over a bad byte stream on a virtual clock, and one alone against any
//! bytes. For tests and fuzzing only (feature `testkit`).

mod lone;
mod pair;
mod stream;

pub use lone::Lone;
pub use pair::{Pair, Setup};
pub use stream::Cut;

use alloc::vec;
use alloc::vec::Vec;

use super::IwQp;
use crate::mr::{Memory, Piece, Span, Unmapped};
use crate::rc::{Cx, LocalCx};
use crate::testkit::Machine;

impl Machine for IwQp {
    fn wants_local(&self) -> bool {
        Self::wants_local(self)
    }

    fn run_local(&mut self, cx: &mut LocalCx<'_>) {
        Self::run_local(self, cx);
    }
}

/// Lets a queue pair write up to `room` bytes. Returns them.
fn write(qp: &mut IwQp, cx: &mut Cx<'_>, room: usize) -> Vec<u8> {
    let memory = cx.memory;
    let mut out = Vec::new();
    qp.transmit(cx, &mut |pieces| {
        let before = out.len();
        for piece in pieces {
            append(memory, piece, &mut out);
        }
        out.truncate(room.max(before));
        out.len() - before
    });
    out
}

fn append(memory: &dyn Memory, piece: &Piece<'_>, out: &mut Vec<u8>) {
    match piece {
        Piece::Inline(bytes) => out.extend_from_slice(bytes),
        Piece::Registered(span) => {
            // What is not mapped any more, the kernel would not send either.
            if memory.append(*span, out).is_err() {
                out.resize(out.len() + span.len(), 0);
            }
        }
    }
}

/// Room for bytes that have no place yet.
const ROOM: usize = 1 << 16;

/// Hands bytes of the stream to a queue pair, and puts those of long FPDUs where it says. Returns
/// how many went to its memory.
fn read(qp: &mut IwQp, cx: &mut Cx<'_>, mut bytes: &[u8]) -> usize {
    let (memory, mut room, mut landed) = (cx.memory, vec![0; ROOM], 0);
    while qp.wants_receive() && !bytes.is_empty() {
        let before = bytes.len();
        qp.receive(cx, &mut room, &mut |spans, buffers| {
            let Ok(rest) = scatter(memory, bytes, spans, buffers) else {
                return 0;
            };
            let came = bytes.len() - rest.len();
            landed += came.min(spans.iter().map(Span::len).sum());
            bytes = rest;
            came
        });
        if bytes.len() == before {
            // Memory that is not mapped any more.
            break;
        }
    }
    qp.on_bytes(cx, bytes);
    landed
}

/// Puts bytes into memory and then into buffers. Returns those that found no room.
fn scatter<'a>(
    memory: &dyn Memory,
    mut bytes: &'a [u8],
    spans: &[Span<'_>],
    buffers: &mut [&mut [u8]],
) -> Result<&'a [u8], Unmapped> {
    for span in spans {
        let (part, _) = span.split_at(bytes.len());
        let (now, later) = bytes.split_at(part.len());
        memory.write(part, now)?;
        bytes = later;
    }
    for buffer in buffers {
        let (now, later) = bytes.split_at(buffer.len().min(bytes.len()));
        buffer[..now.len()].copy_from_slice(now);
        bytes = later;
    }
    Ok(bytes)
}
