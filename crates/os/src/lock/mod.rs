//! A lock that is cheap to take and to give back where hardly anybody waits for it.
//!
//! A short message passes some six locks from the call that posts it to the poll that finds it, all
//! of them free. With the locks of the standard library they take half of its time: each takes two
//! locked instructions, one to take it and one to give it back. This one takes one. It is given
//! back with a plain store, and only then its owner looks whether a thread waits (`word`). A thread
//! that takes it alone, again and again, soon needs no locked instruction at all (`bias`).

mod bias;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
mod word;

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicU32;

use self::bias::{Bias, BiasedEntry};
use self::word::LockWord;

/// A value that one thread at a time works with. A panic with the lock in hand opens it to others,
/// where it does not end the process: the value is to be whole between any two steps.
pub struct Lock<T> {
    word: LockWord<AtomicU32>,
    bias: Bias,
    value: UnsafeCell<T>,
}

// SAFETY: the value goes from thread to thread with the lock, one at a time.
unsafe impl<T: Send> Send for Lock<T> {}
// SAFETY: references to the value exist only under the lock, which one thread holds at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// A lock that nobody has.
    pub const fn new(value: T) -> Self {
        Self {
            word: LockWord::new(),
            bias: Bias::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until nobody has it, and takes it. Not twice in one thread.
    #[inline]
    pub fn lock(&self) -> LockGuard<'_, T> {
        if let Some(place) = self.bias.enter() {
            return LockGuard::of(self, Some(place));
        }
        self.word.take();
        self.bias.settle();
        LockGuard::of(self, None)
    }

    /// Takes it if nobody has it.
    #[inline]
    pub fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        if let Some(place) = self.bias.enter() {
            return Some(LockGuard::of(self, Some(place)));
        }
        let seems_free = self.word.seems_free() && !self.bias.is_inside();
        if !seems_free || !self.word.tries() {
            return None;
        }
        self.bias.settle();
        Some(LockGuard::of(self, None))
    }

    #[inline]
    fn unlock(&self, place: Option<&BiasedEntry<'_>>) {
        if let Some(place) = place {
            place.leave();
        } else {
            self.word.give_back();
        }
    }
}

impl<T: Default> Default for Lock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(value) => f.debug_tuple("Lock").field(&*value).finish(),
            None => f.write_str("Lock(taken)"),
        }
    }
}

/// The lock is held while this lives.
#[derive(Debug)]
#[must_use]
pub struct LockGuard<'a, T> {
    lock: &'a Lock<T>,
    /// Where the thread that it leans to said that it is inside, if that has taken it.
    place: Option<BiasedEntry<'a>>,
    /// It is as good as a reference, and can go or be shown to other threads as that could.
    _value: PhantomData<&'a mut T>,
}

impl<'a, T> LockGuard<'a, T> {
    #[inline]
    const fn of(lock: &'a Lock<T>, place: Option<BiasedEntry<'a>>) -> Self {
        Self {
            lock,
            place,
            _value: PhantomData,
        }
    }
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this thread has the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread has the lock, by this guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for LockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.unlock(self.place.as_ref());
    }
}
