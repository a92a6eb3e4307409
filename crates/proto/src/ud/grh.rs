//! The first 40 bytes of a receive buffer: the GRH of the datagram, or the IP header that stands for it.

use crate::ids::Gid;

/// Bytes in front of the payload in every UD receive buffer.
pub const GRH_LEN: usize = 40;

/// Next header and protocol number of UDP.
const UDP: u8 = 17;
const UDP_HEADER: u16 = 8;
const ICRC: u16 = 4;

/// What the IP header of a packet said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
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

impl Route {
    /// The kind of packet that this is the way of: bit 3 says that it is in UDP, bits 2:0 are 1 for IPv6 and 2 for IPv4. A receiver
    /// cannot tell from the GRH alone, since 20 of its bytes say nothing over IPv4.
    #[must_use]
    pub fn packet_type(&self) -> u8 {
        if self.src.ip().is_ipv4() {
            0b1010
        } else {
            0b1001
        }
    }

    /// The header in front of a datagram of `packet_len` bytes (BTH through pad): an IPv6 header, or an IPv4 header in the last 20
    /// bytes, where `ibv_init_ah_from_wc(3)` looks for it by its checksum. The 20 bytes before that are 0.
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
        let v4 = &mut out[20..];
        (v4[0], v4[1]) = (0x45, self.traffic_class);
        v4[2..4].copy_from_slice(&total_len.to_be_bytes());
        // Do not fragment; the Identification is unknown here and counts as 0.
        v4[6] = 0x40;
        (v4[8], v4[9]) = (self.hop_limit, UDP);
        v4[12..16].copy_from_slice(&self.src.0[12..]);
        v4[16..].copy_from_slice(&self.dst.0[12..]);
        let sum: u32 = v4
            .chunks_exact(2)
            .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
            .sum();
        // At most ten words: one fold leaves at most 17 bits, the second none above 16.
        let folded = (sum & 0xffff) + (sum >> 16);
        let folded = (folded & 0xffff) + (folded >> 16);
        let checksum = u16::try_from(folded).map_or(0, |sum| !sum);
        v4[10..12].copy_from_slice(&checksum.to_be_bytes());
        out
    }
}
