//! REP: the passive side accepts.

use super::bytes::{Body, BodyMut};
use super::{CommId, Ece, PrivateData};
use crate::ids::{Guid, Psn, Qpn};

/// Reply to a connection request. All "local" fields describe the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Rep {
    /// Sender's communication id.
    pub local_comm_id: CommId,
    /// The REQ's communication id.
    pub remote_comm_id: CommId,
    /// 0 for RC.
    pub local_qkey: u32,
    /// Sender's queue pair.
    pub local_qpn: Qpn,
    /// Enhanced connection establishment; the options travel in the header.
    pub ece: Ece,
    /// Sender's end-to-end context, 24 bits; for XRC the queue pair stands here.
    pub local_eecn: u32,
    /// PSN that the receiver must use for its first request packet.
    pub starting_psn: Psn,
    /// Inbound READs and atomics that the sender serves at once.
    pub responder_resources: u8,
    /// Outbound READs and atomics that the sender wants.
    pub initiator_depth: u8,
    /// Delay of the sender's acknowledgements: 4.096 µs × 2^n, 5 bits.
    pub target_ack_delay: u8,
    /// Whether the alternate path was taken, 2 bits.
    pub failover_accepted: u8,
    /// Whether the sender implements end-to-end flow control.
    pub flow_control: bool,
    /// RNR retries for the receiver's queue pair, 3 bits, 7 = without limit.
    pub rnr_retry_count: u8,
    /// The sender's queue pair uses a shared receive queue.
    pub srq: bool,
    /// Sender's channel adapter.
    pub local_ca_guid: Guid,
    /// Private data.
    pub private_data: PrivateData<{ Self::PRIVATE }>,
}

impl Rep {
    /// Bytes of private data.
    pub const PRIVATE: usize = 196;

    /// The sender's queue pair, wherever its kind puts the number.
    #[must_use]
    pub const fn queue_pair(&self) -> Qpn {
        if self.local_qpn.get() == 0 {
            Qpn::new(self.local_eecn)
        } else {
            self.local_qpn
        }
    }

    pub(super) fn parse(b: Body<'_>, modifier: u32) -> Self {
        // The vendor of ECE is in three reserved bytes, one behind each 24-bit field.
        let vendor = u32::from_be_bytes([0, b.u8(15), b.u8(19), b.u8(23)]);
        Self {
            local_comm_id: CommId(b.u32(0)),
            remote_comm_id: CommId(b.u32(4)),
            local_qkey: b.u32(8),
            local_qpn: Qpn::new(b.u24(12)),
            ece: Ece {
                vendor,
                options: modifier,
            },
            local_eecn: b.u24(16),
            starting_psn: Psn::new(b.u24(20)),
            responder_resources: b.u8(24),
            initiator_depth: b.u8(25),
            target_ack_delay: b.bits(26, 0, 5),
            failover_accepted: b.bits(26, 5, 2),
            flow_control: b.bit(26, 7),
            rnr_retry_count: b.bits(27, 0, 3),
            srq: b.bit(27, 3),
            local_ca_guid: Guid(b.u64(28)),
            private_data: b.private(36),
        }
    }

    pub(super) fn emit(&self, mut b: BodyMut<'_>) {
        let [_, vendor_high, vendor_mid, vendor_low] = self.ece.vendor.to_be_bytes();
        b.u32(0, self.local_comm_id.0);
        b.u32(4, self.remote_comm_id.0);
        b.u32(8, self.local_qkey);
        b.u24(12, self.local_qpn.get());
        b.u8(15, vendor_high);
        b.u24(16, self.local_eecn);
        b.u8(19, vendor_mid);
        b.u24(20, self.starting_psn.get());
        b.u8(23, vendor_low);
        b.u8(24, self.responder_resources);
        b.u8(25, self.initiator_depth);
        b.bits(26, 0, 5, self.target_ack_delay);
        b.bits(26, 5, 2, self.failover_accepted);
        b.bit(26, 7, self.flow_control);
        b.bits(27, 0, 3, self.rnr_retry_count);
        b.bit(27, 3, self.srq);
        b.u64(28, self.local_ca_guid.0);
        b.bytes(36, &self.private_data.0);
    }
}
