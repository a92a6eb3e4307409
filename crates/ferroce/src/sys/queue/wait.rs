//! Threads that sleep until there are completions, or until work has ended.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::super::{Signal, descriptor};
use super::Queue;
use crate::Result;

/// How often a thread that waits for work looks, if no signal can end its sleep: the queue's
/// driver may be this thread, or the process has no descriptor left for the signal.
const LOOK: Duration = Duration::from_millis(5);

impl Queue {
    /// Waits until `look` finds that work has ended; none when the time is over.
    ///
    /// Invariant: a thread that sleeps here wakes when a reset or the end of a queue pair takes its
    /// work back, of which no completion tells.
    /// Enforced by: [`delivered`](Self::delivered), which changes the count of deliveries under the
    /// inbox's lock and raises the signal then. This thread makes the signal first and takes that
    /// lock last before it sleeps: it sees the count, or the other thread sees the signal.
    /// If broken: `Sending::wait`, `Receiving::wait` and the end of a scope sleep for ever.
    pub(crate) fn wait_for_work<R>(
        &self,
        deadline: Option<Instant>,
        mut look: impl FnMut() -> Option<R>,
    ) -> Result<Option<R>> {
        let can_be_called = self.make_call();
        loop {
            let until = if can_be_called && !self.is_driven() {
                deadline
            } else {
                let soon = Instant::now() + LOOK;
                Some(deadline.map_or(soon, |deadline| deadline.min(soon)))
            };
            let found = self.wait_for(until, || {
                self.deliver()?;
                Ok(look())
            })?;
            if found.is_some() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(found);
            }
        }
    }

    /// Makes sure that there is a signal. Returns false if the process has no descriptor for it.
    fn make_call(&self) -> bool {
        if self.call.get().is_none() {
            let Ok(new) = Signal::new() else {
                return false;
            };
            // Another thread may have made one meanwhile, which is as good.
            let _ = self.call.set(new);
        }
        true
    }

    /// Waits until `look` finds something, which it is asked for whenever completions were brought
    /// to their readers; none when the time is over. One thread at a time sleeps for all, or the
    /// queue's driver brings the completions.
    pub(crate) fn wait_for<R>(
        &self,
        deadline: Option<Instant>,
        mut look: impl FnMut() -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        loop {
            let seen = self.sleepers.seen();
            if !self.is_driven() {
                self.deliver()?;
            }
            if let Some(found) = look()? {
                return Ok(Some(found));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
            match self.sleepers.try_sleep(|| self.is_driven()) {
                Some(_sleeping) => self.sleep_until(deadline, seen)?,
                None => {
                    let pass_inbox = || drop(self.inbox());
                    let driven = || self.is_driven();
                    self.sleepers.wait(seen, deadline, driven, pass_inbox);
                }
            }
        }
    }

    /// Sleeps until something completes, the time is over or the thread is called, unless something
    /// has completed since `seen`.
    fn sleep_until(&self, deadline: Option<Instant>, seen: u64) -> Result<()> {
        let call = self.call.get();
        let waits = deadline.is_none() && call.is_none();
        // While a queue is armed whose channel does not wait, the device makes the descriptor
        // readable for its work, too, and needs no thread of its own to bring an event.
        self.set_nonblocking(!waits)?;
        // What completes from here on makes an event; what completed just before does not.
        self.arm()?;
        self.deliver()?;
        if self.sleepers.seen() != seen {
            return Ok(());
        }
        if !waits {
            self.doze(deadline, call)?;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(());
            }
        }
        match self.sleep() {
            Err(e) if !e.is_interrupted() && !e.would_block() => Err(e),
            _ => Ok(()),
        }
    }

    /// `poll(2)`: sleeps until there are events, the time is over, the thread is called or a signal
    /// comes.
    fn doze(&self, deadline: Option<Instant>, call: Option<&Signal>) -> Result<()> {
        let left = deadline.map_or(Duration::MAX, |deadline| {
            deadline.saturating_duration_since(Instant::now())
        });
        let Some(call) = call else {
            return self.wait_readable(left);
        };
        if descriptor::wait_either(self.as_fd(), call.as_fd(), left)? {
            call.lower();
        }
        Ok(())
    }
}
