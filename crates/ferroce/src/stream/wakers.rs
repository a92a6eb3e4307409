//! The two tasks that a stream may have: one that reads and one that writes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

use crate::wake::wake_all;

/// Wakes both: whatever happens may be what either waits for.
#[derive(Default)]
pub(super) struct Wakers(Mutex<[Option<Waker>; 2]>);

/// Reading or writing side of a stream.
#[derive(Clone, Copy)]
pub(super) enum Role {
    Reader,
    Writer,
}

impl Wakers {
    fn lock(&self) -> MutexGuard<'_, [Option<Waker>; 2]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the task that is woken from now on in a role.
    ///
    /// Wakers are anyone's code: none is cloned or dropped under the lock, nor may the caller hold
    /// another one.
    pub(super) fn set(&self, role: Role, context: &Context<'_>) {
        let waker = context.waker();
        let known = |known: &Waker| known.will_wake(waker);
        if self.lock()[role as usize].as_ref().is_some_and(known) {
            return;
        }
        let new = waker.clone();
        // In two statements: the lock must be free when the waker goes that was there.
        let replaced = self.lock()[role as usize].replace(new);
        drop(replaced);
    }
}

impl Wake for Wakers {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let wakers = std::mem::take(&mut *self.lock());
        wake_all(wakers.into_iter().flatten());
    }
}
