//! Invariant CRC of a `RoCEv2` packet.
//!
//! The last four bytes of every datagram are an Ethernet CRC-32, least significant byte first. It
//! covers eight bytes of ones, the IP and UDP headers, and the whole transport packet. In the
//! headers the fields that routers change are set to ones.
//!
//! The IPv4 Identification is under it, yet a UDP socket can neither set nor read that field.
//! Sending is easy: Linux puts 0 there for an unconnected socket that forbids fragmentation, so
//! [`compute`] is told [`Ident::ZERO`]. For receiving, [`verify`] works the field out of the CRC
//! itself: CRC is linear. So the difference between the CRC that came and the one with
//! Identification 0 is the field multiplied by a known power of x. What does not come out as a
//! possible field is a corrupt packet. That weakens the check against random damage from 2^-32 to
//! 2^-15 where a peer numbers its packets. [`IdentHistory`] restores most of it for peers that do
//! not.

mod ident;
mod polynomial;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crc32fast::Hasher;

use super::{Bth, ROCE_UDP_PORT};
use crate::ids::Gid;

pub use ident::{Ident, IdentHistory};

/// Bytes of the ICRC at the end of each datagram.
pub const LEN: usize = 4;

/// CRC of eight bytes of ones: they stand for the routing header that this encapsulation does not
/// have.
const AFTER_ONES: u32 = 0x2144_df1c;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const UDP_LEN: usize = 8;
const PROTOCOL_UDP: u8 = 17;
/// Offset of the Identification in the IPv4 header.
const IDENT_AT: usize = 4;
/// Offset of the byte with FECN and BECN in the BTH.
const CONGESTION_AT: usize = 4;

/// The addresses of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "source and destination")]
pub enum Addresses {
    /// IPv4, without options.
    V4 { src: Ipv4Addr, dst: Ipv4Addr },
    /// IPv6, without extension headers.
    V6 { src: Ipv6Addr, dst: Ipv6Addr },
}

impl Addresses {
    /// The addresses that two GIDs stand for; `None` if one is IPv4 and the other IPv6.
    #[must_use]
    pub fn from_gids(src: Gid, dst: Gid) -> Option<Self> {
        match (src.ip(), dst.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Some(Self::V4 { src, dst }),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Some(Self::V6 { src, dst }),
            _ => None,
        }
    }
}

/// Parts of a datagram that the ICRC covers besides its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encapsulation {
    /// Addresses of the IP header.
    pub addresses: Addresses,
    /// UDP source port; the destination is always [`ROCE_UDP_PORT`].
    pub src_port: u16,
}

/// The ICRCs of datagrams of one encapsulation, one after the other: what they have in common is
/// prepared once.
#[derive(Debug)]
pub struct Icrc {
    addresses: Addresses,
    /// IP and UDP headers and BTH, with ones where the ICRC does not look.
    headers: [u8; IPV6_LEN + UDP_LEN + Bth::LEN],
    /// Where the BTH begins.
    bth_at: usize,
    /// Behind the bytes of ones.
    start: Hasher,
}

impl Icrc {
    /// Prepares ICRCs for datagrams of one encapsulation.
    #[must_use]
    pub fn new(encap: &Encapsulation) -> Self {
        let mut headers = [0; IPV6_LEN + UDP_LEN + Bth::LEN];
        let mut len = 0;
        let mut push = |part: &[u8]| {
            headers[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        };
        match encap.addresses {
            Addresses::V4 { src, dst } => {
                push(&[0x45, 0xff, 0, 0, 0, 0, 0, 0, 0xff, PROTOCOL_UDP, 0xff, 0xff]);
                push(&src.octets());
                push(&dst.octets());
            }
            Addresses::V6 { src, dst } => {
                push(&[0x6f, 0xff, 0xff, 0xff, 0, 0, PROTOCOL_UDP, 0xff]);
                push(&src.octets());
                push(&dst.octets());
            }
        }
        push(&encap.src_port.to_be_bytes());
        push(&ROCE_UDP_PORT.to_be_bytes());
        push(&[0, 0, 0xff, 0xff]);
        Self {
            addresses: encap.addresses,
            headers,
            bth_at: len,
            start: Hasher::new_with_initial(AFTER_ONES),
        }
    }

    /// The CRC as the number whose little-endian bytes go on the wire.
    fn crc(&mut self, ident: Ident, packet: &[u8]) -> u32 {
        let (headers, bth_at) = (&mut self.headers, self.bth_at);
        let udp_len = UDP_LEN + packet.len() + LEN;
        match self.addresses {
            Addresses::V4 { .. } => {
                headers[2..4].copy_from_slice(&wire_u16(IPV4_LEN + udp_len));
                headers[IDENT_AT..IDENT_AT + 4].copy_from_slice(&ident.to_bytes());
            }
            Addresses::V6 { .. } => headers[4..6].copy_from_slice(&wire_u16(udp_len)),
        }
        headers[bth_at - 4..bth_at - 2].copy_from_slice(&wire_u16(udp_len));
        let (bth, rest) = packet.split_at(packet.len().min(Bth::LEN));
        let end = bth_at + bth.len();
        headers[bth_at..end].copy_from_slice(bth);
        if bth.len() > CONGESTION_AT {
            headers[bth_at + CONGESTION_AT] = 0xff;
        }
        let mut hasher = self.start.clone();
        hasher.update(&headers[..end]);
        hasher.update(rest);
        hasher.finalize()
    }

    /// The four bytes that follow `packet` (BTH through pad) on the wire. `ident` only matters for
    /// IPv4.
    #[must_use]
    pub fn compute(&mut self, ident: Ident, packet: &[u8]) -> [u8; LEN] {
        self.crc(ident, packet).to_le_bytes()
    }

    /// As [`verify`], with a guess of the fields: the result is the same, and comes sooner if the
    /// guess is right.
    #[must_use]
    pub fn verify<'a>(&mut self, guess: Ident, datagram: &'a [u8]) -> Option<(&'a [u8], Ident)> {
        let (packet, received) = datagram.split_last_chunk()?;
        let difference = u32::from_le_bytes(*received) ^ self.crc(guess, packet);
        let Addresses::V4 { .. } = self.addresses else {
            return (difference == 0).then_some((packet, Ident::ZERO));
        };
        if difference == 0 {
            return Some((packet, guess));
        }
        let covered_from_ident = IPV4_LEN - IDENT_AT + UDP_LEN + packet.len();
        let changed = polynomial::undo_zero_bytes(difference, covered_from_ident)?;
        Ident::from_change(guess, changed.to_le_bytes()).map(|ident| (packet, ident))
    }
}

/// A length field. What does not fit is no datagram, so any value is as good as another.
fn wire_u16(len: usize) -> [u8; 2] {
    u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes()
}

/// The four bytes that follow `packet` (BTH through pad) on the wire. `ident` only matters for
/// IPv4.
#[must_use]
pub fn compute(encap: &Encapsulation, ident: Ident, packet: &[u8]) -> [u8; LEN] {
    Icrc::new(encap).compute(ident, packet)
}

/// Checks the ICRC at the end of `datagram` (BTH through ICRC). Returns the packet without it, and
/// the IPv4 fields that the sender must have used ([`Ident::ZERO`] for IPv6).
///
/// `None`: too short, or corrupt.
#[must_use]
pub fn verify<'a>(encap: &Encapsulation, datagram: &'a [u8]) -> Option<(&'a [u8], Ident)> {
    Icrc::new(encap).verify(Ident::ZERO, datagram)
}

#[cfg(test)]
mod tests;
