//! The base transport header and the extension headers as plain values.

use super::Opcode;
use crate::ids::{Key, Msn, Psn, Qpn};

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
            pkey: crate::ids::DEFAULT_PKEY,
            congestion: 0,
            dest_qp,
            ack_req: false,
            psn,
        }
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

/// ACK extended transport header, 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// What is acknowledged, and how.
    pub syndrome: Syndrome,
    /// Message sequence number.
    pub msn: Msn,
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

/// Datagram extended transport header, 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// Queue key.
    pub qkey: u32,
    /// Sender's queue pair.
    pub src_qp: Qpn,
}

/// The extension headers of one packet: those that its opcode calls for are `Some`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtHeaders {
    /// Datagram header (UD).
    pub deth: Option<Deth>,
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
