//! A loop around `process_vm_writev` and `process_vm_readv`, between two processes.

use std::io::{IoSlice, IoSliceMut};

use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

use super::repeat;
use crate::bench::measured::Measured;
use crate::bench::pattern::{Slots, WORD, zeroed};
use crate::bench::task::{Floor, Task};
use crate::bench::worker::{Finish, Meeting};
use crate::connection::Outcome;

fn slots(task: &Task) -> Slots {
    Slots {
        size: task.size,
        count: task.window(),
        seed: task.seed,
    }
}

/// Offers memory. The other process changes it, so it consists of atomics.
pub(super) fn serve(
    task: &Task,
    which: Floor,
    ready: &mut dyn FnMut(Meeting),
    finish: &Finish,
) -> Outcome {
    let slots = slots(task);
    let memory = zeroed(slots.bytes());
    if which.reads() {
        slots.fill(&memory[..])?;
    }
    ready(Meeting {
        address: None,
        process: std::process::id().cast_signed(),
        memory: memory.as_ptr().expose_provenance(),
    });
    let operations = finish.wait();
    if !which.reads() {
        slots.verify(&memory[..], operations, slots)?;
    }
    Ok(())
}

/// Pieces of the calls with most.
const MOST: usize = 16;

/// Writes or reads slot by slot, or several of them by each call.
pub(super) fn run(task: &Task, which: Floor, meeting: Meeting) -> Outcome<Measured> {
    let (slots, pieces) = (slots(task), which.pieces());
    let process = Pid::from_raw(meeting.process);
    let mut bytes = slots.filled()?;
    let due = bytes.clone();
    if which.reads() {
        bytes.fill(0);
    }
    let measured = repeat(task, |call| {
        let first = call * pieces as u64;
        let start = slots.start(first);
        for number in first..first + pieces as u64 {
            let start = slots.start(number);
            if which.reads() {
                bytes[start..start + WORD].fill(0);
            } else {
                slots.stamp_bytes(&mut bytes, number);
            }
        }
        let here = &mut bytes[start..start + pieces * slots.size];
        let there = There {
            address: meeting.memory + start,
            piece: slots.size,
        };
        match copy(process, which, here, there) {
            Ok(count) if count == here.len() => Ok(()),
            Ok(count) => Err(format!("{count} bytes of {} were copied", here.len())),
            Err(e) => Err(format!("{}: {e}", which.name())),
        }
    })?;
    let measured = Measured {
        bandwidth: measured.bandwidth * pieces as f64,
        rate: measured.rate * pieces as f64,
        operations: measured.operations * pieces as u64,
        ..measured
    };
    let whole = measured.operations >= slots.count as u64;
    if which.reads() && whole && bytes != due {
        return Err("what was read is not what is there".into());
    }
    Ok(measured)
}

/// Memory of the other process.
#[derive(Clone, Copy)]
struct There {
    address: usize,
    /// Bytes of each piece, which lie behind each other.
    piece: usize,
}

/// One call. The pieces here are as long as there.
fn copy(process: Pid, which: Floor, here: &mut [u8], there: There) -> nix::Result<usize> {
    let pieces = which.pieces();
    let len = there.piece;
    let there: [_; MOST] = std::array::from_fn(|n| RemoteIoVec {
        base: there.address + n * len,
        len,
    });
    if which.reads() {
        let mut parts = here.chunks_mut(len);
        let mut here: [_; MOST] =
            std::array::from_fn(|_| IoSliceMut::new(parts.next().unwrap_or_default()));
        process_vm_readv(process, &mut here[..pieces], &there[..pieces])
    } else {
        let mut parts = here.chunks(len);
        let here: [_; MOST] =
            std::array::from_fn(|_| IoSlice::new(parts.next().unwrap_or_default()));
        process_vm_writev(process, &here[..pieces], &there[..pieces])
    }
}
