//! Service id resolution: how a datagram service tells its queue pair.

use super::bytes::{Body, BodyMut};
use super::{Ece, PrivateData, ServiceId};
use crate::ids::Qpn;

/// Service id resolution request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SidrReq {
    /// Number of the request at its sender.
    pub request_id: u32,
    /// Partition key.
    pub pkey: u16,
    /// Service that is asked for.
    pub service_id: ServiceId,
    /// Enhanced connection establishment; travels in the header.
    pub ece_options: u32,
    /// Private data; over IP port spaces its first 36 bytes are the
    /// [`IpCmHeader`](super::IpCmHeader).
    pub private_data: PrivateData<{ Self::PRIVATE }>,
}

impl SidrReq {
    /// Bytes of private data.
    pub const PRIVATE: usize = 216;

    pub(super) fn parse(b: Body<'_>, modifier: u32) -> Self {
        Self {
            request_id: b.u32(0),
            pkey: b.u16(4),
            service_id: ServiceId(b.u64(8)),
            ece_options: modifier,
            private_data: b.private(16),
        }
    }

    pub(super) fn emit(&self, mut b: BodyMut<'_>) {
        b.u32(0, self.request_id);
        b.u16(4, self.pkey);
        b.u64(8, self.service_id.0);
        b.bytes(16, &self.private_data.0);
    }
}

/// Outcome of a service id resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SidrStatus(pub u8);

impl SidrStatus {
    /// The queue pair is valid.
    pub const VALID: Self = Self(0);
    /// No process offers the service.
    pub const UNSUPPORTED: Self = Self(1);
    /// The service's owner refuses.
    pub const REJECT: Self = Self(2);
    /// No queue pair for it.
    pub const NO_QP: Self = Self(3);
    /// Ask elsewhere.
    pub const REDIRECT: Self = Self(4);
    /// Version not supported.
    pub const UNSUPPORTED_VERSION: Self = Self(5);
}

/// Service id resolution reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SidrRep {
    /// The request's id.
    pub request_id: u32,
    /// Outcome.
    pub status: SidrStatus,
    /// Bytes of `info` that mean something.
    pub info_length: u8,
    /// Enhanced connection establishment; the options travel in the header.
    pub ece: Ece,
    /// The service's queue pair.
    pub qpn: Qpn,
    /// The service.
    pub service_id: ServiceId,
    /// The queue pair's key.
    pub qkey: u32,
    /// Additional information.
    pub info: [u8; Self::INFO],
    /// Private data.
    pub private_data: PrivateData<{ Self::PRIVATE }>,
}

impl SidrRep {
    /// Bytes of additional information.
    pub const INFO: usize = 72;
    /// Bytes of private data.
    pub const PRIVATE: usize = 136;

    /// A reply that refuses the request.
    #[must_use]
    pub fn refusal(request: &SidrReq, status: SidrStatus) -> Self {
        Self {
            request_id: request.request_id,
            status,
            info_length: 0,
            ece: Ece::default(),
            qpn: Qpn::default(),
            service_id: request.service_id,
            qkey: 0,
            info: [0; Self::INFO],
            private_data: PrivateData::default(),
        }
    }

    pub(super) fn parse(b: Body<'_>, modifier: u32) -> Self {
        let [vendor_high, vendor_mid] = b.bytes(6);
        Self {
            request_id: b.u32(0),
            status: SidrStatus(b.u8(4)),
            info_length: b.u8(5),
            ece: Ece {
                vendor: u32::from_be_bytes([0, vendor_high, vendor_mid, b.u8(11)]),
                options: modifier,
            },
            qpn: Qpn::new(b.u24(8)),
            service_id: ServiceId(b.u64(12)),
            qkey: b.u32(20),
            info: b.bytes(24),
            private_data: b.private(96),
        }
    }

    pub(super) fn emit(&self, mut b: BodyMut<'_>) {
        let [_, vendor_high, vendor_mid, vendor_low] = self.ece.vendor.to_be_bytes();
        b.u32(0, self.request_id);
        b.u8(4, self.status.0);
        b.u8(5, self.info_length);
        b.bytes(6, &[vendor_high, vendor_mid]);
        b.u24(8, self.qpn.get());
        b.u8(11, vendor_low);
        b.u64(12, self.service_id.0);
        b.u32(20, self.qkey);
        b.bytes(24, &self.info);
        b.bytes(96, &self.private_data.0);
    }
}
