//! What an endpoint finishes for a program that does not wait for it: streams that were dropped.
//!
//! A thread does it, which starts when there is something to finish and ends when there is nothing.
//! It serves the endpoint meanwhile, as any thread that waits does: the program need not do so any
//! more, nor have the endpoint.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::awaitable::{deadline, within};
use super::{Endpoint, block};
use crate::Result;
use crate::sys::{Unfinished, spawn};

/// Work that is to be finished.
#[derive(Default)]
pub(super) struct Background(Mutex<State>);

#[derive(Default)]
struct State {
    /// What the thread has not taken yet.
    new: Vec<Unnoticed>,
    /// Whether there is a thread.
    runs: bool,
    /// Wakes it.
    waker: Option<Waker>,
}

/// Whether it ends well is told to nobody.
type Unnoticed = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// One of the thread's futures, and whether it is to be looked at.
struct Task {
    future: Unnoticed,
    flag: Arc<Flag>,
}

struct Flag {
    woken: AtomicBool,
    thread: Waker,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.wake_by_ref();
    }
}

impl Task {
    fn new(future: Unnoticed, thread: &Waker) -> Self {
        let (woken, thread) = (AtomicBool::new(true), thread.clone());
        let flag = Arc::new(Flag { woken, thread });
        Self { future, flag }
    }

    /// Whether there is nothing left to do.
    fn is_done(&mut self) -> bool {
        if !self.flag.woken.swap(false, Ordering::AcqRel) {
            return false;
        }
        let waker = Waker::from(Arc::clone(&self.flag));
        let polled = self.future.as_mut().poll(&mut Context::from_waker(&waker));
        polled.is_ready()
    }
}

impl Background {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what there is to do. Ready when nothing is left, and from then on there is no thread.
    fn poll(&self, tasks: &mut Vec<Task>, context: &Context<'_>) -> Poll<()> {
        loop {
            let new = std::mem::take(&mut self.state().new);
            tasks.extend(new.into_iter().map(|f| Task::new(f, context.waker())));
            tasks.retain_mut(|task| !task.is_done());
            let mut state = self.state();
            if !state.new.is_empty() {
                continue;
            }
            if tasks.is_empty() {
                *state = State::default();
                return Poll::Ready(());
            }
            state.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
    }

    /// Forgets what there was to do, and that there is a thread.
    fn give_up(&self) {
        let forgotten = std::mem::take(&mut *self.state());
        // Not under the lock: whatever ends now may have more to finish.
        drop(forgotten);
    }
}

impl Endpoint {
    /// Has a future finished until its time is over, whatever becomes of the program's own use of
    /// the endpoint. An orderly exit of the process waits for it. It is dropped unfinished if there
    /// can be no thread, or the endpoint cannot be served any more.
    pub(crate) fn finish(
        &self,
        limit: Duration,
        future: impl Future<Output = Result<()>> + Send + 'static,
    ) {
        let deadline = deadline(limit);
        let shared = Arc::clone(&self.0);
        let bounded = within(
            Arc::clone(&shared),
            Box::pin(future),
            (deadline, limit),
            "closing a stream",
        );
        Unfinished::until(deadline);
        let (waker, runs) = {
            let mut state = shared.background.state();
            state.new.push(Box::pin(bounded));
            (state.waker.take(), std::mem::replace(&mut state.runs, true))
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        if runs {
            return;
        }
        let begun = spawn("ferroce-linger", move || {
            let mut tasks = Vec::new();
            let finished = poll_fn(|context| shared.background.poll(&mut tasks, context));
            if block::on(&shared, finished).is_err() {
                shared.background.give_up();
            }
        });
        if begun.is_err() {
            self.0.background.give_up();
        }
    }
}
