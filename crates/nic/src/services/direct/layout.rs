//! What is where on a board, in 64-bit words.
//!
//! | words | content |
//! |---|---|
//! | 0 .. 512 | format, nonce of the process, address of its proof, number of hazards that were ever used, its thread |
//! | 512 .. 1024 | hazards: what the process is in the middle of using of others, one in eight words (a cache line) |
//! | 1024 .. 2048 | acquaintances: per slot, the nonce of the board on which this process looks for hazards |
//! | 2048 .. 67584 | queue pairs by index, four words each: grant, protection domain, path, token of its rendezvous |
//! | 67584 .. 100352 | regions, and what windows open, a hash table by key, eight words each |
//! | 100352 .. 624640 | the same, 16 times as many, for regions that find no place in the first table |
//! | 624640 .. 626688 | memory of the process that others can map, 256 times eight words |
//! | 626688 .. | per slot, how much memory of its process this process has mapped |
//!
//! 4.8 MiB; of memory only the pages that something was looked at. The first table is small so that
//! the random keys of a program that registers and deregisters all the time do not touch more and
//! more pages; the second is looked at only while there is something in it (word 4 counts). A
//! region that finds no place there either is used by packets only, which the log tells.

use ferroce_proto::ids::{Key, PdId, Psn, Qpn};
use ferroce_proto::mr::{Access, Region};
use ferroce_proto::rc::Grant;

use crate::base::addressing::Addressing;

/// The content of the first word: changes with the layout.
pub(super) const FORMAT: u64 = u64::from_le_bytes(*b"FRCdir07");
pub(super) const AT_FORMAT: usize = 0;
pub(super) const AT_NONCE: usize = 1;
/// Where in the process's memory the nonce is (`memory::Proof`).
pub(super) const AT_PROOF: usize = 2;
pub(super) const AT_HAZARDS: usize = 3;
/// Number of regions in the second table.
pub(super) const AT_OVERFLOW: usize = 4;
/// Number of places for memory that others can map which were ever used.
pub(super) const AT_SHARES: usize = 5;
/// Number of the thread by which the kernel's copies name the process; 0: there is none.
pub(super) const AT_THREAD: usize = 6;

const HAZARD_BASE: usize = 512;
/// Hazards of a process: copies that its threads make at the same time.
pub(super) const HAZARDS: usize = 64;
const ACQUAINTANCE_BASE: usize = 1024;
const SLOTS: usize = 1024;
const QP_BASE: usize = ACQUAINTANCE_BASE + SLOTS;
const QP_WORDS: usize = 4;
const QPS: usize = 1 << 14;
const REGION_BASE: usize = QP_BASE + QPS * QP_WORDS;
const REGION_WORDS: usize = 8;
const REGIONS: usize = 1 << 12;
/// Places that a key may have in each table of regions.
pub(super) const PLACES: usize = 8;
const OVERFLOW_BASE: usize = REGION_BASE + REGIONS * REGION_WORDS;
const OVERFLOW_REGIONS: usize = 1 << 16;

const SHARE_BASE: usize = OVERFLOW_BASE + OVERFLOW_REGIONS * REGION_WORDS;
const SHARE_WORDS: usize = 8;
/// Pieces of memory of a process that others can map.
pub(super) const SHARES: usize = 256;
const MAPPED_BASE: usize = SHARE_BASE + SHARES * SHARE_WORDS;

/// Words of a board.
pub(super) const WORDS: usize = MAPPED_BASE + SLOTS;

const VALID: u64 = 1 << 63;

pub(super) const fn hazard(index: usize) -> usize {
    HAZARD_BASE + index * 8
}

pub(super) const fn acquaintance(slot: u16) -> usize {
    ACQUAINTANCE_BASE + slot as usize % SLOTS
}

/// First word of memory that others can map: its number, 0 if there is none.
pub(super) const fn share(index: usize) -> usize {
    SHARE_BASE + index % SHARES * SHARE_WORDS
}

/// Word that says how much memory of the process in a slot is mapped.
pub(super) const fn mapped(slot: u16) -> usize {
    MAPPED_BASE + slot as usize % SLOTS
}

/// First word of a queue pair.
pub(super) const fn queue_pair(qpn: Qpn) -> usize {
    QP_BASE + (qpn.get() as usize % QPS) * QP_WORDS
}

/// Word with the token of a queue pair's valid rendezvous; 0: none is valid.
pub(super) const fn rendezvous(qpn: Qpn) -> usize {
    queue_pair(qpn) + 3
}

const fn region(key: Key, place: usize) -> usize {
    REGION_BASE + ((key.0 as usize + place) % REGIONS) * REGION_WORDS
}

/// Keys that meet in the first table do not meet in this one.
const fn overflow_region(key: Key, place: usize) -> usize {
    let hash = key.0.wrapping_mul(0x9e37_79b1) >> 16;
    OVERFLOW_BASE + ((hash as usize + place) % OVERFLOW_REGIONS) * REGION_WORDS
}

/// First words of the places that a key may have, in the order in which they are tried; `overflow`:
/// those of the second table too.
pub(super) fn places(key: Key, overflow: bool) -> impl Iterator<Item = usize> {
    let second = if overflow { PLACES } else { 0 };
    let first = (0..PLACES).map(move |place| region(key, place));
    first.chain((0..second).map(move |place| overflow_region(key, place)))
}

/// Whether a place is in the second table.
pub(super) const fn is_overflow(place: usize) -> bool {
    place >= OVERFLOW_BASE
}

/// What a hazard says: a queue pair and a key of the process whose slot is in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) qpn: Qpn,
    pub(super) key: Key,
}

impl Named {
    pub(super) const fn pack(self) -> u64 {
        VALID | (self.qpn.get() as u64) << 32 | self.key.0 as u64
    }

    pub(super) fn unpack(word: u64) -> Option<Self> {
        (word & VALID != 0).then_some(Self {
            qpn: Qpn::new(high(word)),
            key: Key(low(word)),
        })
    }
}

/// A queue pair as it is published: what it grants, in one word that changes as a whole.
pub(super) const fn pack_grant(grant: &Grant) -> u64 {
    // REMOTE_WRITE, REMOTE_READ and REMOTE_ATOMIC are bits 1 to 3.
    let access = (grant.access.bits() as u64 >> 1) & 7;
    VALID | access << 48 | (grant.expected.get() as u64) << 24 | grant.peer.get() as u64
}

/// The word of a grant, with another PSN that is expected. What grants nothing stays so.
pub(super) const fn with_expected(word: u64, expected: Psn) -> u64 {
    if word & VALID == 0 {
        return word;
    }
    word & !(0x00ff_ffff << 24) | (expected.get() as u64) << 24
}

pub(super) fn unpack_grant(word: u64) -> Option<Grant> {
    (word & VALID != 0).then(|| Grant {
        peer: Qpn::new(low(word)),
        expected: Psn::new(low(word >> 24)),
        access: Access::from_bits_truncate(low(word >> 48 & 7) << 1),
    })
}

/// The first word of a region that is published.
pub(super) const fn pack_key(key: Key, access: Access) -> u64 {
    VALID | ((access.bits() as u64) << 32 & 0xffff_0000_0000) | key.0 as u64
}

/// The first word of a region that is published no longer, while somebody may be in the middle of
/// using it: nobody opens it, and its place stays taken.
pub(super) const fn withdrawn(key_word: u64) -> u64 {
    key_word & !VALID
}

/// Whether a region's first word is that of a key.
pub(super) const fn has_key(word: u64, key: Key) -> bool {
    word & VALID != 0 && word & 0xffff_ffff == key.0 as u64
}

/// Whom a published key serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Serves {
    /// A region: its protection domain, and its owner's own work.
    Owner,
    /// A window of type 1: its protection domain.
    Domain,
    /// A window of type 2: the peer of one queue pair.
    QueuePair(Qpn),
}

impl Serves {
    /// Whether the peer of a queue pair of the protection domain may use it.
    pub(super) fn peer_of(self, qpn: Qpn) -> bool {
        match self {
            Self::Owner | Self::Domain => true,
            Self::QueuePair(only) => only == qpn,
        }
    }

    const fn pack(self) -> u64 {
        match self {
            Self::Owner => 0,
            Self::Domain => VALID,
            Self::QueuePair(qpn) => VALID | 1 << 32 | qpn.get() as u64,
        }
    }

    fn unpack(word: u64) -> Self {
        match (word & VALID, high(word)) {
            (0, _) => Self::Owner,
            (_, 0) => Self::Domain,
            _ => Self::QueuePair(Qpn::new(low(word))),
        }
    }
}

/// Words of a region besides the first.
pub(super) const MORE_WORDS: usize = 6;

/// What is published under a key.
#[derive(Debug)]
pub(super) struct Published {
    /// The region, or what a window opens.
    pub(super) region: Region,
    /// Whom it serves.
    pub(super) serves: Serves,
    /// Where in the table of memory that others can map its memory is, if it is.
    pub(super) share: Option<usize>,
}

/// The other words of a region, or of what a window opens.
pub(super) fn pack_region(
    region: &Region,
    serves: Serves,
    share: Option<usize>,
) -> [u64; MORE_WORDS] {
    let share = share.map_or(0, |index| index as u64 + 1);
    let pd = region.pd.0.into();
    let serves = serves.pack();
    [
        region.iova,
        region.length(),
        region.addr(),
        pd,
        serves,
        share,
    ]
}

/// What is published under a key.
pub(super) fn unpack_region(
    first: u64,
    [iova, length, addr, pd, serves, share]: [u64; MORE_WORDS],
) -> Published {
    let access = Access::from_bits_truncate(high(first) & 0xffff);
    let share = usize::try_from(share).ok();
    Published {
        region: Region::new(PdId(low(pd)), addr, length, access).with_iova(iova),
        serves: Serves::unpack(serves),
        share: share
            .and_then(|n| n.checked_sub(1))
            .filter(|index| *index < SHARES),
    }
}

/// What stands for the two addresses of a path: both ends have the same, each as it sees them.
pub(super) fn path_mark(own: &Addressing, mirrored: bool) -> u64 {
    let (src, dst) = if mirrored {
        (own.dst, own.src)
    } else {
        (own.src, own.dst)
    };
    // Two paths that are confused by chance would only be checked less than packets are.
    let halves = src.0.as_chunks().0.iter().chain(dst.0.as_chunks().0);
    halves.fold(0, |mark: u64, half| {
        (mark.rotate_left(23) ^ u64::from_ne_bytes(*half)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

pub(super) fn low(word: u64) -> u32 {
    u32::try_from(word & 0xffff_ffff).expect("invariant: masked")
}

/// Bits 32 to 62.
fn high(word: u64) -> u32 {
    low((word & !VALID) >> 32)
}

#[cfg(test)]
mod tests {
    use super::super::part::PART_WORDS;
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        let named = Named {
            qpn: Qpn::new(0x00ff_ffff),
            key: Key(u32::MAX),
        };
        assert_eq!(Named::unpack(named.pack()), Some(named));
        assert_eq!(Named::unpack(0), None);
        for access in [
            Access::empty(),
            Access::REMOTE_READ,
            Access::REMOTE_WRITE | Access::REMOTE_READ,
            Access::REMOTE_ATOMIC,
        ] {
            let grant = Grant {
                peer: Qpn::new(0x00ab_cdef),
                expected: Psn::new(0x00fe_dcba),
                access,
            };
            assert_eq!(unpack_grant(pack_grant(&grant)), Some(grant));
            let expected = Psn::new(0x00ab_cdef);
            let next = Grant { expected, ..grant };
            assert_eq!(
                with_expected(pack_grant(&grant), expected),
                pack_grant(&next)
            );
        }
        assert_eq!(unpack_grant(0), None);
        assert_eq!(with_expected(0, Psn::new(1)), 0);
    }

    #[test]
    fn regions_come_back_and_withdrawn_ones_open_nothing() {
        let region = Region::new(
            PdId(7),
            0x1000,
            0x2000,
            Access::LOCAL_WRITE | Access::REMOTE_READ,
        )
        .with_iova(0x5000);
        let first = pack_key(Key(0xdead_beef), region.access);
        assert!(has_key(first, Key(0xdead_beef)) && !has_key(first, Key(0xdead_beee)));
        assert!(!has_key(withdrawn(first), Key(0xdead_beef)));
        assert_ne!(withdrawn(first), 0);
        for serves in [
            Serves::Owner,
            Serves::Domain,
            Serves::QueuePair(Qpn::new(0)),
            Serves::QueuePair(Qpn::new(0x00ff_ffff)),
        ] {
            for share in [None, Some(0), Some(SHARES - 1)] {
                let back = unpack_region(first, pack_region(&region, serves, share));
                assert_eq!((back.serves, back.share), (serves, share));
            }
        }
        let words = pack_region(&region, Serves::Owner, Some(SHARES));
        let none = unpack_region(first, words);
        assert_eq!(none.share, None, "no such place");
        let back = none.region;
        assert_eq!(
            (back.pd, back.iova, back.length(), back.addr(), back.access),
            (
                region.pd,
                region.iova,
                region.length(),
                region.addr(),
                region.access
            )
        );
    }

    #[test]
    fn the_parts_do_not_overlap() {
        assert!(hazard(HAZARDS - 1) + 8 <= ACQUAINTANCE_BASE);
        assert!(acquaintance(1023) < queue_pair(Qpn::new(0)));
        assert!(queue_pair(Qpn::new(0x00ff_ffff)) + QP_WORDS <= REGION_BASE);
        for key in [0, u32::MAX, 0x1_ffff] {
            for place in places(Key(key), false) {
                assert!(place + REGION_WORDS <= OVERFLOW_BASE && !is_overflow(place));
            }
            let second: Vec<_> = places(Key(key), true).skip(PLACES).collect();
            assert!(second.len() == PLACES && second.iter().all(|place| is_overflow(*place)));
            assert!(second.iter().all(|place| place + REGION_WORDS <= share(0)));
        }
        assert!(share(SHARES - 1) + 1 + PART_WORDS <= mapped(0));
        assert!(mapped(1023) < WORDS);
    }
}
