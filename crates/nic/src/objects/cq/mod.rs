//! Completion queues and completion channels.

mod armed_polls;
mod arming;
mod channel;
mod delivery;
mod entry;
#[cfg(test)]
mod model;
mod moderation;
mod owing;
mod ring;
mod ring_flags;
mod timestamps;

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use ferroce_os::clock;
use ferroce_os::lock::{Lock, LockGuard};
use ferroce_proto::ids::Qpn;
use ferroce_proto::time::Time;
use ferroce_proto::verbs::{AsyncEvent, Wc};

use self::armed_polls::ArmedPolls;
pub use self::channel::CompChannel;
pub(crate) use self::channel::CqEvent;
pub(crate) use self::delivery::DirectDelivery;
pub use self::entry::Entry;
use self::moderation::Moderation;
pub(crate) use self::owing::OwingChannels;
use self::ring::{PushOutcome, Ring};
use self::ring_flags::RingFlags;
pub use self::timestamps::{CompletionTimes, TimestampKinds};
pub use crate::base::device_clock::raw_clock;
use crate::base::waiter::Waiter;
use crate::objects::device::{AsyncSubject, Limit, Permit, Protocol};
use crate::{Context, Error};

/// What a completion queue does beside the usual (`ibv_create_cq_ex(3)`).
#[derive(Clone, Copy, Debug, Default)]
pub struct CqOptions {
    /// Times that completions carry.
    pub timestamps: TimestampKinds,
    /// A full queue loses its oldest completions instead of failing
    /// (`IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`).
    pub ignore_overrun: bool,
}

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    me: Weak<Self>,
    timestamps: TimestampKinds,
    context: Arc<Context>,
    channel: Option<Arc<CompChannel>>,
    cookie: AtomicUsize,
    users: AtomicUsize,
    ring: Lock<Ring>,
    /// What the ring said last, for a look without its lock.
    flags: RingFlags,
    armed_polls: ArmedPolls,
    /// The queue overflowed, and its queue pairs have not been told.
    to_fail: AtomicBool,
    _permit: Permit,
}

impl Cq {
    /// Makes a queue of at least `cqe` entries. `cookie` comes back in events.
    ///
    /// # Errors
    /// EINVAL for a size of 0 or above the device's limit.
    pub fn create(
        context: &Arc<Context>,
        cqe: u32,
        channel: Option<Arc<CompChannel>>,
    ) -> Result<Arc<Self>, Error> {
        Self::with_options(context, cqe, channel, CqOptions::default())
    }

    /// As [`create`](Self::create), with what `ibv_create_cq_ex` adds.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn with_options(
        context: &Arc<Context>,
        cqe: u32,
        channel: Option<Arc<CompChannel>>,
        options: CqOptions,
    ) -> Result<Arc<Self>, Error> {
        let capacity = check_size(context, cqe)?.max(LEAST);
        let permit = context.device().permit(Limit::Cq)?;
        if let Some(channel) = &channel {
            channel.attach();
        }
        Ok(Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            timestamps: options.timestamps,
            context: Arc::clone(context),
            channel,
            cookie: AtomicUsize::new(0),
            users: AtomicUsize::new(0),
            ring: Lock::new(Ring::new(capacity, options.ignore_overrun)),
            flags: RingFlags::default(),
            armed_polls: ArmedPolls::default(),
            to_fail: AtomicBool::new(false),
            _permit: permit,
        }))
    }

    /// The cookie that events carry; set once, before the first completion.
    pub fn set_cookie(&self, cookie: usize) {
        self.cookie.store(cookie, Ordering::Relaxed);
    }

    /// Entries.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        u32::try_from(self.ring.lock().capacity()).unwrap_or(u32::MAX)
    }

    /// Takes up to `max` completions, oldest first, giving each to `each`; returns how many. Drives
    /// progress inline when the queue is empty. `each` runs under locks of the device and must not
    /// call back into it.
    ///
    /// # Errors
    /// The queue overflowed.
    pub fn poll(&self, max: usize, each: &mut dyn FnMut(usize, &Wc)) -> Result<usize, Error> {
        self.poll_with_timestamps(max, &mut |index, wc, _| each(index, wc))
    }

    /// As [`poll`](Self::poll), with the times that the queue was asked to keep.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub fn poll_with_timestamps(
        &self,
        max: usize,
        each: &mut dyn FnMut(usize, &Wc, CompletionTimes),
    ) -> Result<usize, Error> {
        self.poll_delivering(&mut DirectDelivery::of(self, max, each))
    }

    /// As [`poll`](Self::poll), for a program that has an array: the completions are in its first
    /// places then.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    #[inline]
    pub fn poll_into(&self, array: &mut [MaybeUninit<Entry>]) -> Result<usize, Error> {
        self.poll_delivering(&mut DirectDelivery::into_array(self, array))
    }

    fn poll_delivering(&self, delivery: &mut DirectDelivery<'_>) -> Result<usize, Error> {
        let polled = self.poll_once(delivery);
        if self.flags.is_armed() && !delivery.is_full() && self.armed_polls.sleep_follows() {
            self.on_armed_and_empty();
        }
        polled
    }

    /// An armed queue has nothing more for a program: that will sleep.
    #[cold]
    fn on_armed_and_empty(&self) {
        if self
            .channel
            .as_ref()
            .is_some_and(|channel| channel.is_open())
        {
            self.context.engine().rest_at_door();
        }
    }

    fn poll_once(&self, delivery: &mut DirectDelivery<'_>) -> Result<usize, Error> {
        if self.flags.has_news() {
            self.take(delivery)?;
        }
        if delivery.delivered() > 0 || delivery.is_full() {
            if delivery.delivered() > 0 && !self.flags.is_armed() {
                self.context.services().on_poll_of_queued();
                let waits = delivery.has_sent() && !self.flags.has_news();
                if waits && self.context.device().protocol() == Protocol::Iwarp {
                    self.context.engine().await_answer();
                }
            }
            return Ok(delivery.delivered());
        }
        let is_armed = self.flags.is_armed();
        if is_armed {
            self.armed_polls.on_empty();
        }
        let sleeps_soon = is_armed && self.armed_polls.sleep_follows();
        if let Some(channel) = &self.channel {
            if sleeps_soon && channel.rests() {
                return Ok(0);
            }
            if channel.awaits_answer() {
                delivery.leave_acks();
            }
        }
        // The ring's lock must be free: the round may push into this very queue.
        self.context.engine().poll(sleeps_soon, delivery);
        if !delivery.is_full() && self.flags.has_news() {
            let taken = self.take(delivery);
            // What was delivered is good, whatever became of the queue since: that is told next
            // time.
            if delivery.delivered() == 0 {
                taken?;
            }
        }
        Ok(delivery.delivered())
    }

    /// Arms the queue (`ibv_req_notify_cq(3)`): one event on the channel for the next completion,
    /// or for the next solicited or failed one if `solicited_only`. If such a completion is queued
    /// and no poll has returned it, the event comes at once: programs drain events, then arm, and
    /// need not poll again. If an earlier event has told of it, no event comes on a channel that
    /// several queues share, and on any other the poll that takes it takes that event back.
    pub fn req_notify(&self, solicited_only: bool) {
        let delayed = self.change(|ring| {
            let delayed = ring.due();
            let repeats = self.channel.as_ref().is_some_and(|c| !c.is_shared());
            let at_once = ring.arm(solicited_only, repeats);
            if at_once {
                self.notify();
            }
            delayed.filter(|_| at_once)
        });
        self.context.services().end_delay(delayed, self.id());
        self.armed_polls.on_armed();
        match &self.channel {
            Some(channel) => channel.on_armed(),
            None => self.context.services().end_inline(false),
        }
    }

    /// Changes the capacity (`ibv_resize_cq`).
    ///
    /// # Errors
    /// EINVAL if more completions are queued than fit, or for 0 or above the limit.
    pub fn resize(&self, cqe: u32) -> Result<(), Error> {
        let capacity = check_size(&self.context, cqe)?;
        self.ring.lock().resize(capacity).map_err(|queued| {
            Error::invalid(format!(
                "the completion queue holds {queued} completions, more than the {cqe} asked for"
            ))
        })
    }

    /// Delays events (`ibv_modify_cq(3)`): an armed queue raises its event when `count` completions
    /// that it waits for have come or `period` microseconds after the first of them. 0 for either:
    /// no delay.
    pub fn moderate(&self, count: u16, period: u16) {
        let due = self.change(|ring| {
            let due = ring.due();
            if ring.moderate(Moderation::new(count, period)) {
                self.notify();
            }
            due
        });
        self.context.services().end_delay(due, self.id());
    }

    /// Queue pairs that use it, each counted once per queue. `ibv_destroy_cq` answers EBUSY unless
    /// 0.
    #[must_use]
    pub fn users(&self) -> usize {
        self.users.load(Ordering::Acquire)
    }

    /// The context it was made on.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Its completion channel.
    #[must_use]
    pub fn channel(&self) -> Option<&Arc<CompChannel>> {
        self.channel.as_ref()
    }

    /// Counts a queue pair in.
    pub(crate) fn attach(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a queue pair out.
    pub(crate) fn detach(&self) {
        self.users.fetch_sub(1, Ordering::AcqRel);
    }

    /// Drops the queued completions of a queue pair that starts anew: it may post the same tags
    /// again, and the old completions would be taken for those of the new work requests.
    pub(crate) fn forget(&self, qpn: Qpn) {
        self.change(|ring| {
            ring.forget(qpn);
            self.settle(ring);
        });
    }

    /// Gives a completion to the thread that polls, if it can go there, or queues it. The caller
    /// has the lock of its queue pair. Returns as [`push`](Self::push).
    #[expect(
        clippy::inline_always,
        reason = "a completion is not to go through memory"
    )]
    #[inline(always)]
    pub(crate) fn deliver(
        &self,
        wc: Wc,
        solicited: bool,
        delivery: &mut DirectDelivery<'_>,
    ) -> bool {
        if delivery.takes(self) && self.flags.is_blank() {
            delivery.push(&wc, self.timestamps.take());
            return true;
        }
        self.push(wc, solicited)
    }

    /// Queues a completion. Returns false if it found no room: the queue has then overflowed, for
    /// good.
    #[expect(
        clippy::inline_always,
        reason = "a completion is not to go through memory"
    )]
    #[inline(always)]
    pub(crate) fn push(&self, wc: Wc, solicited: bool) -> bool {
        let timestamps = self.timestamps.take();
        let mut ring = self.ring.lock();
        if ring.push_if_idle(wc, solicited, timestamps) {
            self.flags.show_news();
            return true;
        }
        let kept = wc;
        self.push_generally(ring, &kept, timestamps, solicited)
    }

    #[cold]
    fn push_generally(
        &self,
        mut ring: LockGuard<'_, Ring>,
        wc: &Wc,
        timestamps: CompletionTimes,
        solicited: bool,
    ) -> bool {
        let due = ring.due();
        let pushed = ring.push(*wc, solicited, timestamps, clock::monotonic);
        self.flags.show(&ring);
        match pushed {
            PushOutcome::Quiet => true,
            PushOutcome::Notify => {
                // Under the lock, so that a CQ that is being destroyed knows that no event comes
                // after its last completion.
                self.notify();
                self.context.services().end_delay(due, self.id());
                true
            }
            PushOutcome::NotifyAt(at) => {
                self.context.services().delay(at, self.id(), &self.me);
                true
            }
            PushOutcome::Overflowed => {
                let capacity = ring.capacity();
                drop(ring);
                tracing::warn!(target: "ferroce::cq", capacity, "completion queue overflowed: it is unusable from here");
                let subject = AsyncSubject::Cq(self.cookie.load(Ordering::Relaxed));
                self.context.push_async(AsyncEvent::CqErr, subject);
                // Others use it too. The caller has a queue pair's lock, so they have to wait for
                // the next round of progress.
                self.to_fail.store(true, Ordering::Release);
                self.context.services().delay(Time(0), self.id(), &self.me);
                false
            }
            PushOutcome::Dead => false,
        }
    }

    /// The queue is about to be destroyed and nobody uses it: not even an event that moderation
    /// delays comes from here on.
    pub fn end_events(&self) {
        self.change(|ring| {
            self.context.services().end_delay(ring.due(), self.id());
            ring.disarm();
        });
    }

    /// Changes the ring, and shows what it says then.
    fn change<R>(&self, change: impl FnOnce(&mut Ring) -> R) -> R {
        let mut ring = self.ring.lock();
        let result = change(&mut ring);
        self.flags.show(&ring);
        result
    }

    /// Puts an event on the channel. Under the lock of the ring, so that
    /// [`end_events`](Self::end_events) is the end.
    fn notify(&self) {
        if let Some(channel) = &self.channel {
            channel.push(self.cookie.load(Ordering::Relaxed));
        }
    }

    /// Completions were taken: takes the event back that repeats what has been told of them.
    #[inline]
    fn settle(&self, ring: &mut Ring) {
        if let Some(kind) = ring.end_of_repeat() {
            let cookie = self.cookie.load(Ordering::Relaxed);
            let channel = self.channel.as_ref();
            ring.repeat_ended(kind, channel.is_some_and(|c| c.take_back(cookie)));
        }
    }

    /// What tells it from others as long as it exists.
    fn id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Takes what is queued, as long as there is room for it.
    fn take(&self, delivery: &mut DirectDelivery<'_>) -> Result<(), Error> {
        let mut ring = self.ring.lock();
        let before = delivery.delivered();
        while !delivery.is_full()
            && let Some(queued) = ring.front()
        {
            delivery.push(&queued.wc, queued.timestamps);
            delivery.note_taken(&queued.wc);
            ring.drop_front();
        }
        self.settle(&mut ring);
        self.flags.show(&ring);
        if delivery.delivered() == before && ring.overflowed() {
            return Err(Error::new(
                libc::EIO,
                format!(
                    "the completion queue overflowed: it has {} entries and more completions came",
                    ring.capacity()
                ),
            ));
        }
        Ok(())
    }
}

impl Waiter for Cq {
    /// Does what the queue asked to be reminded of: an event that was delayed, or an overflow,
    /// which is the end of all queue pairs that use it (IBTA, affiliated asynchronous errors).
    fn on_turn(&self, now: Time) {
        self.change(|ring| {
            // If not: another arming has started another period in the meantime, and that has its
            // own entry.
            if ring.on_period(now).is_ok() {
                self.notify();
            }
        });
        if self.to_fail.swap(false, Ordering::AcqRel) {
            for qp in self.context.services().qps.all() {
                qp.on_overflow_of(self);
            }
        }
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        let due = self.ring.lock().due();
        self.context.services().end_delay(due, self.id());
        if let Some(channel) = &self.channel {
            channel.detach();
        }
    }
}

/// Entries of a new queue at least. Adapters round up, and programs count on it: perftest makes a
/// queue of one entry for work of which two may be done.
const LEAST: usize = 16;

fn check_size(context: &Context, cqe: u32) -> Result<usize, Error> {
    let max = context.device().attr().max_cqe;
    if cqe == 0 || cqe > max {
        return Err(Error::invalid(format!(
            "a completion queue has 1 to {max} entries, not {cqe}"
        )));
    }
    Ok(cqe as usize)
}
