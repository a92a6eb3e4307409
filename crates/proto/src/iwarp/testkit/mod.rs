//! Two iWARP queue pairs over a bad byte stream on a virtual clock, and one alone against any
//! bytes. For tests and fuzzing only (feature `testkit`).

mod lone;
mod pair;
mod stream;

pub use lone::Lone;
pub use pair::{Pair, Setup};
pub use stream::Cut;

use alloc::vec::Vec;

use super::IwQp;
use crate::mr::{Memory, Piece};
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
