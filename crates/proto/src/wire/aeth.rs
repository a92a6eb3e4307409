//! The acknowledgement header.

use super::word::{join, split};
use crate::ids::Msn;

/// ACK extended transport header, 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// ACK, NAK or RNR NAK, with its code.
    pub syndrome: Syndrome,
    /// Message sequence number.
    pub msn: Msn,
}

impl Aeth {
    pub(super) const fn from_bytes(bytes: [u8; 4]) -> Self {
        let (syndrome, msn) = split(bytes);
        Self {
            syndrome: Syndrome::decode(syndrome),
            msn: Msn::new(msn),
        }
    }

    pub(crate) const fn to_bytes(self) -> [u8; 4] {
        join(self.syndrome.encode(), self.msn.get())
    }
}

/// Meaning of the AETH's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// Positive acknowledgement with a 5-bit credit code, 31 = no credit information.
    Ack(u8),
    /// Receiver not ready, with the 5-bit timer code.
    RnrNak(u8),
    /// Negative acknowledgement.
    Nak(NakCode),
    /// Reserved value, kept as it came.
    Reserved(u8),
}

impl Syndrome {
    /// Acknowledgement without credit information: what we send, as every responder with a shared
    /// receive queue must.
    pub const ACK: Self = Self::Ack(0x1f);

    /// The meaning of the first byte of an AETH. Bit 7 is reserved: a byte that has it set is kept
    /// as reserved.
    #[must_use]
    pub const fn decode(byte: u8) -> Self {
        let low = byte & 0x1f;
        match byte >> 5 {
            0 => Self::Ack(low),
            1 => Self::RnrNak(low),
            3 => Self::Nak(NakCode::decode(low)),
            _ => Self::Reserved(byte),
        }
    }

    /// The first byte of an AETH. Codes are cut to 5 bits.
    #[must_use]
    pub const fn encode(self) -> u8 {
        match self {
            Self::Ack(credits) => credits & 0x1f,
            Self::RnrNak(timer) => 0x20 | timer & 0x1f,
            Self::Nak(code) => 0x60 | code.encode() & 0x1f,
            Self::Reserved(byte) => byte,
        }
    }
}

/// Reason of a NAK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NakCode {
    /// PSN sequence error.
    Sequence,
    /// Invalid request.
    InvalidRequest,
    /// Remote access error.
    RemoteAccess,
    /// Remote operational error.
    RemoteOperational,
    /// Any other 5-bit code.
    Other(u8),
}

impl NakCode {
    /// Between Ferroce processes of one host: the bytes of a
    /// [rendezvous](crate::wire::Opcode::RENDEZVOUS) cannot be fetched, and are to be sent.
    pub const NOT_FETCHED: Self = Self::Other(31);

    const fn decode(code: u8) -> Self {
        match code {
            0 => Self::Sequence,
            1 => Self::InvalidRequest,
            2 => Self::RemoteAccess,
            3 => Self::RemoteOperational,
            other => Self::Other(other),
        }
    }

    const fn encode(self) -> u8 {
        match self {
            Self::Sequence => 0,
            Self::InvalidRequest => 1,
            Self::RemoteAccess => 2,
            Self::RemoteOperational => 3,
            Self::Other(code) => code,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_syndrome_byte_survives_a_round_trip() {
        for byte in 0..=u8::MAX {
            assert_eq!(Syndrome::decode(byte).encode(), byte);
        }
        assert_eq!(Syndrome::decode(0x1f), Syndrome::ACK);
        assert_eq!(Syndrome::decode(0x21), Syndrome::RnrNak(1));
        assert_eq!(
            Syndrome::decode(0x63),
            Syndrome::Nak(NakCode::RemoteOperational)
        );
        assert_eq!(Syndrome::decode(0x45), Syndrome::Reserved(0x45));
    }
}
