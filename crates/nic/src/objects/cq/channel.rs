//! Completion channels.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Weak};

use crate::base::events::{EventQueue, Owned};
use crate::services::doors::Door;
use crate::services::lead::this_thread;
use crate::{Context, Error};

/// Events in a row that are taken without a wait by a program that still waits here now and then.
const TRUST: u8 = 8;

/// A completion channel.
#[derive(Debug)]
pub struct CompChannel {
    context: Arc<Context>,
    events: EventQueue<CqEvent>,
    door: Arc<Door>,
    /// Number of completion queues that use it.
    queues: AtomicUsize,
    /// How many more events may be taken without a wait before it is forgotten that the thread that
    /// waited here last did the device's work meanwhile; 0 if it did not.
    led: AtomicU8,
    /// That thread.
    leader: AtomicUsize,
    /// It has owed a count.
    has_owed: AtomicBool,
    me: Weak<Self>,
}

/// A queue, by its cookie, has news.
#[derive(Debug)]
pub(crate) struct CqEvent(usize);

impl Owned for CqEvent {
    type Owner = usize;

    fn owner(&self) -> usize {
        self.0
    }
}

impl Drop for CompChannel {
    fn drop(&mut self) {
        self.context.services().forget_door(&self.door);
    }
}

impl CompChannel {
    /// Makes a channel.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, Error> {
        let events = EventQueue::new()?;
        let door = Door::new(events.fd()).map_err(|e| Error::system("epoll", &e))?;
        Ok(Arc::new_cyclic(|me| Self {
            context: Arc::clone(context),
            events,
            door,
            queues: AtomicUsize::new(0),
            led: AtomicU8::new(0),
            leader: AtomicUsize::new(0),
            has_owed: AtomicBool::new(false),
            me: Weak::clone(me),
        }))
    }

    /// The descriptor that is readable while there is an event, to wait on. In non-blocking mode it
    /// may be readable without one: then [`take_count`](Self::take_count) has work to do.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.door.fd()
    }

    /// Claims one event, which [`pop`](Self::pop) takes then, and waits for one if the descriptor
    /// is in blocking mode. The calling thread does the device's work meanwhile, if no other
    /// thread does. A cancellation point: the caller owns nothing that is to be given back.
    ///
    /// # Errors
    /// EAGAIN if the descriptor is non-blocking and there is no event; EINTR when a signal came.
    pub fn take_count(&self) -> io::Result<()> {
        let taken = self.context.engine().take_count(&self.events, &self.door)?;
        self.door.on_taken(taken.is_some());
        match taken {
            Some(led) => {
                self.leader.store(this_thread(), Ordering::Relaxed);
                self.led
                    .store(if led { TRUST } else { 0 }, Ordering::Relaxed);
            }
            None => {
                let left = self.led.load(Ordering::Relaxed);
                if left > 0 {
                    self.context.services().on_leaders_visit();
                    self.led.store(left - 1, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    /// A program has armed a queue, and is about to sleep: says which thread does the device's work
    /// meanwhile.
    pub(super) fn on_armed(&self) {
        let services = self.context.services();
        let leads = self.is_led();
        // A thread that leads is in blocking mode.
        if (!leads || self.door.is_open()) && services.opens(&self.door) {
            services.end_inline(true);
            self.context.engine().expect_at_door(&self.door);
        } else {
            services.end_inline(leads);
        }
    }

    fn is_led(&self) -> bool {
        self.led.load(Ordering::Relaxed) > 0
    }

    /// Whether the calling thread does the device's work when it waits here next.
    #[inline]
    pub(super) fn is_led_by_caller(&self) -> bool {
        self.is_led() && self.leader.load(Ordering::Relaxed) == this_thread()
    }

    /// Whether the program is woken for the device's work. It will sleep from here on.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.door.is_open()
    }

    /// An armed queue is empty. Returns whether a look for work can be left out: the queue was
    /// armed just now, and what comes wakes the program.
    #[inline]
    pub(super) fn rests(&self) -> bool {
        self.is_open() && self.door.on_empty() && self.context.engine().rests_at_door()
    }

    /// Takes the oldest event: the cookie of its CQ.
    pub fn pop(&self) -> Option<usize> {
        self.events.pop().map(|event| event.0)
    }

    /// Removes the undelivered events of a CQ that is being destroyed, with their counts.
    pub fn forget(&self, cookie: usize) {
        self.events.forget(cookie);
    }

    /// A queue is polled, and empty. Returns whether a program that does the device's work when it
    /// waits has taken an event, and may still answer what came.
    #[inline]
    pub(super) fn awaits_answer(&self) -> bool {
        (self.is_open() || self.is_led()) && self.door.awaits_answer()
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

    /// Adds an event of a CQ. If the calling thread is about to take it, its count is owed.
    pub(super) fn push(&self, cookie: usize) {
        let services = self.context.services();
        // In non-blocking mode the program waits at its door, and asks only when that is readable.
        let asks_next = self.is_led_by_caller() && self.door.blocked_last();
        if !asks_next || !services.pays_later() {
            return self.events.push(CqEvent(cookie));
        }
        if !self.has_owed.swap(true, Ordering::Relaxed) {
            services.owing_channels.add(Weak::clone(&self.me));
        }
        self.events.push_owing(CqEvent(cookie));
        fence(Ordering::SeqCst);
        if !services.pays_later() {
            self.pay();
        }
    }

    /// Puts on the descriptor what is owed.
    pub(super) fn pay(&self) {
        self.events.pay();
    }
}
