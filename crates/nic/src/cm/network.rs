//! What becomes of identifiers when interfaces and addresses go.

use std::sync::Arc;

use super::service::{CmService, Work};
use super::state::IdState;
use super::{EventKind, EventParam};
use crate::Device;

/// What of its source an identifier still has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Footing {
    #[default]
    Firm,
    /// The device is there, the address is not.
    NoAddress,
    /// The interface is gone.
    NoDevice,
}

impl CmService {
    /// Devices or their addresses have changed.
    pub(crate) fn on_network_change(&self) {
        self.step(|work| work.look_at_footings());
    }
}

impl Work<'_> {
    /// Tells the owner of each identifier that lost its device (`DEVICE_REMOVAL`) or its address
    /// (`ADDR_CHANGE`), once.
    fn look_at_footings(&mut self) {
        let devices = self.host.devices();
        let mut lost = Vec::new();
        for (&key, id) in &mut self.state.ids {
            let now = footing(id, &devices);
            let before = std::mem::replace(&mut id.footing, now);
            match now {
                _ if now == before => {}
                Footing::Firm => {}
                Footing::NoAddress => lost.push((key, EventKind::AddrChange)),
                Footing::NoDevice => lost.push((key, EventKind::DeviceRemoval)),
            }
        }
        for (key, kind) in lost {
            self.tell(key, kind, 0, EventParam::None);
        }
    }
}

fn footing(id: &IdState, devices: &[Arc<Device>]) -> Footing {
    let Some(device) = &id.device else {
        return Footing::Firm;
    };
    if !devices.iter().any(|d| Arc::ptr_eq(d, device)) {
        return Footing::NoDevice;
    }
    match id.src {
        Some(src) if !device.has_address(src.ip()) => Footing::NoAddress,
        _ => Footing::Firm,
    }
}
