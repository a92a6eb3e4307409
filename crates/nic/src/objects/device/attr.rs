//! Limits and capabilities: what they say is what works.

use ferroce_os::multicast;
use ferroce_proto::ids::Guid;
use ferroce_proto::verbs::Mtu;

use super::Protocol;
use crate::base::device_clock::CORE_CLOCK_KHZ;

/// Limits and capabilities of a device.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names are those of ibv_query_device(3)")]
pub struct DeviceAttr {
    pub fw_ver: String,
    pub node_guid: Guid,
    pub sys_image_guid: Guid,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: u32,
    pub max_qp_wr: u32,
    pub device_cap_flags: u32,
    /// Bits of `device_cap_flags_ex` that `device_cap_flags` has no room for.
    pub device_cap_flags_ex: u64,
    pub max_sge: u32,
    pub max_sge_rd: u32,
    pub max_inline_data: u32,
    pub max_cq: u32,
    pub max_cqe: u32,
    pub max_mr: u32,
    pub max_mw: u32,
    pub max_dm_size: u64,
    pub max_pd: u32,
    pub max_qp_rd_atom: u32,
    pub max_qp_init_rd_atom: u32,
    pub max_res_rd_atom: u32,
    pub max_ah: u32,
    pub max_srq: u32,
    pub max_srq_wr: u32,
    pub max_srq_sge: u32,
    pub max_mcast_grp: u32,
    pub max_mcast_qp_attach: u32,
    pub local_ca_ack_delay: u8,
    /// Frequency of the clock of completion timestamps, in kHz.
    pub hca_core_clock: u64,
    /// Bits of a completion timestamp that count.
    pub completion_timestamp_mask: u64,
    /// Largest count and period (in microseconds) of completion moderation.
    pub max_cq_moderation: (u16, u16),
}

/// Queue pairs of one process: the numbers that a slot has (14 bits), without the first.
pub(crate) const MAX_QP: u32 = (1 << 14) - 1;
/// Memory windows of one process: what their keys have in common has 13 bits.
const MAX_MW: u32 = (1 << 13) - 1;
/// Queue pairs of a group: what a packet may cost is bounded.
const MAX_MCAST_QP: u32 = 256;
/// READs and atomics in flight per queue pair and direction. Both ends of a connection use 8-bit
/// counts.
const MAX_RD_ATOM: u32 = 128;

/// Bits of `enum ibv_device_cap_flags`.
mod cap {
    /// The port counts packets with a wrong P_Key and a wrong Q_Key.
    pub(super) const BAD_PKEY_CNTR: u32 = 1 << 1;
    pub(super) const BAD_QKEY_CNTR: u32 = 1 << 2;
    pub(super) const CURR_QP_STATE_MOD: u32 = 1 << 7;
    pub(super) const PORT_ACTIVE_EVENT: u32 = 1 << 10;
    pub(super) const SYS_IMAGE_GUID: u32 = 1 << 11;
    pub(super) const RC_RNR_NAK_GEN: u32 = 1 << 12;
    pub(super) const SRQ_RESIZE: u32 = 1 << 13;
    pub(super) const MEM_WINDOW: u32 = 1 << 17;
    /// Type 2 windows belong to the queue pair that bound them.
    pub(super) const MEM_WINDOW_TYPE_2B: u32 = 1 << 24;
    pub(super) const XRC: u32 = 1 << 20;
    /// SEND with invalidate and local invalidate work.
    pub(super) const MEM_MGT_EXTENSIONS: u32 = 1 << 21;

    /// FLUSH to global visibility; persistence (bit 39) is nothing that the device can promise of a
    /// program's memory.
    pub(super) const FLUSH_GLOBAL: u64 = 1 << 38;
    pub(super) const ATOMIC_WRITE: u64 = 1 << 40;
}

impl DeviceAttr {
    /// Limits of the software device, the same for every interface.
    pub(super) fn of(guid: Guid, protocol: Protocol) -> Self {
        match protocol {
            Protocol::RoceV2 => Self::of_rocev2(guid),
            Protocol::Iwarp => Self::of_iwarp(guid),
        }
    }

    /// Reliable connections alone: neither datagrams nor XRC, nor what only `InfiniBand` has.
    fn of_iwarp(guid: Guid) -> Self {
        Self {
            device_cap_flags: cap::CURR_QP_STATE_MOD
                | cap::PORT_ACTIVE_EVENT
                | cap::SYS_IMAGE_GUID
                | cap::SRQ_RESIZE
                | cap::MEM_WINDOW
                | cap::MEM_WINDOW_TYPE_2B
                | cap::MEM_MGT_EXTENSIONS,
            device_cap_flags_ex: 0,
            max_ah: 0,
            max_mcast_grp: 0,
            max_mcast_qp_attach: 0,
            local_ca_ack_delay: 0,
            ..Self::of_rocev2(guid)
        }
    }

    fn of_rocev2(guid: Guid) -> Self {
        Self {
            fw_ver: env!("CARGO_PKG_VERSION").to_owned(),
            node_guid: guid,
            sys_image_guid: guid,
            max_mr_size: 1 << 47,
            page_size_cap: 0xffff_f000,
            // No vendor: programs then use the standard's behaviour only.
            vendor_id: 0x00ff_ffff,
            vendor_part_id: 0,
            hw_ver: 0,
            max_qp: MAX_QP,
            max_qp_wr: 1 << 16,
            device_cap_flags: cap::BAD_PKEY_CNTR
                | cap::BAD_QKEY_CNTR
                | cap::CURR_QP_STATE_MOD
                | cap::PORT_ACTIVE_EVENT
                | cap::SYS_IMAGE_GUID
                | cap::RC_RNR_NAK_GEN
                | cap::SRQ_RESIZE
                | cap::MEM_WINDOW
                | cap::MEM_WINDOW_TYPE_2B
                | cap::XRC
                | cap::MEM_MGT_EXTENSIONS,
            device_cap_flags_ex: cap::FLUSH_GLOBAL | cap::ATOMIC_WRITE,
            max_sge: 32,
            max_sge_rd: 32,
            max_inline_data: 1024,
            max_cq: 1 << 20,
            max_cqe: 1 << 22,
            max_mr: 1 << 20,
            max_mw: MAX_MW,
            max_dm_size: 1 << 20,
            max_pd: 1 << 20,
            max_qp_rd_atom: MAX_RD_ATOM,
            max_qp_init_rd_atom: MAX_RD_ATOM,
            max_res_rd_atom: MAX_RD_ATOM * MAX_QP,
            // Address handles cost nothing but memory.
            max_ah: 1 << 20,
            // XRC numbers them like queue pairs.
            max_srq: MAX_QP,
            max_srq_wr: 1 << 16,
            max_srq_sge: 32,
            max_mcast_grp: multicast::max_groups(),
            max_mcast_qp_attach: MAX_MCAST_QP,
            // 4.096 µs × 2^15: how late an answer may come from a process that competes for a
            // processor.
            local_ca_ack_delay: 15,
            hca_core_clock: CORE_CLOCK_KHZ,
            completion_timestamp_mask: u64::MAX,
            max_cq_moderation: (u16::MAX, u16::MAX),
        }
    }
}

/// State of a device's only port.
#[derive(Clone, Debug)]
pub struct PortAttr {
    /// Interface up: ACTIVE.
    pub active: bool,
    /// Always 4096.
    pub max_mtu: Mtu,
    /// What the port shows: [`fitting_mtu`](Self::fitting_mtu), on the loopback's device at most
    /// that of every other device.
    pub active_mtu: Mtu,
    /// What paths and datagrams may use: the largest at most the interface's MTU - 80.
    pub fitting_mtu: Mtu,
    /// MTU of the interface in bytes.
    pub netdev_mtu: u32,
    /// Length of the GID table, empty entries included.
    pub gid_tbl_len: u32,
    /// Longest message: 2^31.
    pub max_msg_sz: u32,
}

/// Longest message of every service, in bytes.
pub(crate) const MAX_MSG_SZ: u32 = 1 << 31;
/// What IP, UDP and transport headers may take of an interface's MTU: 40 IPv6, 8 UDP, 12 BTH, 16
/// RETH, 4 ICRC.
const HEADER_ROOM: u32 = 80;

/// The path MTU that fits an interface's MTU, 256 at least.
pub(crate) fn fitting_mtu(netdev_mtu: u32) -> Mtu {
    Mtu::at_most(netdev_mtu.saturating_sub(HEADER_ROOM)).unwrap_or(Mtu::B256)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fitting_mtu_leaves_room_for_headers() {
        for (netdev, mtu) in [
            (0, Mtu::B256),
            (576, Mtu::B256),
            (1500, Mtu::B1024),
            (2127, Mtu::B1024),
            (2128, Mtu::B2048),
            (4176, Mtu::B4096),
            (9000, Mtu::B4096),
            (65536, Mtu::B4096),
        ] {
            assert_eq!(fitting_mtu(netdev), mtu, "interface MTU {netdev}");
        }
    }
}
