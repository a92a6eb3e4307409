//! RDMAP opcodes, and what stands behind the DDP header (RFC 5040, 4; RFC 7306, 4 to 6).

use super::bytes::{array, u32_at, u64_at};
use crate::ids::Key;

/// Operation of a message (RFC 5040).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// RDMA WRITE.
    Write = 0x0,
    /// READ request.
    ReadRequest = 0x1,
    /// READ response.
    ReadResponse = 0x2,
    /// SEND.
    Send = 0x3,
    /// SEND with invalidate.
    SendInvalidate = 0x4,
    /// SEND with solicited event.
    SendSolicited = 0x5,
    /// SEND with solicited event and invalidate.
    SendSolicitedInvalidate = 0x6,
    /// TERMINATE.
    Terminate = 0x7,
    /// Immediate data (RFC 7306).
    Immediate = 0x8,
    /// Immediate data with solicited event (RFC 7306).
    ImmediateSolicited = 0x9,
    /// Atomic request (RFC 7306).
    AtomicRequest = 0xa,
    /// Atomic response (RFC 7306).
    AtomicResponse = 0xb,
}

/// Queue of SENDs.
pub const QUEUE_SEND: u32 = 0;
/// Queue of READ requests and atomic requests.
pub const QUEUE_REQUEST: u32 = 1;
/// Queue of the TERMINATE.
pub const QUEUE_TERMINATE: u32 = 2;
/// Queue of atomic responses (RFC 7306, 5).
pub const QUEUE_ATOMIC: u32 = 3;

impl Opcode {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::Write,
        Self::ReadRequest,
        Self::ReadResponse,
        Self::Send,
        Self::SendInvalidate,
        Self::SendSolicited,
        Self::SendSolicitedInvalidate,
        Self::Terminate,
        Self::Immediate,
        Self::ImmediateSolicited,
        Self::AtomicRequest,
        Self::AtomicResponse,
    ];

    /// The opcode with this number.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// The untagged queue that its messages go to; `None` for tagged messages.
    #[must_use]
    pub const fn queue(self) -> Option<u32> {
        match self {
            Self::Write | Self::ReadResponse => None,
            Self::ReadRequest | Self::AtomicRequest => Some(QUEUE_REQUEST),
            Self::Terminate => Some(QUEUE_TERMINATE),
            Self::AtomicResponse => Some(QUEUE_ATOMIC),
            _ => Some(QUEUE_SEND),
        }
    }

    /// Whether RFC 7306 adds it to RFC 5040.
    #[must_use]
    pub const fn is_extension(self) -> bool {
        self as u8 >= Self::Immediate as u8
    }

    /// Whether it raises a solicited event.
    #[must_use]
    pub const fn is_solicited(self) -> bool {
        matches!(
            self,
            Self::SendSolicited | Self::SendSolicitedInvalidate | Self::ImmediateSolicited
        )
    }

    /// Whether it takes a key of the receiver back.
    #[must_use]
    pub const fn invalidates(self) -> bool {
        matches!(self, Self::SendInvalidate | Self::SendSolicitedInvalidate)
    }
}

/// A READ request (RFC 5040, 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Key of the requester's memory; the response repeats it.
    pub sink_stag: Key,
    /// Address there.
    pub sink_to: u64,
    /// Bytes to read.
    pub length: u32,
    /// Key of the responder's memory.
    pub source_stag: Key,
    /// Address there.
    pub source_to: u64,
}

impl ReadRequest {
    /// Bytes on the wire.
    pub const LEN: usize = 28;

    /// As on the wire.
    #[must_use]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..4].copy_from_slice(&self.sink_stag.0.to_be_bytes());
        out[4..12].copy_from_slice(&self.sink_to.to_be_bytes());
        out[12..16].copy_from_slice(&self.length.to_be_bytes());
        out[16..20].copy_from_slice(&self.source_stag.0.to_be_bytes());
        out[20..].copy_from_slice(&self.source_to.to_be_bytes());
        out
    }

    /// Reads a payload, which must have exactly its length.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let payload: &[u8; Self::LEN] = payload.try_into().ok()?;
        Some(Self {
            sink_stag: Key(u32_at(payload, 0)?),
            sink_to: u64_at(payload, 4)?,
            length: u32_at(payload, 12)?,
            source_stag: Key(u32_at(payload, 16)?),
            source_to: u64_at(payload, 20)?,
        })
    }
}

/// What an atomic request does (RFC 7306, 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Adds; a mask of 0 makes it the addition of 64 bits.
    FetchAdd {
        /// Addend.
        add: u64,
    },
    /// Compares and swaps all 64 bits.
    CompareSwap {
        /// Value compared with.
        compare: u64,
        /// Value written if equal.
        swap: u64,
    },
}

/// An atomic request (RFC 7306, 5.2). Masked atomics are refused: verbs programs cannot ask for
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// Number that the response repeats.
    pub id: u32,
    /// Key of the memory.
    pub stag: Key,
    /// Address.
    pub to: u64,
    /// Operation.
    pub op: AtomicOp,
}

const FETCH_ADD: u32 = 0;
const COMPARE_SWAP: u32 = 2;
/// The operation's bits in the first word.
const ATOMIC_OPCODE: u32 = 0x0f;

impl AtomicRequest {
    /// Bytes on the wire.
    pub const LEN: usize = 52;

    /// As on the wire.
    #[must_use]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let (code, [data, mask, compare, compare_mask]) = match self.op {
            AtomicOp::FetchAdd { add } => (FETCH_ADD, [add, 0, 0, 0]),
            AtomicOp::CompareSwap { compare, swap } => {
                (COMPARE_SWAP, [swap, u64::MAX, compare, u64::MAX])
            }
        };
        let mut out = [0; Self::LEN];
        out[..4].copy_from_slice(&code.to_be_bytes());
        out[4..8].copy_from_slice(&self.id.to_be_bytes());
        out[8..12].copy_from_slice(&self.stag.0.to_be_bytes());
        for (place, word) in
            out[12..]
                .chunks_exact_mut(8)
                .zip([self.to, data, mask, compare, compare_mask])
        {
            place.copy_from_slice(&word.to_be_bytes());
        }
        out
    }

    /// Reads a payload, which must have exactly its length; `None` also for an operation or a mask
    /// that is not known.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let payload: &[u8; Self::LEN] = payload.try_into().ok()?;
        let word = |at| u64_at(payload, at);
        let (data, mask, compare, compare_mask) = (word(20)?, word(28)?, word(36)?, word(44)?);
        let op = match u32_at(payload, 0)? & ATOMIC_OPCODE {
            FETCH_ADD if mask == 0 => AtomicOp::FetchAdd { add: data },
            COMPARE_SWAP if mask == u64::MAX && compare_mask == u64::MAX => {
                let swap = data;
                AtomicOp::CompareSwap { compare, swap }
            }
            _ => return None,
        };
        Some(Self {
            id: u32_at(payload, 4)?,
            stag: Key(u32_at(payload, 8)?),
            to: word(12)?,
            op,
        })
    }
}

/// An atomic response (RFC 7306, 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicResponse {
    /// Number of the request.
    pub id: u32,
    /// Value that was there before.
    pub original: u64,
}

impl AtomicResponse {
    /// Bytes on the wire.
    pub const LEN: usize = 12;

    /// As on the wire.
    #[must_use]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..4].copy_from_slice(&self.id.to_be_bytes());
        out[4..].copy_from_slice(&self.original.to_be_bytes());
        out
    }

    /// Reads a payload, which must have exactly its length.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let payload: &[u8; Self::LEN] = payload.try_into().ok()?;
        Some(Self {
            id: u32_at(payload, 0)?,
            original: u64_at(payload, 4)?,
        })
    }
}

/// The 8 bytes of an Immediate Data message (RFC 7306, 6), of which verbs programs have 4. The
/// other 4 say what the immediate belongs to.
///
/// RFC 7306 has no SEND with immediate. Between two Ferroces it is one Immediate Data message whose
/// payload goes on behind the 8 bytes, so that it takes one receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Immediate {
    /// The immediate belongs to the WRITE before it; else to a SEND, whose bytes follow.
    pub of_write: bool,
    /// The bytes that the program gave.
    pub data: [u8; 4],
}

impl Immediate {
    /// Bytes on the wire.
    pub const LEN: usize = 8;
    const OF_WRITE: [u8; 4] = [0, 0, 0, 1];

    /// As on the wire.
    #[must_use]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let kind = if self.of_write {
            Self::OF_WRITE
        } else {
            [0; 4]
        };
        let mut out = [0; Self::LEN];
        out[..4].copy_from_slice(&kind);
        out[4..].copy_from_slice(&self.data);
        out
    }

    /// Reads the beginning of a payload; gives what follows too.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<(Self, &[u8])> {
        let (kind, data) = array(payload, 0).zip(array(payload, 4))?;
        let of_write = match kind {
            Self::OF_WRITE => true,
            [0, 0, 0, 0] => false,
            _ => return None,
        };
        Some((Self { of_write, data }, payload.get(Self::LEN..)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_of_opcodes_are_their_places() {
        for (code, opcode) in (0..).zip(Opcode::ALL) {
            assert_eq!(opcode as u8, code);
            assert_eq!(Opcode::from_code(code), Some(opcode));
        }
        assert_eq!(Opcode::from_code(12), None);
    }

    proptest! {
        #[test]
        fn requests_and_answers_are_read_back(words in any::<[u64; 4]>(), keys in any::<[u32; 3]>()) {
            let read = ReadRequest {
                sink_stag: Key(keys[0]),
                sink_to: words[0],
                length: keys[1],
                source_stag: Key(keys[2]),
                source_to: words[1],
            };
            prop_assert_eq!(ReadRequest::parse(&read.emit()), Some(read));
            prop_assert_eq!(ReadRequest::parse(&read.emit()[1..]), None);
            let (add, compare, swap) = (words[1], words[2], words[3]);
            for op in [AtomicOp::FetchAdd { add }, AtomicOp::CompareSwap { compare, swap }] {
                let atomic = AtomicRequest { id: keys[0], stag: Key(keys[1]), to: words[0], op };
                prop_assert_eq!(AtomicRequest::parse(&atomic.emit()), Some(atomic));
                let mut masked = atomic.emit();
                masked[30] ^= 1;
                prop_assert_eq!(AtomicRequest::parse(&masked), None);
            }
            let answer = AtomicResponse { id: keys[0], original: words[0] };
            prop_assert_eq!(AtomicResponse::parse(&answer.emit()), Some(answer));
            let imm = Immediate { of_write: keys[0] & 1 == 1, data: keys[1].to_be_bytes() };
            let bytes = imm.emit();
            prop_assert_eq!(Immediate::parse(&bytes), Some((imm, &[][..])));
        }
    }
}
