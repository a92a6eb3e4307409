//! What brings completions to futures, without a runtime of its own.

use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::endpoint::{Runtime, Server};
use crate::sys::Queue;
use crate::{Error, Result};

/// Brings events to their futures: the completions of a
/// [queue](crate::cq::CompletionQueue::driver), for any number of queue pairs, or whatever happens
/// to an [endpoint](crate::endpoint::Endpoint::driver). In one of three ways:
/// - [`run`](Self::run) is a future for any runtime that can wait for a descriptor,
/// - [`run_blocking`](Self::run_blocking) is for a thread,
/// - an event loop waits for the descriptor ([`AsFd`]) and calls [`dispatch`](Self::dispatch) when
///   it is readable, and once at the beginning.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use ferroce::prelude::*;
/// let endpoint = Endpoint::new(&Provider::software())?;
/// // On tokio it is `tokio::spawn(endpoint.driver().run_on_tokio())`.
/// let driver = endpoint.driver();
/// std::thread::spawn(move || driver.run_blocking(Duration::from_secs(1), || false));
/// // From now on any executor awaits what happens to the endpoint.
/// # Ok(())
/// # }
/// ```
pub struct Driver(Box<dyn Drive>);

/// What can be driven.
pub(crate) trait Drive: Send + Sync {
    /// Brings what has happened to its futures, and makes sure that the descriptor becomes readable
    /// when more happens.
    fn dispatch(&self) -> Result<()>;
    /// Readable when a turn is due.
    fn descriptor(&self) -> BorrowedFd<'_>;
    /// Sleeps until the descriptor is readable, the time is over, or a signal comes.
    fn wait_readable(&self, limit: Duration) -> Result<()>;
}

/// A queue while it has a driver.
struct Driven(Arc<Queue>);

impl Drive for Driven {
    fn dispatch(&self) -> Result<()> {
        self.0.take_events()?;
        self.0.deliver_and_arm()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn wait_readable(&self, limit: Duration) -> Result<()> {
        self.0.wait_readable(limit)
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        self.0.end_driving();
    }
}

impl Driver {
    pub(crate) fn new(queue: &Arc<Queue>) -> Result<Self> {
        queue.begin_driving()?;
        Ok(Self(Box::new(Driven(Arc::clone(queue)))))
    }

    pub(crate) fn of_endpoint(endpoint: &Arc<Runtime>) -> Self {
        Self(Box::new(Server::new(endpoint)))
    }

    /// Brings what has happened to its futures, and makes sure that the descriptor becomes readable
    /// when more happens.
    ///
    /// # Errors
    /// The queue overflowed.
    pub fn dispatch(&self) -> Result<()> {
        self.0.dispatch()
    }

    /// Brings completions to their futures until it is dropped. `readable` waits until the
    /// descriptor is readable; it may return early.
    ///
    /// # Errors
    /// The queue overflowed, or what `readable` says.
    pub async fn run<F>(self, mut readable: impl FnMut() -> F) -> Result<()>
    where
        F: Future<Output = io::Result<()>>,
    {
        let waiting = |source| Error::io("waiting for the completion channel", source);
        loop {
            told(self.dispatch())?;
            told(readable().await.map_err(waiting))?;
        }
    }

    /// [`run`](Self::run) on a tokio runtime with I/O enabled, as a task of it.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use ferroce::prelude::*;
    /// let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// runtime.block_on(async {
    ///     let endpoint = Endpoint::new(&Provider::software())?;
    ///     let driver = tokio::spawn(endpoint.driver().run_on_tokio());
    ///     let listener = endpoint.listen("127.0.0.1:0")?;
    ///     let address = listener.local_addr()?;
    ///     let server = tokio::spawn(async move { listener.accept().await?.accept().await });
    ///     let connection = endpoint.connect(address).await?;
    ///     server.await??;
    ///     connection.disconnected().await?;
    ///     driver.abort(); // else it goes on for as long as the runtime
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// A task that nothing awaits ends unseen: if this ends with an error, that is also an event of
    /// [tracing](https://docs.rs/tracing) at the level of errors. A program that must not go on
    /// without it waits for both:
    ///
    /// ```
    /// # async fn work(endpoint: &ferroce::endpoint::Endpoint) -> ferroce::Result<()> { Ok(()) }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use ferroce::prelude::*;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// # runtime.block_on(async {
    /// let endpoint = Endpoint::new(&Provider::software())?;
    /// tokio::select! {
    ///     done = work(&endpoint) => done?,
    ///     ended = endpoint.driver().run_on_tokio() => ended?,
    /// }
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// The queue overflowed, or the descriptor cannot be watched: the future is polled outside of a
    /// tokio runtime, or in one without I/O (`enable_io`, `enable_all`).
    #[cfg(feature = "tokio")]
    pub async fn run_on_tokio(self) -> Result<()> {
        let watch = |source| Error::io("watching the completion channel", source);
        let fd = told(crate::sys::watch(self.as_fd()).map_err(watch))?;
        loop {
            told(self.dispatch())?;
            // Readiness is cleared before events are taken, so none comes unseen.
            told(fd.readable().await.map_err(watch))?.clear_ready();
        }
    }

    /// Brings completions to their futures until `stop` says so. Sleeps while nothing completes;
    /// `stop` is asked after each turn, and at the latest when `interval` has passed (rounded up to
    /// milliseconds).
    ///
    /// # Errors
    /// The queue overflowed.
    pub fn run_blocking(self, interval: Duration, mut stop: impl FnMut() -> bool) -> Result<()> {
        loop {
            told(self.dispatch())?;
            if stop() {
                return Ok(());
            }
            told(self.0.wait_readable(interval))?;
        }
    }
}

/// Tells the log why a driver ends, which nothing else may hear of: tasks and threads of drivers
/// are seldom awaited.
fn told<T>(result: Result<T>) -> Result<T> {
    if let Err(error) = &result {
        tracing::error!(
            target: "ferroce::endpoint",
            %error,
            "a driver has ended: what it served stands still"
        );
    }
    result
}

impl AsFd for Driver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.descriptor()
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Driver")
    }
}
