//! A copy within a process.

use super::repeat;
use crate::bench::measured::Measured;
use crate::bench::pattern::Slots;
use crate::bench::task::Task;
use crate::connection::Outcome;

/// Copies slot to slot.
pub(super) fn run(task: &Task) -> Outcome<Measured> {
    let slots = Slots {
        size: task.size,
        count: task.window(),
        seed: task.seed,
    };
    let mut from = slots.filled()?;
    let mut to = vec![0_u8; from.len()];
    let measured = repeat(task, |number| {
        slots.stamp_bytes(&mut from, number);
        let slot = slots.start(number)..slots.start(number) + slots.size;
        to[slot.clone()].copy_from_slice(&from[slot]);
        // Nobody looks at most of the copies, which is no reason to leave them out.
        std::hint::black_box(&mut to);
        Ok(())
    })?;
    if measured.operations >= slots.count as u64 && to != from {
        return Err("a copy is not what was copied".into());
    }
    Ok(measured)
}
