//! What devices look like: the file that `FERROCE_DEVICES` names.
//!
//! ```toml
//! others = true           # interfaces without a table keep their device
//!
//! [[device]]
//! interface = "eth0"      # required
//! name = "mlx5_0"         # default: "ferroce_" and the interface
//! count = 2               # devices on this interface, default 1
//! rate = 100              # Gbit/s, default 25
//! width = 4               # lanes, default: as adapters of this rate have them
//! numa_node = 0           # default: the interface's
//! pci = "0000:fe:00.0"    # default: none
//! ```
//!
//! A file that makes no sense is an error: a program would run on devices that its user did not ask
//! for.

mod file;
mod link;

use std::sync::OnceLock;

pub use self::link::LinkRate;
use super::protocol::{Protocol, Protocols};
use crate::Error;

/// The environment variable.
const VARIABLE: &str = "FERROCE_DEVICES";
/// Longest device name, in bytes.
pub(super) const NAME_MAX: usize = 63;

/// Address of a PCI function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PciAddress {
    /// Domain.
    pub domain: u16,
    /// Bus.
    pub bus: u8,
    /// Device, at most 31.
    pub device: u8,
    /// Function, at most 7.
    pub function: u8,
}

impl std::fmt::Display for PciAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

/// What one device shows of hardware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hardware {
    /// Speed and lanes of the port.
    pub link: LinkRate,
    /// NUMA node; `None`: that of the network interface.
    pub numa_node: Option<i32>,
    /// Address on the PCI bus; `None`: the device is on no bus.
    pub pci: Option<PciAddress>,
}

/// A device of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) interface: String,
    /// `None`: made of the interface's name.
    pub(super) name: Option<String>,
    /// Number among the devices of the interface, from 0.
    pub(super) ordinal: u32,
    /// `None`: what devices of this kind of interface have.
    pub(super) link: Option<LinkRate>,
    pub(super) numa_node: Option<i32>,
    pub(super) pci: Option<PciAddress>,
}

impl Hardware {
    /// What a device shows whose interface is on loopback or not, and has this shape in the file.
    pub(super) fn of(loopback: bool, shape: Option<&Shape>) -> Self {
        let usual = if loopback {
            LinkRate::LOOPBACK
        } else {
            LinkRate::default()
        };
        Self {
            link: shape.and_then(|shape| shape.link).unwrap_or(usual),
            numa_node: shape.and_then(|shape| shape.numa_node),
            pci: shape.and_then(|shape| shape.pci),
        }
    }
}

/// The devices of the file, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shapes {
    devices: Vec<Shape>,
    /// Interfaces that the file does not name have a device, too.
    others: bool,
    pub(super) protocols: Protocols,
}

impl Default for Shapes {
    fn default() -> Self {
        Self {
            devices: Vec::new(),
            others: true,
            protocols: Protocols::default(),
        }
    }
}

impl Shapes {
    /// What the environment asks for, read once in a process.
    ///
    /// # Errors
    /// EINVAL or the file's own error, with a reason that names the variable, the file, and what
    /// makes no sense. It is said on stderr, once.
    pub(crate) fn from_env() -> Result<&'static Self, Error> {
        static SHAPES: OnceLock<Result<Shapes, Error>> = OnceLock::new();
        let shapes = SHAPES.get_or_init(|| {
            let protocols =
                Protocols::of_process().inspect_err(|e| eprintln!("ferroce: {}", e.reason))?;
            let Some(file) = ferroce_os::environment::variable(VARIABLE) else {
                return Ok(Self::of_protocols(protocols));
            };
            let shown = file.display();
            let error = |errno, why: String| {
                let reason = format!("{VARIABLE}: {shown}: {why}; no device opens");
                eprintln!("ferroce: {reason}");
                Error::new(errno, reason)
            };
            let text = std::fs::read_to_string(&file)
                .map_err(|e| error(e.raw_os_error().unwrap_or(libc::EINVAL), e.to_string()))?;
            let shapes = file::parse(&text).map_err(|why| error(libc::EINVAL, why))?;
            Ok(Self {
                protocols,
                ..shapes
            })
        });
        shapes.as_ref().map_err(Error::clone)
    }

    /// A device for each protocol on every interface, as it is without a file.
    pub(crate) fn of_protocols(protocols: Protocols) -> Self {
        Self {
            protocols,
            ..Self::default()
        }
    }

    /// Whether there are devices that speak a protocol.
    pub(crate) fn has(&self, protocol: Protocol) -> bool {
        self.protocols.has(protocol)
    }

    /// The devices of an interface that the file asks for. `None`: it does not name the interface.
    pub(super) fn of(&self, interface: &str) -> Option<impl Iterator<Item = &Shape>> {
        let mut named = self
            .devices
            .iter()
            .filter(move |shape| shape.interface == interface)
            .peekable();
        named.peek().is_some().then_some(named)
    }

    /// Position of an interface among those of the file; those that it does not name come behind.
    pub(super) fn rank(&self, interface: &str) -> usize {
        let first = self.devices.iter().position(|s| s.interface == interface);
        first.unwrap_or(self.devices.len())
    }

    /// Whether interfaces that the file does not name have devices.
    pub(super) fn has_others(&self) -> bool {
        self.others
    }

    /// The shapes of a file's text.
    #[cfg(test)]
    pub(super) fn parse(text: &str) -> Self {
        file::parse(text).expect("a file that makes sense")
    }
}
