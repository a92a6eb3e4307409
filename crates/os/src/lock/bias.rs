//! Which thread a lock leans to: one that has taken it alone for long takes it without a locked instruction.
//!
//! That thread, the *owner*, says that it is inside and then looks whether it is still the owner. Who takes the lock otherwise has its
//! word, says that nobody is the owner any more, and then looks whether the owner is inside. One of the two must see what the other has
//! written, and on both sides a store has to become visible before the load behind it: for the owner, who does this all the time, that
//! is what costs. So the other one does it for both: `membarrier(2)` makes every thread of the process have a barrier between what it did
//! before and what it does after. It costs some microseconds, as much as [`HABIT`] times what a biased lock saves; more seldom than that
//! it does not happen.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering, compiler_fence};
use std::thread;
use std::time::Duration;

use crate::thread::spawn_quiet;

/// Times in a row that a thread takes a lock before the lock leans to it.
pub(super) const HABIT: u32 = 512;
/// The owner of a lock that leans to nobody.
const NOBODY: usize = 0;
/// Looks whether the owner has left before one sleeps between them, and for how long.
const LOOKS: u32 = 100;
const PAUSE: Duration = Duration::from_micros(50);
/// Within this time a store of any processor is visible to the others, without any barrier: some thousand times what it takes.
const DRAINED: Duration = Duration::from_millis(2);

/// Whom a lock leans to, if to anybody.
#[derive(Debug)]
pub(super) struct Bias {
    /// Changed only by who has the lock's word.
    owner: AtomicUsize,
    /// The owner has the lock. Changed only by the owner.
    inside: AtomicBool,
    /// Who has taken the lock's word last, and how often in a row. Used by who has that word.
    last: AtomicUsize,
    streak: AtomicU32,
}

impl Bias {
    pub(super) const fn new() -> Self {
        Self {
            owner: AtomicUsize::new(NOBODY),
            inside: AtomicBool::new(false),
            last: AtomicUsize::new(NOBODY),
            streak: AtomicU32::new(0),
        }
    }

    /// Takes the lock, if it leans to this thread, which does not have it.
    #[inline]
    pub(super) fn enter(&self) -> bool {
        let me = this_thread();
        if self.owner.load(Ordering::Relaxed) != me
            || me == NOBODY
            || self.inside.load(Ordering::Relaxed)
        {
            return false;
        }
        self.inside.store(true, Ordering::Relaxed);
        // For the processor, the other side's barrier does this.
        compiler_fence(Ordering::SeqCst);
        let is_mine = self.owner.load(Ordering::Acquire) == me;
        if !is_mine {
            self.leave();
        }
        is_mine
    }

    /// Gives it back.
    #[inline]
    pub(super) fn leave(&self) {
        self.inside.store(false, Ordering::Release);
    }

    /// Whether the lock leans to a thread.
    #[cfg(test)]
    pub(super) fn is_there(&self) -> bool {
        self.owner.load(Ordering::Relaxed) != NOBODY
    }

    /// Whether the owner has the lock, for all that can be seen at a glance.
    #[inline]
    pub(super) fn is_inside(&self) -> bool {
        self.inside.load(Ordering::Relaxed)
    }

    /// The lock's word was taken: returns when the lock leans to nobody, or to this thread, and no owner has it.
    #[inline]
    pub(super) fn settle(&self) {
        if self.owner.load(Ordering::Relaxed) != NOBODY {
            self.end();
        } else {
            self.count();
        }
    }

    #[inline]
    fn count(&self) {
        let me = this_thread();
        let streak = if self.last.load(Ordering::Relaxed) == me {
            self.streak.load(Ordering::Relaxed) + 1
        } else {
            self.last.store(me, Ordering::Relaxed);
            0
        };
        self.streak.store(streak, Ordering::Relaxed);
        if streak >= HABIT {
            self.begin(me);
        }
    }

    /// From the next time on the thread takes the lock the short way.
    #[cold]
    fn begin(&self, me: usize) {
        self.streak.store(0, Ordering::Relaxed);
        if has_barrier() {
            self.owner.store(me, Ordering::Relaxed);
        }
    }

    #[cold]
    fn end(&self) {
        self.owner.store(NOBODY, Ordering::Relaxed);
        self.streak.store(0, Ordering::Relaxed);
        barrier_for_all();
        // What the owner did while it was inside is known here once it is seen to have left.
        let mut looks = 0;
        while self.inside.load(Ordering::Acquire) {
            if looks < LOOKS {
                looks += 1;
                thread::yield_now();
            } else {
                thread::sleep(PAUSE);
            }
        }
    }
}

/// What tells this thread from the others that run: where its thread-local data is. [`NOBODY`] where that is not known.
#[inline]
fn this_thread() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let at: usize;
        // SAFETY: the ABI has the thread's own address there.
        unsafe {
            std::arch::asm!("mov {}, fs:[0]", out(reg) at, options(pure, readonly, nostack, preserves_flags));
        }
        at
    }
    #[cfg(not(target_arch = "x86_64"))]
    NOBODY
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: takes no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

const UNASKED: u8 = 0;
const ASKED: u8 = 1;
const READY: u8 = 2;

/// Whether threads can be made to have a barrier. The kernel wants to be told of it before, and where there are several threads it takes
/// some ten milliseconds over that: a thread waits for it that has nothing else to do, and until then the answer is no.
fn has_barrier() -> bool {
    static STATE: AtomicU8 = AtomicU8::new(UNASKED);
    let ask = || {
        // Whatever cannot be done, nothing is ready then, and locks lean to nobody.
        let _ = spawn_quiet("ferroce-barrier", || {
            if membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) {
                STATE.store(READY, Ordering::Release);
            }
        });
    };
    let state = STATE.load(Ordering::Acquire);
    if state == UNASKED
        && STATE
            .compare_exchange(UNASKED, ASKED, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    {
        ask();
    }
    state == READY
}

/// All threads of this process have had a barrier when this returns.
fn barrier_for_all() {
    if !membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
        // It was allowed once: the program has forbidden it since.
        thread::sleep(DRAINED);
    }
}
