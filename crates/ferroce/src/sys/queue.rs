//! Completion queues, each with a completion channel of its own, or on one that many share.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ferroce_abi::types::ibv_cq;
use smallvec::SmallVec;

use super::fetch::{Fetched, Fetcher};
use super::outstanding::Ledger;
use super::sleep::Sleepers;
use super::{CompletionChannel, OpenDevice, descriptor};
use crate::{Arrived, Completion, Error, Result, Timestamps};

/// Completions that one call takes at most.
pub(crate) const BATCH: usize = 16;

/// A completion queue and its channel.
pub(crate) struct Queue {
    device: Arc<OpenDevice>,
    channel: Arc<CompletionChannel>,
    pub(super) raw: NonNull<ibv_cq>,
    fetcher: Fetcher,
    ledger: Arc<Ledger>,
    /// Completions that were taken from the device and not yet by whoever polls.
    unread: Mutex<VecDeque<Arrived>>,
    /// Held from taking completions off the device until they are with their readers, so that who finds nothing knows that nothing
    /// is on its way.
    fetching: Mutex<()>,
    sleepers: Sleepers,
    /// Whether a driver has the channel's events.
    driven: AtomicBool,
}

// SAFETY: C's queues and channels may be used by several threads at once.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Queue {
    /// A queue with a channel of its own.
    pub(crate) fn new(
        device: &Arc<OpenDevice>,
        entries: u32,
        timestamps: Timestamps,
    ) -> Result<Arc<Self>> {
        Self::create(
            &CompletionChannel::new(device)?,
            entries,
            (timestamps, false),
        )
    }

    /// A queue on a channel with others. Its events are taken with [`CompletionChannel::next_queue`]; here it counts as driven.
    pub(crate) fn shared(channel: &Arc<CompletionChannel>, entries: u32) -> Result<Arc<Self>> {
        let new = Self::create(channel, entries, (Timestamps::None, true))?;
        channel.list(&new);
        Ok(new)
    }

    /// What asynchronous events call it.
    pub(crate) fn key(&self) -> usize {
        self.raw.as_ptr().addr()
    }

    /// `ibv_create_cq` or `ibv_create_cq_ex`
    fn create(
        channel: &Arc<CompletionChannel>,
        entries: u32,
        (timestamps, driven): (Timestamps, bool),
    ) -> Result<Arc<Self>> {
        let device = &channel.device;
        let (raw, fetcher) = Fetcher::create(device, entries, channel.raw, timestamps)?;
        Ok(Arc::new(Self {
            device: Arc::clone(device),
            channel: Arc::clone(channel),
            raw,
            fetcher,
            ledger: Ledger::own(),
            unread: Mutex::default(),
            fetching: Mutex::default(),
            sleepers: Sleepers::default(),
            driven: AtomicBool::new(driven),
        }))
    }

    /// Whether it is of this context.
    pub(super) fn is_of(&self, device: &OpenDevice) -> bool {
        self.device.is(device)
    }

    /// Its own work.
    pub(crate) fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    fn unread(&self) -> MutexGuard<'_, VecDeque<Arrived>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The oldest completion that is for pollers.
    pub(crate) fn take(&self) -> Result<Option<Completion>> {
        loop {
            if let Some(arrived) = { self.unread().pop_front() } {
                return Ok(Some(arrived.completion()));
            }
            let _fetching = self.fetching();
            // Another thread may have fetched some meanwhile.
            if let Some(arrived) = { self.unread().pop_front() } {
                return Ok(Some(arrived.completion()));
            }
            if self.fetch()? == 0 {
                return Ok(None);
            }
        }
    }

    /// Some of the oldest completions that are for pollers.
    pub(crate) fn take_some(&self, into: &mut SmallVec<[Arrived; BATCH]>) -> Result<()> {
        loop {
            let _fetching = self.fetching();
            {
                let mut unread = self.unread();
                let count = unread.len().min(BATCH);
                into.extend(unread.drain(..count));
            }
            if !into.is_empty() || self.fetch()? == 0 {
                return Ok(());
            }
        }
    }

    /// Gives back completions that were taken and not read, the oldest first.
    pub(crate) fn give_back(&self, untouched: impl DoubleEndedIterator<Item = Arrived>) {
        let mut unread = self.unread();
        for arrived in untouched.rev() {
            unread.push_front(arrived);
        }
    }

    /// Takes everything off the device, for its readers.
    pub(crate) fn deliver(&self) -> Result<()> {
        let _fetching = self.fetching();
        while self.fetch()? > 0 {}
        Ok(())
    }

    fn fetching(&self) -> MutexGuard<'_, ()> {
        self.fetching.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes completions off the device and brings them to their readers; how many. The caller is the one who is `fetching`.
    fn fetch(&self) -> Result<usize> {
        let mut fetched = SmallVec::<[Fetched; BATCH]>::new();
        self.fetcher.fetch(&self.device, self.raw, &mut fetched)?;
        let count = fetched.len();
        for one in fetched {
            self.settle(one);
        }
        if count > 0 {
            self.sleepers.delivered();
        }
        Ok(count)
    }

    /// Brings a completion to its reader.
    fn settle(&self, one: Fetched) {
        let shared = Ledger::of_shared(one.wc.wr_id);
        let ledger = shared.as_ref().unwrap_or(&self.ledger);
        let (settled, for_poller) =
            ledger.complete(one.wc.wr_id, |tag| Arrived::new(tag, one).completion());
        if let Some(tag) = for_poller {
            self.unread().push_back(Arrived::new(tag, one));
        }
        settled.finish();
    }

    /// Tells sleepers that completions were brought to their readers.
    pub(crate) fn delivered(&self) {
        self.sleepers.delivered();
    }

    /// `ibv_req_notify_cq`: the next completion makes an event.
    pub(crate) fn arm(&self) -> Result<()> {
        // SAFETY: an open context has its operations filled in, and does not change them.
        let req_notify_cq = unsafe { (*self.device.raw.as_ptr()).ops.req_notify_cq };
        let req_notify_cq =
            req_notify_cq.ok_or(Error::Misuse("the device has no ibv_req_notify_cq"))?;
        // SAFETY: a live queue.
        Error::check("ibv_req_notify_cq", unsafe {
            req_notify_cq(self.raw.as_ptr(), 0)
        })
    }

    /// Waits for an event, and takes it.
    fn sleep(&self) -> Result<()> {
        self.channel.take_event()
    }

    /// Takes the events that are there, without waiting.
    pub(crate) fn take_events(&self) -> Result<()> {
        loop {
            match self.sleep() {
                Ok(()) => {}
                Err(e) if e.would_block() => return Ok(()),
                Err(e) if e.is_interrupted() => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Gives the channel's events to a driver: from then on reading them never blocks.
    pub(crate) fn begin_driving(&self) -> Result<()> {
        // Whoever sleeps now would wait for events that the driver takes.
        let _nobody_sleeps = self.sleepers.keep_awake().ok_or(Error::Misuse(
            "a thread is waiting for completions of the queue",
        ))?;
        if self.driven.swap(true, Ordering::AcqRel) {
            return Err(Error::Misuse("the completion queue has a driver already"));
        }
        self.channel.set_nonblocking(true)
    }

    /// The driver is gone.
    pub(crate) fn end_driving(&self) {
        // It can only fail for a descriptor that is not open, and this one is.
        let _ = self.channel.set_nonblocking(false);
        self.driven.store(false, Ordering::Release);
        // Who relied on it sleeps itself now.
        self.sleepers.delivered();
    }

    /// `poll(2)`: sleeps until there are events, the time is over, or a signal comes.
    pub(crate) fn wait_readable(&self, limit: Duration) -> Result<()> {
        descriptor::wait_one(self.as_fd(), limit)
    }

    /// Whether a driver has the channel's events.
    pub(crate) fn is_driven(&self) -> bool {
        self.driven.load(Ordering::Acquire)
    }

    /// Waits until `look` finds something, which it is asked for whenever completions were brought to their readers; none when the time
    /// is over. One thread at a time sleeps for all, or the queue's driver brings the completions.
    pub(crate) fn wait_for<R>(
        &self,
        deadline: Option<Instant>,
        mut look: impl FnMut() -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        loop {
            let seen = self.sleepers.seen();
            if !self.is_driven() {
                self.deliver()?;
            }
            if let Some(found) = look()? {
                return Ok(Some(found));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
            match self.sleepers.try_sleep(|| self.is_driven()) {
                Some(_sleeping) => self.sleep_until(deadline, seen)?,
                None => self.sleepers.wait(seen, deadline, || self.is_driven()),
            }
        }
    }

    /// Sleeps until something completes or the time is over, unless something has completed since `seen`.
    fn sleep_until(&self, deadline: Option<Instant>, seen: u64) -> Result<()> {
        // What completes from here on makes an event; what completed just before does not.
        self.arm()?;
        self.deliver()?;
        if self.sleepers.seen() != seen {
            return Ok(());
        }
        let asleep = match deadline {
            None => self.sleep(),
            Some(deadline) => {
                self.wait_readable(deadline.saturating_duration_since(Instant::now()))?;
                if Instant::now() >= deadline {
                    return Ok(());
                }
                self.take_event_if_there()
            }
        };
        match asleep {
            Err(e) if !e.is_interrupted() => Err(e),
            _ => Ok(()),
        }
    }

    /// One event, if there is one. Nobody else takes events while a thread sleeps.
    fn take_event_if_there(&self) -> Result<()> {
        if descriptor::is_readable(self.as_fd())? {
            return self.sleep();
        }
        Ok(())
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Queue")
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.channel.strike(self.raw);
        // SAFETY: made by `create`; queue pairs held this object, and every event is acknowledged as it is taken.
        unsafe { (self.device.verbs.ibv_destroy_cq)(self.raw.as_ptr()) };
    }
}
