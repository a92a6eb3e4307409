//! A transport packet: parse from and emit to bytes.

use alloc::vec::Vec;

use super::{Bth, ExtHeaders, HeaderSet, Opcode, Service};
use crate::ids::Qpn;

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

/// Bytes that a payload of `len` bytes takes with its pad: the next multiple of 4.
#[must_use]
pub const fn padded_len(len: usize) -> usize {
    len + pad_count(len) as usize
}

/// Pad bytes after a payload of `len` bytes, 0 to 3.
#[expect(clippy::cast_possible_truncation, reason = "two bits")]
pub(crate) const fn pad_count(len: usize) -> u8 {
    (len.wrapping_neg() & 3) as u8
}

/// Facts about an opcode that the parser needs. RC and XRC operations that the specification leaves
/// undefined get no extension headers. They are packets all the same, which the responder has to
/// answer with a NAK "invalid request".
fn parse_rule(opcode: Opcode) -> Result<HeaderSet, WireError> {
    match opcode.info() {
        Some(info) => Ok(info.headers),
        None if matches!(opcode.service(), Some(Service::Rc | Service::Xrc)) => {
            Ok(HeaderSet::empty())
        }
        None => Err(WireError::UnknownOpcode(opcode.0)),
    }
}

impl<'a> Packet<'a> {
    /// Reads a packet (BTH through pad, without ICRC).
    ///
    /// An undefined opcode of the RC or XRC class is accepted: [`Opcode::info`] has none, there are
    /// no extension headers, and all that follows the BTH is payload.
    ///
    /// # Errors
    /// [`WireError`] says what is wrong; nothing else is checked here (keys, lengths against the
    /// MTU and the like are the transport's).
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let got = bytes.len();
        let Some((head, rest)) = bytes.split_first_chunk() else {
            return Err(WireError::TooShort {
                need: Bth::LEN,
                got,
            });
        };
        let bth = Bth::from_bytes(head);
        if Bth::version(head) != 0 {
            return Err(WireError::Version(Bth::version(head)));
        }
        if bth.dest_qp.get() == 0 {
            return Err(WireError::QpZero);
        }
        let headers = parse_rule(bth.opcode)?;
        let pad = usize::from(Bth::pad_count(head));
        let too_short = WireError::TooShort {
            need: Bth::LEN + headers.wire_len() + pad,
            got,
        };
        let (ext, rest) = ExtHeaders::read(headers, rest).ok_or(too_short)?;
        let payload_len = rest.len().checked_sub(pad).ok_or(too_short)?;
        Ok(Self {
            bth,
            ext,
            payload: &rest[..payload_len],
        })
    }

    /// The destination queue pair of a packet that was not parsed, to find the owner that parses
    /// it. `None` if `bytes` is shorter than a base transport header.
    #[must_use]
    pub fn dest_qp(bytes: &[u8]) -> Option<Qpn> {
        bytes
            .first_chunk()
            .map(|head| Bth::from_bytes(head).dest_qp)
    }

    /// Bytes that [`emit`](Self::emit) appends: headers, payload and pad.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        Bth::LEN + self.ext.set().wire_len() + padded_len(self.payload.len())
    }

    /// Appends headers, payload and pad (without ICRC) to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        Self::emit_headers(&self.bth, &self.ext, self.payload.len(), out);
        out.extend_from_slice(self.payload);
        out.resize(out.len() + usize::from(pad_count(self.payload.len())), 0);
    }

    /// Appends only the headers, with the pad count for `payload_len`; the caller appends the
    /// payload and zero bytes up to [`padded_len`].
    pub fn emit_headers(bth: &Bth, ext: &ExtHeaders, payload_len: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&bth.to_bytes(pad_count(payload_len)));
        ext.emit(out);
    }
}

#[cfg(test)]
mod tests;
