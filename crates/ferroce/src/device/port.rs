//! Ports and their addresses.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use ferroce_abi::types::{
    IBV_GID_TYPE_IB, IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2, IBV_LINK_LAYER_ETHERNET,
    IBV_PORT_ACTIVE, IBV_PORT_DOWN, ibv_gid_entry, ibv_port_attr,
};

use crate::device::limits::limit;

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
    /// Link layer of the port.
    pub link_layer: LinkLayer,
    /// Entries of its GID table, empty ones included.
    pub gid_table_length: u32,
    /// Bytes of the longest message; of UD it is [`active_mtu`](Self::active_mtu).
    pub max_message: u32,
}

/// Whether a port can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortState {
    /// No packet can pass.
    Down,
    /// Packets can pass.
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

/// Link layer of a port.
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
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::device::GidType;
/// for device in ferroce::device::devices()? {
///     for entry in device.open()?.gids(1)? {
///         // What queue pairs of RoCE v2 over IPv4 name.
///         if let (GidType::RoceV2, Some(address)) = (entry.kind, entry.gid.ipv4()) {
///             println!("{}, entry {}: {address}", device.name(), entry.index);
///         }
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidEntry {
    /// Its index, which connections name.
    pub index: u32,
    /// The address.
    pub gid: Gid,
    /// Format of packets that use it.
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
