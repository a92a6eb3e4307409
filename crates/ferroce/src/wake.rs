//! Waking tasks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Wakes all of them. Wakers are anyone's code: no lock is held here, and if one panics, the others
/// are woken before the panic goes on.
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    let mut waiting = Waiting(wakers.into_iter());
    for waker in waiting.0.by_ref() {
        waker.wake();
    }
}

/// Those that were not woken yet.
struct Waiting<I: Iterator<Item = Waker>>(I);

impl<I: Iterator<Item = Waker>> Drop for Waiting<I> {
    fn drop(&mut self) {
        for waker in &mut self.0 {
            // Only the first panic can go on.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }
}

/// Tasks that wait for the same thing, each at a place of its own. A future gives its place up when
/// it is dropped: what is woken may be dear, a thread's descriptor for one.
#[derive(Default)]
pub(crate) struct Crowd {
    wakers: Vec<(u64, Waker)>,
    /// The number of the next place.
    next: u64,
}

/// A future's place, if it waits: a number.
pub(crate) type Standing = Option<u64>;

impl Crowd {
    /// Whether nobody waits.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.wakers.is_empty()
    }

    /// Sets the task that this place wakes from now on. Returns the one before, to be dropped
    /// without any lock.
    #[must_use]
    pub(crate) fn wait(&mut self, place: &mut Standing, waker: Waker) -> Option<Waker> {
        let number = *place.get_or_insert_with(|| {
            self.next += 1;
            self.next
        });
        let known = self.wakers.iter_mut().find(|(at, _)| *at == number);
        if let Some((_, known)) = known {
            return Some(std::mem::replace(known, waker));
        }
        self.wakers.push((number, waker));
        None
    }

    /// As [`wait`](Self::wait), for a task that has no place: it is known by its waker.
    pub(crate) fn wait_anonymously(&mut self, waker: Waker) {
        if !self.wakers.iter().any(|(_, known)| known.will_wake(&waker)) {
            self.next += 1;
            self.wakers.push((self.next, waker));
        }
    }

    /// Gives a place up. Returns the task that was there, to be dropped without any lock.
    #[must_use]
    pub(crate) fn leave(&mut self, place: Standing) -> Option<Waker> {
        let at = self.wakers.iter().position(|(at, _)| Some(*at) == place)?;
        Some(self.wakers.swap_remove(at).1)
    }

    /// Takes all, to be woken without any lock.
    #[must_use]
    pub(crate) fn take(&mut self) -> Vec<Waker> {
        self.wakers.drain(..).map(|(_, waker)| waker).collect()
    }
}
