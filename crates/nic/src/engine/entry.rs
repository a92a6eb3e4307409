//! Where programs come in: what needs the engine of this process, and starts it.

use std::io;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use ferroce_os::fd::is_nonblocking;
use ferroce_os::memory::SharedFile;
use ferroce_os::thread::uncancellable;
use ferroce_proto::mr::AddrRange;
use ferroce_proto::verbs::QpType;

use super::{Nic, progress};
use crate::base::events::EventQueue;
use crate::cm::PortSpace;
use crate::objects::cq::{CqEvent, DirectDelivery};
use crate::objects::services::Engine;
use crate::services::doors::Door;
use crate::{Context, Device, Error, EventChannel, Id, SharedRange};

impl Engine for Nic {
    fn poll(&self, sleeps_soon: bool, delivery: &mut DirectDelivery<'_>) {
        progress::poll(self, sleeps_soon, delivery);
    }

    fn await_answer(&self) {
        progress::await_answer(self);
    }

    fn hear(&self) {
        progress::hear(self);
    }

    fn take_count(&self, events: &EventQueue<CqEvent>, door: &Door) -> io::Result<Option<bool>> {
        self.wait_for_count(events, door)
    }

    fn expect_at_door(&self, door: &Door) {
        self.begin_rest_at_door(door);
    }

    fn rest_at_door(&self) {
        self.make_rest_at_door();
    }

    fn rests_at_door(&self) -> bool {
        self.is_at_rest()
    }

    fn on_stream_ended(&self, id: u64) {
        self.cm().on_stream_ended(id);
    }
}

impl Context {
    /// Opens a device.
    ///
    /// # Errors
    /// Out of descriptors; whatever stops [`Nic::get`] (a forked child starts its own).
    pub fn open(device: &Arc<Device>) -> Result<Arc<Self>, Error> {
        let nic = Nic::get()?;
        let services = Arc::clone(&nic.services);
        Self::new(device, &services, nic)
    }
}

impl EventChannel {
    /// Makes a channel.
    ///
    /// # Errors
    /// ENODEV without a device; out of descriptors.
    pub fn new() -> Result<Arc<Self>, Error> {
        if Nic::get()?.devices().is_empty() {
            return Err(Error::new(
                libc::ENODEV,
                "no network interface is up and has an address",
            ));
        }
        Self::without_device()
    }

    /// Waits for an event of the channel that `find` finds and claims its count, if the calling
    /// thread can do the device's work meanwhile: what comes then wakes no other thread. Returns
    /// false if it cannot, or not any more, or need not wait: read the descriptor. A cancellation
    /// point: other threads may end the channel meanwhile, so the caller owns no part of it.
    ///
    /// # Errors
    /// EINTR when a signal came.
    pub fn take_count_as_leader(find: &dyn Fn() -> Option<Arc<Self>>) -> io::Result<bool> {
        let look = |channel: Arc<Self>| {
            let waits = !channel.events().has_events() && !is_nonblocking(channel.fd());
            waits.then(|| channel.fd())
        };
        let Some(fd) = uncancellable(|| find().and_then(look)) else {
            return Ok(false);
        };
        let Ok(nic) = Nic::get() else {
            return Ok(false);
        };
        // A cancelled thread leaves this behind, which the process has to its end anyway.
        let nic = ManuallyDrop::new(nic);
        let taken = nic.lead_for_connections(fd, find);
        drop(ManuallyDrop::into_inner(nic));
        taken
    }
}

impl Id {
    /// Makes an identifier that reports to `channel`.
    ///
    /// # Errors
    /// The device cannot start.
    pub fn create(
        channel: &Arc<EventChannel>,
        ps: PortSpace,
        qp_type: QpType,
    ) -> Result<Arc<Self>, Error> {
        Nic::get()?.cm().create_id(channel, ps, qp_type)
    }
}

impl SharedRange {
    /// Peers may map the part of a file, from `offset` on, that is mapped at `mapped`.
    /// None: there is no board, or there are as many as it has places for.
    pub fn of_process(nic: &Nic, file: SharedFile, offset: u64, mapped: AddrRange) -> Option<Self> {
        Self::new(&nic.services, file, offset, mapped)
    }
}
