//! Completions on their way from the device to their readers.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use ferroce_os::lock::LockGuard;

use super::ledger::Settled;
use super::place::{BATCH, Fetched, PollBuffer, View};
use super::queue::Queue;
use crate::cq::Completion;
use crate::wake::{Crowd, Standing};
use crate::{Error, Result};

/// Completions that were taken from the device and not yet by a program that polls.
///
/// Its lock is held from taking completions off the device until their readers could find them, so
/// that a reader that finds nothing knows that nothing is on its way. Wakers are any code, which
/// may come back here: they are called without it.
#[derive(Default)]
pub(super) struct Inbox {
    /// Where the device writes completions, and pollers find them: the oldest.
    place: PollBuffer,
    /// Those for which there is no place.
    later: VecDeque<Fetched>,
    /// Tasks that wait for completions that are for programs that poll.
    waiting: Crowd,
}

impl Inbox {
    /// Takes completions off the device, and returns how many. The tasks to be woken, without the
    /// lock, are added to `settled`.
    ///
    /// Nothing waits in `place`.
    #[inline(always)]
    fn fetch(&mut self, queue: &Queue, settled: &mut Settled) -> Result<usize> {
        queue.fetch(&mut self.place)?;
        let count = self.place.len();
        if count > 0 {
            queue.ledger().settle(&mut self.place, settled);
            if !self.waiting.is_empty() && !self.place.is_empty() {
                self.call(settled);
            }
        }
        Ok(count)
    }

    /// Whether nothing waits for pollers.
    fn is_empty(&self) -> bool {
        self.place.is_empty() && self.later.is_empty()
    }

    /// As [`fetch`](Self::fetch), behind what is there.
    fn fetch_later(&mut self, queue: &Queue, settled: &mut Settled) -> Result<usize> {
        self.place.put_in_front_of(&mut self.later);
        let fetched = self.fetch(queue, settled);
        self.place.put_behind(&mut self.later);
        fetched
    }

    /// Moves the oldest ones elsewhere, as many as there is place for: how many.
    #[inline(never)]
    fn give(&mut self, taken: &mut PollBuffer) -> usize {
        let Self { place, later, .. } = self;
        place.put_in_front_of(later);
        taken.refill(later);
        taken.len()
    }

    /// There is something for the tasks that wait.
    #[cold]
    fn call(&mut self, settled: &mut Settled) {
        for waker in self.waiting.take() {
            settled.wake(waker);
        }
    }
}

impl Queue {
    /// The oldest completion that is for pollers, as `read` reads it, which calls nobody.
    #[inline(always)]
    pub(crate) fn take<R>(&self, read: impl FnOnce(View<'_>) -> R) -> Result<Option<R>> {
        let mut inbox = self.inbox();
        if inbox.place.is_empty() {
            match self.refill(inbox) {
                Ok(Some(refilled)) => inbox = refilled,
                Ok(None) => return Ok(None),
                Err(error) => return Err(*error),
            }
        }
        Ok(Some(read(inbox.place.pop())))
    }

    /// Sees to it that there are completions for pollers in their place; none if the device has no
    /// more.
    #[inline(never)]
    fn refill<'q>(
        &'q self,
        mut inbox: LockGuard<'q, Inbox>,
    ) -> std::result::Result<Option<LockGuard<'q, Inbox>>, Box<Error>> {
        loop {
            if !inbox.later.is_empty() {
                let Inbox { place, later, .. } = &mut *inbox;
                place.refill(later);
                return Ok(Some(inbox));
            }
            let mut settled = Settled::default();
            if inbox.fetch(self, &mut settled)? == 0 {
                return Ok(None);
            }
            self.delivered_by(&inbox);
            if !settled.is_empty() {
                drop(inbox);
                settled.finish();
                inbox = self.inbox();
            }
            if !inbox.place.is_empty() {
                return Ok(Some(inbox));
            }
        }
    }

    /// The oldest completions that are for pollers, as many as there is place for: how many.
    #[inline]
    pub(crate) fn take_into(&self, taken: &mut PollBuffer) -> Result<usize> {
        let mut inbox = self.inbox();
        if !inbox.is_empty() {
            return Ok(inbox.give(taken));
        }
        // Nothing is before what the device has, so it writes where the poller reads.
        loop {
            self.fetch(taken)?;
            if taken.is_empty() {
                return Ok(0);
            }
            let mut settled = Settled::default();
            self.ledger().settle(taken, &mut settled);
            self.delivered_by(&inbox);
            if !settled.is_empty() {
                drop(inbox);
                settled.finish();
                inbox = self.inbox();
            }
            // Meanwhile others may have found more, which is younger than what was taken.
            match taken.len() {
                0 if !inbox.is_empty() => return Ok(inbox.give(taken)),
                0 => {}
                count => return Ok(count),
            }
        }
    }

    /// Takes everything off the device, for its readers. Returns whether there was anything.
    ///
    /// A poll that brings less than it has room for has emptied the queue (`ibv_poll_cq(3)`).
    /// Another one would find nothing, and takes as long as a short READ where it asks the kernel.
    pub(crate) fn deliver(&self) -> Result<bool> {
        let (mut fetched, mut any) = (BATCH, false);
        while fetched == BATCH {
            let mut settled = Settled::default();
            {
                let mut inbox = self.inbox();
                fetched = inbox.fetch_later(self, &mut settled)?;
                if fetched > 0 {
                    self.delivered_by(&inbox);
                    any = true;
                }
            }
            settled.finish();
        }
        Ok(any)
    }

    /// [`take`](Self::take) for a task, which is woken when there is something to take.
    pub(crate) fn poll_take(&self, context: &Context<'_>) -> Poll<Result<Completion>> {
        self.poll_take_or(context, |waiting, waker| {
            waiting.wait_anonymously(waker);
            None
        })
    }

    /// [`take`](Self::take) for a task, or `wait` notes its waker; whom that replaces.
    fn poll_take_or(
        &self,
        context: &Context<'_>,
        wait: impl FnOnce(&mut Crowd, Waker) -> Option<Waker>,
    ) -> Poll<Result<Completion>> {
        match self.take(|view| view.completion()) {
            Ok(None) => {}
            Ok(Some(completion)) => return Poll::Ready(Ok(completion)),
            Err(e) => return Poll::Ready(Err(e)),
        }
        let waker = context.waker().clone();
        // Dropped behind the lock.
        let _replaced;
        let mut inbox = self.inbox();
        if inbox.place.is_empty() {
            let Inbox { place, later, .. } = &mut *inbox;
            place.refill(later);
        }
        if !inbox.place.is_empty() {
            return Poll::Ready(Ok(inbox.place.pop().completion()));
        }
        _replaced = wait(&mut inbox.waiting, waker);
        Poll::Pending
    }
}

/// A future of the oldest completion.
pub(crate) struct Next<'q> {
    queue: &'q Queue,
    place: Standing,
}

impl<'q> Next<'q> {
    pub(crate) fn new(queue: &'q Queue) -> Self {
        Self { queue, place: None }
    }
}

impl Future for Next<'_> {
    type Output = Result<Completion>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { queue, place } = &mut *self;
        queue.poll_take_or(context, |waiting, waker| waiting.wait(place, waker))
    }
}

impl Drop for Next<'_> {
    fn drop(&mut self) {
        if self.place.is_some() {
            // In two statements: the lock must be free when the waker goes.
            let unused = { self.queue.inbox().waiting.leave(self.place) };
            drop(unused);
        }
    }
}
