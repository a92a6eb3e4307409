//! Records of packets of one queue pair. Their layout is told where that of all records is
//! ([`frame`](super::frame)).

use ferroce_proto::ids::Qpn;

use super::frame::{LinkRecord, ROUTE, low24, qpn, route, split_route};
use crate::base::addressing::Addressing;

/// Kinds of records: with a route; on the known one; a single packet there.
pub(super) const PACKETS: u8 = 2;
pub(super) const PACKETS_ON: u8 = 9;
pub(super) const PACKET_ON: u8 = 10;

/// Most packets of a record.
pub(super) const MAX_PACKETS: usize = 512;
/// Bytes of a packets record before the lengths.
pub(super) const PACKETS_HEAD: usize = 8 + ROUTE;
/// Most bytes of a packets record before the packets.
pub(super) const PACKETS_PREFIX: usize = PACKETS_HEAD + 2 * MAX_PACKETS;
/// Packets of a record of few, whose prefix is quickly made.
pub(super) const FEW_PACKETS: usize = 8;
/// Most bytes of a record of few packets before the packets.
pub(super) const FEW_PREFIX: usize = PACKETS_HEAD + 2 * FEW_PACKETS;
/// Bytes of a record of packets on the known route before the lengths.
const PACKETS_ON_HEAD: usize = 6;

/// What goes before the packets of a packets record, in room for `N` bytes: [`PACKETS_PREFIX`], or
/// [`FEW_PREFIX`].
pub(super) struct PacketsPrefix<const N: usize> {
    bytes: [u8; N],
    used: usize,
}

impl<const N: usize> PacketsPrefix<N> {
    /// For packets of one queue pair, of which `lengths` yields 1 to [`MAX_PACKETS`] lengths (or
    /// [`FEW_PACKETS`]); without `addressing` they go on the known route.
    pub(super) fn new(
        src_qpn: Qpn,
        addressing: Option<&Addressing>,
        lengths: impl Iterator<Item = usize>,
    ) -> Self {
        let mut bytes = [0; N];
        let mut used = match addressing {
            Some(_) => PACKETS_HEAD,
            None => PACKETS_ON_HEAD,
        };
        let mut count = 0u16;
        for length in lengths {
            let length =
                u16::try_from(length).expect("invariant: packets are no longer than an MTU");
            bytes[used..used + 2].copy_from_slice(&length.to_le_bytes());
            used += 2;
            count += 1;
        }
        bytes[0] = PACKETS_ON;
        bytes[1..4].copy_from_slice(&low24(src_qpn));
        bytes[4..6].copy_from_slice(&count.to_le_bytes());
        if let Some(addressing) = addressing {
            bytes[0] = PACKETS;
            bytes[6] = addressing.hop_limit;
            bytes[8..PACKETS_HEAD].copy_from_slice(&route(addressing));
        }
        Self { bytes, used }
    }

    /// The bytes.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

/// What goes before a packet that is alone in its record and goes on the known route.
pub(super) fn packet_prefix(src_qpn: Qpn) -> [u8; 4] {
    let [a, b, c] = low24(src_qpn);
    [PACKET_ON, a, b, c]
}

/// Packets of a record. The lengths add up to the bytes.
#[derive(Debug)]
pub(super) struct Packets<'a> {
    /// The queue pair that they come from.
    pub(super) src_qpn: Qpn,
    /// What would be in the IP header, without the interface; `None` for the known route.
    pub(super) addressing: Option<Addressing>,
    /// Lengths of the packets; `None` if there is one packet.
    pub(super) lengths: Option<&'a [[u8; 2]]>,
    bytes: &'a [u8],
}

impl<'a> Packets<'a> {
    /// Each packet, none empty.
    pub(super) fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.bytes;
        let alone = self.lengths.is_none().then_some(rest);
        let several = self.lengths.unwrap_or_default().iter();
        alone.into_iter().chain(several.map_while(move |length| {
            let (packet, after) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
            rest = after;
            Some(packet)
        }))
    }

    /// Returns the number of packets.
    pub(super) fn len(&self) -> usize {
        self.lengths.map_or(1, <[_]>::len)
    }
}

/// Reads a record that is a single packet on the known route: the queue pair that it comes from,
/// and the packet.
#[inline]
pub(super) fn parse_single(record: &[u8]) -> Option<(Qpn, &[u8])> {
    match record.split_first_chunk()? {
        (&[PACKET_ON, q0, q1, q2], packet) if !packet.is_empty() => {
            Some((qpn([q0, q1, q2]), packet))
        }
        _ => None,
    }
}

pub(super) fn parse_packets(record: &[u8]) -> Option<LinkRecord<'_>> {
    let (&[_, q0, q1, q2, n0, n1, hop_limit, 0], rest) = record.split_first_chunk()? else {
        return None;
    };
    let (addressing, rest) = split_route(hop_limit, rest)?;
    let (lengths, bytes) = split_lengths([n0, n1], rest)?;
    Some(LinkRecord::Packets(Packets {
        src_qpn: qpn([q0, q1, q2]),
        addressing: Some(addressing),
        lengths: Some(lengths),
        bytes,
    }))
}

pub(super) fn parse_packets_on(record: &[u8]) -> Option<LinkRecord<'_>> {
    let (&[_, q0, q1, q2, n0, n1], rest) = record.split_first_chunk()?;
    let (lengths, bytes) = split_lengths([n0, n1], rest)?;
    Some(LinkRecord::Packets(Packets {
        src_qpn: qpn([q0, q1, q2]),
        addressing: None,
        lengths: Some(lengths),
        bytes,
    }))
}

pub(super) fn parse_packet_on(record: &[u8]) -> Option<LinkRecord<'_>> {
    let (src_qpn, bytes) = parse_single(record)?;
    Some(LinkRecord::Packets(Packets {
        src_qpn,
        addressing: None,
        lengths: None,
        bytes,
    }))
}

/// The lengths of so many packets, and the packets, which have just these.
fn split_lengths(count: [u8; 2], rest: &[u8]) -> Option<(&[[u8; 2]], &[u8])> {
    let count = usize::from(u16::from_le_bytes(count));
    if !(1..=MAX_PACKETS).contains(&count) {
        return None;
    }
    let (lengths, bytes) = rest.split_at_checked(2 * count)?;
    let (lengths, _) = lengths.as_chunks();
    let mut sum = 0;
    for length in lengths {
        let length = usize::from(u16::from_le_bytes(*length));
        if length == 0 {
            return None;
        }
        sum += length;
    }
    (sum == bytes.len()).then_some((lengths, bytes))
}
