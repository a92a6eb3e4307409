//! What brings completions to futures, without a runtime of its own.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::sys::Queue;
use crate::{Error, Result};

/// Brings the completions of a queue to their futures. One of these serves any number of queue pairs, in one of three ways:
/// - [`run`](Self::run) is a future for any runtime that can wait for a descriptor,
/// - [`run_blocking`](Self::run_blocking) is for a thread,
/// - an event loop waits for the descriptor ([`AsFd`]) and calls [`turn`](Self::turn) when it is readable, and once at the beginning.
#[derive(Debug)]
pub struct Driver(Arc<Queue>);

impl Driver {
    pub(crate) fn new(queue: &Arc<Queue>) -> Result<Self> {
        queue.begin_driving()?;
        Ok(Self(Arc::clone(queue)))
    }

    /// Brings what has completed to its futures, and makes sure that the descriptor becomes readable with the next completion.
    ///
    /// # Errors
    /// The queue overflowed.
    pub fn turn(&self) -> Result<()> {
        self.0.take_events()?;
        // What completes from here on makes an event; what completed before is delivered below.
        self.0.arm()?;
        self.0.deliver()
    }

    /// Brings completions to their futures until it is dropped. `readable` waits until the descriptor is readable; it may return early.
    ///
    /// # Errors
    /// The queue overflowed, or what `readable` says.
    pub async fn run<F>(self, mut readable: impl FnMut() -> F) -> Result<()>
    where
        F: Future<Output = io::Result<()>>,
    {
        loop {
            self.turn()?;
            readable().await.map_err(|source| Error::System {
                call: "waiting for the completion channel",
                source,
            })?;
        }
    }

    /// [`run`](Self::run) on a tokio runtime with I/O enabled.
    ///
    /// # Errors
    /// The queue overflowed, or the descriptor cannot be watched.
    #[cfg(feature = "tokio")]
    pub async fn run_on_tokio(self) -> Result<()> {
        let watch = |source| Error::System {
            call: "watching the completion channel",
            source,
        };
        let fd = crate::sys::watch(self.as_fd()).map_err(watch)?;
        loop {
            self.turn()?;
            // Readiness is cleared before events are taken, so none comes unseen.
            fd.readable().await.map_err(watch)?.clear_ready();
        }
    }

    /// Brings completions to their futures until `stop` says so. Sleeps while nothing completes; `stop` is asked after each turn, and at
    /// the latest when `interval` has passed (rounded up to milliseconds).
    ///
    /// # Errors
    /// The queue overflowed.
    pub fn run_blocking(self, interval: Duration, mut stop: impl FnMut() -> bool) -> Result<()> {
        loop {
            self.turn()?;
            if stop() {
                return Ok(());
            }
            self.0.wait_readable(interval)?;
        }
    }
}

impl AsFd for Driver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.end_driving();
    }
}
