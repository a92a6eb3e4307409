//! MRA, REJ, RTU, DREQ and DREP: the messages that steer a conversation. All begin with both
//! communication ids.

use super::bytes::{Body, BodyMut};
use super::{CommId, PrivateData, RejReason};
use crate::ids::Qpn;

/// Which message an MRA or REJ answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Answered {
    /// A REQ.
    #[default]
    Req = 0,
    /// A REP.
    Rep = 1,
    /// Another one, or none.
    Other = 2,
}

impl Answered {
    const fn from_bits(bits: u8) -> Self {
        match bits {
            0 => Self::Req,
            1 => Self::Rep,
            // 3 is reserved, and is read as the value that names no message.
            _ => Self::Other,
        }
    }
}

fn comm_ids(b: Body<'_>) -> (CommId, CommId) {
    (CommId(b.u32(0)), CommId(b.u32(4)))
}

fn put_comm_ids(b: &mut BodyMut<'_>, local: CommId, remote: CommId) {
    b.u32(0, local.0);
    b.u32(4, remote.0);
}

/// Message receipt acknowledgement: "I have it, the answer takes longer".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Mra {
    /// Sender's communication id.
    pub local_comm_id: CommId,
    /// Receiver's communication id.
    pub remote_comm_id: CommId,
    /// Kind of the message that was received.
    pub answered: Answered,
    /// How long the answer may take: 4.096 µs × 2^n, 5 bits.
    pub service_timeout: u8,
    /// Private data.
    pub private_data: PrivateData<{ Self::PRIVATE }>,
}

impl Mra {
    /// Bytes of private data.
    pub const PRIVATE: usize = 222;

    pub(super) fn parse(b: Body<'_>) -> Self {
        let (local_comm_id, remote_comm_id) = comm_ids(b);
        Self {
            local_comm_id,
            remote_comm_id,
            answered: Answered::from_bits(b.bits(8, 0, 2)),
            service_timeout: b.bits(9, 0, 5),
            private_data: b.private(10),
        }
    }

    pub(super) fn emit(&self, mut b: BodyMut<'_>) {
        put_comm_ids(&mut b, self.local_comm_id, self.remote_comm_id);
        b.bits(8, 0, 2, self.answered as u8);
        b.bits(9, 0, 5, self.service_timeout);
        b.bytes(10, &self.private_data.0);
    }
}

/// Rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rej {
    /// Sender's communication id, 0 if it never had one.
    pub local_comm_id: CommId,
    /// Receiver's communication id, 0 if the sender never learnt it (reason 4).
    pub remote_comm_id: CommId,
    /// Kind of the message that is rejected.
    pub answered: Answered,
    /// Bytes of `info` that mean something, 7 bits.
    pub info_length: u8,
    /// Reason for the rejection.
    pub reason: RejReason,
    /// Additional reject information; for reason 4 it begins with the sender's CA GUID.
    pub info: [u8; Self::INFO],
    /// Private data.
    pub private_data: PrivateData<{ Self::PRIVATE }>,
}

impl Rej {
    /// Bytes of additional reject information.
    pub const INFO: usize = 72;
    /// Bytes of private data.
    pub const PRIVATE: usize = 148;

    /// A rejection with nothing but a reason.
    #[must_use]
    pub const fn new(reason: RejReason) -> Self {
        Self {
            local_comm_id: CommId(0),
            remote_comm_id: CommId(0),
            answered: Answered::Other,
            info_length: 0,
            reason,
            info: [0; Self::INFO],
            private_data: PrivateData([0; Self::PRIVATE]),
        }
    }

    pub(super) fn parse(b: Body<'_>) -> Self {
        let (local_comm_id, remote_comm_id) = comm_ids(b);
        Self {
            local_comm_id,
            remote_comm_id,
            answered: Answered::from_bits(b.bits(8, 0, 2)),
            info_length: b.bits(9, 0, 7),
            reason: RejReason(b.u16(10)),
            info: b.bytes(12),
            private_data: b.private(84),
        }
    }

    pub(super) fn emit(&self, mut b: BodyMut<'_>) {
        put_comm_ids(&mut b, self.local_comm_id, self.remote_comm_id);
        b.bits(8, 0, 2, self.answered as u8);
        b.bits(9, 0, 7, self.info_length);
        b.u16(10, self.reason.0);
        b.bytes(12, &self.info);
        b.bytes(84, &self.private_data.0);
    }
}

/// Ready to use: the active side has the REP and its queue pair is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Rtu {
    /// Sender's communication id.
    pub local_comm_id: CommId,
    /// Receiver's communication id.
    pub remote_comm_id: CommId,
    /// Private data.
    pub private_data: PrivateData<{ Self::PRIVATE }>,
}

impl Rtu {
    /// Bytes of private data.
    pub const PRIVATE: usize = 224;

    pub(super) fn parse(b: Body<'_>) -> Self {
        let (local_comm_id, remote_comm_id) = comm_ids(b);
        Self {
            local_comm_id,
            remote_comm_id,
            private_data: b.private(8),
        }
    }

    pub(super) fn emit(&self, mut b: BodyMut<'_>) {
        put_comm_ids(&mut b, self.local_comm_id, self.remote_comm_id);
        b.bytes(8, &self.private_data.0);
    }
}

/// Disconnect request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Dreq {
    /// Sender's communication id.
    pub local_comm_id: CommId,
    /// Receiver's communication id.
    pub remote_comm_id: CommId,
    /// Receiver's queue pair.
    pub remote_qpn: Qpn,
    /// Private data.
    pub private_data: PrivateData<{ Self::PRIVATE }>,
}

impl Dreq {
    /// Bytes of private data.
    pub const PRIVATE: usize = 220;

    pub(super) fn parse(b: Body<'_>) -> Self {
        let (local_comm_id, remote_comm_id) = comm_ids(b);
        Self {
            local_comm_id,
            remote_comm_id,
            remote_qpn: Qpn::new(b.u24(8)),
            private_data: b.private(12),
        }
    }

    pub(super) fn emit(&self, mut b: BodyMut<'_>) {
        put_comm_ids(&mut b, self.local_comm_id, self.remote_comm_id);
        b.u24(8, self.remote_qpn.get());
        b.bytes(12, &self.private_data.0);
    }
}

/// Reply to a disconnect request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Drep {
    /// Sender's communication id.
    pub local_comm_id: CommId,
    /// Receiver's communication id.
    pub remote_comm_id: CommId,
    /// Private data.
    pub private_data: PrivateData<{ Self::PRIVATE }>,
}

impl Drep {
    /// Bytes of private data.
    pub const PRIVATE: usize = 224;

    pub(super) fn parse(b: Body<'_>) -> Self {
        let (local_comm_id, remote_comm_id) = comm_ids(b);
        Self {
            local_comm_id,
            remote_comm_id,
            private_data: b.private(8),
        }
    }

    pub(super) fn emit(&self, mut b: BodyMut<'_>) {
        put_comm_ids(&mut b, self.local_comm_id, self.remote_comm_id);
        b.bytes(8, &self.private_data.0);
    }
}
