//! REQ: the active side asks for a connection.

use super::bytes::{Body, BodyMut};
use super::{CommId, Ece, PrivateData, ServiceId};
use crate::ids::{Gid, Guid, Psn, Qpn};

/// Connection request. All "local" fields describe the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Req {
    /// Sender's communication id.
    pub local_comm_id: CommId,
    /// Enhanced connection establishment; the options travel in the header.
    pub ece: Ece,
    /// Service that is asked for.
    pub service_id: ServiceId,
    /// Sender's channel adapter.
    pub local_ca_guid: Guid,
    /// 0 for RC.
    pub local_qkey: u32,
    /// Sender's queue pair.
    pub local_qpn: Qpn,
    /// Inbound READs and atomics that the sender serves at once.
    pub responder_resources: u8,
    /// Sender's end-to-end context, 24 bits (RD only).
    pub local_eecn: u32,
    /// Outbound READs and atomics that the sender wants.
    pub initiator_depth: u8,
    /// Receiver's end-to-end context, 24 bits (RD only).
    pub remote_eecn: u32,
    /// Time that the receiver may take to answer: 4.096 µs × 2^n, 5 bits.
    pub remote_cm_response_timeout: u8,
    /// 0 RC, 1 UC, 2 RD, 3 extended; 2 bits.
    pub transport_service: u8,
    /// Whether the sender implements end-to-end flow control.
    pub flow_control: bool,
    /// PSN that the receiver must use for its first request packet.
    pub starting_psn: Psn,
    /// Time that the sender takes to answer: 4.096 µs × 2^n, 5 bits.
    pub local_cm_response_timeout: u8,
    /// Transport retries, 3 bits.
    pub retry_count: u8,
    /// Partition key with its membership bit.
    pub pkey: u16,
    /// Path MTU as `enum ibv_mtu`, 4 bits.
    pub path_mtu: u8,
    /// RD only.
    pub rdc_exists: bool,
    /// RNR retries for the receiver's queue pair, 3 bits, 7 = without limit.
    pub rnr_retry_count: u8,
    /// Times that a message of this conversation is sent again without an answer, 4 bits.
    pub max_cm_retries: u8,
    /// The sender's queue pair uses a shared receive queue.
    pub srq: bool,
    /// 1 = XRC, with `transport_service` 3; 3 bits.
    pub extended_transport: u8,
    /// The path that the connection uses.
    pub primary: PathSpec,
    /// The path for migration; all zero if there is none.
    pub alternate: PathSpec,
    /// Private data; over IP port spaces its first 36 bytes are the
    /// [`IpCmHeader`](super::IpCmHeader).
    pub private_data: PrivateData<{ Self::PRIVATE }>,
}

/// A path as a REQ describes it, from the sender's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PathSpec {
    /// Sender's LID; ignored on `RoCEv2`.
    pub local_lid: u16,
    /// Receiver's LID; ignored on `RoCEv2`.
    pub remote_lid: u16,
    /// Sender's GID.
    pub local_gid: Gid,
    /// Receiver's GID.
    pub remote_gid: Gid,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Packet rate, 6 bits.
    pub packet_rate: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    /// Both ends are in one subnet.
    pub subnet_local: bool,
    /// Local ACK timeout code for the receiver's queue pair, 5 bits.
    pub local_ack_timeout: u8,
}

/// Offset of the primary path; the alternate one follows with the same shape.
const PRIMARY: usize = 52;
const ALTERNATE: usize = 96;

impl PathSpec {
    fn parse(b: Body<'_>, at: usize) -> Self {
        Self {
            local_lid: b.u16(at),
            remote_lid: b.u16(at + 2),
            local_gid: Gid(b.bytes(at + 4)),
            remote_gid: Gid(b.bytes(at + 20)),
            // 20 bits, behind which 4 are reserved.
            flow_label: b.u24(at + 36) >> 4,
            packet_rate: b.bits(at + 39, 2, 6),
            traffic_class: b.u8(at + 40),
            hop_limit: b.u8(at + 41),
            sl: b.bits(at + 42, 0, 4),
            subnet_local: b.bit(at + 42, 4),
            local_ack_timeout: b.bits(at + 43, 0, 5),
        }
    }

    fn emit(&self, b: &mut BodyMut<'_>, at: usize) {
        b.u16(at, self.local_lid);
        b.u16(at + 2, self.remote_lid);
        b.bytes(at + 4, &self.local_gid.0);
        b.bytes(at + 20, &self.remote_gid.0);
        b.u24(at + 36, self.flow_label << 4);
        b.bits(at + 39, 2, 6, self.packet_rate);
        b.u8(at + 40, self.traffic_class);
        b.u8(at + 41, self.hop_limit);
        b.bits(at + 42, 0, 4, self.sl);
        b.bit(at + 42, 4, self.subnet_local);
        b.bits(at + 43, 0, 5, self.local_ack_timeout);
    }
}

impl Req {
    /// Bytes of private data.
    pub const PRIVATE: usize = 92;
    /// `transport_service` of unreliable connected queue pairs.
    pub const SERVICE_UC: u8 = 1;
    /// `transport_service` of queue pairs whose kind is in `extended_transport`.
    pub const SERVICE_EXTENDED: u8 = 3;
    /// `extended_transport` of extended reliable connected queue pairs.
    pub const EXTENDED_XRC: u8 = 1;
    /// `transport_service` of reliable connected queue pairs.
    pub const SERVICE_RC: u8 = 0;

    pub(super) fn parse(b: Body<'_>, modifier: u32) -> Self {
        Self {
            local_comm_id: CommId(b.u32(0)),
            ece: Ece {
                // 24 bits that IBTA reserves have the vendor of ECE, as Linux's `ib_cm` has it.
                vendor: b.u24(5),
                options: modifier,
            },
            service_id: ServiceId(b.u64(8)),
            local_ca_guid: Guid(b.u64(16)),
            local_qkey: b.u32(28),
            local_qpn: Qpn::new(b.u24(32)),
            responder_resources: b.u8(35),
            local_eecn: b.u24(36),
            initiator_depth: b.u8(39),
            remote_eecn: b.u24(40),
            remote_cm_response_timeout: b.bits(43, 0, 5),
            transport_service: b.bits(43, 5, 2),
            flow_control: b.bit(43, 7),
            starting_psn: Psn::new(b.u24(44)),
            local_cm_response_timeout: b.bits(47, 0, 5),
            retry_count: b.bits(47, 5, 3),
            pkey: b.u16(48),
            path_mtu: b.bits(50, 0, 4),
            rdc_exists: b.bit(50, 4),
            rnr_retry_count: b.bits(50, 5, 3),
            max_cm_retries: b.bits(51, 0, 4),
            srq: b.bit(51, 4),
            extended_transport: b.bits(51, 5, 3),
            primary: PathSpec::parse(b, PRIMARY),
            alternate: PathSpec::parse(b, ALTERNATE),
            private_data: b.private(140),
        }
    }

    pub(super) fn emit(&self, mut b: BodyMut<'_>) {
        b.u32(0, self.local_comm_id.0);
        b.u24(5, self.ece.vendor);
        b.u64(8, self.service_id.0);
        b.u64(16, self.local_ca_guid.0);
        b.u32(28, self.local_qkey);
        b.u24(32, self.local_qpn.get());
        b.u8(35, self.responder_resources);
        b.u24(36, self.local_eecn);
        b.u8(39, self.initiator_depth);
        b.u24(40, self.remote_eecn);
        b.bits(43, 0, 5, self.remote_cm_response_timeout);
        b.bits(43, 5, 2, self.transport_service);
        b.bit(43, 7, self.flow_control);
        b.u24(44, self.starting_psn.get());
        b.bits(47, 0, 5, self.local_cm_response_timeout);
        b.bits(47, 5, 3, self.retry_count);
        b.u16(48, self.pkey);
        b.bits(50, 0, 4, self.path_mtu);
        b.bit(50, 4, self.rdc_exists);
        b.bits(50, 5, 3, self.rnr_retry_count);
        b.bits(51, 0, 4, self.max_cm_retries);
        b.bit(51, 4, self.srq);
        b.bits(51, 5, 3, self.extended_transport);
        self.primary.emit(&mut b, PRIMARY);
        self.alternate.emit(&mut b, ALTERNATE);
        b.bytes(140, &self.private_data.0);
    }
}
