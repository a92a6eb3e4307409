//! Asynchronous events of devices.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use ferroce_abi::types::ibv_async_event;

use super::{OpenDevice, descriptor};
use crate::{Error, Result};

/// The events of a context. Reading them never waits.
pub(crate) struct AsyncEvents(Arc<OpenDevice>);

/// An event; acknowledged when it is dropped.
pub(crate) struct AsyncEvent {
    device: Arc<OpenDevice>,
    raw: ibv_async_event,
}

// SAFETY: the event may be looked at and acknowledged by any thread.
unsafe impl Send for AsyncEvent {}
// SAFETY: the event may be looked at and acknowledged by any thread.
unsafe impl Sync for AsyncEvent {}

impl AsyncEvents {
    pub(crate) fn new(device: &Arc<OpenDevice>) -> Result<Self> {
        let new = Self(Arc::clone(device));
        descriptor::set_nonblocking(new.as_fd().as_raw_fd(), true)?;
        Ok(new)
    }

    /// `ibv_get_async_event`
    pub(crate) fn take(&self) -> Result<AsyncEvent> {
        let mut place = MaybeUninit::<ibv_async_event>::uninit();
        // SAFETY: a live context and a place for the answer.
        let result =
            unsafe { (self.0.verbs.ibv_get_async_event)(self.0.raw.as_ptr(), place.as_mut_ptr()) };
        Error::check_last("ibv_get_async_event", result)?;
        Ok(AsyncEvent {
            device: Arc::clone(&self.0),
            // SAFETY: the call succeeded.
            raw: unsafe { place.assume_init() },
        })
    }

    /// `poll(2)`: sleeps until there are events, the time is over, or a signal comes.
    pub(crate) fn wait_readable(&self, limit: Duration) -> Result<()> {
        descriptor::wait_one(self.as_fd(), limit)
    }
}

impl AsFd for AsyncEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: an open context has an open descriptor, and never changes it.
        unsafe { BorrowedFd::borrow_raw((*self.0.raw.as_ptr()).async_fd) }
    }
}

/// What an event is about. C says for each type which part of its union that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Element {
    /// C's address of a completion queue.
    CompletionQueue(usize),
    /// The number of a queue pair.
    QueuePair(u32),
    /// C's address of a shared receive queue.
    SharedReceiveQueue(usize),
    /// The number of a port.
    Port(i32),
    /// The device, or something that only C knows.
    Device,
}

impl AsyncEvent {
    /// `enum ibv_event_type`
    pub(crate) fn kind(&self) -> u32 {
        self.raw.event_type
    }

    /// Returns the object that the event is about.
    pub(crate) fn element(&self) -> Element {
        let element = self.raw.element;
        match self.raw.event_type {
            // SAFETY: events of this type are about a completion queue.
            CQ_ERR => Element::CompletionQueue(unsafe { element.cq }.addr()),
            QP_FATAL..=PATH_MIG_ERR | QP_LAST_WQE_REACHED => {
                // SAFETY: events of these types are about a queue pair, which stays until the event
                // is acknowledged and never changes its number.
                Element::QueuePair(unsafe { (*element.qp).qp_num })
            }
            SRQ_ERR | SRQ_LIMIT_REACHED => {
                // SAFETY: events of these types are about a shared receive queue.
                Element::SharedReceiveQueue(unsafe { element.srq }.addr())
            }
            PORT_ACTIVE..=SM_CHANGE | CLIENT_REREGISTER | GID_CHANGE => {
                // SAFETY: events of these types are about a port.
                Element::Port(unsafe { element.port_num })
            }
            _ => Element::Device,
        }
    }
}

/// Of `enum ibv_event_type`.
const CQ_ERR: u32 = 0;
const QP_FATAL: u32 = 1;
const PATH_MIG_ERR: u32 = 7;
const PORT_ACTIVE: u32 = 9;
const SM_CHANGE: u32 = 13;
const SRQ_ERR: u32 = 14;
const SRQ_LIMIT_REACHED: u32 = 15;
const QP_LAST_WQE_REACHED: u32 = 16;
const CLIENT_REREGISTER: u32 = 17;
const GID_CHANGE: u32 = 18;

impl Drop for AsyncEvent {
    fn drop(&mut self) {
        // SAFETY: an event that was fetched, acknowledged once.
        unsafe { (self.device.verbs.ibv_ack_async_event)(&raw mut self.raw) };
    }
}
