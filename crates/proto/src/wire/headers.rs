//! The extension headers as plain values.

use alloc::vec::Vec;

use super::word::join;
use super::{Aeth, Feth, HeaderSet};
use crate::ids::{Key, Qpn, Srqn};

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
    /// Number of its bytes.
    pub const LEN: usize = 28;

    /// Reads it.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let word = |at: usize| core::array::from_fn::<u8, 8, _>(|i| bytes[at + i]);
        let [k0, k1, k2, k3, ..] = word(8);
        Self {
            va: u64::from_be_bytes(word(0)),
            rkey: Key(u32::from_be_bytes([k0, k1, k2, k3])),
            swap_or_add: u64::from_be_bytes(word(12)),
            compare: u64::from_be_bytes(word(20)),
        }
    }

    /// As it is in a packet.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.va.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.rkey.0.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.swap_or_add.to_be_bytes());
        bytes[20..].copy_from_slice(&self.compare.to_be_bytes());
        bytes
    }

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_bytes());
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
        out.extend_from_slice(&join(0, self.src_qp.get()));
    }
}

/// The extension headers of one packet: those that its opcode calls for are `Some`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtHeaders {
    /// Datagram header (UD).
    pub deth: Option<Deth>,
    /// XRC header: the shared receive queue that the request is for.
    pub xrceth: Option<Srqn>,
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
    /// Returns the set of headers that are present.
    #[must_use]
    pub fn set(&self) -> HeaderSet {
        let present = [
            (HeaderSet::DETH, self.deth.is_some()),
            (HeaderSet::XRCETH, self.xrceth.is_some()),
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

    /// Reads the headers of `set` from the front of `bytes`; the rest is what follows them. `None`
    /// if `bytes` is too short.
    pub(super) fn read(set: HeaderSet, mut bytes: &[u8]) -> Option<(Self, &[u8])> {
        let mut ext = Self::default();
        if set.contains(HeaderSet::DETH) {
            ext.deth = Some(Deth::from_bytes(take(&mut bytes)?));
        }
        if set.contains(HeaderSet::XRCETH) {
            // The first byte is reserved.
            ext.xrceth = Some(Srqn::new(u32::from_be_bytes(*take(&mut bytes)?)));
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
        if let Some(srq) = self.xrceth {
            out.extend_from_slice(&join(0, srq.get()));
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
