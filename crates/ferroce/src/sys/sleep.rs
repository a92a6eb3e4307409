//! Threads that wait for completions of one queue: one of them sleeps in the kernel for all.

use std::sync::PoisonError;
use std::time::Instant;

use super::locks::{AtomicU64, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering};

/// Threads that wait for completions of a queue.
#[derive(Default)]
pub(super) struct Sleepers {
    /// How often completions were brought to their readers.
    deliveries: AtomicU64,
    /// Threads in `wait`.
    waiting: AtomicUsize,
    /// Whether a thread sleeps in the kernel.
    sleeping: Mutex<bool>,
    changed: Condvar,
}

/// The right to sleep in the kernel, until it is dropped.
pub(super) struct Sleeping<'s>(&'s Sleepers);

impl Drop for Sleeping<'_> {
    fn drop(&mut self) {
        *self.0.sleeping() = false;
        self.0.changed.notify_all();
    }
}

impl Sleepers {
    fn sleeping(&self) -> MutexGuard<'_, bool> {
        self.sleeping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A count that changes whenever completions are brought to their readers.
    pub(super) fn seen(&self) -> u64 {
        self.deliveries.load(Ordering::Acquire)
    }

    /// Completions were brought to their readers. The caller has the queue's inbox, whose lock
    /// orders this against [`wait`](Self::wait).
    #[inline(always)]
    pub(super) fn delivered(&self) {
        let before = self.deliveries.load(Ordering::Acquire);
        self.deliveries.store(before + 1, Ordering::Release);
        if self.waiting.load(Ordering::Acquire) > 0 {
            self.call();
        }
    }

    #[cold]
    fn call(&self) {
        // A waiting thread has read the count under this lock, before now or after.
        drop(self.sleeping());
        self.changed.notify_all();
    }

    /// The right to sleep in the kernel, unless another thread has it or there is a driver.
    pub(super) fn try_sleep(&self, driven: impl Fn() -> bool) -> Option<Sleeping<'_>> {
        let mut sleeping = self.sleeping();
        if *sleeping || driven() {
            return None;
        }
        *sleeping = true;
        Some(Sleeping(self))
    }

    /// While the answer is held nobody starts to sleep; none if a thread sleeps already.
    pub(super) fn keep_awake(&self) -> Option<MutexGuard<'_, bool>> {
        let sleeping = self.sleeping();
        (!*sleeping).then_some(sleeping)
    }

    /// Waits until completions were brought to their readers since `seen`, nobody sleeps for this
    /// thread any more, or the time is over. `pass_inbox` takes the inbox's lock and gives it back:
    /// what was delivered under it before is seen here, and what is delivered later sees this
    /// thread.
    pub(super) fn wait(
        &self,
        seen: u64,
        deadline: Option<Instant>,
        driven: impl Fn() -> bool,
        pass_inbox: impl FnOnce(),
    ) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        pass_inbox();
        let mut sleeping = self.sleeping();
        while self.seen() == seen && (*sleeping || driven()) {
            sleeping = match deadline {
                None => self
                    .changed
                    .wait(sleeping)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    let waited = self.changed.wait_timeout(sleeping, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        drop(sleeping);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
