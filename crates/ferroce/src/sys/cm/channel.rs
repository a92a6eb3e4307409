//! Event channels.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

use ferroce_abi::cm_types::{RDMA_CM_EVENT_CONNECT_REQUEST, rdma_cm_event, rdma_event_channel};

use super::Identifier;
use super::parameters::{self, Service};
use crate::cm::ConnectionParameters;
use crate::sys::descriptor;
use crate::sys::table::Verbs;
use crate::{Error, Result};

/// An event channel.
pub(crate) struct Channel {
    pub(super) verbs: &'static Verbs,
    pub(in crate::sys) raw: NonNull<rdma_event_channel>,
    /// The identifiers of this channel, by C's address of them.
    identifiers: Mutex<HashMap<usize, Weak<Identifier>>>,
    /// Events are fetched by one thread at a time, which alone may look at the fields that fetching
    /// sets.
    fetching: Mutex<()>,
    /// Whether fetching waits for an event. C never does: the descriptor is non-blocking.
    waits: AtomicBool,
    /// Held while C takes an event, for which it may look at the queue pair of the identifier.
    taking: Mutex<()>,
    /// Whether it is destroyed with this.
    owned: bool,
}

// SAFETY: C's event channels may be used by several threads at once.
unsafe impl Send for Channel {}
// SAFETY: C's event channels may be used by several threads at once.
unsafe impl Sync for Channel {}

/// What an event said. The C event was acknowledged.
pub(crate) struct FetchedEvent {
    /// `enum rdma_cm_event_type`
    pub(crate) kind: u32,
    /// Status as C has it.
    pub(crate) status: i32,
    /// The identifier.
    pub(crate) id: usize,
    /// For a connect request: the listener, and the new identifier.
    pub(crate) request: Option<(usize, Arc<Identifier>)>,
    /// Parameters that the peer sent.
    pub(crate) parameters: ConnectionParameters,
    /// Where datagrams are to be sent.
    pub(crate) datagrams: Option<Service>,
    /// Argument of an event of the program's own.
    pub(crate) argument: Option<u64>,
}

impl Channel {
    /// `rdma_create_event_channel`
    pub(crate) fn new(verbs: &'static Verbs) -> Result<Arc<Self>> {
        // SAFETY: no arguments.
        let raw = unsafe { (verbs.rdma_create_event_channel)() };
        let raw = NonNull::new(raw).ok_or_else(|| Error::last("rdma_create_event_channel"))?;
        let new = Self::of_parts(verbs, raw, true);
        descriptor::set_nonblocking(new.as_fd().as_raw_fd(), true)?;
        Ok(Arc::new(new))
    }

    /// One that C has made, which it destroys if it owns it. Its descriptor is non-blocking from
    /// then on.
    ///
    /// # Safety
    /// A live channel of the table, whose events C does not read.
    pub(in crate::sys) unsafe fn adopt(
        verbs: &'static Verbs,
        raw: NonNull<rdma_event_channel>,
        owned: bool,
    ) -> Result<Arc<Self>> {
        // SAFETY: a live channel never changes its descriptor.
        descriptor::set_nonblocking(unsafe { (*raw.as_ptr()).fd }, true)?;
        Ok(Arc::new(Self::of_parts(verbs, raw, owned)))
    }

    fn of_parts(verbs: &'static Verbs, raw: NonNull<rdma_event_channel>, owned: bool) -> Self {
        Self {
            verbs,
            raw,
            identifiers: Mutex::default(),
            fetching: Mutex::default(),
            waits: AtomicBool::new(true),
            taking: Mutex::default(),
            owned,
        }
    }

    /// Whether fetching waits for an event.
    pub(crate) fn set_nonblocking(&self, nonblocking: bool) {
        self.waits.store(!nonblocking, Ordering::Release);
    }

    /// `rdma_get_cm_event`, then `rdma_ack_cm_event` with what it said copied. `look` runs before
    /// the acknowledgement, with whom the event is for: that identifier (of a connect request, the
    /// listener) cannot be destroyed meanwhile, nor its key be given to another one.
    pub(crate) fn next_event<T>(
        self: &Arc<Self>,
        look: impl FnOnce(usize) -> T,
    ) -> Result<(FetchedEvent, T)> {
        let _alone = self.fetching.lock().unwrap_or_else(PoisonError::into_inner);
        let event = self.wait_and_take()?;
        // SAFETY: taken just now, by the thread that fetches.
        Ok(unsafe { self.finish(event, look) })
    }

    /// [`next_event`](Self::next_event) without waiting, neither for an event nor for a thread that
    /// waits for one; none if there is none.
    pub(crate) fn try_next_event(self: &Arc<Self>) -> Result<Option<FetchedEvent>> {
        let _alone = match self.fetching.try_lock() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(alone)) => alone.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        match self.take() {
            Err(e) if e.would_block() => Ok(None),
            taken => {
                let event = taken?;
                // SAFETY: taken just now, by the thread that fetches.
                Ok(Some(unsafe { self.finish(event, |_| ()) }.0))
            }
        }
    }

    /// Copies an event, and acknowledges it.
    ///
    /// # Safety
    /// An event that was taken from this channel and not acknowledged, by the thread that fetches.
    unsafe fn finish<T>(
        self: &Arc<Self>,
        event: *mut rdma_cm_event,
        look: impl FnOnce(usize) -> T,
    ) -> (FetchedEvent, T) {
        // SAFETY: the event is there until it is acknowledged, below.
        let (fetched, known) = unsafe { self.copy(&*event) };
        let of = fetched
            .request
            .as_ref()
            .map_or(fetched.id, |(listener, _)| *listener);
        let seen = look(of);
        // SAFETY: the caller's event, which is not used any more.
        unsafe { (self.verbs.rdma_ack_cm_event)(event) };
        // Not earlier: if this is the last reference, destroying the identifier waits for the
        // acknowledgement.
        drop(known);
        (fetched, seen)
    }

    /// An event that is to be acknowledged. It is not C that waits for it: taking can be held, and
    /// waiting could not.
    fn wait_and_take(&self) -> Result<*mut rdma_cm_event> {
        loop {
            match self.take() {
                Err(e) if e.would_block() && self.waits.load(Ordering::Acquire) => {
                    descriptor::wait_one(self.as_fd(), Duration::MAX)?;
                }
                taken => return taken,
            }
        }
    }

    fn take(&self) -> Result<*mut rdma_cm_event> {
        let _taking = self.hold_events();
        let mut event = ptr::null_mut();
        // SAFETY: a live channel and a place for the answer.
        let result = unsafe { (self.verbs.rdma_get_cm_event)(self.raw.as_ptr(), &raw mut event) };
        Error::check_last("rdma_get_cm_event", result).map(|()| event)
    }

    /// While the answer is held, C takes no event.
    pub(super) fn hold_events(&self) -> MutexGuard<'_, ()> {
        self.taking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Safety
    /// An event that was fetched from this channel and not acknowledged.
    unsafe fn copy(
        self: &Arc<Self>,
        event: &rdma_cm_event,
    ) -> (FetchedEvent, Option<Arc<Identifier>>) {
        // SAFETY: the event's.
        let (parameters, datagrams) = unsafe { parameters::of_event(event) };
        let id = event.id.addr();
        let request = (event.event == RDMA_CM_EVENT_CONNECT_REQUEST)
            .then(|| {
                NonNull::new(event.id)
                    .map(|new| (event.listen_id.addr(), Identifier::adopt(self, new, true)))
            })
            .flatten();
        // In a statement of its own: the lock must be free when the last reference goes.
        let known = self.identifiers().get(&id).and_then(Weak::upgrade);
        if let Some(known) = &known {
            // SAFETY: the event names a live identifier, and this thread alone fetches events now.
            unsafe { known.note_place() };
        }
        let fetched = FetchedEvent {
            kind: event.event,
            status: event.status,
            id,
            request,
            parameters,
            datagrams,
            argument: parameters::argument(event),
        };
        (fetched, known)
    }

    /// The identifiers whose events come here, by C's address of them.
    pub(super) fn identifiers(&self) -> MutexGuard<'_, HashMap<usize, Weak<Identifier>>> {
        self.identifiers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: a live channel has an open descriptor, and never changes it.
        unsafe { BorrowedFd::borrow_raw((*self.raw.as_ptr()).fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        // SAFETY: made by C; its identifiers held this object, and every event was
        // acknowledged.
        unsafe { (self.verbs.rdma_destroy_event_channel)(self.raw.as_ptr()) };
    }
}
