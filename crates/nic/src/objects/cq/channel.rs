//! Completion channels.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use crate::base::events::{EventQueue, Owned};
use crate::{Context, Error};

/// Events in a row that are taken without a wait by a program that still waits here now and then.
const TRUST: u8 = 8;

/// A completion channel.
#[derive(Debug)]
pub struct CompChannel {
    context: Arc<Context>,
    events: EventQueue<CqEvent>,
    /// Number of completion queues that use it.
    queues: AtomicUsize,
    /// How many more events may be taken without a wait before it is forgotten that the thread that
    /// waited here last did the device's work meanwhile; 0 if it did not.
    led: AtomicU8,
}

/// A queue, by its cookie, has news.
#[derive(Debug)]
struct CqEvent(usize);

impl Owned for CqEvent {
    type Owner = usize;

    fn owner(&self) -> usize {
        self.0
    }
}

impl CompChannel {
    /// Makes a channel.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self {
            context: Arc::clone(context),
            events: EventQueue::new()?,
            queues: AtomicUsize::new(0),
            led: AtomicU8::new(0),
        }))
    }
    /// Semaphore eventfd: its count is the number of queued events. Read one count (8 bytes), then
    /// [`pop`](Self::pop).
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.events.fd()
    }
    /// Takes one count of the descriptor, and waits for one if it is in blocking mode. The calling
    /// thread does the device's work meanwhile, if no other thread does. A cancellation point: the
    /// caller owns nothing that is to be given back.
    ///
    /// # Errors
    /// EAGAIN if the descriptor is non-blocking and there is no count; EINTR when a signal came.
    pub fn take_count(&self) -> io::Result<()> {
        match self.context.nic().take_count(&self.events)? {
            Some(led) => self
                .led
                .store(if led { TRUST } else { 0 }, Ordering::Relaxed),
            None => {
                let left = self.led.load(Ordering::Relaxed);
                if left > 0 {
                    self.context.nic().on_leaders_visit();
                    self.led.store(left - 1, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }
    /// Whether the program is likely to do the device's work when it waits for the next event.
    pub(super) fn is_led(&self) -> bool {
        self.led.load(Ordering::Relaxed) > 0
    }
    /// Takes the oldest event: the cookie of its CQ.
    pub fn pop(&self) -> Option<usize> {
        self.events.pop().map(|event| event.0)
    }
    /// Removes the undelivered events of a CQ that is being destroyed, with their counts.
    pub fn forget(&self, cookie: usize) {
        self.events.forget(cookie);
    }
    /// Counts a completion queue in.
    pub(super) fn attach(&self) {
        self.queues.fetch_add(1, Ordering::Relaxed);
    }
    /// Counts a completion queue out.
    pub(super) fn detach(&self) {
        self.queues.fetch_sub(1, Ordering::Relaxed);
    }
    /// True if several completion queues use it. A program makes its queues before it arms them, so
    /// no order with other memory is needed.
    pub(super) fn is_shared(&self) -> bool {
        self.queues.load(Ordering::Relaxed) > 1
    }
    /// Takes the newest event of a CQ back. Returns false if there is none that no consumer has
    /// taken.
    pub(super) fn take_back(&self, cookie: usize) -> bool {
        self.events.take_back(cookie)
    }
    pub(super) fn push(&self, cookie: usize) {
        self.events.push(CqEvent(cookie));
    }
}
