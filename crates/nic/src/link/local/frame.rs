//! Records of the local link.
//!
//! A record is what one `send` puts on the socket. All numbers are little-endian, reserved bytes
//! are zero.
//!
//! | record | bytes |
//! |---|---|
//! | hello, the first of every link | kind 1, `FRC`, version (2), slot of the sender (2), offers (see [`extras`](super::extras)) |
//! | packets of one queue pair | kind 2, source QPN (3), count (2), hop limit, reserved, traffic (4), source GID (16), destination GID (16), length of each (2 × count), packets |
//! | packet that came over the wire to the wrong process | kind 3, hop limit, reserved (2), traffic (4), source GID, destination GID, packet |
//! | MAD for QP1 | kind 4, reserved (3), source GID, destination GID, MAD (256) |
//! | notice that a packet was dropped | kind 5, QPN of its sender (3), reserved, QPN that it was for (3) |
//! | question about this process's paths, the first and only record of a connection (see `crate::survey`) | kind 32, `FRC` |
//! | packets of one queue pair on the known route | kind 9, source QPN (3), count (2), length of each (2 × count), packets |
//! | one packet on the known route | kind 10, source QPN (3), packet |
//! | about receives of an XRC shared receive queue that another process's target needs | kind 8, see [`lending`](super::lending) |
//! | about a short ring of the ring (`ferroce_os::ring`): from here what comes in it belongs to a new run, or it is offered | kind 13, short ring (low byte), 1 or 0, short ring (high byte), QPN of its sender (3), reserved, QPN that it is for (3), reserved, position or number of the offer (4) |
//! | about an XRC target that another process has opened | kind 11, see [`sharing`](super::sharing) |
//! | memory that the receiver has mapped is shared no more (see `crate::services::direct`) | kind 12, reserved (3), its number (8) |
//!
//! *Traffic* is the traffic class, times 2^20, and the flow label, as in the first word of IPv6.
//! Packets are BTH through pad. The *known route* is that of the last record of kind 2 of the same
//! ring: a short message and what goes with it fit one cache line then. [`parse`] takes nothing on
//! trust: it fails or returns only what lies inside the record.

use ferroce_os::ring::SHORT_RINGS;
use ferroce_proto::ids::{Gid, Qpn};

use super::packets::{
    PACKET_ON, PACKETS, PACKETS_ON, Packets, parse_packet_on, parse_packets, parse_packets_on,
};
use super::{Lending, Sharing};
use crate::base::addressing::Addressing;
use crate::link::Inbound;

/// Version of the format. Processes of different versions do not talk over the local link.
pub(super) const VERSION: u16 = 6;

/// Most bytes of a record that a receiver accepts.
pub(super) const MAX_RECORD: usize = 128 * 1024;
/// Bytes of a MAD.
const MAD: usize = 256;

const MAGIC: [u8; 3] = *b"FRC";
const HELLO: u8 = 1;
const FORWARDED: u8 = 3;
const MADS: u8 = 4;
const DROPPED: u8 = 5;
/// Record on the socket: all further ones come through the ring.
pub(super) const SWITCH: u8 = 6;
/// Record on the socket: there are records in the ring, which the receiver does not watch now.
pub(super) const LOOK: u8 = 7;
const LENDING: u8 = 8;
const SHARING: u8 = 11;
const UNSHARED: u8 = 12;
const SHORT_RING: u8 = 13;
const ASK: u8 = 32;

/// Record: which paths does the process have? It is answered with text.
pub(crate) const QUESTION: [u8; 4] = [ASK, MAGIC[0], MAGIC[1], MAGIC[2]];
/// Bytes of what IP says of a packet, without the hop limit.
pub(super) const ROUTE: usize = 36;
/// The bits of a flow label.
const FLOW_LABEL: u32 = 0x000f_ffff;

/// Something small to send to another process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Frame<'a> {
    /// A packet that came over the wire and is for a queue pair of that process.
    Forwarded(Inbound<'a>),
    /// A management datagram for QP1.
    Mad {
        /// Source GID.
        src: Gid,
        /// Destination GID.
        dst: Gid,
        /// The MAD.
        mad: &'a [u8; MAD],
    },
    /// A packet from that process was dropped: its destination does not exist or was not ready.
    Dropped {
        /// The packet's sender, a queue pair of that process. [`Qpn::SMI`], which is nobody's, says
        /// that these were [`RETURNED`](super::RETURNED) packets from the wire that it passed on.
        qpn: Qpn,
        /// The queue pair that it was for.
        by: Qpn,
    },
    /// About receives that one process lends to another.
    Lending(Lending<'a>),
    /// About a target that one process has opened of another.
    Sharing(Sharing<'a>),
    /// The sender's memory with this number is not shared any more. Goes to each process that has
    /// said on its board that it has mapped some.
    Unshared(u64),
    /// About a short ring of the link's ring.
    ShortRing(ShortRingNotice),
}

/// A word about a short ring of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShortRingNotice {
    /// Which.
    pub(crate) short_ring: u16,
    /// The queue pair that sends in it, of the sending process.
    pub(crate) from: Qpn,
    /// Whom it is for.
    pub(crate) to: Qpn,
    /// What is said.
    pub(crate) word: ShortRingEvent,
}

/// What is said of a short ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShortRingEvent {
    /// The short ring is offered, with a number that tells offers apart.
    Offer(u32),
    /// A run begins at a position, behind all that came through the ring before.
    Run(u32),
}

impl ShortRingNotice {
    fn encode(&self) -> Vec<u8> {
        let ([a, b, c], [d, e, f]) = (low24(self.from), low24(self.to));
        let (runs, number) = match self.word {
            ShortRingEvent::Offer(number) => (0, number),
            ShortRingEvent::Run(at) => (1, at),
        };
        let [i0, i1] = self.short_ring.to_le_bytes();
        let head = [SHORT_RING, i0, runs, i1, a, b, c, 0, d, e, f, 0];
        [&head[..], &number.to_le_bytes()].concat()
    }

    fn parse(record: &[u8]) -> Option<Self> {
        let (&[_, i0, runs, i1, a, b, c, 0, d, e, f, 0], number) = record.split_first_chunk()?
        else {
            return None;
        };
        let number = u32::from_le_bytes(number.try_into().ok()?);
        Some(Self {
            short_ring: Some(u16::from_le_bytes([i0, i1]))
                .filter(|short_ring| *short_ring < SHORT_RINGS)?,
            from: qpn([a, b, c]),
            to: qpn([d, e, f]),
            word: match runs {
                0 => ShortRingEvent::Offer(number),
                1 => ShortRingEvent::Run(number),
                _ => return None,
            },
        })
    }
}

impl Frame<'_> {
    /// The record of this frame.
    pub(super) fn encode(&self) -> Vec<u8> {
        match *self {
            Self::Forwarded(p) => {
                let [p0, p1] = p.src_port.to_le_bytes();
                let mut record = vec![FORWARDED, p.addressing.hop_limit, p0, p1];
                record.extend(route(&p.addressing));
                record.extend(p.packet);
                record
            }
            Self::Mad { src, dst, mad } => [&[MADS, 0, 0, 0][..], &src.0, &dst.0, mad].concat(),
            Self::Dropped { qpn, by } => {
                let ([a, b, c], [d, e, f]) = (low24(qpn), low24(by));
                vec![DROPPED, a, b, c, 0, d, e, f]
            }
            Self::Lending(lending) => lending.encode(LENDING),
            Self::Sharing(sharing) => sharing.encode(SHARING),
            Self::Unshared(number) => [&[UNSHARED, 0, 0, 0][..], &number.to_le_bytes()].concat(),
            Self::ShortRing(notice) => notice.encode(),
        }
    }
}

/// The hello of a process, with the bytes of its offers.
pub(super) fn hello(slot: u16, offers: &[u8]) -> Vec<u8> {
    let ([v0, v1], [s0, s1]) = (VERSION.to_le_bytes(), slot.to_le_bytes());
    let [a, b, c] = MAGIC;
    [&[HELLO, a, b, c, v0, v1, s0, s1], offers].concat()
}

/// What the receiver of a link says to the sender, in one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum RingAnswer {
    /// The receiver has taken the ring.
    Accepted = 64,
    /// The receiver does not take the ring.
    Refused = 65,
    /// The receiver has made room in the ring.
    Room = 66,
}

impl RingAnswer {
    /// The answer that a byte stands for.
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        [Self::Accepted, Self::Refused, Self::Room]
            .into_iter()
            .find(|a| *a as u8 == byte)
    }
}

/// A record.
#[derive(Debug)]
pub(super) enum LinkRecord<'a> {
    /// The link's first.
    Hello {
        version: u16,
        slot: u16,
        offers: &'a [u8],
    },
    /// Packets of one queue pair.
    Packets(Packets<'a>),
    /// All further records come through the ring.
    Switch,
    /// There are records in the ring.
    Look,
    /// Which paths are there?
    Ask,
    /// Anything else.
    Frame(Frame<'a>),
}

/// Why a record makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Nonsense {
    /// A kind that does not exist.
    #[error("record of unknown kind {0}")]
    Kind(u8),
    /// Fewer or more bytes than its kind has.
    #[error("record of kind {kind} with a wrong length of {len} bytes")]
    Length {
        /// The kind.
        kind: u8,
        /// Bytes.
        len: usize,
    },
    /// The first bytes of a hello.
    #[error("the peer is no Ferroce process")]
    Magic,
}

/// Reads a record.
pub(super) fn parse(record: &[u8]) -> Result<LinkRecord<'_>, Nonsense> {
    let kind = record.first().copied().unwrap_or(0);
    let parsed = match kind {
        HELLO => return parse_hello(record),
        PACKETS => parse_packets(record),
        PACKETS_ON => parse_packets_on(record),
        PACKET_ON => parse_packet_on(record),
        FORWARDED => parse_forwarded(record),
        MADS => parse_mad(record),
        DROPPED => parse_dropped(record),
        LENDING => Lending::parse(record).map(|lending| LinkRecord::Frame(Frame::Lending(lending))),
        SHARING => Sharing::parse(record).map(|sharing| LinkRecord::Frame(Frame::Sharing(sharing))),
        UNSHARED => parse_unshared(record),
        SHORT_RING => {
            ShortRingNotice::parse(record).map(|notice| LinkRecord::Frame(Frame::ShortRing(notice)))
        }
        SWITCH => (record.len() == 1).then_some(LinkRecord::Switch),
        LOOK => (record.len() == 1).then_some(LinkRecord::Look),
        ASK => (record == QUESTION).then_some(LinkRecord::Ask),
        _ => return Err(Nonsense::Kind(kind)),
    };
    parsed.ok_or(Nonsense::Length {
        kind,
        len: record.len(),
    })
}

fn parse_unshared(record: &[u8]) -> Option<LinkRecord<'_>> {
    let (_, number) = record.split_first_chunk::<4>()?;
    let number = u64::from_le_bytes(number.try_into().ok()?);
    Some(LinkRecord::Frame(Frame::Unshared(number)))
}

fn parse_hello(record: &[u8]) -> Result<LinkRecord<'_>, Nonsense> {
    let Some((&[kind, a, b, c, v0, v1, s0, s1], offers)) = record.split_first_chunk() else {
        return Err(Nonsense::Length {
            kind: HELLO,
            len: record.len(),
        });
    };
    if kind != HELLO || [a, b, c] != MAGIC {
        return Err(Nonsense::Magic);
    }
    Ok(LinkRecord::Hello {
        version: u16::from_le_bytes([v0, v1]),
        slot: u16::from_le_bytes([s0, s1]),
        offers,
    })
}

fn parse_forwarded(record: &[u8]) -> Option<LinkRecord<'_>> {
    let (&[_, hop_limit, p0, p1], rest) = record.split_first_chunk()?;
    let (addressing, packet) = split_route(hop_limit, rest)?;
    let forwarded = Frame::Forwarded(Inbound {
        addressing,
        src_port: u16::from_le_bytes([p0, p1]),
        packet,
    });
    (!packet.is_empty()).then_some(LinkRecord::Frame(forwarded))
}

fn parse_mad(record: &[u8]) -> Option<LinkRecord<'_>> {
    let (_, rest) = record.split_first_chunk::<4>()?;
    let (src, dst, mad) = gids(rest)?;
    Some(LinkRecord::Frame(Frame::Mad {
        src,
        dst,
        mad: mad.try_into().ok()?,
    }))
}

fn parse_dropped(record: &[u8]) -> Option<LinkRecord<'_>> {
    let &[_, a, b, c, _, d, e, f] = record else {
        return None;
    };
    Some(LinkRecord::Frame(Frame::Dropped {
        qpn: qpn([a, b, c]),
        by: qpn([d, e, f]),
    }))
}

fn gids(bytes: &[u8]) -> Option<(Gid, Gid, &[u8])> {
    let (src, rest) = bytes.split_first_chunk()?;
    let (dst, rest) = rest.split_first_chunk()?;
    Some((Gid(*src), Gid(*dst), rest))
}

/// The route of a packet, without its hop limit and interface.
pub(super) fn route(addressing: &Addressing) -> [u8; ROUTE] {
    let mut bytes = [0; ROUTE];
    let traffic = u32::from(addressing.traffic_class) << 20 | addressing.flow_label & FLOW_LABEL;
    bytes[..4].copy_from_slice(&traffic.to_le_bytes());
    bytes[4..20].copy_from_slice(&addressing.src.0);
    bytes[20..].copy_from_slice(&addressing.dst.0);
    bytes
}

/// The route at the beginning of bytes, and what follows it.
pub(super) fn split_route(hop_limit: u8, bytes: &[u8]) -> Option<(Addressing, &[u8])> {
    let (traffic, rest) = bytes.split_first_chunk()?;
    let (src, dst, rest) = gids(rest)?;
    let traffic = u32::from_le_bytes(*traffic);
    let addressing = Addressing {
        src,
        dst,
        hop_limit,
        traffic_class: u8::try_from(traffic >> 20).ok()?,
        flow_label: traffic & FLOW_LABEL,
        ifindex: 0,
    };
    Some((addressing, rest))
}

pub(super) fn low24(qpn: Qpn) -> [u8; 3] {
    let [a, b, c, _] = qpn.get().to_le_bytes();
    [a, b, c]
}

pub(super) fn qpn([a, b, c]: [u8; 3]) -> Qpn {
    Qpn::new(u32::from_le_bytes([a, b, c, 0]))
}

/// Reads a record; what can be read is written again, and must be the same.
///
/// # Panics
/// It is not.
#[cfg(feature = "fuzzing")]
pub fn fuzz(record: &[u8]) {
    use super::packets::{MAX_PACKETS, PACKETS_PREFIX, PacketsPrefix, packet_prefix};

    match parse(record) {
        Ok(LinkRecord::Hello {
            version,
            slot,
            offers,
        }) if version == VERSION => {
            assert_eq!(hello(slot, offers), record);
            drop(super::extras::parse(offers, Vec::new()));
        }
        Ok(LinkRecord::Packets(packets)) => {
            assert!(packets.len() <= MAX_PACKETS && packets.iter().all(|p| !p.is_empty()));
            let lengths = packets.iter().map(<[u8]>::len);
            let route = packets.addressing.as_ref();
            let mut again = match packets.lengths {
                None => packet_prefix(packets.src_qpn).to_vec(),
                Some(_) => PacketsPrefix::<PACKETS_PREFIX>::new(packets.src_qpn, route, lengths)
                    .as_bytes()
                    .to_vec(),
            };
            packets.iter().for_each(|p| again.extend_from_slice(p));
            assert_eq!(again, record);
        }
        Ok(LinkRecord::Frame(frame)) => assert_eq!(frame.encode().len(), record.len()),
        Ok(LinkRecord::Hello { .. } | LinkRecord::Switch | LinkRecord::Look | LinkRecord::Ask)
        | Err(_) => {}
    }
}
