//! The process-wide engine: what moves packets, which threads do so, and where programs come in.

mod dispatch;
mod entry;
mod gsi;
mod instance;
mod leave;
mod network;
mod progress;
mod start;
mod summary;
mod tell;
mod thread;
mod wait;

use std::fmt;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, OnceLock};

use ferroce_os::lock::Lock;
use ferroce_os::netlink::RouteSocket;

use self::leave::Leaving;
use self::progress::RoundState;
use crate::base::counters::Counters;
use crate::base::denials::{Asker, Denial};
use crate::cm::CmService;
use crate::objects::device::{DeviceList, Shapes};
use crate::objects::services::Services;
use crate::services::repeats::Repeats;
use crate::{Device, Error};

/// The software RDMA device of this process.
pub struct Nic {
    pub(crate) services: Arc<Services>,
    /// Tells of changes of interfaces, where the system allows it.
    network: Option<RouteSocket>,
    /// Set as soon as the engine that it belongs to exists.
    cm: OnceLock<CmService>,
    /// PSN of the next packet from QP1.
    gsi_psn: AtomicU32,
    repeats: Mutex<Repeats>,
    progress: Lock<RoundState>,
    leaving: Leaving,
}

/// Every object leads here, and from here to every object: to print one would never end.
impl fmt::Debug for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nic").finish_non_exhaustive()
    }
}

impl Nic {
    /// The process's `Nic`; the first call starts it (slot claim, sockets, progress thread). A
    /// child of `fork` starts its own.
    ///
    /// # Errors
    /// No slot left in this namespace, or the kernel refused a socket that nothing works without.
    /// UDP 4791 being taken is not an error here: same-host connections work without it, and one
    /// line on stderr says so.
    pub fn get() -> Result<Arc<Self>, Error> {
        instance::current()
    }

    /// Devices: interfaces that are up and have an address, or had when they were first seen, and
    /// are still there. In order of index; of those that were there at the start loopback is the
    /// last.
    #[must_use]
    pub fn devices(&self) -> Vec<Arc<Device>> {
        self.services.devices.all()
    }

    /// The devices for a caller that only looks: those of the running `Nic`, or those that one
    /// would have. Starts nothing.
    ///
    /// # Errors
    /// The kernel does not list its interfaces, or the file of `FERROCE_DEVICES` makes no sense.
    pub fn devices_in_sight() -> Result<Vec<Arc<Device>>, Error> {
        if let Some(nic) = instance::running() {
            return Ok(nic.devices());
        }
        let interfaces = ferroce_os::netdev::interfaces()
            .map_err(|e| Error::system("cannot list interfaces", &e))?;
        Ok(DeviceList::discover(&interfaces, Shapes::from_env()?).all())
    }

    /// What was counted for no device: packets that found no queue pair, or that were forwarded.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.services.counters
    }

    /// What a device of this process has denied, and what this process has denied for no device: a
    /// program sees only devices.
    #[must_use]
    pub fn denied_at(device: &Device, asker: Asker, why: Denial) -> u64 {
        let elsewhere =
            instance::running().map_or(0, |nic| nic.services.counters.denied(asker, why));
        device.counters().denied(asker, why) + elsewhere
    }

    /// The connection manager.
    pub(crate) fn cm(&self) -> &CmService {
        self.cm
            .get()
            .expect("invariant: set before anybody else has the engine")
    }
}
