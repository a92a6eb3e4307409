//! The two tasks that a stream may have: one that reads and one that writes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

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

    /// Who is woken from now on in a role.
    pub(super) fn set(&self, role: Role, context: &Context<'_>) {
        let place = &mut self.lock()[role as usize];
        match place {
            Some(waker) => waker.clone_from(context.waker()),
            None => *place = Some(context.waker().clone()),
        }
    }
}

impl Wake for Wakers {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let wakers = std::mem::take(&mut *self.lock());
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}
