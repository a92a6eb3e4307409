//! A lock for what every work request goes through.
//!
//! `std::sync::Mutex` asks at both ends whether the thread panics, which is more than half of what
//! it costs while nobody else wants it. What is kept here is whole between any two steps, or is
//! only read by its own invariants, so there is nothing to poison.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

/// Nobody has it.
const FREE: u32 = 0;
/// Someone has it.
const TAKEN: u32 = 1;
/// Someone has it, and others may sleep until it is free.
const WANTED: u32 = 2;

/// How often a thread looks at a lock before it sleeps: what is done under it is short.
const LOOKS: u32 = 100;

/// A value that one thread at a time has. It takes a word beside it, and two atomic instructions
/// while nobody waits (futex(7)).
#[derive(Default)]
pub(super) struct Lock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time reaches the value, by `Locked`; it may be another each time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The value, until it is dropped.
pub(super) struct Locked<'l, T> {
    lock: &'l Lock<T>,
    /// It may go to other threads, and be shared, as the borrow that it is.
    value: PhantomData<&'l mut T>,
}

impl<T> Lock<T> {
    pub(super) fn new(value: T) -> Self {
        Self {
            word: AtomicU32::new(FREE),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until no other thread has it.
    #[inline(always)]
    pub(super) fn lock(&self) -> Locked<'_, T> {
        if !self.take() {
            self.wait();
        }
        Locked {
            lock: self,
            value: PhantomData,
        }
    }

    #[inline(always)]
    fn take(&self) -> bool {
        self.word
            .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..LOOKS {
            if self.word.load(Ordering::Relaxed) == FREE && self.take() {
                return;
            }
            std::hint::spin_loop();
        }
        // From here on the thread that frees it wakes a sleeper. This thread cannot know whether
        // there are more, so it takes it as wanted.
        while self.word.swap(WANTED, Ordering::Acquire) != FREE {
            self.sleep();
        }
    }

    /// Sleeps while it is wanted; may return early.
    fn sleep(&self) {
        // SAFETY: a word that lives as long as `self`; no time limit is given.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.word.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                WANTED,
                ptr::null::<libc::timespec>(),
            );
        }
    }

    #[cold]
    fn wake_one(&self) {
        // SAFETY: the address of a word. That it may be gone by now does no harm: the kernel only
        // compares it with those of sleepers.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.word.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                1,
            );
        }
    }
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the lock is this object's.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Locked<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is this object's, and the object is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Locked<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.lock.word.swap(FREE, Ordering::Release) == WANTED {
            self.lock.wake_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::{FREE, Lock};

    /// Each adds one to two numbers in turn, and sees them equal whenever it has the lock.
    #[test]
    fn one_thread_at_a_time_has_the_value() {
        const THREADS: u64 = 4;
        const ROUNDS: u64 = 20_000;
        let lock = Lock::new((0_u64, 0_u64));
        let begin = Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    begin.wait();
                    for round in 0..ROUNDS {
                        let mut both = lock.lock();
                        assert_eq!(both.0, both.1);
                        both.0 += 1;
                        if round % 64 == 0 {
                            // The others come to sleep.
                            thread::yield_now();
                        }
                        both.1 += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), (THREADS * ROUNDS, THREADS * ROUNDS));
        assert_eq!(lock.word.into_inner(), FREE);
    }

    #[test]
    fn a_sleeper_is_woken() {
        let lock = Lock::new(0);
        thread::scope(|scope| {
            let held = lock.lock();
            let other = scope.spawn(|| *lock.lock() += 1);
            // Until it is marked as wanted; the other thread sleeps then, or is about to.
            while lock.word.load(super::Ordering::Relaxed) != super::WANTED {
                thread::yield_now();
            }
            drop(held);
            other.join().unwrap();
        });
        assert_eq!(*lock.lock(), 1);
    }

    #[test]
    fn a_panic_frees_it() {
        let lock = Lock::new(7);
        let panicked = thread::scope(|scope| {
            let locked = scope.spawn(|| {
                let _held = lock.lock();
                panic!("on purpose");
            });
            locked.join().is_err()
        });
        assert!(panicked);
        assert_eq!(*lock.lock(), 7);
    }
}
