//! Paths to other ports, and address handles.

use std::fmt;
use std::sync::Arc;

use ferroce_abi::types::IBV_WC_GRH;

use crate::sys::{AddressObject, Sender};
use crate::{Completion, Error, Gid, GidEntry, ProtectionDomain, Result};

/// The way to another port (`struct ibv_ah_attr`; `ibv_create_ah(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// An address handle: a way for [datagrams](crate::Datagram). Clones are the same one.
#[derive(Clone)]
pub struct AddressHandle(pub(crate) Arc<AddressObject>);

impl AddressHandle {
    /// Makes one (`ibv_create_ah(3)`).
    ///
    /// # Errors
    /// EINVAL for a port, an index or a flow label that does not exist; ENETUNREACH or ETIMEDOUT if
    /// there is no way to the address.
    pub fn new(domain: &ProtectionDomain, path: &Path) -> Result<Self> {
        AddressObject::new(&domain.0, path).map(Self)
    }

    /// Makes one for the sender of a datagram that was received at a port
    /// (`ibv_create_ah_from_wc(3)`). `header` is what came in the first 40 bytes of the receive:
    /// see [`GRH_BYTES`].
    ///
    /// # Errors
    /// [`Error::Misuse`] if the completion is not of a receive that succeeded; else as
    /// [`new`](Self::new).
    pub fn of_sender(
        domain: &ProtectionDomain,
        port: u8,
        completion: &Completion,
        header: &[u8; GRH_BYTES],
    ) -> Result<Self> {
        let origin = match completion.result {
            Ok(done) => done.origin,
            Err(_) => {
                return Err(Error::Misuse("a failed receive has no sender"));
            }
        };
        let sender = Sender {
            wc_flags: if origin.has_header { IBV_WC_GRH } else { 0 },
            queue_pair: origin.queue_pair,
            slid: origin.lid,
            service_level: origin.service_level,
            path_bits: origin.path_bits,
        };
        AddressObject::of_sender(&domain.0, port, &sender, header).map(Self)
    }
}

impl fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AddressHandle")
    }
}

/// Bytes in front of each datagram that is received: room for the sender's global routing header.
/// The message follows, and the completion counts both. Whether the header is there,
/// [`Origin::has_header`] tells; on `RoCE` with IPv4 the last 20 bytes of it are the IPv4 header,
/// the others mean nothing.
pub const GRH_BYTES: usize = 40;

/// Where a datagram came from (`ibv_poll_cq(3)`). Of other completions it means nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Origin {
    /// Number of the sender's queue pair: 24 bits (`src_qp`).
    pub queue_pair: u32,
    /// Whether the first [`GRH_BYTES`] bytes hold a routing header.
    pub has_header: bool,
    /// The sender's LID; 0 on Ethernet.
    pub lid: u16,
    /// Service level: 0 to 15.
    pub service_level: u8,
    /// The lower bits of the own LID that it was sent to.
    pub path_bits: u8,
}
