//! Devices, what they can, their ports, and what happens to them.

mod event;
mod limits;
mod port;

use std::fmt;
use std::sync::Arc;

pub use event::{DeviceEvent, DeviceEventKind, DeviceEvents, EventSubject};
pub use limits::{Atomicity, DeviceLimits};
pub use port::{Gid, GidEntry, GidType, LinkLayer, PortAttributes, PortState};

use crate::Result;
use crate::sys::{DeviceHandle, OpenDevice};

/// The software devices that are there now: see [`Provider::devices`](crate::Provider::devices).
///
/// # Errors
/// The device could not be started in this process; the errno and its events (see `log`) tell why.
#[cfg(feature = "software")]
pub fn devices() -> Result<Vec<Device>> {
    crate::Provider::software().devices()
}

/// A device that can be opened.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// for device in ferroce::device::devices()? {
///     let limits = device.open()?.limits()?;
///     println!("{}: {} ports, {} queue pairs", device.name(), limits.ports, limits.max_qp);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Device(pub(crate) DeviceHandle);

impl Device {
    /// Its name (`ibv_get_device_name(3)`).
    #[must_use]
    pub fn name(&self) -> String {
        self.0.name()
    }

    /// Opens it (`ibv_open_device(3)`).
    ///
    /// # Errors
    /// Out of descriptors or memory.
    pub fn open(&self) -> Result<Context> {
        self.0.open().map(Context)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.name()).finish()
    }
}

/// An open device. Clones are the same one; it is closed when the last of them and of what was made
/// from them is gone.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::device::devices;
/// for device in devices()? {
///     let context = device.open()?;
///     let limits = context.limits()?;
///     for port in 1..=limits.ports {
///         let attributes = context.port(port)?;
///         println!("{} port {port}: {}", device.name(), attributes.state);
///         for entry in context.gids(port)? {
///             println!("  {} {}", entry.gid, entry.kind);
///         }
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Context(pub(crate) Arc<OpenDevice>);

impl Context {
    /// The device's name (`ibv_get_device_name(3)`).
    #[must_use]
    pub fn name(&self) -> String {
        self.0.name()
    }

    /// What the device can (`ibv_query_device(3)`).
    ///
    /// # Errors
    /// The device is gone.
    pub fn limits(&self) -> Result<DeviceLimits> {
        self.0
            .attributes()
            .map(|attributes| DeviceLimits::from(&attributes))
    }

    /// State of a port (`ibv_query_port(3)`); ports count from 1.
    ///
    /// # Errors
    /// EINVAL for a port that is not there.
    pub fn port(&self, port: u8) -> Result<PortAttributes> {
        self.0
            .port(port)
            .map(|attributes| PortAttributes::from(&attributes))
    }

    /// The addresses of a port, in order of their indices (`ibv_query_gid_table(3)`).
    ///
    /// # Errors
    /// EINVAL for a port that is not there.
    pub fn gids(&self, port: u8) -> Result<Vec<GidEntry>> {
        let room = self.port(port)?.gid_table_length as usize * usize::from(self.limits()?.ports);
        let entries = self.0.gids(room)?;
        Ok(entries
            .iter()
            .filter(|entry| entry.port_num == port.into())
            .map(GidEntry::from)
            .collect())
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.name()).finish()
    }
}
