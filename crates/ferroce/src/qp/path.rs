//! Paths to other ports.

use std::fmt;

use crate::device::{Gid, GidEntry};
use crate::{Error, Result};

/// The way to another port (`struct ibv_ah_attr`; `ibv_create_ah(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Path {
    /// The own port, counted from 1.
    pub port: u8,
    /// The other port's address. `RoCE` needs one; none means by LID, within an `InfiniBand`
    /// subnet.
    pub gid: Option<Gid>,
    /// Index of the own address.
    pub gid_index: u8,
    /// Routers on the way at most, plus 1.
    pub hop_limit: u8,
    /// What IPv6 calls traffic class, and IPv4 type of service: 8 bits (IBTA annex A17).
    pub traffic_class: u8,
    /// What IPv6 calls flow label (RFC 8200): 20 bits.
    pub flow_label: u32,
    /// The other port's LID; 0 on Ethernet.
    pub lid: u16,
    /// Service level: 0 to 15.
    pub service_level: u8,
    /// `enum ibv_rate`; 0 for the port's own.
    pub static_rate: u8,
}

impl Path {
    /// From an own address of a port to another port's address, by at most 64 hops.
    ///
    /// # Errors
    /// [`Error::Misuse`] for an own address whose index is above 255, which the interface cannot
    /// name.
    pub fn new(port: u8, from: &GidEntry, to: Gid) -> Result<Self> {
        Ok(Self {
            port,
            gid: Some(to),
            gid_index: u8::try_from(from.index)
                .map_err(|_| Error::Misuse("GID indices above 255 cannot be used"))?,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            lid: 0,
            service_level: 0,
            static_rate: 0,
        })
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from GID index {} of port {}", self.gid_index, self.port)?;
        match self.gid {
            Some(gid) => write!(f, " to {gid}"),
            None => write!(f, " to LID {}", self.lid),
        }
    }
}
