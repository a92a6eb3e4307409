//! The base transport header and the extension headers as plain values.

use alloc::vec::Vec;

use super::{HeaderSet, Opcode};
use crate::ids::{DEFAULT_PKEY, Key, Msn, Psn, Qpn};

/// The lower 24 bits of a word on the wire, and what stands in the upper 8.
const fn split_word(word: [u8; 4]) -> (u8, u32) {
    let [top, a, b, c] = word;
    (top, u32::from_be_bytes([0, a, b, c]))
}

/// A word on the wire from its upper 8 and its lower 24 bits.
const fn join_word(top: u8, low: u32) -> [u8; 4] {
    let [_, a, b, c] = low.to_be_bytes();
    [top, a, b, c]
}

/// Base transport header, 12 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// What the packet is.
    pub opcode: Opcode,
    /// SE: wakes a CQ that is armed for solicited events only.
    pub solicited: bool,
    /// M: migration state, ignored on receive.
    pub migreq: bool,
    /// Partition key.
    pub pkey: u16,
    /// FECN/BECN and reserved bits, byte 4.
    pub congestion: u8,
    /// Destination queue pair.
    pub dest_qp: Qpn,
    /// A: the requester wants an acknowledgement.
    pub ack_req: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// A header with the defaults of every packet we send: default partition, no flags.
    #[must_use]
    pub const fn new(opcode: Opcode, dest_qp: Qpn, psn: Psn) -> Self {
        Self {
            opcode,
            solicited: false,
            migreq: false,
            pkey: DEFAULT_PKEY,
            congestion: 0,
            dest_qp,
            ack_req: false,
            psn,
        }
    }

    /// Bytes on the wire.
    pub const LEN: usize = 12;

    /// Reads the fields. Transport version and pad count are the packet's matter: see [`pad_count`](Self::pad_count) and
    /// [`version`](Self::version).
    #[must_use]
    pub const fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let [
            opcode,
            flags,
            pkey_high,
            pkey_low,
            congestion,
            q0,
            q1,
            q2,
            ack,
            p0,
            p1,
            p2,
        ] = *bytes;
        Self {
            opcode: Opcode(opcode),
            solicited: flags & 0x80 != 0,
            migreq: flags & 0x40 != 0,
            pkey: u16::from_be_bytes([pkey_high, pkey_low]),
            congestion,
            dest_qp: Qpn::new(u32::from_be_bytes([0, q0, q1, q2])),
            ack_req: ack & 0x80 != 0,
            psn: Psn::new(u32::from_be_bytes([0, p0, p1, p2])),
        }
    }

    /// The header of a packet whose payload is followed by `pad_count` (0 to 3) pad bytes.
    #[must_use]
    pub const fn to_bytes(&self, pad_count: u8) -> [u8; Self::LEN] {
        let flags = (self.solicited as u8) << 7 | (self.migreq as u8) << 6 | (pad_count & 3) << 4;
        let [pkey_high, pkey_low] = self.pkey.to_be_bytes();
        let [c, q0, q1, q2] = join_word(self.congestion, self.dest_qp.get());
        let [a, p0, p1, p2] = join_word((self.ack_req as u8) << 7, self.psn.get());
        [
            self.opcode.0,
            flags,
            pkey_high,
            pkey_low,
            c,
            q0,
            q1,
            q2,
            a,
            p0,
            p1,
            p2,
        ]
    }

    /// Number of pad bytes after the payload, 0 to 3.
    #[must_use]
    pub const fn pad_count(bytes: &[u8; Self::LEN]) -> u8 {
        bytes[1] >> 4 & 3
    }

    /// Transport header version; 0 is the only one.
    #[must_use]
    pub const fn version(bytes: &[u8; Self::LEN]) -> u8 {
        bytes[1] & 0x0f
    }
}

/// RDMA extended transport header, 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// Virtual address at the responder.
    pub va: u64,
    /// Remote key.
    pub rkey: Key,
    /// Length of the whole message in bytes, at most 2^31.
    pub length: u32,
}

impl Reth {
    const fn from_bytes(bytes: &[u8; 16]) -> Self {
        let [
            v0,
            v1,
            v2,
            v3,
            v4,
            v5,
            v6,
            v7,
            k0,
            k1,
            k2,
            k3,
            l0,
            l1,
            l2,
            l3,
        ] = *bytes;
        Self {
            va: u64::from_be_bytes([v0, v1, v2, v3, v4, v5, v6, v7]),
            rkey: Key(u32::from_be_bytes([k0, k1, k2, k3])),
            length: u32::from_be_bytes([l0, l1, l2, l3]),
        }
    }
    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.va.to_be_bytes());
        out.extend_from_slice(&self.rkey.0.to_be_bytes());
        out.extend_from_slice(&self.length.to_be_bytes());
    }
}

/// ACK extended transport header, 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// What is acknowledged, and how.
    pub syndrome: Syndrome,
    /// Message sequence number.
    pub msn: Msn,
}

impl Aeth {
    const fn from_bytes(bytes: [u8; 4]) -> Self {
        let (syndrome, msn) = split_word(bytes);
        Self {
            syndrome: Syndrome::decode(syndrome),
            msn: Msn::new(msn),
        }
    }
    const fn to_bytes(self) -> [u8; 4] {
        join_word(self.syndrome.encode(), self.msn.get())
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
    /// Acknowledgement without credit information: what we send, as every responder with a shared receive queue must.
    pub const ACK: Self = Self::Ack(0x1f);

    /// The meaning of the first byte of an AETH. Bit 7 is reserved: a byte that has it set is kept as reserved.
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

/// Atomic extended transport header, 28 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// Virtual address at the responder, a multiple of 8.
    pub va: u64,
    /// Remote key.
    pub rkey: Key,
    /// Swap operand (CAS) or the addend (FADD).
    pub swap_or_add: u64,
    /// Compare operand (CAS), 0 for FADD.
    pub compare: u64,
}

impl AtomicEth {
    fn from_bytes(bytes: &[u8; 28]) -> Self {
        let word = |at: usize| core::array::from_fn::<u8, 8, _>(|i| bytes[at + i]);
        let [k0, k1, k2, k3, ..] = word(8);
        Self {
            va: u64::from_be_bytes(word(0)),
            rkey: Key(u32::from_be_bytes([k0, k1, k2, k3])),
            swap_or_add: u64::from_be_bytes(word(12)),
            compare: u64::from_be_bytes(word(20)),
        }
    }
    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.va.to_be_bytes());
        out.extend_from_slice(&self.rkey.0.to_be_bytes());
        out.extend_from_slice(&self.swap_or_add.to_be_bytes());
        out.extend_from_slice(&self.compare.to_be_bytes());
    }
}

/// Datagram extended transport header, 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// Queue key.
    pub qkey: u32,
    /// Sender's queue pair.
    pub src_qp: Qpn,
}

impl Deth {
    const fn from_bytes(bytes: &[u8; 8]) -> Self {
        let [k0, k1, k2, k3, _, q0, q1, q2] = *bytes;
        Self {
            qkey: u32::from_be_bytes([k0, k1, k2, k3]),
            src_qp: Qpn::new(u32::from_be_bytes([0, q0, q1, q2])),
        }
    }
    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.qkey.to_be_bytes());
        out.extend_from_slice(&join_word(0, self.src_qp.get()));
    }
}

/// FLUSH extended transport header, 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feth(
    /// Bits 3:0 placement type (1 global visibility, 2 persistence), bits 5:4 selectivity (0 range, 1 whole region).
    pub u32,
);

/// The extension headers of one packet: those that its opcode calls for are `Some`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtHeaders {
    /// Datagram header (UD).
    pub deth: Option<Deth>,
    /// FLUSH header.
    pub feth: Option<Feth>,
    /// RDMA header (first WRITE packet, READ request).
    pub reth: Option<Reth>,
    /// Atomic request header.
    pub atomic: Option<AtomicEth>,
    /// Acknowledgement header.
    pub aeth: Option<Aeth>,
    /// Original value that an atomic returned.
    pub atomic_ack: Option<u64>,
    /// Immediate data as it stands on the wire.
    pub imm: Option<[u8; 4]>,
    /// Key to invalidate at the responder.
    pub ieth: Option<Key>,
}

impl ExtHeaders {
    /// Which headers are present.
    #[must_use]
    pub fn set(&self) -> HeaderSet {
        let present = [
            (HeaderSet::DETH, self.deth.is_some()),
            (HeaderSet::FETH, self.feth.is_some()),
            (HeaderSet::RETH, self.reth.is_some()),
            (HeaderSet::ATOMIC, self.atomic.is_some()),
            (HeaderSet::AETH, self.aeth.is_some()),
            (HeaderSet::ATOMIC_ACK, self.atomic_ack.is_some()),
            (HeaderSet::IMM, self.imm.is_some()),
            (HeaderSet::IETH, self.ieth.is_some()),
        ];
        present
            .into_iter()
            .filter(|&(_, there)| there)
            .map(|(header, _)| header)
            .collect()
    }

    /// Reads the headers of `set` from the front of `bytes`; the rest is what follows them. `None` if `bytes` is too short.
    pub(super) fn read(set: HeaderSet, mut bytes: &[u8]) -> Option<(Self, &[u8])> {
        let mut ext = Self::default();
        if set.contains(HeaderSet::DETH) {
            ext.deth = Some(Deth::from_bytes(take(&mut bytes)?));
        }
        if set.contains(HeaderSet::FETH) {
            ext.feth = Some(Feth(u32::from_be_bytes(*take(&mut bytes)?)));
        }
        if set.contains(HeaderSet::RETH) {
            ext.reth = Some(Reth::from_bytes(take(&mut bytes)?));
        }
        if set.contains(HeaderSet::ATOMIC) {
            ext.atomic = Some(AtomicEth::from_bytes(take(&mut bytes)?));
        }
        if set.contains(HeaderSet::AETH) {
            ext.aeth = Some(Aeth::from_bytes(*take(&mut bytes)?));
        }
        if set.contains(HeaderSet::ATOMIC_ACK) {
            ext.atomic_ack = Some(u64::from_be_bytes(*take(&mut bytes)?));
        }
        if set.contains(HeaderSet::IMM) {
            ext.imm = Some(*take(&mut bytes)?);
        }
        if set.contains(HeaderSet::IETH) {
            ext.ieth = Some(Key(u32::from_be_bytes(*take(&mut bytes)?)));
        }
        Some((ext, bytes))
    }

    /// Appends the headers that are present, in the order of the wire.
    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        if let Some(deth) = &self.deth {
            deth.emit(out);
        }
        if let Some(Feth(word)) = self.feth {
            out.extend_from_slice(&word.to_be_bytes());
        }
        if let Some(reth) = &self.reth {
            reth.emit(out);
        }
        if let Some(atomic) = &self.atomic {
            atomic.emit(out);
        }
        if let Some(aeth) = self.aeth {
            out.extend_from_slice(&aeth.to_bytes());
        }
        if let Some(original) = self.atomic_ack {
            out.extend_from_slice(&original.to_be_bytes());
        }
        if let Some(imm) = &self.imm {
            out.extend_from_slice(imm);
        }
        if let Some(key) = self.ieth {
            out.extend_from_slice(&key.0.to_be_bytes());
        }
    }
}

/// Takes `N` bytes off the front.
fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (head, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(head)
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
