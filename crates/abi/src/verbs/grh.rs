//! The 40 bytes in front of a received datagram: an IPv6 header, or an IPv4 header in the last 20 of them.

use std::net::Ipv4Addr;

use ferroce_proto::ids::Gid;

/// Bytes of a GRH.
pub(super) const LEN: usize = 40;
/// Where the IPv4 header starts.
const V4: usize = 20;

/// What the header tells about a datagram's way.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Grh {
    pub(super) source: Gid,
    pub(super) destination: Gid,
    pub(super) flow_label: u32,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
}

/// Reads the header; `None` if it is neither.
pub(super) fn parse(bytes: &[u8; LEN]) -> Option<Grh> {
    // The first 20 bytes are undefined in front of IPv4, so it must be recognised first, by its checksum.
    let (head, v4) = bytes.split_at(V4);
    if v4[0] == 0x45 && checksum_is_right(v4) {
        return Some(Grh {
            source: v4_gid(v4, 12)?,
            destination: v4_gid(v4, 16)?,
            flow_label: 0,
            hop_limit: v4[8],
            traffic_class: v4[1],
        });
    }
    if head[0] >> 4 != 6 {
        return None;
    }
    let first = u32::from_be_bytes(*head.first_chunk()?);
    Some(Grh {
        source: Gid(bytes[8..24].try_into().ok()?),
        destination: Gid(bytes[24..40].try_into().ok()?),
        flow_label: first & 0x000f_ffff,
        hop_limit: head[7],
        traffic_class: ((first >> 20) & 0xff) as u8,
    })
}

/// The GID of the IPv4 address at an offset.
fn v4_gid(header: &[u8], at: usize) -> Option<Gid> {
    let octets: [u8; 4] = header.get(at..at + 4)?.try_into().ok()?;
    Some(Gid::from(Ipv4Addr::from(octets)))
}

/// Whether the header's 16-bit words, its checksum among them, add up to all ones.
fn checksum_is_right(header: &[u8]) -> bool {
    let sum: u32 = header
        .chunks_exact(2)
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
        .sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_ipv6() {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&[0x61, 0x23, 0x45, 0x67, 0, 0, 17, 64]);
        bytes[8] = 0xfe;
        bytes[39] = 1;
        let grh = parse(&bytes).unwrap();
        assert_eq!(
            (grh.traffic_class, grh.flow_label, grh.hop_limit),
            (0x12, 0x34567, 64)
        );
        assert_eq!((grh.source.0[0], grh.destination.0[15]), (0xfe, 1));
    }

    #[test]
    fn reads_ipv4_behind_garbage() {
        let mut bytes = [0x66; LEN];
        bytes[V4..].copy_from_slice(&[
            0x45, 8, 0, 60, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ]);
        let sum: u32 = bytes[V4..]
            .chunks(2)
            .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
            .sum();
        let checksum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
        bytes[V4 + 10..V4 + 12].copy_from_slice(&checksum.to_be_bytes());
        let grh = parse(&bytes).unwrap();
        assert_eq!(grh.source, Gid::from(Ipv4Addr::new(10, 0, 0, 1)));
        assert_eq!(grh.destination, Gid::from(Ipv4Addr::new(10, 0, 0, 2)));
        assert_eq!((grh.hop_limit, grh.traffic_class), (64, 8));
    }

    #[test]
    fn refuses_anything_else() {
        assert_eq!(parse(&[0x45; LEN]), None);
        assert_eq!(parse(&[0; LEN]), None);
    }
}
