//! Queue pair attributes as `ibv_modify_qp(3)` and `ibv_query_qp(3)` know them.

use core::fmt;

use crate::ids::{Gid, Psn, Qpn};
use crate::mr::Access;

/// `enum ibv_qp_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names are the specification's")]
pub enum QpState {
    Reset = 0,
    Init = 1,
    Rtr = 2,
    Rts = 3,
    Sqd = 4,
    Sqe = 5,
    Err = 6,
}

impl QpState {
    /// From the C interface's number.
    #[must_use]
    pub const fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            0 => Self::Reset,
            1 => Self::Init,
            2 => Self::Rtr,
            3 => Self::Rts,
            4 => Self::Sqd,
            5 => Self::Sqe,
            6 => Self::Err,
            _ => return None,
        })
    }
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::Rtr => "RTR",
            Self::Rts => "RTS",
            Self::Sqd => "SQD",
            Self::Sqe => "SQE",
            Self::Err => "ERR",
        })
    }
}

/// `enum ibv_qp_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names are the specification's")]
pub enum QpType {
    Rc = 2,
    Uc = 3,
    Ud = 4,
    RawPacket = 8,
    XrcSend = 9,
    XrcRecv = 10,
}

impl fmt::Display for QpType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::RawPacket => "RAW_PACKET",
            Self::XrcSend => "XRC_SEND",
            Self::XrcRecv => "XRC_RECV",
        })
    }
}

/// `enum ibv_mtu`: payload bytes of a full packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names carry the number of bytes")]
pub enum Mtu {
    B256 = 1,
    B512 = 2,
    B1024 = 3,
    B2048 = 4,
    B4096 = 5,
}

impl Mtu {
    /// Payload bytes of a full packet.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        128 << (self as u32)
    }

    /// From the C interface's number.
    #[must_use]
    pub const fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            1 => Self::B256,
            2 => Self::B512,
            3 => Self::B1024,
            4 => Self::B2048,
            5 => Self::B4096,
            _ => return None,
        })
    }

    /// The largest MTU whose payload is at most `bytes`.
    #[must_use]
    pub const fn at_most(bytes: u32) -> Option<Self> {
        Some(match bytes {
            0..256 => return None,
            256..512 => Self::B256,
            512..1024 => Self::B512,
            1024..2048 => Self::B1024,
            2048..4096 => Self::B2048,
            _ => Self::B4096,
        })
    }
}

/// `enum ibv_mig_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names are the specification's")]
pub enum PathMigState {
    #[default]
    Migrated = 0,
    Rearm = 1,
    Armed = 2,
}

impl PathMigState {
    /// From the C interface's number.
    #[must_use]
    pub const fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            0 => Self::Migrated,
            1 => Self::Rearm,
            2 => Self::Armed,
            _ => return None,
        })
    }
}

/// `struct ibv_global_route`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct GlobalRoute {
    /// Destination.
    pub dgid: Gid,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Index into the port's GID table.
    pub sgid_index: u8,
    /// Hop limit, used as TTL.
    pub hop_limit: u8,
    /// Traffic class, used as TOS.
    pub traffic_class: u8,
}

/// `struct ibv_ah_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AddressHandleAttr {
    /// Global route.
    pub grh: GlobalRoute,
    /// Must be set on Ethernet.
    pub is_global: bool,
    /// Destination LID, kept only to be queried.
    pub dlid: u16,
    /// Service level.
    pub sl: u8,
    /// Source path bits, kept only to be queried.
    pub src_path_bits: u8,
    /// Static rate.
    pub static_rate: u8,
    /// Port, from 1.
    pub port_num: u8,
}

/// `struct ibv_qp_cap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct QpCap {
    /// Send-queue work requests.
    pub max_send_wr: u32,
    /// Receive-queue work requests.
    pub max_recv_wr: u32,
    /// Scatter/gather elements of a send-queue work request.
    pub max_send_sge: u32,
    /// Scatter/gather elements of a receive-queue work request.
    pub max_recv_sge: u32,
    /// Inline bytes.
    pub max_inline_data: u32,
}

bitflags::bitflags! {
    /// `enum ibv_qp_attr_mask`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct AttrMask: u32 {
        /// `qp_state`
        const STATE = 1 << 0;
        /// `cur_qp_state`
        const CUR_STATE = 1 << 1;
        /// `en_sqd_async_notify`
        const EN_SQD_ASYNC_NOTIFY = 1 << 2;
        /// `qp_access_flags`
        const ACCESS_FLAGS = 1 << 3;
        /// `pkey_index`
        const PKEY_INDEX = 1 << 4;
        /// `port_num`
        const PORT = 1 << 5;
        /// `qkey`
        const QKEY = 1 << 6;
        /// `ah_attr`
        const AV = 1 << 7;
        /// `path_mtu`
        const PATH_MTU = 1 << 8;
        /// `timeout`
        const TIMEOUT = 1 << 9;
        /// `retry_cnt`
        const RETRY_CNT = 1 << 10;
        /// `rnr_retry`
        const RNR_RETRY = 1 << 11;
        /// `rq_psn`
        const RQ_PSN = 1 << 12;
        /// `max_rd_atomic`
        const MAX_QP_RD_ATOMIC = 1 << 13;
        /// `alt_ah_attr`, `alt_pkey_index`, `alt_port_num`, `alt_timeout`
        const ALT_PATH = 1 << 14;
        /// `min_rnr_timer`
        const MIN_RNR_TIMER = 1 << 15;
        /// `sq_psn`
        const SQ_PSN = 1 << 16;
        /// `max_dest_rd_atomic`
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// `path_mig_state`
        const PATH_MIG_STATE = 1 << 18;
        /// `cap`
        const CAP = 1 << 19;
        /// `dest_qp_num`
        const DEST_QPN = 1 << 20;
        /// `rate_limit`
        const RATE_LIMIT = 1 << 25;
    }
}

/// The constants of the C interface, separated by commas: `IBV_QP_PORT, IBV_QP_QKEY`. Bits without
/// a name as one number.
impl fmt::Display for AttrMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = self.iter_names();
        let mut separator = "";
        for (name, _) in names.by_ref() {
            write!(f, "{separator}IBV_QP_{name}")?;
            separator = ", ";
        }
        match names.remaining().bits() {
            0 => Ok(()),
            unnamed => write!(f, "{separator}unknown bits {unnamed:#x}"),
        }
    }
}

/// `struct ibv_qp_attr`: which fields count says an [`AttrMask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of ibv_modify_qp(3)")]
pub struct QpAttr {
    pub qp_state: QpState,
    pub cur_qp_state: QpState,
    pub path_mtu: Mtu,
    pub path_mig_state: PathMigState,
    pub qkey: u32,
    pub rq_psn: Psn,
    pub sq_psn: Psn,
    pub dest_qp_num: Qpn,
    pub qp_access_flags: Access,
    pub cap: QpCap,
    pub ah_attr: AddressHandleAttr,
    pub alt_ah_attr: AddressHandleAttr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: bool,
    pub sq_draining: bool,
    /// Outstanding READs and atomics as requester.
    pub max_rd_atomic: u8,
    /// READs and atomics served at once as responder.
    pub max_dest_rd_atomic: u8,
    /// 5-bit RNR timer code.
    pub min_rnr_timer: u8,
    pub port_num: u8,
    /// Local ACK timeout code: 4.096 µs × 2^timeout, 0 = never.
    pub timeout: u8,
    /// 0..=7.
    pub retry_cnt: u8,
    /// 0..=7, 7 = without limit.
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

impl Default for QpAttr {
    fn default() -> Self {
        Self {
            qp_state: QpState::Reset,
            cur_qp_state: QpState::Reset,
            path_mtu: Mtu::B1024,
            path_mig_state: PathMigState::Migrated,
            qkey: 0,
            rq_psn: Psn::default(),
            sq_psn: Psn::default(),
            dest_qp_num: Qpn::default(),
            qp_access_flags: Access::empty(),
            cap: QpCap::default(),
            ah_attr: AddressHandleAttr::default(),
            alt_ah_attr: AddressHandleAttr::default(),
            pkey_index: 0,
            alt_pkey_index: 0,
            en_sqd_async_notify: false,
            sq_draining: false,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            min_rnr_timer: 0,
            port_num: 1,
            timeout: 0,
            retry_cnt: 0,
            rnr_retry: 0,
            alt_port_num: 0,
            alt_timeout: 0,
            rate_limit: 0,
        }
    }
}
