//! Completions on their way from the device to their readers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use smallvec::SmallVec;

use super::fetch::{Fetched, Place};
use super::ledger::{Ledger, Settled};
use super::queue::{BATCH, Queue};
use crate::{Arrived, Completion, Result};

/// Completions that were taken from the device and not yet by whoever polls.
///
/// Its lock is held from taking completions off the device until their readers could find them, so that who finds nothing knows that
/// nothing is on its way. Wakers are anyone's code, which may come back here: they are called without it.
#[derive(Default)]
pub(super) struct Inbox {
    unread: VecDeque<Arrived>,
    /// Where the device writes completions.
    place: Place,
    /// Tasks that wait for completions that are for whoever polls.
    waiting: Vec<Waker>,
}

impl Inbox {
    /// Takes completions off the device: how many. What is to be done without the lock is added to `settled`.
    #[inline]
    fn fetch(&mut self, queue: &Queue, settled: &mut Settled) -> Result<usize> {
        let Self {
            unread,
            place,
            waiting,
        } = self;
        let (mut count, before) = (0, unread.len());
        queue.fetch(place, |one| {
            count += 1;
            settle(&one, queue.ledger(), unread, settled);
        })?;
        if !waiting.is_empty() && unread.len() > before {
            waiting.drain(..).for_each(|waker| settled.wake(waker));
        }
        Ok(count)
    }
}

/// Brings a completion to its reader.
#[inline]
fn settle(one: &Fetched, own: &Arc<Ledger>, unread: &mut VecDeque<Arrived>, settled: &mut Settled) {
    let id = one.wc.wr_id;
    let completion = |tag| Arrived::new(tag, *one).completion();
    let for_poller = match Ledger::number_of_shared(id) {
        None => own.complete(id, completion, settled),
        // Of a queue that is gone nobody is told.
        Some(number) => {
            Ledger::shared_by(number).and_then(|shared| shared.complete(id, completion, settled))
        }
    };
    if let Some(tag) = for_poller {
        unread.push_back(Arrived::new(tag, *one));
    }
}

impl Queue {
    /// What `look` finds among the unread completions, to which those of the device are added until it finds something or the device has
    /// no more.
    #[inline]
    fn look<R>(
        &self,
        mut look: impl FnMut(&mut VecDeque<Arrived>) -> Option<R>,
    ) -> Result<Option<R>> {
        loop {
            let mut settled = Settled::default();
            let count = {
                let mut inbox = self.inbox();
                if let Some(found) = look(&mut inbox.unread) {
                    return Ok(Some(found));
                }
                inbox.fetch(self, &mut settled)?
            };
            if count == 0 {
                return Ok(None);
            }
            self.delivered();
            settled.finish();
        }
    }

    /// The oldest completion that is for pollers.
    #[inline]
    pub(crate) fn take(&self) -> Result<Option<Completion>> {
        let found = self.look(VecDeque::pop_front)?;
        Ok(found.map(|arrived| arrived.completion()))
    }

    /// Some of the oldest completions that are for pollers.
    pub(crate) fn take_some(&self, into: &mut SmallVec<[Arrived; BATCH]>) -> Result<()> {
        let found = self.look(|unread| {
            let count = unread.len().min(BATCH);
            into.extend(unread.drain(..count));
            (count > 0).then_some(())
        });
        found.map(drop)
    }

    /// Gives back completions that were taken and not read, the oldest first.
    pub(crate) fn give_back(&self, untouched: impl DoubleEndedIterator<Item = Arrived>) {
        let waiting = {
            let mut inbox = self.inbox();
            for arrived in untouched.rev() {
                inbox.unread.push_front(arrived);
            }
            std::mem::take(&mut inbox.waiting)
        };
        // Who looked meanwhile found nothing.
        self.delivered();
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Takes everything off the device, for its readers.
    pub(crate) fn deliver(&self) -> Result<()> {
        self.look(|_| None::<()>).map(drop)
    }

    /// [`take`](Self::take) for a task, which is woken when there is something to take.
    pub(crate) fn poll_take(&self, context: &Context<'_>) -> Poll<Result<Completion>> {
        match self.take() {
            Ok(None) => {}
            Ok(Some(completion)) => return Poll::Ready(Ok(completion)),
            Err(e) => return Poll::Ready(Err(e)),
        }
        let waker = context.waker().clone();
        let found = {
            let mut inbox = self.inbox();
            let found = inbox.unread.pop_front();
            if found.is_none() && !inbox.waiting.iter().any(|known| known.will_wake(&waker)) {
                inbox.waiting.push(waker);
            }
            found
        };
        found.map_or(Poll::Pending, |arrived| {
            Poll::Ready(Ok(arrived.completion()))
        })
    }
}
