//! The first 40 bytes of a receive buffer: the GRH of the datagram, or the IP header that stands
//! for it.

use crate::ids::Gid;

/// Bytes in front of the payload in every UD receive buffer.
pub const GRH_LEN: usize = 40;

/// Where the IPv4 header starts.
const V4: usize = 20;
/// Next header and protocol number of UDP.
const UDP: u8 = 17;
const UDP_HEADER: u16 = 8;
const ICRC: u16 = 4;

/// What the IP header of a packet said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrhRoute {
    /// Source address.
    pub src: Gid,
    /// Destination address, which may be a group.
    pub dst: Gid,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// TOS or traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits; 0 over IPv4.
    pub flow_label: u32,
}

impl GrhRoute {
    /// The kind of packet that this is the way of. Bit 3 says that it is in UDP; bits 2:0 are 1 for
    /// IPv6 and 2 for IPv4. A receiver cannot tell from the GRH alone, since 20 of its bytes say
    /// nothing over IPv4.
    #[must_use]
    pub fn packet_type(&self) -> u8 {
        if self.src.ip().is_ipv4() {
            0b1010
        } else {
            0b1001
        }
    }

    /// The header in front of a datagram of `packet_len` bytes (BTH through pad). It is an IPv6
    /// header, or an IPv4 header in the last 20 bytes, where `ibv_init_ah_from_wc(3)` looks for it
    /// by its checksum. The 20 bytes before that are 0.
    pub(super) fn grh(&self, packet_len: usize) -> [u8; GRH_LEN] {
        let udp_len = u16::try_from(packet_len)
            .unwrap_or(u16::MAX)
            .saturating_add(UDP_HEADER + ICRC);
        if self.src.ip().is_ipv4() {
            self.ipv4(udp_len.saturating_add(20))
        } else {
            self.ipv6(udp_len)
        }
    }

    fn ipv6(&self, payload_len: u16) -> [u8; GRH_LEN] {
        let mut out = [0; GRH_LEN];
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0x000f_ffff;
        out[..4].copy_from_slice(&first.to_be_bytes());
        out[4..6].copy_from_slice(&payload_len.to_be_bytes());
        (out[6], out[7]) = (UDP, self.hop_limit);
        out[8..24].copy_from_slice(&self.src.0);
        out[24..].copy_from_slice(&self.dst.0);
        out
    }

    fn ipv4(&self, total_len: u16) -> [u8; GRH_LEN] {
        let mut out = [0; GRH_LEN];
        let v4 = &mut out[V4..];
        (v4[0], v4[1]) = (0x45, self.traffic_class);
        v4[2..4].copy_from_slice(&total_len.to_be_bytes());
        // Do not fragment; the Identification is unknown here and counts as 0.
        v4[6] = 0x40;
        (v4[8], v4[9]) = (self.hop_limit, UDP);
        v4[12..16].copy_from_slice(&self.src.0[12..]);
        v4[16..].copy_from_slice(&self.dst.0[12..]);
        let checksum = u16::try_from(folded_sum(v4)).map_or(0, |sum| !sum);
        v4[10..12].copy_from_slice(&checksum.to_be_bytes());
        out
    }

    /// Reads the header that `grh` wrote, or a device's; `None` if it is neither an IPv6 nor an
    /// IPv4 header.
    #[must_use]
    pub fn parse(bytes: &[u8; GRH_LEN]) -> Option<Self> {
        // The first 20 bytes are undefined in front of IPv4, so it must be recognised first, by its
        // checksum.
        let (head, v4) = bytes.split_at(V4);
        if v4[0] == 0x45 && folded_sum(v4) == 0xffff {
            return Some(Self {
                src: v4_gid(v4, 12)?,
                dst: v4_gid(v4, 16)?,
                flow_label: 0,
                hop_limit: v4[8],
                traffic_class: v4[1],
            });
        }
        if head[0] >> 4 != 6 {
            return None;
        }
        let first = u32::from_be_bytes(*head.first_chunk()?);
        Some(Self {
            src: Gid(bytes[8..24].try_into().ok()?),
            dst: Gid(bytes[24..40].try_into().ok()?),
            flow_label: first & 0x000f_ffff,
            hop_limit: head[7],
            traffic_class: ((first >> 20) & 0xff) as u8,
        })
    }
}

/// The GID of the IPv4 address at an offset.
fn v4_gid(header: &[u8], at: usize) -> Option<Gid> {
    let octets: [u8; 4] = header.get(at..at + 4)?.try_into().ok()?;
    Some(Gid::from(core::net::Ipv4Addr::from(octets)))
}

/// The ones' complement sum of the header's 16-bit words, not inverted.
fn folded_sum(header: &[u8]) -> u32 {
    let sum: u32 = header
        .chunks_exact(2)
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
        .sum();
    // At most ten words: one fold leaves at most 17 bits, the second none above 16.
    let folded = (sum & 0xffff) + (sum >> 16);
    (folded & 0xffff) + (folded >> 16)
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    #[test]
    fn reads_ipv6() {
        let mut bytes = [0; GRH_LEN];
        bytes[..8].copy_from_slice(&[0x61, 0x23, 0x45, 0x67, 0, 0, 17, 64]);
        bytes[8] = 0xfe;
        bytes[39] = 1;
        let grh = GrhRoute::parse(&bytes).unwrap();
        assert_eq!(
            (grh.traffic_class, grh.flow_label, grh.hop_limit),
            (0x12, 0x34567, 64)
        );
        assert_eq!((grh.src.0[0], grh.dst.0[15]), (0xfe, 1));
    }

    #[test]
    fn reads_ipv4_behind_garbage() {
        let mut bytes = [0x66; GRH_LEN];
        bytes[V4..].copy_from_slice(&[
            0x45, 8, 0, 60, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ]);
        let sum: u32 = bytes[V4..]
            .chunks(2)
            .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
            .sum();
        let checksum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
        bytes[V4 + 10..V4 + 12].copy_from_slice(&checksum.to_be_bytes());
        let grh = GrhRoute::parse(&bytes).unwrap();
        assert_eq!(grh.src, Gid::from(Ipv4Addr::new(10, 0, 0, 1)));
        assert_eq!(grh.dst, Gid::from(Ipv4Addr::new(10, 0, 0, 2)));
        assert_eq!((grh.hop_limit, grh.traffic_class), (64, 8));
    }

    #[test]
    fn refuses_anything_else() {
        assert_eq!(GrhRoute::parse(&[0x45; GRH_LEN]), None);
        assert_eq!(GrhRoute::parse(&[0; GRH_LEN]), None);
    }
}
