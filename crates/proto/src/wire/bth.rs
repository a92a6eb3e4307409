//! The base transport header.

use super::Opcode;
use super::word::join;
use crate::ids::{DEFAULT_PKEY, Psn, Qpn};

/// Base transport header, 12 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// What the packet is.
    pub opcode: Opcode,
    /// SE: wakes a CQ that is armed for solicited events only.
    pub solicited: bool,
    /// M: the sender is in migration state MIGRATED.
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
        let [c, q0, q1, q2] = join(self.congestion, self.dest_qp.get());
        let [a, p0, p1, p2] = join((self.ack_req as u8) << 7, self.psn.get());
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
