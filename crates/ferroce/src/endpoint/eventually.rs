//! What is awaited, or waited for.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::block;
use super::shared::Runtime;
use super::timers::Sleep;
use crate::{Error, Result};

/// Something that ends later: a future, or with [`wait`](Self::wait) a blocking call. It begins
/// when it is first polled or waited for, and may be dropped at any time: what it had made is
/// destroyed, and the peer is told as far as it knew.
#[must_use = "it does nothing until it is awaited or waited for"]
pub struct Eventually<'a, T> {
    shared: Arc<Runtime>,
    future: Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>,
}

impl<'a, T: 'a> Eventually<'a, T> {
    pub(super) fn new(
        shared: &Arc<Runtime>,
        future: impl Future<Output = Result<T>> + Send + 'a,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            future: Box::pin(future),
        }
    }

    /// Waits in this thread, and serves the [`Endpoint`](crate::Endpoint) meanwhile.
    ///
    /// # Errors
    /// Those of what is waited for, and of [`Endpoint::turn`](crate::Endpoint::turn).
    pub fn wait(self) -> Result<T> {
        block::on(&Arc::clone(&self.shared), self.future)?
    }

    /// The same with a limit: [`Error::TimedOut`] after that time, counted from now.
    pub fn within(self, limit: Duration) -> Self
    where
        T: Send,
    {
        let deadline = deadline(limit);
        let shared = Arc::clone(&self.shared);
        let future = within(
            Arc::clone(&shared),
            self.future,
            (deadline, limit),
            "an answer",
        );
        Self::new(&shared, future)
    }
}

/// When that time is over. Of a time that no clock will show: in decades.
pub(super) fn deadline(limit: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(limit)
        .unwrap_or(now + Duration::from_secs(1 << 30))
}

/// The future's output, or [`Error::TimedOut`] if the time comes first.
pub(super) async fn within<T>(
    shared: Arc<Runtime>,
    mut future: Pin<Box<dyn Future<Output = Result<T>> + Send + '_>>,
    (deadline, limit): (Instant, Duration),
    what: &'static str,
) -> Result<T> {
    let mut sleep = Sleep::until(&shared, deadline);
    std::future::poll_fn(move |context| {
        if let Poll::Ready(out) = future.as_mut().poll(context) {
            return Poll::Ready(out);
        }
        Pin::new(&mut sleep)
            .poll(context)
            .map(|slept| slept.and(Err(Error::TimedOut { what, limit })))
    })
    .await
}

impl<T> Future for Eventually<'_, T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        self.future.as_mut().poll(context)
    }
}

impl<T> fmt::Debug for Eventually<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Eventually")
    }
}
