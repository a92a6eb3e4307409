//! Waiting in a thread.

use std::future::{Future, poll_fn};
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::shared::Runtime;
use crate::sys::{Signal, wait_either};
use crate::wake::{awaited, note_awaited};
use crate::{Error, Result};

/// A thread that waits: awake or not, and what ends its sleep.
struct Sleeper {
    woken: AtomicBool,
    signal: Signal,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Raised once until the thread has seen it.
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.signal.raise();
        }
    }
}

/// As [`on`], for a future of this endpoint. One that waits for another endpoint, which is not
/// served here, is an error.
pub(super) fn on_own<F: Future>(shared: &Arc<Runtime>, future: F) -> Result<F::Output> {
    let mut future = pin!(future);
    let checked = poll_fn(|context| {
        note_awaited(0);
        match future.as_mut().poll(context) {
            Poll::Ready(out) => Poll::Ready(Ok(out)),
            Poll::Pending if [0, shared.name()].contains(&awaited()) => Poll::Pending,
            Poll::Pending => Poll::Ready(Err(Error::Misuse(
                "the future is of another endpoint, which would not be served: wait with a \
                 connection of that one, or by Endpoint::block_on if it has a driver",
            ))),
        }
    });
    on(shared, checked)?
}

/// Waits for a future, and serves the endpoint meanwhile. Of several threads that do this each may
/// serve any other: it is woken by its own signal then.
pub(super) fn on<F: Future>(shared: &Arc<Runtime>, future: F) -> Result<F::Output> {
    let sleeper = Arc::new(Sleeper {
        woken: AtomicBool::new(false),
        signal: Signal::new()?,
    });
    let waker = Waker::from(Arc::clone(&sleeper));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(out) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Ok(out);
        }
        loop {
            shared.dispatch()?;
            if sleeper.woken.swap(false, Ordering::AcqRel) {
                break;
            }
            if wait_either(shared.as_fd(), sleeper.signal.as_fd(), Duration::MAX)? {
                // Before the look at `woken`: a waking thread sets that first.
                sleeper.signal.lower();
            }
        }
    }
}
