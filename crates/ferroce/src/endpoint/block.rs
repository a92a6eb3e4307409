//! Waiting in a thread.

use std::future::Future;
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::look::Server;
use super::shared::Runtime;
use crate::Result;
use crate::driver::look_on;
use crate::sys::{Signal, wait_either};

/// A thread that waits: awake or not, and what ends its sleep.
struct Sleeper {
    woken: AtomicBool,
    signal: Signal,
}

impl Sleeper {
    fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Acquire)
    }
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

/// Waits for a future, and serves the endpoint meanwhile. Of several threads that do this each may
/// serve any other: it is woken by its own signal then.
pub(super) fn on<F: Future>(shared: &Arc<Runtime>, future: F) -> Result<F::Output> {
    let sleeper = Arc::new(Sleeper {
        woken: AtomicBool::new(false),
        signal: Signal::new()?,
    });
    let waker = Waker::from(Arc::clone(&sleeper));
    let server = Server::new(shared);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(out) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Ok(out);
        }
        loop {
            shared.serve(false)?;
            if !sleeper.is_woken() {
                look_on(&server, |_| sleeper.is_woken())?;
            }
            // Queues stay unarmed where the only server goes on at once.
            if !sleeper.is_woken() || !shared.unarmed.is_alone() {
                shared.unarmed.arm()?;
            }
            if sleeper.woken.swap(false, Ordering::AcqRel) {
                break;
            }
            if wait_either(shared.waiters()?, sleeper.signal.as_fd(), Duration::MAX)? {
                // Before the look at `woken`: a waking thread sets that first.
                sleeper.signal.lower();
            }
        }
    }
}
