//! The two tasks that a stream may have: one that reads and one that writes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

use crate::wake::wake_all;

/// Wakes both: whatever happens may be what either waits for.
#[derive(Default)]
pub(super) struct Wakers(Mutex<[Option<Waker>; 2]>);

/// Which of the two.
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
    pub(super) fn set(&self, role: Role, context: &Context<'_>) {
        let waker = context.waker();
        // In two statements: the lock must be free when the waker goes that was there.
        let replaced = {
            match &mut self.lock()[role as usize] {
                Some(known) if known.will_wake(waker) => None,
                place => place.replace(waker.clone()),
            }
        };
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
