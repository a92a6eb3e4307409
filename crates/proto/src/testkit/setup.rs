//! How two nodes are set up.

use super::Faults;
use crate::mr::Access;
use crate::rc::LinkTraits;
use crate::verbs::{Mtu, QpCap, QpType};

/// One end of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "two ends")]
pub enum Side {
    A,
    B,
}

impl Side {
    /// The other end.
    #[must_use]
    pub const fn peer(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// How both ends are set up.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the names are those of the attributes")]
pub struct Setup {
    pub seed: u64,
    /// Bytes of memory of each node.
    pub memory: usize,
    pub mtu: Mtu,
    /// Initial PSN of side A's requests; B's are 0x1234 further.
    pub psn: u32,
    pub rd_atomic: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub min_rnr_timer: u8,
    pub cap: QpCap,
    pub sq_sig_all: bool,
    pub shared_recv: bool,
    /// XRC: A is the initiator, B the target.
    pub xrc: bool,
    pub access: Access,
    pub link: LinkTraits,
    /// Both know that the other is of their kind.
    pub is_ferroce_peer: bool,
    pub faults: Faults,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            seed: 1,
            memory: 1 << 20,
            mtu: Mtu::B1024,
            psn: 100,
            rd_atomic: 4,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            cap: QpCap {
                max_send_wr: 64,
                max_recv_wr: 64,
                max_send_sge: 8,
                max_recv_sge: 8,
                max_inline_data: 256,
            },
            sq_sig_all: false,
            shared_recv: false,
            xrc: false,
            access: Access::LOCAL_WRITE
                | Access::REMOTE_WRITE
                | Access::REMOTE_READ
                | Access::REMOTE_ATOMIC,
            link: LinkTraits {
                lossless: false,
                max_in_flight: 64 << 10,
            },
            is_ferroce_peer: false,
            faults: Faults::default(),
        }
    }
}

impl Setup {
    pub(super) const fn qp_type(&self, side: Side) -> QpType {
        match (self.xrc, side) {
            (false, _) => QpType::Rc,
            (true, Side::A) => QpType::XrcSend,
            (true, Side::B) => QpType::XrcRecv,
        }
    }
}
