//! The base transport header.

use super::Opcode;
use crate::ids::{DEFAULT_PKEY, Psn, Qpn};

/// Base transport header, 12 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// Transport service, operation and position of the packet.
    pub opcode: Opcode,
    /// SE: wakes a CQ that is armed for solicited events only.
    pub solicited: bool,
    /// M: the sender is in migration state MIGRATED.
    pub migreq: bool,
    /// Partition key.
    pub pkey: u16,
    /// FECN/BECN and reserved bits, byte 4; see [`VOUCHED`](Self::VOUCHED).
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

    /// A reserved bit of [`congestion`](Self::congestion), set between Ferroces only: the packet
    /// was asked for, and its sender has sent what its receiver keeps behind it.
    pub const VOUCHED: u8 = 1;

    /// Whether [`VOUCHED`](Self::VOUCHED) is set.
    #[must_use]
    pub const fn is_vouched(&self) -> bool {
        self.congestion & Self::VOUCHED != 0
    }

    /// Reads the fields. Transport version and pad count are the packet's matter: see
    /// [`pad_count`](Self::pad_count) and [`version`](Self::version).
    #[must_use]
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the key is the lower half")]
    pub const fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let [first, second, third] = Self::words(bytes);
        let [opcode, flags, _, _] = first.to_be_bytes();
        Self {
            opcode: Opcode(opcode),
            solicited: flags & 0x80 != 0,
            migreq: flags & 0x40 != 0,
            pkey: first as u16,
            congestion: second.to_be_bytes()[0],
            dest_qp: Qpn::new(second),
            ack_req: third >> 31 != 0,
            psn: Psn::new(third),
        }
    }

    /// The header as numbers: whole words cost less than their bytes.
    #[inline]
    const fn words(bytes: &[u8; Self::LEN]) -> [u32; 3] {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *bytes;
        [
            u32::from_be_bytes([a, b, c, d]),
            u32::from_be_bytes([e, f, g, h]),
            u32::from_be_bytes([i, j, k, l]),
        ]
    }

    /// The header of a packet whose payload is followed by `pad_count` (0 to 3) pad bytes.
    #[must_use]
    #[inline]
    pub const fn to_bytes(&self, pad_count: u8) -> [u8; Self::LEN] {
        let [[a, b, c, d], [e, f, g, h], [i, j, k, l]] = {
            let [first, second, third] = self.to_words(pad_count);
            [
                first.to_ne_bytes(),
                second.to_ne_bytes(),
                third.to_ne_bytes(),
            ]
        };
        [a, b, c, d, e, f, g, h, i, j, k, l]
    }

    /// The same as words, as they are in memory.
    #[must_use]
    #[inline]
    pub const fn to_words(&self, pad_count: u8) -> [u32; 3] {
        let first = (self.opcode.0 as u32) << 24 | (self.migreq as u32) << 22 | self.pkey as u32;
        let first = first.to_be() | Self::solicited_and_pad(self.solicited, pad_count);
        let second = (self.congestion as u32) << 24 | self.dest_qp.get();
        let third = Self::last_word(self.ack_req, self.psn);
        [first, second.to_be(), third]
    }

    /// Bits that the flag SE and the pad count add to the first word of a header, as it is in
    /// memory.
    #[must_use]
    #[inline]
    pub(crate) const fn solicited_and_pad(solicited: bool, pad_count: u8) -> u32 {
        let flags = (solicited as u32) << 7 | (pad_count as u32 & 3) << 4;
        (flags << 16).to_be()
    }

    /// The last word of a header, as it is in memory.
    #[must_use]
    #[inline]
    pub(crate) const fn last_word(ack_req: bool, psn: Psn) -> u32 {
        ((ack_req as u32) << 31 | psn.get()).to_be()
    }

    /// The PSN in the words of a header, as they are in memory.
    #[must_use]
    #[inline]
    pub const fn psn_in([_, _, third]: [u32; 3]) -> Psn {
        Psn::new(u32::from_be(third))
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
