//! Headers of datagrams: those of the UDP packets by which two sockets find each other, and those
//! in front of each datagram on the RDMA side.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::ids::Qpn;

/// Largest header of a datagram.
pub const MAX_HEADER: usize = HEADER_V6;

const TAG: u32 = 0x5555_5555;
const OP_DATA: u8 = 0;
const OP_CONTROL: u8 = 7;
const HEADER_V4: usize = 8;
const HEADER_V6: usize = 24;
const HELLO_V4: usize = 16;
const HELLO_V6: usize = 28;

/// What a UDP packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloKind {
    /// The first datagram to an address: it holds the sender's bytes.
    Data,
    /// The answer, which only tells the number.
    Answer,
}

/// Header of a UDP packet: it tells where datagrams for its sender go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// See [`HelloKind`].
    pub kind: HelloKind,
    /// Queue pair of the sender.
    pub qpn: Qpn,
    /// Address of the sender.
    pub address: IpAddr,
}

impl Hello {
    /// The header, and how many bytes of it count.
    #[must_use]
    pub fn to_bytes(&self) -> ([u8; HELLO_V6], usize) {
        let mut bytes = [0; HELLO_V6];
        bytes[..4].copy_from_slice(&TAG.to_be_bytes());
        bytes[5] = match self.kind {
            HelloKind::Data => OP_DATA,
            HelloKind::Answer => OP_CONTROL,
        };
        bytes[8..12].copy_from_slice(&self.qpn.get().to_be_bytes());
        let (version, length) = match self.address {
            IpAddr::V4(v4) => {
                bytes[12..16].copy_from_slice(&v4.octets());
                (4, HELLO_V4)
            }
            IpAddr::V6(v6) => {
                bytes[12..].copy_from_slice(&v6.octets());
                (6, HELLO_V6)
            }
        };
        bytes[4] = version;
        bytes[6] = length.to_be_bytes()[size_of::<usize>() - 1];
        (bytes, length)
    }

    /// Reads a packet: the header and what follows it. `None` for other packets.
    #[must_use]
    pub fn parse(packet: &[u8]) -> Option<(Self, &[u8])> {
        let fixed: &[u8; 12] = packet.first_chunk()?;
        let [t0, t1, t2, t3, version, op, length, _, q0, q1, q2, q3] = *fixed;
        if u32::from_be_bytes([t0, t1, t2, t3]) != TAG {
            return None;
        }
        let kind = match op {
            OP_DATA => HelloKind::Data,
            OP_CONTROL => HelloKind::Answer,
            _ => return None,
        };
        let (address, header) = match version {
            4 => (ipv4(packet, 12)?, HELLO_V4),
            6 => (ipv6(packet, 12)?, HELLO_V6),
            _ => return None,
        };
        let hello = Self {
            kind,
            qpn: Qpn::new(u32::from_be_bytes([q0, q1, q2, q3]) & 0x00ff_ffff),
            address,
        };
        let rest = packet.get(header..)?;
        (usize::from(length) == header).then_some((hello, rest))
    }
}

/// The header of a datagram from this address, and how many bytes of it count.
#[must_use]
pub fn header(source: SocketAddr) -> ([u8; HEADER_V6], usize) {
    let mut bytes = [0; HEADER_V6];
    bytes[2..4].copy_from_slice(&source.port().to_be_bytes());
    let (version, length) = match source {
        SocketAddr::V4(v4) => {
            bytes[4..8].copy_from_slice(&v4.ip().octets());
            (4, HEADER_V4)
        }
        SocketAddr::V6(v6) => {
            bytes[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
            bytes[8..].copy_from_slice(&v6.ip().octets());
            (6, HEADER_V6)
        }
    };
    bytes[0] = version;
    bytes[1] = length.to_be_bytes()[size_of::<usize>() - 1];
    (bytes, length)
}

/// Reads a datagram: the address of its sender and its bytes. `None` if it has no such header.
#[must_use]
pub fn parse(datagram: &[u8]) -> Option<(SocketAddr, &[u8])> {
    let &[version, length, p0, p1] = datagram.first_chunk()?;
    let (address, header) = match version {
        4 => (ipv4(datagram, 4)?, HEADER_V4),
        6 => (ipv6(datagram, 8)?, HEADER_V6),
        _ => return None,
    };
    if usize::from(length) != header {
        return None;
    }
    let port = u16::from_be_bytes([p0, p1]);
    Some((SocketAddr::new(address, port), datagram.get(header..)?))
}

fn ipv4(bytes: &[u8], at: usize) -> Option<IpAddr> {
    let octets: [u8; 4] = *bytes.get(at..)?.first_chunk()?;
    Some(Ipv4Addr::from(octets).into())
}

fn ipv6(bytes: &[u8], at: usize) -> Option<IpAddr> {
    let octets: [u8; 16] = *bytes.get(at..)?.first_chunk()?;
    Some(Ipv6Addr::from(octets).into())
}
