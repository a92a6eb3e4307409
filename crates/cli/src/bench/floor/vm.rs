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
    if which == Floor::VmRead {
        slots.fill(&memory[..])?;
    }
    ready(Meeting {
        address: None,
        process: std::process::id().cast_signed(),
        memory: memory.as_ptr().expose_provenance(),
    });
    let operations = finish.wait();
    if which == Floor::VmWrite {
        slots.verify(&memory[..], operations, slots)?;
    }
    Ok(())
}

/// Writes or reads slot by slot.
pub(super) fn run(task: &Task, which: Floor, meeting: Meeting) -> Outcome<Measured> {
    let slots = slots(task);
    let process = Pid::from_raw(meeting.process);
    let mut bytes = slots.filled()?;
    let due = bytes.clone();
    if which == Floor::VmRead {
        bytes.fill(0);
    }
    let measured = repeat(task, |number| {
        let start = slots.start(number);
        if which == Floor::VmWrite {
            slots.stamp_bytes(&mut bytes, number);
        } else {
            bytes[start..start + WORD].fill(0);
        }
        let here = &mut bytes[start..start + slots.size];
        let there = [RemoteIoVec {
            base: meeting.memory + start,
            len: slots.size,
        }];
        let copied = if which == Floor::VmWrite {
            process_vm_writev(process, &[IoSlice::new(here)], &there)
        } else {
            process_vm_readv(process, &mut [IoSliceMut::new(here)], &there)
        };
        match copied {
            Ok(count) if count == slots.size => Ok(()),
            Ok(count) => Err(format!("{count} bytes of {} were copied", slots.size)),
            Err(e) => Err(format!("{}: {e}", which.name())),
        }
    })?;
    let whole = measured.operations >= slots.count as u64;
    if which == Floor::VmRead && whole && bytes != due {
        return Err("what was read is not what is there".into());
    }
    Ok(measured)
}
