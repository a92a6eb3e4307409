//! What is awaited, or waited for.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tracing::Span;

use super::block;
use super::shared::Runtime;
use super::timers::Sleep;
use crate::{Error, Result};

/// Something that ends later: a future, or with [`wait`](Self::wait) a blocking call. It begins
/// when it is first polled, asked or waited for, and may be dropped at any time: what it had made
/// is destroyed, and the peer is told as far as it knew.
///
/// Where it is awaited, the endpoint needs a [driver](crate::endpoint::Endpoint::driver): without
/// one nothing happens, time limits included.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use ferroce::prelude::*;
/// let endpoint = Endpoint::new(&Provider::software())?;
/// let listener = endpoint.listen("127.0.0.1:0")?;
/// // A blocking call, with a limit.
/// let limit = Duration::from_millis(10);
/// let late = listener.accept().within(limit).wait();
/// assert!(matches!(late, Err(ferroce::Error::TimedOut { .. })));
/// // In a loop of one's own; a task awaits it instead.
/// let mut connecting = endpoint.connect(listener.local_addr()?);
/// let mut coming = listener.accept();
/// let incoming = loop {
///     endpoint.dispatch()?;
///     assert!(connecting.try_wait().is_none(), "the listener has not accepted yet");
///     if let Some(incoming) = coming.try_wait() {
///         break incoming?;
///     }
/// };
/// # drop(incoming);
/// # Ok(())
/// # }
/// ```
#[must_use = "it does nothing until it is awaited or waited for"]
pub struct Awaitable<'a, T> {
    shared: Arc<Runtime>,
    /// Entered whenever the future is polled.
    span: Span,
    future: Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>,
}

impl<'a, T: 'a> Awaitable<'a, T> {
    pub(super) fn new(
        shared: &Arc<Runtime>,
        future: impl Future<Output = Result<T>> + Send + 'a,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            span: Span::none(),
            future: Box::pin(future),
        }
    }

    /// What happens in it is told within this span.
    pub(super) fn within_span(self, span: Span) -> Self {
        Self { span, ..self }
    }

    /// Waits in this thread, and serves the [`Endpoint`](crate::endpoint::Endpoint) meanwhile.
    ///
    /// # Errors
    /// Those of what is waited for, and of
    /// [`Endpoint::dispatch`](crate::endpoint::Endpoint::dispatch).
    pub fn wait(self) -> Result<T> {
        block::on(&Arc::clone(&self.shared), self)?
    }

    /// What it gave, if it has ended, for loops of one's own that call
    /// [`Endpoint::dispatch`](crate::endpoint::Endpoint::dispatch). The first call begins it. Not
    /// to be asked or awaited again when it has answered.
    ///
    /// # Panics
    /// If it has answered before.
    pub fn try_wait(&mut self) -> Option<Result<T>> {
        let shared = Arc::clone(&self.shared);
        match Pin::new(self).poll(&mut Context::from_waker(shared.nudge())) {
            Poll::Ready(ended) => Some(ended),
            Poll::Pending => None,
        }
    }

    /// [`wait`](Self::wait) with a limit: [`Error::TimedOut`] after that time, counted from now.
    pub fn within(self, limit: Duration) -> Self
    where
        T: Send,
    {
        let deadline = deadline(limit);
        let shared = Arc::clone(&self.shared);
        let Self { span, future, .. } = self;
        let limited = within(Arc::clone(&shared), future, (deadline, limit), "an answer");
        Self::new(&shared, limited).within_span(span)
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
    // The endpoint's turns when it first had to wait.
    let mut began_at = None;
    std::future::poll_fn(move |context| {
        if let Poll::Ready(out) = future.as_mut().poll(context) {
            return Poll::Ready(out);
        }
        let (before, turns) = (began_at, shared.turns());
        began_at.get_or_insert(turns);
        let timed_out = || Error::TimedOut {
            what,
            limit,
            unserved: before == Some(turns) && !shared.unarmed.has_servers(),
        };
        Pin::new(&mut sleep)
            .poll(context)
            .map(|slept| slept.and_then(|()| Err(timed_out())))
    })
    .await
}

impl<T> Future for Awaitable<'_, T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let Self { span, future, .. } = &mut *self;
        let _entered = span.enter();
        future.as_mut().poll(context)
    }
}

impl<T> fmt::Debug for Awaitable<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Awaitable")
    }
}
