//! The protocol between an initiator, which uses memory of another process without asking, and that
//! process, which takes the right to it back.
//!
//! ```text
//! initiator                       owner
//! hazard := what it will use      right := withdrawn
//! fence                           fence
//! right still there?  use it      wait until no hazard names it
//! hazard := nothing               the memory is the program's again
//! ```
//!
//! Of the two fences one is first. If it is the initiator's, then the owner sees the hazard and
//! waits; if the owner's, then the initiator sees that the right is gone. Each word has one writer,
//! so a process that dies can leave a hazard behind but nothing half done; the kernel tells of its
//! end.
//!
//! Where the owner cannot wait (a queue pair fails in the middle of its work, and programs are told
//! by completions), it withdraws all the same before it tells; an initiator that only read looks at
//! the right once more behind what was read ([`holds_still`]), and throws that away if the right
//! has gone.
//!
//! Written on closures, so that a model checker can run it on its own atomics.

/// The initiator's side: announces `name` by `hazard`, then looks with `look` at the rights. If
/// they are there, the hazard stays until [`leave`].
pub(super) fn enter<T>(
    hazard: &impl Fn(u64),
    fence: impl FnOnce(),
    name: u64,
    look: impl FnOnce() -> Option<T>,
) -> Option<T> {
    hazard(name);
    fence();
    let seen = look();
    if seen.is_none() {
        leave(hazard);
    }
    seen
}

/// The initiator has finished. `hazard` stores with release ordering: what was done comes before.
pub(super) fn leave(hazard: &impl Fn(u64)) {
    hazard(0);
}

/// The initiator has read: whether the right was there until then. What was read is worth nothing
/// if not.
pub(super) fn holds_still(fence: impl FnOnce(), look: impl FnOnce() -> bool) -> bool {
    fence();
    look()
}

/// The owner's side: takes a right back by `withdraw`. From then on every hazard that matters can
/// be seen.
pub(super) fn withdraw(withdraw: impl FnOnce(), fence: impl FnOnce()) {
    withdraw();
    fence();
}

#[cfg(test)]
mod tests {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64, Ordering, fence};
    use loom::thread;

    use super::*;

    struct World {
        hazards: [AtomicU64; 2],
        right: AtomicU64,
        /// Accesses that overlap make the checker fail.
        memory: UnsafeCell<u64>,
    }

    impl World {
        fn new() -> Self {
            Self {
                hazards: [AtomicU64::new(0), AtomicU64::new(0)],
                right: AtomicU64::new(1),
                memory: UnsafeCell::new(0),
            }
        }

        fn initiate(&self, which: usize) {
            let hazard = |name| self.hazards[which].store(name, Ordering::Release);
            let look = || (self.right.load(Ordering::Acquire) == 1).then_some(());
            if enter(&hazard, || fence(Ordering::SeqCst), 1, look).is_some() {
                // Two initiators may use the memory at the same time, as two queue pairs may.
                self.memory.with(|_| ());
                leave(&hazard);
            }
        }

        fn take_back(&self) {
            withdraw(
                || self.right.store(0, Ordering::Release),
                || fence(Ordering::SeqCst),
            );
            for hazard in &self.hazards {
                while hazard.load(Ordering::Acquire) == 1 {
                    thread::yield_now();
                }
            }
            self.memory.with_mut(|_| ());
        }
    }

    /// Every interleaving: nobody is in the memory when its owner has it back.
    #[test]
    fn nobody_uses_what_was_taken_back() {
        loom::model(|| {
            let world = Arc::new(World::new());
            let initiator = {
                let world = Arc::clone(&world);
                thread::spawn(move || world.initiate(0))
            };
            world.take_back();
            initiator.join().unwrap();
        });
    }

    /// An owner that does not wait: an initiator that has read what was put there later finds out.
    #[test]
    fn nobody_keeps_what_was_read_too_late() {
        loom::model(|| {
            let memory = Arc::new(AtomicU64::new(7));
            let world = Arc::new(World::new());
            let initiator = {
                let (world, memory) = (Arc::clone(&world), Arc::clone(&memory));
                thread::spawn(move || {
                    let hazard = |name| world.hazards[0].store(name, Ordering::Release);
                    let right = || world.right.load(Ordering::Acquire) == 1;
                    let look = || right().then_some(());
                    if enter(&hazard, || fence(Ordering::SeqCst), 1, look).is_some() {
                        let read = memory.load(Ordering::Relaxed);
                        let kept = holds_still(|| fence(Ordering::SeqCst), right);
                        leave(&hazard);
                        assert!(!kept || read == 7);
                    }
                })
            };
            withdraw(
                || world.right.store(0, Ordering::Release),
                || fence(Ordering::SeqCst),
            );
            memory.store(8, Ordering::Relaxed);
            initiator.join().unwrap();
        });
    }

    /// The same with a second initiator, and one that comes again with its hazard.
    #[test]
    fn nor_do_several_initiators() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let world = Arc::new(World::new());
            let initiators = [0, 1].map(|which| {
                let world = Arc::clone(&world);
                thread::spawn(move || world.initiate(which))
            });
            world.take_back();
            for initiator in initiators {
                initiator.join().unwrap();
            }
        });
    }
}
