//! Violations of the protocol, and the TERMINATE message that tells the peer of each.
//!
//! The numbers are those of the IANA registry "Remote Direct Data Placement" (RFC 6580). It
//! collects RFC 5040 section 4.8, RFC 5041 section 8.2 and RFC 5044 section 8.

use alloc::vec::Vec;

use super::bytes::array;

/// What a TERMINATE says: three numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reason {
    /// Layer that found the error: 0 RDMAP, 1 DDP, 2 MPA. 4 bits.
    pub layer: u8,
    /// Type of the error within the layer. 4 bits.
    pub etype: u8,
    /// Code within the type.
    pub code: u8,
}

/// A fault that ends the stream, found by this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Violation {
    /// RDMAP: this end cannot go on, for a reason of its own.
    #[error("local catastrophic error")]
    LocalCatastrophic,
    /// RDMAP: the source `STag` of a READ, or the target of an atomic, names nothing.
    #[error("invalid STag of a READ or atomic")]
    SourceStag,
    /// RDMAP: a READ or atomic reaches outside of what its `STag` names.
    #[error("READ or atomic out of bounds")]
    SourceBounds,
    /// RDMAP: the `STag` does not grant the access.
    #[error("access rights")]
    AccessRights,
    /// RDMAP: the `STag` of a READ or atomic belongs to another stream.
    #[error("STag of a READ or atomic that is not associated with the stream")]
    SourceNotAssociated,
    /// RDMAP: the offset of a READ or atomic wraps.
    #[error("tagged offset of a READ or atomic wraps")]
    SourceWrap,
    /// RDMAP: a SEND names an `STag` that it may not invalidate.
    #[error("STag cannot be invalidated")]
    CannotInvalidate,
    /// RDMAP: version.
    #[error("RDMAP version")]
    RdmapVersion,
    /// RDMAP: an opcode that is reserved, not negotiated, or not expected now.
    #[error("unexpected opcode")]
    UnexpectedOpcode,
    /// RDMAP: more READs and atomics than this end's IRD.
    #[error("more READs than this end can hold")]
    TooManyReads,
    /// RDMAP: a request that none of the other codes fits.
    #[error("malformed request")]
    MalformedRequest,
    /// DDP, tagged: the `STag` names nothing.
    #[error("invalid STag")]
    TaggedStag,
    /// DDP, tagged: the segment reaches outside of what its `STag` names.
    #[error("base or bounds")]
    TaggedBounds,
    /// DDP, tagged: the `STag` belongs to another stream.
    #[error("STag is not associated with the stream")]
    TaggedNotAssociated,
    /// DDP, tagged: the offset wraps.
    #[error("tagged offset wraps")]
    TaggedWrap,
    /// DDP, tagged: version.
    #[error("DDP version of a tagged segment")]
    TaggedVersion,
    /// DDP, untagged: queue number.
    #[error("invalid queue number")]
    BadQueue,
    /// DDP, untagged: the message finds no receive.
    #[error("no buffer for this message")]
    NoBuffer,
    /// DDP, untagged: not the number of the next message.
    #[error("message sequence number out of range")]
    MsnRange,
    /// DDP, untagged: not the offset of the next byte.
    #[error("invalid message offset")]
    BadOffset,
    /// DDP, untagged: more bytes than the buffer has room for.
    #[error("message longer than its buffer")]
    TooLong,
    /// DDP, untagged: version.
    #[error("DDP version of an untagged segment")]
    UntaggedVersion,
    /// MPA: CRC.
    #[error("CRC mismatch")]
    Crc,
    /// MPA: a marker is not where the lengths say, or a length is shorter than its header.
    #[error("marker and length disagree")]
    Framing,
    /// MPA: the peer wants more READs outstanding than this end can hold (RFC 6581).
    #[error("insufficient IRD")]
    InsufficientIrd,
    /// MPA: no ready-to-receive message that both ends know (RFC 6581).
    #[error("no matching ready-to-receive message")]
    NoMatchingRtr,
}

impl Violation {
    /// All, for tests and tables.
    pub const ALL: [Self; 26] = [
        Self::LocalCatastrophic,
        Self::SourceStag,
        Self::SourceBounds,
        Self::AccessRights,
        Self::SourceNotAssociated,
        Self::SourceWrap,
        Self::CannotInvalidate,
        Self::RdmapVersion,
        Self::UnexpectedOpcode,
        Self::TooManyReads,
        Self::MalformedRequest,
        Self::TaggedStag,
        Self::TaggedBounds,
        Self::TaggedNotAssociated,
        Self::TaggedWrap,
        Self::TaggedVersion,
        Self::BadQueue,
        Self::NoBuffer,
        Self::MsnRange,
        Self::BadOffset,
        Self::TooLong,
        Self::UntaggedVersion,
        Self::Crc,
        Self::Framing,
        Self::InsufficientIrd,
        Self::NoMatchingRtr,
    ];

    /// The numbers that tell the peer of it.
    #[must_use]
    pub const fn reason(self) -> Reason {
        let (layer, etype, code) = match self {
            Self::LocalCatastrophic => (0, 0, 0),
            Self::SourceStag => (0, 1, 0),
            Self::SourceBounds => (0, 1, 1),
            Self::AccessRights => (0, 1, 2),
            Self::SourceNotAssociated => (0, 1, 3),
            Self::SourceWrap => (0, 1, 4),
            Self::CannotInvalidate => (0, 1, 9),
            Self::RdmapVersion => (0, 2, 5),
            Self::UnexpectedOpcode => (0, 2, 6),
            // As siw of Linux 6.1 and 6.12 answers it.
            Self::TooManyReads => (0, 2, 7),
            Self::MalformedRequest => (0, 2, 0xff),
            Self::TaggedStag => (1, 1, 0),
            Self::TaggedBounds => (1, 1, 1),
            Self::TaggedNotAssociated => (1, 1, 2),
            Self::TaggedWrap => (1, 1, 3),
            Self::TaggedVersion => (1, 1, 4),
            Self::BadQueue => (1, 2, 1),
            Self::NoBuffer => (1, 2, 2),
            Self::MsnRange => (1, 2, 3),
            Self::BadOffset => (1, 2, 4),
            Self::TooLong => (1, 2, 5),
            Self::UntaggedVersion => (1, 2, 6),
            Self::Crc => (2, 0, 2),
            Self::Framing => (2, 0, 3),
            Self::InsufficientIrd => (2, 0, 6),
            Self::NoMatchingRtr => (2, 0, 7),
        };
        Reason { layer, etype, code }
    }
}

/// A header of the segment that a TERMINATE is about.
pub type RepeatedHeaders = Vec<u8>;

/// A TERMINATE message, the last one of a stream (RFC 5040, 4.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminate {
    /// Reason for the end of the connection.
    pub reason: Reason,
    /// DDP segment length and DDP header of the segment that it is about.
    pub segment: Option<(u16, RepeatedHeaders)>,
    /// RDMAP header behind the DDP header: a READ request.
    pub rdmap: RepeatedHeaders,
}

/// The segment length follows.
const HAS_LENGTH: u8 = 0x80;
/// The DDP header follows.
const HAS_DDP: u8 = 0x40;
/// The RDMAP header follows.
const HAS_RDMAP: u8 = 0x20;
/// Flags as a sender has them that counts the bits of a byte from the other end.
const SWAPPED_FLAGS: u8 = 0x07;

impl Terminate {
    /// Bytes of the control field.
    pub const CONTROL_LEN: usize = 4;

    /// A TERMINATE without headers.
    #[must_use]
    pub fn new(reason: Reason) -> Self {
        Self {
            reason,
            segment: None,
            rdmap: RepeatedHeaders::new(),
        }
    }

    /// The payload behind the DDP header.
    #[must_use]
    pub fn emit(&self) -> RepeatedHeaders {
        let mut out = RepeatedHeaders::new();
        let Reason { layer, etype, code } = self.reason;
        let mut flags = 0;
        if self.segment.is_some() {
            flags |= HAS_LENGTH | HAS_DDP;
        }
        if !self.rdmap.is_empty() {
            flags |= HAS_RDMAP;
        }
        out.extend_from_slice(&[layer << 4 | etype & 0x0f, code, flags, 0]);
        if let Some((length, header)) = &self.segment {
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(header);
        }
        out.extend_from_slice(&self.rdmap);
        out
    }

    /// What a peer's TERMINATE says; `None` if there is not even a control field. The headers
    /// behind it are for readers of captures, and are not looked at.
    ///
    /// siw of Linux 6.1 and 6.12 on little-endian machines exchanges the halves of the first byte
    /// and counts the flags from the other end. Its flags tell; without any flag the order of the
    /// RFC is assumed.
    #[must_use]
    pub fn reason_of(payload: &[u8]) -> Option<Reason> {
        let [kind, code, flags, _] = array::<{ Self::CONTROL_LEN }>(payload, 0)?;
        let rfc_flags = HAS_LENGTH | HAS_DDP | HAS_RDMAP;
        let is_swapped = flags & rfc_flags == 0 && flags & SWAPPED_FLAGS != 0;
        let (high, low) = (kind >> 4, kind & 0x0f);
        let (layer, etype) = if is_swapped { (low, high) } else { (high, low) };
        Some(Reason { layer, etype, code })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use std::collections::HashSet;

    #[test]
    fn each_violation_has_numbers_of_its_own_that_are_read_back() {
        let mut seen = HashSet::new();
        for violation in Violation::ALL {
            let reason = violation.reason();
            assert!(seen.insert(reason), "{violation:?}");
            let mut terminate = Terminate::new(reason);
            assert_eq!(Terminate::reason_of(&terminate.emit()), Some(reason));
            terminate.segment = Some((20, vec![7; 18]));
            terminate.rdmap = vec![9; 28];
            let bytes = terminate.emit();
            assert_eq!(bytes.len(), 4 + 2 + 18 + 28);
            assert_eq!((bytes[2], bytes[3]), (0xe0, 0));
            assert_eq!(Terminate::reason_of(&bytes), Some(reason));
        }
    }

    #[test]
    fn a_terminate_in_the_order_of_siw_is_understood() {
        // Untagged buffer error (layer 1, type 2), no buffer, segment length and DDP header.
        let reason = Terminate::reason_of(&[0x21, 2, 0x03, 0]);
        assert_eq!(reason, Some(Violation::NoBuffer.reason()));
        assert_eq!(Terminate::reason_of(&[0x21, 2, 0x03]), None);
    }
}
