//! Service ids of IP port spaces and the RDMA IP CM header (IBTA annex A11).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Number of a service. For IP port spaces: port space in bits 16..32, port in bits 0..16.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct ServiceId(pub u64);

impl ServiceId {
    /// The service at a port of a port space (`enum rdma_port_space`).
    #[must_use]
    pub const fn new(port_space: u16, port: u16) -> Self {
        Self((port_space as u64) << 16 | port as u64)
    }

    /// Port space and port, `None` if it is no service of an IP port space.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "each takes its own 16 bits"
    )]
    pub const fn port(self) -> Option<(u16, u16)> {
        if self.0 >> 32 != 0 {
            return None;
        }
        Some(((self.0 >> 16) as u16, self.0 as u16))
    }
}

impl core::fmt::Debug for ServiceId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "service {:#x}", self.0)
    }
}

/// First 36 bytes of the private data of REQ and `SIDR_REQ` in IP port spaces. They hold the
/// address that connects, and the one that it connects to.
///
/// The destination port is not here; it is in the [`ServiceId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpCmHeader {
    /// Source address and port.
    pub src: SocketAddr,
    /// Destination address, of the same family.
    pub dst: IpAddr,
}

/// Why private data does not begin with an RDMA IP CM header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IpCmHeaderError {
    /// Fewer bytes than the header has.
    #[error("private data is shorter than the RDMA IP CM header")]
    TooShort,
    /// Header version other than 0.
    #[error("RDMA IP CM header version {0}, only 0 is known")]
    Version(u8),
    /// IP version other than 4 and 6.
    #[error("RDMA IP CM header for IP version {0}")]
    IpVersion(u8),
}

impl IpCmHeader {
    /// Length in bytes.
    pub const LEN: usize = 36;

    /// Reads the header from the front of private data.
    ///
    /// # Errors
    /// [`IpCmHeaderError`]: the request must be rejected.
    pub fn parse(private_data: &[u8]) -> Result<Self, IpCmHeaderError> {
        let Some(header) = private_data.first_chunk::<{ Self::LEN }>() else {
            return Err(IpCmHeaderError::TooShort);
        };
        // Linux's `rdma_cm` rejects a request with another version, too.
        if header[0] != 0 {
            return Err(IpCmHeaderError::Version(header[0]));
        }
        let version = header[1] >> 4;
        let port = u16::from_be_bytes([header[2], header[3]]);
        let (mut src, mut dst) = ([0; 16], [0; 16]);
        src.copy_from_slice(&header[4..20]);
        dst.copy_from_slice(&header[20..36]);
        let ip = |bytes: [u8; 16]| match version {
            // An IPv4 address is in the last 4 bytes, without the prefix of a mapped one.
            4 => Ok(IpAddr::V4(Ipv4Addr::new(
                bytes[12], bytes[13], bytes[14], bytes[15],
            ))),
            6 => Ok(IpAddr::V6(Ipv6Addr::from(bytes))),
            other => Err(IpCmHeaderError::IpVersion(other)),
        };
        Ok(Self {
            src: SocketAddr::new(ip(src)?, port),
            dst: ip(dst)?,
        })
    }

    /// The header's bytes. If the families differ (a caller's mistake), both addresses are written
    /// as IPv6.
    #[must_use]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut header = [0; Self::LEN];
        header[2..4].copy_from_slice(&self.src.port().to_be_bytes());
        if let (IpAddr::V4(src), IpAddr::V4(dst)) = (self.src.ip(), self.dst) {
            header[1] = 4 << 4;
            header[16..20].copy_from_slice(&src.octets());
            header[32..36].copy_from_slice(&dst.octets());
        } else {
            header[1] = 6 << 4;
            header[4..20].copy_from_slice(&ipv6(self.src.ip()).octets());
            header[20..36].copy_from_slice(&ipv6(self.dst).octets());
        }
        header
    }
}

fn ipv6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}
