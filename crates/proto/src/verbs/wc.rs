//! Work completions.

use crate::ids::{Key, Qpn};

/// `enum ibv_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names are those of ibv_wc_status(3)")]
pub enum WcStatus {
    Success = 0,
    LocLenErr = 1,
    LocQpOpErr = 2,
    LocEecOpErr = 3,
    LocProtErr = 4,
    WrFlushErr = 5,
    MwBindErr = 6,
    BadRespErr = 7,
    LocAccessErr = 8,
    RemInvReqErr = 9,
    RemAccessErr = 10,
    RemOpErr = 11,
    RetryExcErr = 12,
    RnrRetryExcErr = 13,
    LocRddViolErr = 14,
    RemInvRdReqErr = 15,
    RemAbortErr = 16,
    InvEecnErr = 17,
    InvEecStateErr = 18,
    FatalErr = 19,
    RespTimeoutErr = 20,
    GeneralErr = 21,
}

/// `enum ibv_wc_opcode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names are those of ibv_poll_cq(3)")]
pub enum WcOpcode {
    Send = 0,
    RdmaWrite = 1,
    RdmaRead = 2,
    CompSwap = 3,
    FetchAdd = 4,
    BindMw = 5,
    LocalInv = 6,
    Flush = 8,
    AtomicWrite = 9,
    Recv = 128,
    RecvRdmaWithImm = 129,
}

bitflags::bitflags! {
    /// `enum ibv_wc_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct WcFlags: u32 {
        /// The first 40 bytes of a UD receive buffer hold a GRH.
        const GRH = 1;
        /// `imm_data` is valid.
        const WITH_IMM = 2;
        /// `invalidated_rkey` is valid.
        const WITH_INV = 8;
    }
}

/// Immediate data or the key that a SEND invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WcImm {
    /// Bytes as on the wire.
    Imm([u8; 4]),
    /// Key that was invalidated.
    Invalidated(Key),
}

/// Work completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wc {
    /// The program's tag.
    pub wr_id: u64,
    /// Outcome. With any other than success only `wr_id`, `status`, `qp_num` and `vendor_err` are
    /// valid.
    pub status: WcStatus,
    /// Operation that completed.
    pub opcode: WcOpcode,
    /// Ferroce's own code for the cause of an error, 0 on success.
    pub vendor_err: u32,
    /// Bytes received or read.
    pub byte_len: u32,
    /// Immediate or invalidated key.
    pub imm: Option<WcImm>,
    /// Local queue pair.
    pub qp_num: Qpn,
    /// Sender's queue pair (UD).
    pub src_qp: Qpn,
    /// Service level (UD). Ethernet has none; here it says what kind of packet came, as adapters of
    /// ConnectX's kind have it and UCX wants it: see
    /// [`GrhRoute::packet_type`](crate::ud::GrhRoute::packet_type).
    pub sl: u8,
    /// Flags besides those that follow from `imm`.
    pub flags: WcFlags,
}
