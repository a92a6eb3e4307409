//! Devices, ports, addresses.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ferroce_abi::types::{
    IBV_ATOMIC_GLOB, IBV_ATOMIC_NONE, IBV_GID_TYPE_IB, IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2,
    IBV_LINK_LAYER_ETHERNET, IBV_PORT_ACTIVE, IBV_PORT_DOWN, ibv_device_attr, ibv_gid_entry,
    ibv_port_attr,
};

use crate::sys::{DeviceHandle, OpenDevice};
use crate::{Provider, Result};

/// The software devices that are there now: see [`Provider::devices`](crate::Provider::devices).
///
/// # Errors
/// The device could not be started in this process; the errno and `FERROCE_LOG` tell why.
pub fn devices() -> Result<Vec<Device>> {
    Provider::software().devices()
}

/// A device that can be opened.
#[derive(Clone)]
pub struct Device(pub(crate) DeviceHandle);

impl Device {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        self.0.name()
    }

    /// Opens it.
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

/// An open device. Clones are the same one; it is closed when the last of them and of what was made from them is gone.
#[derive(Clone)]
pub struct Context(pub(crate) Arc<OpenDevice>);

impl Context {
    /// The device's name.
    #[must_use]
    pub fn name(&self) -> String {
        self.0.name()
    }

    /// What the device can.
    ///
    /// # Errors
    /// The device is gone.
    pub fn limits(&self) -> Result<DeviceLimits> {
        self.0
            .attributes()
            .map(|attributes| DeviceLimits::from(&attributes))
    }

    /// State of a port; ports count from 1.
    ///
    /// # Errors
    /// EINVAL for a port that is not there.
    pub fn port(&self, port: u8) -> Result<PortAttributes> {
        self.0
            .port(port)
            .map(|attributes| PortAttributes::from(&attributes))
    }

    /// The addresses of a port, in order of their indices.
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

/// Limits of a device (`ibv_query_device(3)`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceLimits {
    /// Version of what would be firmware.
    pub firmware: String,
    /// Identifier of the device, unique among those that can meet.
    pub node_guid: u64,
    /// Number of ports.
    pub ports: u8,
    /// Bytes of the longest memory region.
    pub max_mr_size: u64,
    /// Memory regions.
    pub max_mr: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// Queue pairs.
    pub max_qp: u32,
    /// Work requests of one work queue.
    pub max_qp_wr: u32,
    /// Pieces of memory of one work request.
    pub max_sge: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries of one completion queue.
    pub max_cqe: u32,
    /// READs and atomics that a queue pair serves at once.
    pub max_qp_rd_atom: u32,
    /// READs and atomics that a queue pair has outstanding.
    pub max_qp_init_rd_atom: u32,
    /// Memory windows; 0 if it has none.
    pub max_mw: u32,
    /// Address handles.
    pub max_ah: u32,
    /// Shared receive queues; 0 if it has none.
    pub max_srq: u32,
    /// Receives of a shared receive queue.
    pub max_srq_wr: u32,
    /// Pieces of memory of a receive of a shared receive queue.
    pub max_srq_sge: u32,
    /// Multicast groups; 0 if it has none.
    pub max_mcast_grp: u32,
    /// Queue pairs attached to one multicast group.
    pub max_mcast_qp_attach: u32,
    /// Among whom atomic operations are atomic.
    pub atomics: Atomicity,
}

/// Among whom atomic operations on a device's memory are atomic (`enum ibv_atomic_cap`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Atomicity {
    /// There are no atomic operations.
    None,
    /// Those that this device serves.
    Device,
    /// Those and the processors'.
    Global,
}

/// C's signed limits; a negative one would be none.
fn limit(value: i32) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

impl From<&ibv_device_attr> for DeviceLimits {
    fn from(attr: &ibv_device_attr) -> Self {
        let text: Vec<u8> = attr
            .fw_ver
            .iter()
            .map(|c| c.to_ne_bytes()[0])
            .take_while(|&byte| byte != 0)
            .collect();
        Self {
            firmware: String::from_utf8_lossy(&text).into_owned(),
            node_guid: u64::from_be(attr.node_guid),
            ports: attr.phys_port_cnt,
            max_mr_size: attr.max_mr_size,
            max_mr: limit(attr.max_mr),
            max_pd: limit(attr.max_pd),
            max_qp: limit(attr.max_qp),
            max_qp_wr: limit(attr.max_qp_wr),
            max_sge: limit(attr.max_sge),
            max_cq: limit(attr.max_cq),
            max_cqe: limit(attr.max_cqe),
            max_qp_rd_atom: limit(attr.max_qp_rd_atom),
            max_qp_init_rd_atom: limit(attr.max_qp_init_rd_atom),
            max_mw: limit(attr.max_mw),
            max_ah: limit(attr.max_ah),
            max_srq: limit(attr.max_srq),
            max_srq_wr: limit(attr.max_srq_wr),
            max_srq_sge: limit(attr.max_srq_sge),
            max_mcast_grp: limit(attr.max_mcast_grp),
            max_mcast_qp_attach: limit(attr.max_mcast_qp_attach),
            atomics: match attr.atomic_cap {
                IBV_ATOMIC_NONE => Atomicity::None,
                IBV_ATOMIC_GLOB => Atomicity::Global,
                _ => Atomicity::Device,
            },
        }
    }
}

/// State of a port (`ibv_query_port(3)`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortAttributes {
    /// Whether it can be used.
    pub state: PortState,
    /// Payload bytes of a packet at most, now.
    pub active_mtu: u32,
    /// Payload bytes of a packet at most, ever.
    pub max_mtu: u32,
    /// What it is on.
    pub link_layer: LinkLayer,
    /// Entries of its GID table, empty ones included.
    pub gid_table_length: u32,
    /// Bytes of the longest message.
    pub max_message: u32,
}

/// Whether a port can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortState {
    /// It cannot.
    Down,
    /// It can.
    Active,
    /// Between the two, by its number in C.
    Other(u32),
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down => f.pad("DOWN"),
            Self::Active => f.pad("ACTIVE"),
            Self::Other(number) => f.pad(&number.to_string()),
        }
    }
}

/// What a port is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkLayer {
    /// Ethernet: `RoCE`.
    Ethernet,
    /// `InfiniBand`, or not told.
    InfiniBand,
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ethernet => "Ethernet",
            Self::InfiniBand => "InfiniBand",
        })
    }
}

impl From<&ibv_port_attr> for PortAttributes {
    fn from(attr: &ibv_port_attr) -> Self {
        let ethernet = attr.link_layer == IBV_LINK_LAYER_ETHERNET;
        Self {
            state: match attr.state {
                IBV_PORT_DOWN => PortState::Down,
                IBV_PORT_ACTIVE => PortState::Active,
                other => PortState::Other(other),
            },
            active_mtu: mtu_bytes(attr.active_mtu),
            max_mtu: mtu_bytes(attr.max_mtu),
            link_layer: if ethernet {
                LinkLayer::Ethernet
            } else {
                LinkLayer::InfiniBand
            },
            gid_table_length: limit(attr.gid_tbl_len),
            max_message: attr.max_msg_sz,
        }
    }
}

/// `enum ibv_mtu`: 1 is 256 bytes, each next one the double.
fn mtu_bytes(code: u32) -> u32 {
    128_u32.checked_shl(code).unwrap_or(0)
}

/// An entry of a GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidEntry {
    /// Its index, which connections name.
    pub index: u32,
    /// The address.
    pub gid: Gid,
    /// What packets with it look like.
    pub kind: GidType,
    /// Number of the network interface, 0 for none.
    pub interface: u32,
}

impl From<&ibv_gid_entry> for GidEntry {
    fn from(entry: &ibv_gid_entry) -> Self {
        let kind = match entry.gid_type {
            IBV_GID_TYPE_IB => GidType::Ib,
            IBV_GID_TYPE_ROCE_V1 => GidType::RoceV1,
            IBV_GID_TYPE_ROCE_V2 => GidType::RoceV2,
            other => GidType::Other(other),
        };
        Self {
            index: entry.gid_index,
            gid: Gid(entry.gid.raw),
            kind,
            interface: entry.ndev_ifindex,
        }
    }
}

/// What packets with a GID look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GidType {
    /// `InfiniBand`.
    Ib,
    /// `RoCE` over Ethernet frames.
    RoceV1,
    /// `RoCE` over UDP.
    RoceV2,
    /// One that this crate does not know, by its number in C.
    Other(u32),
}

impl fmt::Display for GidType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ib => f.pad("IB"),
            Self::RoceV1 => f.pad("RoCE v1"),
            Self::RoceV2 => f.pad("RoCE v2"),
            Self::Other(number) => f.pad(&number.to_string()),
        }
    }
}

/// An address of a port: an IPv6 address, or an IPv4 address mapped into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The IPv4 address that it stands for, if it does.
    #[must_use]
    pub fn ipv4(self) -> Option<Ipv4Addr> {
        Ipv6Addr::from(self.0).to_ipv4_mapped()
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Ipv6Addr::from(self.0), f)
    }
}

#[cfg(test)]
mod tests {
    use super::{Gid, mtu_bytes};

    #[test]
    fn mtu_codes_are_powers_of_two_from_256_on() {
        assert_eq!([1, 3, 5].map(mtu_bytes), [256, 1024, 4096]);
        assert_eq!(mtu_bytes(99), 0);
    }

    #[test]
    fn a_mapped_gid_shows_its_ipv4_address() {
        let gid = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 1]);
        assert_eq!(gid.to_string(), "::ffff:10.0.0.1");
        assert_eq!(gid.ipv4(), Some([10, 0, 0, 1].into()));
        assert_eq!(Gid([0xfe; 16]).ipv4(), None);
    }
}
