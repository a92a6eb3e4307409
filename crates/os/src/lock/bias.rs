//! Which thread a lock leans to: one that has taken it alone for long takes it without a locked
//! instruction.
//!
//! That thread, the *owner*, says that it is inside and then looks whether it is still the owner.
//! Any other thread that takes the lock has its word, says that nobody is the owner any more, and
//! then looks whether the owner is inside. One of the two must see what the other has written, and
//! on both sides a store has to become visible before the load behind it. The owner does this all
//! the time, so there it would cost most. So the other one does it for both: `membarrier(2)` makes
//! every thread of the process have a barrier between what it did before and what it does after. It
//! costs some microseconds, as much as [`HABIT`] times what a biased lock saves; more seldom than
//! that it does not happen.
//!
//! A thread may lose its processor just before it says that it is inside, and say so, and take it
//! back, when the lock leans to another one long since. So each owner has a place of its own to say
//! it, for good: nobody ever speaks for another. There are [`PLACES`]; to threads beyond that the
//! lock does not lean.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering, compiler_fence};
use std::thread;
use std::time::Duration;

use crate::thread::spawn_quiet;

/// Times in a row that a thread takes a lock before the lock leans to it.
pub(super) const HABIT: u32 = 512;
/// Threads that a lock leans to in its life: the one that makes a queue pair, the one that works
/// with it, and the device's thread.
pub(super) const PLACES: usize = 3;
/// The owner of a lock that leans to nobody.
pub(super) const NOBODY: usize = usize::MAX;
/// A thread that is not told from the others. Locks do not lean to it.
const UNKNOWN: usize = 0;
/// Looks whether the owner has left before one sleeps between them, and for how long.
const LOOKS: u32 = 100;
const PAUSE: Duration = Duration::from_micros(50);
/// Within this time a store of any processor is visible to the others, without any barrier: some
/// thousand times what it takes.
const DRAINED: Duration = Duration::from_millis(2);

/// The words that the owner and a thread that takes the lock from it look at, in this process's
/// memory or in that of a model checker.
///
/// An owner is a thread together with its place, which is in bits that are 0 in the thread's
/// number; or [`NOBODY`].
pub(super) trait Words {
    fn owner(&self) -> usize;
    /// Called only with the lock's word.
    fn lean_to(&self, owner: usize);
    fn is_inside(&self, place: usize) -> bool;
    /// Called only by the thread that has the place.
    fn go(&self, place: usize, inside: bool);
    /// What the owner did before comes before what it does after, for a thread that calls
    /// [`barrier_for_all`](Self::barrier_for_all).
    fn barrier_here(&self);
    fn barrier_for_all(&self);
}

/// The place of a thread that is the owner.
#[inline]
fn place_of(owner: usize, thread: usize) -> Option<usize> {
    Some(owner ^ thread).filter(|place| *place < PLACES)
}

/// Takes the lock for a thread, if it leans to that, and that does not have it. The thread's place.
#[inline]
pub(super) fn enter(words: &impl Words, me: usize) -> Option<usize> {
    let owner = words.owner();
    let place = place_of(owner, me)?;
    if words.is_inside(place) {
        return None;
    }
    words.go(place, true);
    words.barrier_here();
    if words.owner() != owner {
        words.go(place, false);
        return None;
    }
    Some(place)
}

/// Takes the lock from its owner; the caller has its word. `wait` is called until the owner has
/// left.
pub(super) fn end(words: &impl Words, mut wait: impl FnMut()) {
    let owner = words.owner();
    words.lean_to(NOBODY);
    words.barrier_for_all();
    // What the owner did while it was inside is known here once it is seen to have left.
    while words.is_inside(owner % (PLACES + 1)) {
        wait();
    }
}

/// Whom a lock leans to, if to anybody.
#[derive(Debug)]
pub(super) struct Bias {
    own: Own,
    /// The owner of each place. Used only with the lock's word.
    places: [AtomicUsize; PLACES],
    /// The thread that has taken the lock's word last, and how often in a row. Used only with that
    /// word.
    last: AtomicUsize,
    streak: AtomicU32,
}

/// Where an owner has said that it is inside.
#[derive(Debug)]
pub(super) struct BiasedEntry<'a>(&'a AtomicBool);

impl BiasedEntry<'_> {
    /// Gives the lock back.
    #[inline]
    pub(super) fn leave(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The words of a lock of this process.
#[derive(Debug)]
struct Own {
    owner: AtomicUsize,
    inside: [AtomicBool; PLACES],
}

impl Words for Own {
    #[inline]
    fn owner(&self) -> usize {
        self.owner.load(Ordering::Acquire)
    }
    #[inline]
    fn lean_to(&self, owner: usize) {
        self.owner.store(owner, Ordering::Release);
    }
    #[inline]
    fn is_inside(&self, place: usize) -> bool {
        self.inside[place].load(Ordering::Acquire)
    }
    #[inline]
    fn go(&self, place: usize, inside: bool) {
        self.inside[place].store(inside, Ordering::Release);
    }
    #[inline]
    fn barrier_here(&self) {
        // For the processor, the other side's does this.
        compiler_fence(Ordering::SeqCst);
    }
    fn barrier_for_all(&self) {
        if !membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
            // It was allowed once: the program has forbidden it since.
            thread::sleep(DRAINED);
        }
    }
}

impl Bias {
    pub(super) const fn new() -> Self {
        Self {
            own: Own {
                owner: AtomicUsize::new(NOBODY),
                inside: [const { AtomicBool::new(false) }; PLACES],
            },
            places: [const { AtomicUsize::new(NOBODY) }; PLACES],
            last: AtomicUsize::new(NOBODY),
            streak: AtomicU32::new(0),
        }
    }

    /// Takes the lock, if it leans to this thread, which does not have it.
    #[inline]
    pub(super) fn enter(&self) -> Option<BiasedEntry<'_>> {
        let place = enter(&self.own, this_thread())?;
        Some(BiasedEntry(&self.own.inside[place]))
    }

    /// Whether the lock leans to a thread.
    #[cfg(all(test, target_arch = "x86_64"))]
    pub(super) fn is_there(&self) -> bool {
        self.own.owner() != NOBODY
    }

    /// Whether an owner has the lock, for all that can be seen at a glance.
    #[inline]
    pub(super) fn is_inside(&self) -> bool {
        (0..PLACES).any(|place| self.own.is_inside(place))
    }

    /// The lock's word was taken: returns when the lock leans to nobody, or to this thread from the
    /// next time on, and no owner has it.
    #[inline]
    pub(super) fn settle(&self) {
        if self.own.owner() != NOBODY {
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

    #[cold]
    fn begin(&self, me: usize) {
        self.streak.store(0, Ordering::Relaxed);
        if let Some(place) = self.place_for(me)
            && has_barrier()
        {
            self.own.lean_to(me | place);
        }
    }

    /// The place of a thread, which may take a free one.
    fn place_for(&self, me: usize) -> Option<usize> {
        if me == UNKNOWN {
            return None;
        }
        let has =
            |thread: usize| move |place: &AtomicUsize| place.load(Ordering::Relaxed) == thread;
        let own = self.places.iter().position(has(me));
        let place = own.or_else(|| self.places.iter().position(has(NOBODY)))?;
        self.places[place].store(me, Ordering::Relaxed);
        Some(place)
    }

    #[cold]
    fn end(&self) {
        self.streak.store(0, Ordering::Relaxed);
        let mut looks = 0;
        end(&self.own, || {
            if looks < LOOKS {
                looks += 1;
                thread::yield_now();
            } else {
                thread::sleep(PAUSE);
            }
        });
    }
}

/// What tells this thread from the others that run: where its thread-local data is, at a multiple
/// of 64.
#[inline]
fn this_thread() -> usize {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let at: usize;
        // SAFETY: the ABI has the thread's own address there.
        unsafe {
            std::arch::asm!("mov {}, fs:[0]", out(reg) at, options(pure, readonly, nostack, preserves_flags));
        }
        at
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    UNKNOWN
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: takes no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

const UNASKED: u8 = 0;
const ASKED: u8 = 1;
const READY: u8 = 2;

/// Whether threads can be made to have a barrier. The kernel wants to be told of it before, and
/// where there are several threads it takes some ten milliseconds over that. A thread that has
/// nothing else to do waits for it, and until then the answer is no.
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
