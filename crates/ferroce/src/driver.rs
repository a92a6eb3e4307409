//! What brings completions to futures, without a runtime of its own.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ferroce_os::linger::Looks;

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
/// The first two poll for up to 50 µs before they sleep, as long as that has paid lately: a message
/// that comes meanwhile needs no wake-up. Other tasks run between two polls.
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
    /// Brings what has happened to its futures, and leaves what is to be armed to
    /// [`arm`](Self::arm).
    fn serve(&self) -> Result<()>;
    /// Makes sure that the descriptor becomes readable when more happens.
    fn arm(&self) -> Result<()>;
    /// Whether there is a queue to look at before it is armed.
    fn can_look(&self) -> bool;
    /// Brings what has completed in such queues to its futures. Returns whether anything has; none
    /// if there is no such queue.
    fn look(&self) -> Result<Option<bool>>;
    /// What is known of such looks.
    fn experience(&self) -> &Looks;
    /// Readable when a turn is due.
    fn descriptor(&self) -> BorrowedFd<'_>;
    /// Sleeps until the descriptor is readable, the time is over, or a signal comes.
    fn wait_readable(&self, limit: Duration) -> Result<()>;
}

/// Looks before a thread sleeps, as long as that pays, until `is_done`, which is told whether
/// anything has completed. Returns whether it was.
pub(crate) fn look_on(of: &dyn Drive, mut is_done: impl FnMut(bool) -> bool) -> Result<bool> {
    if !of.can_look() {
        return Ok(false);
    }
    let Some(mut look) = of.experience().begin(false) else {
        return Ok(false);
    };
    while let Some(any) = of.look()? {
        if is_done(any) {
            look.end(true);
            return Ok(true);
        }
        if !look.goes_on() {
            break;
        }
    }
    Ok(false)
}

/// A queue while it has a driver.
struct Driven {
    queue: Arc<Queue>,
    experience: Looks,
}

impl Drive for Driven {
    fn serve(&self) -> Result<()> {
        self.queue.take_events()?;
        self.queue.deliver().map(drop)
    }

    fn arm(&self) -> Result<()> {
        self.queue.arm_and_deliver()
    }

    fn can_look(&self) -> bool {
        true
    }

    fn look(&self) -> Result<Option<bool>> {
        self.queue.deliver().map(Some)
    }

    fn experience(&self) -> &Looks {
        &self.experience
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }

    fn wait_readable(&self, limit: Duration) -> Result<()> {
        self.queue.wait_readable(limit)
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        self.queue.end_driving();
    }
}

impl Driver {
    pub(crate) fn new(queue: &Arc<Queue>) -> Result<Self> {
        queue.begin_driving()?;
        Ok(Self(Box::new(Driven {
            queue: Arc::clone(queue),
            experience: Looks::default(),
        })))
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
        let served = self.0.serve();
        let armed = self.0.arm();
        served.and(armed)
    }

    /// Brings completions to their futures until it is dropped. `readable` waits until the
    /// descriptor is readable. It may return early, and must not block the thread: it is polled
    /// during looks, too.
    ///
    /// # Errors
    /// The queue overflowed, or what `readable` says.
    pub async fn run<F>(self, readable: impl FnMut() -> F) -> Result<()>
    where
        F: Future<Output = io::Result<()>>,
    {
        told(self.run_pausing(readable, step_aside).await)
    }

    /// Does what [`run`](Self::run) says. `pause` lets other tasks run between two looks.
    async fn run_pausing<F, P>(
        &self,
        mut readable: impl FnMut() -> F,
        pause: impl Fn() -> P,
    ) -> Result<()>
    where
        F: Future<Output = io::Result<()>>,
        P: Future<Output = ()>,
    {
        let waiting = |source| Error::io("waiting for the completion channel", source);
        loop {
            self.0.serve()?;
            let mut readable = pin!(readable());
            let came = match self.look_on(readable.as_mut(), &pause).await? {
                Some(came) => came,
                None => {
                    self.0.arm()?;
                    ready(readable, &pause).await
                }
            };
            came.map_err(waiting)?;
        }
    }

    /// Looks before the task sleeps, as long as that pays. Returns what `readable` says if it is
    /// ready meanwhile.
    async fn look_on<F, P>(
        &self,
        mut readable: Pin<&mut F>,
        pause: impl Fn() -> P,
    ) -> Result<Option<F::Output>>
    where
        F: Future,
        P: Future<Output = ()>,
    {
        while self.0.can_look()
            && let Some(mut look) = self.0.experience().begin(false)
        {
            loop {
                pause().await;
                match self.0.look()? {
                    Some(true) => {
                        look.end(true);
                        break;
                    }
                    Some(false) => {}
                    None => return Ok(None),
                }
                if let Poll::Ready(came) = polled(readable.as_mut()).await {
                    // Something else than a completion: nothing is learnt.
                    return Ok(Some(came));
                }
                if !look.goes_on() {
                    return Ok(None);
                }
            }
        }
        Ok(None)
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
        let fd = told(crate::sys::watch(self.0.descriptor()).map_err(watch))?;
        // Readiness is cleared before events are taken, so none comes unseen.
        let readable = async || fd.readable().await.map(|mut ready| ready.clear_ready());
        told(self.run_pausing(readable, tokio::task::yield_now).await)
    }

    /// Brings completions to their futures until `stop` says so. Sleeps while nothing completes;
    /// `stop` is asked after each turn, and at the latest when `interval` has passed (rounded up to
    /// milliseconds).
    ///
    /// # Errors
    /// The queue overflowed.
    pub fn run_blocking(self, interval: Duration, mut stop: impl FnMut() -> bool) -> Result<()> {
        told(self.run_in_thread(interval, &mut stop))
    }

    fn run_in_thread(&self, interval: Duration, stop: &mut dyn FnMut() -> bool) -> Result<()> {
        loop {
            self.0.serve()?;
            let goes_on = look_on(&*self.0, |any| any)?;
            if !goes_on {
                self.0.arm()?;
            }
            if stop() {
                return Ok(());
            }
            if !goes_on {
                self.0.wait_readable(interval)?;
            }
        }
    }
}

/// Waits for a future, with a `pause` if it is ready at once: one that always is must not keep the
/// task's thread from other tasks, and from the program that has to answer.
async fn ready<F, P>(mut future: Pin<&mut F>, pause: impl Fn() -> P) -> F::Output
where
    F: Future,
    P: Future<Output = ()>,
{
    if let Poll::Ready(out) = polled(future.as_mut()).await {
        pause().await;
        return out;
    }
    future.await
}

/// What a future says when it is polled once.
async fn polled<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

/// Lets other tasks of a runtime run.
async fn step_aside() {
    let mut is_first = true;
    poll_fn(|context| {
        if std::mem::take(&mut is_first) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
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
