//! Times at which futures are to be looked at again.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::shared::Runtime;
use crate::Result;

/// Wakers by time; the number tells those of one time apart.
#[derive(Default)]
pub(super) struct Timers {
    waiting: BTreeMap<(Instant, u64), Waker>,
    next: u64,
}

impl Timers {
    /// The earliest time.
    pub(super) fn earliest(&self) -> Option<Instant> {
        self.waiting.keys().next().map(|&(at, _)| at)
    }

    /// Takes those whose time has come.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<Waker> {
        let later = self.waiting.split_off(&(now, u64::MAX));
        std::mem::replace(&mut self.waiting, later)
            .into_values()
            .collect()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// Ready when a time has come.
pub(super) struct Sleep {
    shared: Arc<Runtime>,
    at: Instant,
    number: Option<u64>,
}

impl Sleep {
    pub(super) fn until(shared: &Arc<Runtime>, at: Instant) -> Self {
        Self {
            shared: Arc::clone(shared),
            at,
            number: None,
        }
    }
}

impl Future for Sleep {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        if Instant::now() >= self.at {
            return Poll::Ready(Ok(()));
        }
        let shared = Arc::clone(&self.shared);
        let waker = context.waker().clone();
        // Wakers are anyone's code, which may come back here: dropped behind the lock.
        let _replaced;
        let mut timers = shared.timers();
        let number = *self.number.get_or_insert_with(|| timers.number());
        _replaced = timers.waiting.insert((self.at, number), waker);
        if timers.earliest() == Some(self.at)
            && let Err(e) = shared.set_alarm(&timers)
        {
            return Poll::Ready(Err(e));
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            // In two statements: the lock must be free when the waker goes.
            let unused = { self.shared.timers().waiting.remove(&(self.at, number)) };
            drop(unused);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::{Duration, Instant};

    use super::Timers;

    #[test]
    fn due_timers_are_taken_and_no_others() {
        let (now, mut timers) = (Instant::now(), Timers::default());
        for milliseconds in [3, 1, 2, 1] {
            let number = timers.number();
            let at = now + Duration::from_millis(milliseconds);
            timers.waiting.insert((at, number), Waker::noop().clone());
        }
        assert_eq!(timers.earliest(), Some(now + Duration::from_millis(1)));
        assert_eq!(timers.expired(now).len(), 0);
        assert_eq!(timers.expired(now + Duration::from_millis(2)).len(), 3);
        assert_eq!(timers.earliest(), Some(now + Duration::from_millis(3)));
    }
}
