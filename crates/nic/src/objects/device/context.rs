//! Open devices.

use std::os::fd::RawFd;
use std::sync::Arc;

use ferroce_proto::verbs::AsyncEvent;

use super::Device;
use crate::Error;
use crate::base::events::{EventQueue, Owned};
use crate::objects::services::{Engine, Services};

/// What an asynchronous event is about. The numbers are the cookies that the owner gave the
/// objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AsyncSubject {
    /// A completion queue's cookie.
    Cq(usize),
    /// A queue pair's cookie.
    Qp(usize),
    /// A shared receive queue's cookie.
    Srq(usize),
    /// A port's number.
    Port(u8),
    /// All of the device.
    Device,
}

/// An open device (`ibv_open_device`): objects belong to it and it has its own queue of
/// asynchronous events.
#[derive(Debug)]
pub struct Context {
    services: Arc<Services>,
    engine: Arc<dyn Engine>,
    device: Arc<Device>,
    events: EventQueue<(AsyncEvent, AsyncSubject)>,
}

impl Owned for (AsyncEvent, AsyncSubject) {
    type Owner = AsyncSubject;

    fn owner(&self) -> AsyncSubject {
        self.1
    }
}

impl Context {
    /// An open device, of the process whose objects share `services`.
    pub(crate) fn new(
        device: &Arc<Device>,
        services: &Arc<Services>,
        engine: Arc<dyn Engine>,
    ) -> Result<Arc<Self>, Error> {
        let context = Arc::new(Self {
            services: Arc::clone(services),
            engine,
            device: Arc::clone(device),
            events: EventQueue::new()?,
        });
        device.add_context(&context);
        device.counters().count_opened();
        Ok(context)
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Semaphore eventfd: its count is the number of queued events. Read one count (8 bytes), then
    /// [`pop_async_event`](Self::pop_async_event).
    #[must_use]
    pub fn async_fd(&self) -> RawFd {
        self.events.fd()
    }

    /// Takes the oldest event.
    pub fn pop_async_event(&self) -> Option<(AsyncEvent, AsyncSubject)> {
        self.events.pop()
    }

    /// Removes the undelivered events about an object that is being destroyed, with their counts.
    pub fn forget_async(&self, subject: AsyncSubject) {
        self.events.forget(subject);
    }

    /// What all objects of the process share.
    pub(crate) fn services(&self) -> &Arc<Services> {
        &self.services
    }

    /// Returns the engine, which makes rounds.
    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// Queues an event.
    pub(crate) fn push_async(&self, event: AsyncEvent, subject: AsyncSubject) {
        tracing::debug!(target: "ferroce::device", device = self.device.name(), ?event, ?subject, "asynchronous event");
        self.events.push((event, subject));
    }
}
