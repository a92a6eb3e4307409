//! DDP segments (RFC 5041, 4) with the RDMAP control byte that is a part of each header
//! (RFC 5040, 4.1).

use smallvec::SmallVec;

use super::bytes::{u32_at, u64_at};
use super::rdmap::Opcode;
use super::terminate::{RepeatedHeaders, Violation};
use crate::ids::Key;

/// First byte: the segment is tagged.
const TAGGED: u8 = 0x80;
/// First byte: the last segment of its message.
const LAST: u8 = 0x40;
/// First byte: the version's bits; only version 1 is known.
const DDP_VERSION: u8 = 0x03;
/// Second byte: the version's bits, and version 1 in them.
const RDMAP_VERSION: u8 = 0xc0;
const RDMAP_VERSION_1: u8 = 0x40;
/// Second byte: the opcode's bits.
const OPCODE: u8 = 0x0f;

/// A header as bytes, with room for what may stand between it and a payload.
pub type HeaderBytes = SmallVec<[u8; 32]>;

/// Header of a segment that names its place in the receiver's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// The last segment of its message.
    pub last: bool,
    /// What the message does.
    pub opcode: Opcode,
    /// Key of the memory.
    pub stag: Key,
    /// Address of the first byte.
    pub to: u64,
}

/// Header of a segment that goes into the next receive of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untagged {
    /// The last segment of its message.
    pub last: bool,
    /// What the message does.
    pub opcode: Opcode,
    /// The key that a SEND with invalidate takes back; 0 for others.
    pub invalidate: Key,
    /// Queue.
    pub queue: u32,
    /// Number of the message in its queue and direction, from 1.
    pub msn: u32,
    /// Offset of the first byte in the message.
    pub mo: u32,
}

/// Header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Tagged.
    Tagged(Tagged),
    /// Untagged.
    Untagged(Untagged),
}

/// A segment: header as a value, payload borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Header.
    pub header: Header,
    /// Payload behind the header.
    pub payload: &'a [u8],
}

/// Number of untagged queues: SENDs, requests, TERMINATE, and answers of atomics (RFC 7306, 5).
pub const QUEUES: u32 = 4;

impl Tagged {
    /// Bytes on the wire.
    pub const LEN: usize = 14;
}

impl Untagged {
    /// Bytes on the wire.
    pub const LEN: usize = 18;
}

impl Header {
    /// Bytes on the wire.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        match self {
            Self::Tagged(_) => Tagged::LEN,
            Self::Untagged(_) => Untagged::LEN,
        }
    }

    /// What the message does.
    #[must_use]
    pub const fn opcode(&self) -> Opcode {
        match self {
            Self::Tagged(header) => header.opcode,
            Self::Untagged(header) => header.opcode,
        }
    }

    /// The header as it is on the wire.
    #[must_use]
    pub fn emit(&self) -> HeaderBytes {
        let control = |tagged, last, opcode: Opcode| {
            let last = if last { LAST } else { 0 };
            [tagged | last | 1, RDMAP_VERSION_1 | opcode as u8]
        };
        match self {
            Self::Tagged(header) => {
                let mut out = [0; Tagged::LEN];
                out[..2].copy_from_slice(&control(TAGGED, header.last, header.opcode));
                out[2..6].copy_from_slice(&header.stag.0.to_be_bytes());
                out[6..].copy_from_slice(&header.to.to_be_bytes());
                HeaderBytes::from_slice(&out)
            }
            Self::Untagged(header) => {
                let mut out = [0; Untagged::LEN];
                out[..2].copy_from_slice(&control(0, header.last, header.opcode));
                let words = [header.invalidate.0, header.queue, header.msn, header.mo];
                for (place, word) in out[2..].chunks_exact_mut(4).zip(words) {
                    place.copy_from_slice(&word.to_be_bytes());
                }
                HeaderBytes::from_slice(&out)
            }
        }
    }

    /// Reads a header. Reserved bits are not looked at.
    ///
    /// # Errors
    /// The violation by which the stream ends: versions (RFC 5041, 7.1; RFC 5040, 7.1), a queue
    /// that does not exist, or a segment shorter than its header. So is an opcode that does not
    /// exist, or is not at home in this kind of segment or queue.
    pub fn parse(bytes: &[u8]) -> Result<Self, Violation> {
        let [first, second, ..] = *bytes else {
            return Err(Violation::Framing);
        };
        let tagged = first & TAGGED != 0;
        if first & DDP_VERSION != 1 {
            return Err(if tagged {
                Violation::TaggedVersion
            } else {
                Violation::UntaggedVersion
            });
        }
        let last = first & LAST != 0;
        let rdmap = |queue| {
            if second & RDMAP_VERSION != RDMAP_VERSION_1 {
                return Err(Violation::RdmapVersion);
            }
            Opcode::from_code(second & OPCODE)
                .filter(|opcode| opcode.queue() == queue)
                .ok_or(Violation::UnexpectedOpcode)
        };
        if tagged {
            let (stag, to) = u32_at(bytes, 2)
                .zip(u64_at(bytes, 6))
                .ok_or(Violation::Framing)?;
            return Ok(Self::Tagged(Tagged {
                last,
                opcode: rdmap(None)?,
                stag: Key(stag),
                to,
            }));
        }
        let word = |at| u32_at(bytes, at).ok_or(Violation::Framing);
        let (invalidate, queue, msn, mo) = (word(2)?, word(6)?, word(10)?, word(14)?);
        if queue >= QUEUES {
            return Err(Violation::BadQueue);
        }
        Ok(Self::Untagged(Untagged {
            last,
            opcode: rdmap(Some(queue))?,
            invalidate: Key(invalidate),
            queue,
            msn,
            mo,
        }))
    }
}

impl<'a> Segment<'a> {
    /// Reads a segment, the ULPDU of an FPDU.
    ///
    /// # Errors
    /// As [`Header::parse`].
    pub fn parse(ulpdu: &'a [u8]) -> Result<Self, Violation> {
        let header = Header::parse(ulpdu)?;
        let payload = ulpdu.get(header.wire_len()..).ok_or(Violation::Framing)?;
        Ok(Self { header, payload })
    }
}

/// The segment length and the header of a ULPDU of which `missing` bytes have not come, as a
/// TERMINATE repeats them; `None` if what has come is shorter than a header.
#[must_use]
pub fn context(ulpdu: &[u8], missing: usize) -> Option<(u16, RepeatedHeaders)> {
    let tagged = ulpdu.first()? & TAGGED != 0;
    let len = if tagged { Tagged::LEN } else { Untagged::LEN };
    let header = ulpdu.get(..len)?;
    let len = u16::try_from(ulpdu.len() + missing).ok()?;
    Some((len, header.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    #[test]
    fn versions_queues_and_opcodes_are_refused_by_their_own_codes() {
        let good = |queue: u32| {
            let mut bytes = vec![0x41, 0x43];
            for word in [0, queue, 1, 0] {
                bytes.extend(u32::to_be_bytes(word));
            }
            bytes
        };
        let with = |at: usize, byte: u8, queue| {
            let mut bytes = good(queue);
            bytes[at] = byte;
            Header::parse(&bytes)
        };
        assert!(Header::parse(&good(0)).is_ok());
        assert_eq!(with(0, 0x42, 0), Err(Violation::UntaggedVersion));
        assert_eq!(with(0, 0xc0, 0), Err(Violation::TaggedVersion));
        assert_eq!(with(1, 0x03, 0), Err(Violation::RdmapVersion));
        assert_eq!(with(1, 0x4c, 0), Err(Violation::UnexpectedOpcode));
        assert_eq!(with(1, 0x40, 0), Err(Violation::UnexpectedOpcode));
        assert_eq!(with(0, 0xc1, 0), Err(Violation::UnexpectedOpcode));
        assert_eq!(Header::parse(&good(1)), Err(Violation::UnexpectedOpcode));
        assert_eq!(Header::parse(&good(4)), Err(Violation::BadQueue));
        assert_eq!(Header::parse(&good(0)[..17]), Err(Violation::Framing));
        assert_eq!(Header::parse(&[0x41]), Err(Violation::Framing));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_read_back_the_same(
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
            likely in any::<bool>(),
        ) {
            let mut bytes = bytes;
            if likely && let [first, second, ..] = &mut bytes[..] {
                *first = *first & 0xc0 | 1;
                *second = *second & 0x0f | 0x40;
            }
            if let Ok(segment) = Segment::parse(&bytes) {
                let mut again = segment.header.emit();
                prop_assert_eq!(again.len(), segment.header.wire_len());
                prop_assert!(context(&bytes, 0).is_some());
                again.extend_from_slice(segment.payload);
                prop_assert_eq!(Segment::parse(&again), Ok(segment));
            }
        }
    }
}
