//! Completion queues, each with a completion channel of its own, or on one that many share.

mod wait;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ferroce_abi::types::ibv_cq;
use ferroce_os::lock::{Lock, LockGuard};

use super::fetch::Fetcher;
use super::inbox::Inbox;
use super::ledger::Ledger;
use super::place::PollBuffer;
use super::sleep::Sleepers;
use super::{CompletionChannel, OpenDevice, Signal, descriptor, failures};
use crate::cq::Timestamps;
use crate::{Error, Result};

/// A completion queue and its channel.
pub(crate) struct Queue {
    device: Arc<OpenDevice>,
    channel: Arc<CompletionChannel>,
    pub(super) raw: NonNull<ibv_cq>,
    fetcher: Fetcher,
    ledger: Arc<Ledger>,
    inbox: Lock<Inbox>,
    sleepers: Sleepers,
    /// Ends the sleep of a thread that waits for work, see [`wait_for_work`](Self::wait_for_work).
    /// Made for the first of them.
    call: OnceLock<Signal>,
    /// Whether a driver has the channel's events.
    driven: AtomicBool,
    /// Whether reading the channel does not wait (`O_NONBLOCK`).
    nonblocking: AtomicBool,
    /// Whether only completions that the peer marked, and failures, make events.
    solicited_only: AtomicBool,
    /// Whether it is destroyed with this.
    owned: bool,
}

// SAFETY: C's queues and channels may be used by several threads at once.
unsafe impl Send for Queue {}
// SAFETY: C's queues and channels may be used by several threads at once.
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

    /// A queue on a channel with others. Its events are taken with
    /// [`CompletionChannel::next_queue`]; here it counts as driven.
    pub(crate) fn shared(
        channel: &Arc<CompletionChannel>,
        entries: u32,
        timestamps: Timestamps,
    ) -> Result<Arc<Self>> {
        let new = Self::create(channel, entries, (timestamps, true))?;
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
        let made = Fetcher::create(&channel.device, entries, channel.raw, timestamps)?;
        Ok(Arc::new(Self::of_parts(channel, made, driven, true)))
    }

    /// A queue that C has made of the device, and its channel. Both are destroyed with it if it
    /// owns them.
    ///
    /// # Safety
    /// A live queue, of which C knows no work, and whose events C does not read.
    pub(super) unsafe fn adopt(
        device: &Arc<OpenDevice>,
        raw: NonNull<ibv_cq>,
        owned: bool,
    ) -> Result<Arc<Self>> {
        // SAFETY: the field of a live queue does not change.
        if unsafe { (*raw.as_ptr()).context } != device.raw.as_ptr() {
            return Err(Error::Misuse("the completion queue is of another context"));
        }
        // SAFETY: a live queue.
        let channel = unsafe { CompletionChannel::of_raw_queue(device, raw, owned) }?;
        let new = Self::of_parts(&channel, (raw, Fetcher::Plain), false, owned);
        Ok(Arc::new(new))
    }

    fn of_parts(
        channel: &Arc<CompletionChannel>,
        (raw, fetcher): (NonNull<ibv_cq>, Fetcher),
        driven: bool,
        owned: bool,
    ) -> Self {
        Self {
            device: Arc::clone(&channel.device),
            channel: Arc::clone(channel),
            raw,
            fetcher,
            ledger: Ledger::own(),
            inbox: Lock::default(),
            sleepers: Sleepers::default(),
            call: OnceLock::new(),
            driven: AtomicBool::new(driven),
            nonblocking: AtomicBool::new(false),
            solicited_only: AtomicBool::new(false),
            owned,
        }
    }

    /// Whether it is of this context.
    pub(super) fn is_of(&self, device: &OpenDevice) -> bool {
        self.device.is(device)
    }

    /// Returns the ledger of posted work.
    #[inline(always)]
    pub(crate) fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    #[inline(always)]
    pub(super) fn inbox(&self) -> LockGuard<'_, Inbox> {
        self.inbox.lock()
    }

    /// Takes up to a batch of completions off the device. The caller has the inbox.
    #[inline(always)]
    pub(super) fn fetch(&self, place: &mut PollBuffer) -> Result<()> {
        self.fetcher.fetch(&self.device, self.raw, place)?;
        if place.has_failed() {
            failures::note(&self.device, place.fetched_mut());
        }
        Ok(())
    }

    /// Tells sleepers that completions were brought to their readers. The caller has the inbox.
    #[inline(always)]
    pub(super) fn delivered_by(&self, _inbox: &LockGuard<'_, Inbox>) {
        self.sleepers.delivered();
    }

    /// Tells sleepers that work ended otherwise than by a completion, or that they are to look
    /// again.
    pub(super) fn delivered(&self) {
        self.delivered_by(&self.inbox());
        // After the count has changed: a thread that lowers the signal looks at that.
        if let Some(call) = self.call.get() {
            call.raise();
        }
    }

    /// Which completions make events from the next time on that it is armed.
    pub(crate) fn set_solicited_only(&self, only: bool) {
        self.solicited_only.store(only, Ordering::Release);
    }

    /// `ibv_req_notify_cq`: the next completion makes an event.
    pub(crate) fn arm(&self) -> Result<()> {
        // SAFETY: an open context has its operations filled in, and does not change them.
        let req_notify_cq = unsafe { (*self.device.raw.as_ptr()).ops.req_notify_cq };
        let req_notify_cq =
            req_notify_cq.ok_or(Error::Misuse("the device has no ibv_req_notify_cq"))?;
        let solicited_only = self.solicited_only.load(Ordering::Acquire).into();
        // SAFETY: a live queue.
        Error::check("ibv_req_notify_cq", unsafe {
            req_notify_cq(self.raw.as_ptr(), solicited_only)
        })
    }

    /// Makes sure that the next completion makes an event, and delivers what completed before that.
    ///
    /// A queue that holds a completion when it is armed raises its event at once, and the driver
    /// would wake for nothing. So the caller has emptied it.
    pub(crate) fn arm_and_deliver(&self) -> Result<()> {
        self.arm()?;
        self.deliver().map(drop)
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
        // A thread that sleeps now would wait for events that the driver takes.
        let _nobody_sleeps = self.sleepers.keep_awake().ok_or(Error::Misuse(
            "a thread is waiting for completions of the queue",
        ))?;
        if self.driven.swap(true, Ordering::AcqRel) {
            return Err(Error::Misuse("the completion queue has a driver already"));
        }
        self.set_nonblocking(true)
    }

    /// The driver is gone.
    pub(crate) fn end_driving(&self) {
        // It can only fail for a descriptor that is not open, and this one is.
        let _ = self.set_nonblocking(false);
        self.driven.store(false, Ordering::Release);
        // Threads that relied on the driver sleep by themselves now.
        self.delivered();
    }

    /// Whether reading the channel waits. For its driver, or the thread that sleeps.
    fn set_nonblocking(&self, nonblocking: bool) -> Result<()> {
        if self.nonblocking.swap(nonblocking, Ordering::AcqRel) == nonblocking {
            return Ok(());
        }
        self.channel.set_nonblocking(nonblocking)
    }

    /// `poll(2)`: sleeps until there are events, the time is over, or a signal comes.
    pub(crate) fn wait_readable(&self, limit: Duration) -> Result<()> {
        descriptor::wait_one(self.as_fd(), limit)
    }

    /// Whether a driver has the channel's events.
    pub(crate) fn is_driven(&self) -> bool {
        self.driven.load(Ordering::Acquire)
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
        if !self.owned {
            return;
        }
        // SAFETY: made by C; queue pairs held this object, and every event is acknowledged
        // as it is taken.
        unsafe { (self.device.verbs.ibv_destroy_cq)(self.raw.as_ptr()) };
    }
}
