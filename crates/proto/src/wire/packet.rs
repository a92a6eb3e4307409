//! One transport packet: parse from and emit to bytes.

use alloc::vec::Vec;

use super::{Bth, ExtHeaders};

/// A transport packet: headers as values, payload borrowed. Pad bytes and ICRC are not part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Base transport header.
    pub bth: Bth,
    /// Extension headers, exactly those that the opcode calls for.
    pub ext: ExtHeaders,
    /// Payload without pad bytes.
    pub payload: &'a [u8],
}

/// Why bytes are not a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Shorter than its headers and pad.
    #[error("packet of {got} bytes is shorter than its headers and pad ({need})")]
    TooShort {
        /// Bytes needed.
        need: usize,
        /// Bytes present.
        got: usize,
    },
    /// Transport version other than 0.
    #[error("transport header version {0}")]
    Version(u8),
    /// Destination QP 0.
    #[error("destination queue pair 0")]
    QpZero,
    /// Opcode that no transport defines, or one that Ferroce has no headers for.
    #[error("unknown opcode {0:#04x}")]
    UnknownOpcode(u8),
}

impl<'a> Packet<'a> {
    /// Reads a packet (BTH through pad, without ICRC).
    ///
    /// # Errors
    /// [`WireError`] says what is wrong; nothing else is checked here (keys, lengths against the MTU and the like are the
    /// transport's).
    pub fn parse(_bytes: &'a [u8]) -> Result<Self, WireError> {
        todo!()
    }

    /// Bytes that [`emit`](Self::emit) appends: headers, payload and pad.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        todo!()
    }

    /// Appends headers, payload and pad (without ICRC) to `out`.
    pub fn emit(&self, _out: &mut Vec<u8>) {
        todo!()
    }

    /// Appends only the headers, with the pad count for `payload_len`; the caller appends payload and pad.
    pub fn emit_headers(_bth: &Bth, _ext: &ExtHeaders, _payload_len: usize, _out: &mut Vec<u8>) {
        todo!()
    }
}
