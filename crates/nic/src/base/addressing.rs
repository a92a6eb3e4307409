//! Addresses of a packet.

use ferroce_proto::ids::Gid;
use ferroce_proto::wire::Packet;

use crate::base::counters::DropReason;

/// Addresses of a packet and what the IP header carries of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Addressing {
    /// Source GID.
    pub(crate) src: Gid,
    /// Destination GID.
    pub(crate) dst: Gid,
    /// TTL or hop limit, taken literally.
    pub(crate) hop_limit: u8,
    /// TOS or traffic class.
    pub(crate) traffic_class: u8,
    /// Flow label, 20 bits; IPv4 has none.
    pub(crate) flow_label: u32,
    /// Index of the network interface: scope of link-local addresses and of multicast groups.
    pub(crate) ifindex: u32,
}

impl Addressing {
    /// Returns the addressing of what goes the other way.
    pub(crate) fn reversed(&self) -> Self {
        Self {
            src: self.dst,
            dst: self.src,
            ..*self
        }
    }

    /// Reads a packet that came with these addresses, and gives it to `take`, or why it is none.
    /// (By reference: a packet has room for all headers, and moving it costs more than reading it.)
    #[inline]
    pub(crate) fn read<'a, R>(
        &self,
        bytes: &'a [u8],
        take: impl FnOnce(Result<&Packet<'a>, DropReason>) -> R,
    ) -> R {
        let from = || self.src.ip();
        match &Packet::parse(bytes) {
            Ok(packet) => {
                tracing::trace!(target: "ferroce::packet", from = %from(), bth = ?packet.bth, ext = ?packet.ext,
                    payload = packet.payload.len(), "in");
                take(Ok(packet))
            }
            Err(e) => {
                tracing::debug!(target: "ferroce::packet", from = %from(), "not a packet: {e}");
                take(Err(DropReason::Malformed))
            }
        }
    }
}
