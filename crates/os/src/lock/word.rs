//! The word that says whether a lock is taken, and how threads sleep until it is free.
//!
//! A thread that is about to sleep requests a wake-up in a second word, looks at the lock once
//! more, and sleeps only while the request stands. An owner that gives it back and finds a request
//! withdraws it and wakes all threads that sleep. Until a thread requests another wake-up, the lock
//! is given back without a system call, however long the woken threads wait for a processor.
//!
//! The owner has no fence between its store and its look for a request, so it may miss a request
//! that is made at that very moment. The request stands, and the next owner finds it. In case that
//! there is none soon, a thread sleeps for [`LONGEST`] at a time.
//!
//! Invariant: while a thread sleeps, a request stands or a wake-up is on its way.
//! Enforced by: the kernel compares the word and puts the thread to sleep in one step, and a thread
//! that withdraws a request wakes after that; the model (`model.rs`).
//! If broken: a thread sleeps for [`LONGEST`] while others take the lock and give it back.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Nanoseconds that a thread sleeps for a lock at most before it looks again.
const LONGEST: i64 = 200_000;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// No thread requests a wake-up.
const QUIET: u32 = 0;
const ASKED: u32 = 1;

/// A word that threads can sleep for, in this process's memory or in that of a model checker.
pub(super) trait Futex {
    /// Looks at a lock that is taken before a thread sleeps.
    const SPINS: u32;

    fn load(&self, order: Ordering) -> u32;
    fn store(&self, value: u32, order: Ordering);
    fn swap(&self, value: u32, order: Ordering) -> u32;
    /// A sequentially consistent fence.
    fn fence();
    /// Sleeps until a wake-up, if the word is `value`.
    fn sleep(&self, value: u32);
    /// Wakes all threads that sleep.
    fn wake(&self);
}

/// The words of a lock that is not biased.
#[derive(Debug)]
pub(super) struct LockWord<F> {
    state: F,
    /// [`ASKED`] while a thread that sleeps, or is about to, requests a wake-up.
    request: F,
}

impl LockWord<AtomicU32> {
    pub(super) const fn new() -> Self {
        Self::of(AtomicU32::new(FREE), AtomicU32::new(QUIET))
    }
}

impl<F: Futex> LockWord<F> {
    /// Both words are 0.
    pub(super) const fn of(state: F, request: F) -> Self {
        Self { state, request }
    }

    /// Waits until the lock is free, and takes it.
    #[inline]
    pub(super) fn take(&self) {
        if !self.tries() {
            self.wait();
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(super) fn tries(&self) -> bool {
        self.state.swap(TAKEN, Ordering::Acquire) == FREE
    }

    /// Whether the lock is free, for all that can be seen at a glance.
    #[inline]
    pub(super) fn seems_free(&self) -> bool {
        self.state.load(Ordering::Relaxed) == FREE
    }

    fn takes(&self) -> bool {
        self.seems_free() && self.tries()
    }

    #[cold]
    fn wait(&self) {
        while !self.spins() {
            self.ask();
            if self.takes() {
                return;
            }
            self.request.sleep(ASKED);
        }
    }

    /// Looks for a while whether the lock becomes free, and takes it then.
    fn spins(&self) -> bool {
        (0..F::SPINS).any(|_| {
            let taken = self.takes();
            if !taken {
                spin_loop();
            }
            taken
        })
    }

    /// Requests a wake-up. What the caller does next comes after that for all threads.
    pub(super) fn ask(&self) {
        self.request.swap(ASKED, Ordering::Relaxed);
        F::fence();
    }

    /// Gives the lock back.
    #[inline]
    pub(super) fn give_back(&self) {
        self.state.store(FREE, Ordering::Release);
        self.answer();
    }

    /// Wakes all threads that sleep, if a request stands. Those that do not get the lock request
    /// another wake-up.
    #[inline]
    pub(super) fn answer(&self) {
        if self.is_asked() {
            self.wake();
        }
    }

    #[inline]
    pub(super) fn is_asked(&self) -> bool {
        self.request.load(Ordering::Relaxed) == ASKED
    }

    #[cold]
    fn wake(&self) {
        // The next owner may have given the lock back already, and answered.
        if self.request.swap(QUIET, Ordering::Relaxed) == ASKED {
            self.request.wake();
        }
    }
}

impl Futex for AtomicU32 {
    const SPINS: u32 = 100;

    #[inline]
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }

    #[inline]
    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }

    #[inline]
    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.swap(value, order)
    }

    fn fence() {
        fence(Ordering::SeqCst);
    }

    /// For [`LONGEST`] at most.
    fn sleep(&self, value: u32) {
        let longest = libc::timespec {
            tv_sec: 0,
            tv_nsec: LONGEST,
        };
        let how = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word and the time are live, and the kernel only reads them. Whatever it says,
        // the caller looks again.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.as_ptr(),
                how,
                value,
                &raw const longest,
            )
        };
    }

    fn wake(&self) {
        let how = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: takes an address by which sleepers are found, and does not look there.
        unsafe { libc::syscall(libc::SYS_futex, self.as_ptr(), how, i32::MAX) };
    }
}
