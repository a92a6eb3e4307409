//! Constants and enumerators of the C header. Where the device knows the thing too, its number is
//! used, so that the comparison with the header covers the device's enumerations.

use ferroce_proto::mr::Access;
use ferroce_proto::verbs::{
    AsyncEvent, AttrMask, Mtu, PathMigState, QpState, QpType, SendFlags, WcFlags, WcOpcode,
    WcStatus,
};

use crate::layout::{Constant, c_constants};

c_constants! { STATUS: u32;
    IBV_WC_SUCCESS = WcStatus::Success;
    IBV_WC_LOC_LEN_ERR = WcStatus::LocLenErr;
    IBV_WC_LOC_QP_OP_ERR = WcStatus::LocQpOpErr;
    IBV_WC_LOC_EEC_OP_ERR = WcStatus::LocEecOpErr;
    IBV_WC_LOC_PROT_ERR = WcStatus::LocProtErr;
    IBV_WC_WR_FLUSH_ERR = WcStatus::WrFlushErr;
    IBV_WC_MW_BIND_ERR = WcStatus::MwBindErr;
    IBV_WC_BAD_RESP_ERR = WcStatus::BadRespErr;
    IBV_WC_LOC_ACCESS_ERR = WcStatus::LocAccessErr;
    IBV_WC_REM_INV_REQ_ERR = WcStatus::RemInvReqErr;
    IBV_WC_REM_ACCESS_ERR = WcStatus::RemAccessErr;
    IBV_WC_REM_OP_ERR = WcStatus::RemOpErr;
    IBV_WC_RETRY_EXC_ERR = WcStatus::RetryExcErr;
    IBV_WC_RNR_RETRY_EXC_ERR = WcStatus::RnrRetryExcErr;
    IBV_WC_LOC_RDD_VIOL_ERR = WcStatus::LocRddViolErr;
    IBV_WC_REM_INV_RD_REQ_ERR = WcStatus::RemInvRdReqErr;
    IBV_WC_REM_ABORT_ERR = WcStatus::RemAbortErr;
    IBV_WC_INV_EECN_ERR = WcStatus::InvEecnErr;
    IBV_WC_INV_EEC_STATE_ERR = WcStatus::InvEecStateErr;
    IBV_WC_FATAL_ERR = WcStatus::FatalErr;
    IBV_WC_RESP_TIMEOUT_ERR = WcStatus::RespTimeoutErr;
    IBV_WC_GENERAL_ERR = WcStatus::GeneralErr;
    IBV_WC_TM_ERR = 22;
    IBV_WC_TM_RNDV_INCOMPLETE = 23;
}

c_constants! { COMPLETION: u32;
    IBV_WC_SEND = WcOpcode::Send;
    IBV_WC_RDMA_WRITE = WcOpcode::RdmaWrite;
    IBV_WC_RDMA_READ = WcOpcode::RdmaRead;
    IBV_WC_COMP_SWAP = WcOpcode::CompSwap;
    IBV_WC_FETCH_ADD = WcOpcode::FetchAdd;
    IBV_WC_BIND_MW = WcOpcode::BindMw;
    IBV_WC_LOCAL_INV = WcOpcode::LocalInv;
    IBV_WC_ATOMIC_WRITE = WcOpcode::AtomicWrite;
    IBV_WC_RECV = WcOpcode::Recv;
    IBV_WC_RECV_RDMA_WITH_IMM = WcOpcode::RecvRdmaWithImm;
    IBV_WC_GRH = WcFlags::GRH.bits();
    IBV_WC_WITH_IMM = WcFlags::WITH_IMM.bits();
    IBV_WC_WITH_INV = WcFlags::WITH_INV.bits();
    IBV_WC_STANDARD_FLAGS = 0x7f;
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP = 1 << 7;
    IBV_WC_EX_WITH_CVLAN = 1 << 8;
    IBV_WC_EX_WITH_FLOW_TAG = 1 << 9;
    IBV_WC_EX_WITH_TM_INFO = 1 << 10;
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK = 1 << 11;
    IBV_CQ_ATTR_MODERATE = 1 << 0;
    IBV_CQ_INIT_ATTR_MASK_FLAGS = 1;
    IBV_CQ_INIT_ATTR_MASK_PD = 2;
    IBV_CREATE_CQ_ATTR_SINGLE_THREADED = 1;
    IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN = 2;
}

c_constants! { WORK: u32;
    IBV_WR_RDMA_WRITE = 0;
    IBV_WR_RDMA_WRITE_WITH_IMM = 1;
    IBV_WR_SEND = 2;
    IBV_WR_SEND_WITH_IMM = 3;
    IBV_WR_RDMA_READ = 4;
    IBV_WR_ATOMIC_CMP_AND_SWP = 5;
    IBV_WR_ATOMIC_FETCH_AND_ADD = 6;
    IBV_WR_LOCAL_INV = 7;
    IBV_WR_BIND_MW = 8;
    IBV_WR_SEND_WITH_INV = 9;
    IBV_WR_TSO = 10;
    IBV_WR_ATOMIC_WRITE = 15;
    IBV_SEND_FENCE = SendFlags::FENCE.bits();
    IBV_SEND_SIGNALED = SendFlags::SIGNALED.bits();
    IBV_SEND_SOLICITED = SendFlags::SOLICITED.bits();
    IBV_SEND_INLINE = SendFlags::INLINE.bits();
    IBV_SEND_IP_CSUM = 1 << 4;
    IBV_QP_EX_WITH_RDMA_WRITE = 1 << 0;
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM = 1 << 1;
    IBV_QP_EX_WITH_SEND = 1 << 2;
    IBV_QP_EX_WITH_SEND_WITH_IMM = 1 << 3;
    IBV_QP_EX_WITH_RDMA_READ = 1 << 4;
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP = 1 << 5;
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD = 1 << 6;
    IBV_QP_EX_WITH_LOCAL_INV = 1 << 7;
    IBV_QP_EX_WITH_BIND_MW = 1 << 8;
    IBV_QP_EX_WITH_SEND_WITH_INV = 1 << 9;
    IBV_QP_EX_WITH_TSO = 1 << 10;
    IBV_QP_EX_WITH_ATOMIC_WRITE = 1 << 12;
    IBV_QP_INIT_ATTR_PD = 1 << 0;
    IBV_QP_INIT_ATTR_XRCD = 1 << 1;
    IBV_QP_INIT_ATTR_CREATE_FLAGS = 1 << 2;
    IBV_QP_INIT_ATTR_MAX_TSO_HEADER = 1 << 3;
    IBV_QP_INIT_ATTR_IND_TABLE = 1 << 4;
    IBV_QP_INIT_ATTR_RX_HASH = 1 << 5;
    IBV_QP_INIT_ATTR_SEND_OPS_FLAGS = 1 << 6;
}

c_constants! { QP: u32;
    IBV_QPS_RESET = QpState::Reset;
    IBV_QPS_INIT = QpState::Init;
    IBV_QPS_RTR = QpState::Rtr;
    IBV_QPS_RTS = QpState::Rts;
    IBV_QPS_SQD = QpState::Sqd;
    IBV_QPS_SQE = QpState::Sqe;
    IBV_QPS_ERR = QpState::Err;
    IBV_QPT_RC = QpType::Rc;
    IBV_QPT_UC = QpType::Uc;
    IBV_QPT_UD = QpType::Ud;
    IBV_QPT_RAW_PACKET = QpType::RawPacket;
    IBV_QPT_XRC_SEND = QpType::XrcSend;
    IBV_QPT_XRC_RECV = QpType::XrcRecv;
    IBV_QPT_DRIVER = 0xff;
    IBV_MIG_MIGRATED = PathMigState::Migrated;
    IBV_MIG_REARM = PathMigState::Rearm;
    IBV_MIG_ARMED = PathMigState::Armed;
    IBV_QP_STATE = AttrMask::STATE.bits();
    IBV_QP_CUR_STATE = AttrMask::CUR_STATE.bits();
    IBV_QP_EN_SQD_ASYNC_NOTIFY = AttrMask::EN_SQD_ASYNC_NOTIFY.bits();
    IBV_QP_ACCESS_FLAGS = AttrMask::ACCESS_FLAGS.bits();
    IBV_QP_PKEY_INDEX = AttrMask::PKEY_INDEX.bits();
    IBV_QP_PORT = AttrMask::PORT.bits();
    IBV_QP_QKEY = AttrMask::QKEY.bits();
    IBV_QP_AV = AttrMask::AV.bits();
    IBV_QP_PATH_MTU = AttrMask::PATH_MTU.bits();
    IBV_QP_TIMEOUT = AttrMask::TIMEOUT.bits();
    IBV_QP_RETRY_CNT = AttrMask::RETRY_CNT.bits();
    IBV_QP_RNR_RETRY = AttrMask::RNR_RETRY.bits();
    IBV_QP_RQ_PSN = AttrMask::RQ_PSN.bits();
    IBV_QP_MAX_QP_RD_ATOMIC = AttrMask::MAX_QP_RD_ATOMIC.bits();
    IBV_QP_ALT_PATH = AttrMask::ALT_PATH.bits();
    IBV_QP_MIN_RNR_TIMER = AttrMask::MIN_RNR_TIMER.bits();
    IBV_QP_SQ_PSN = AttrMask::SQ_PSN.bits();
    IBV_QP_MAX_DEST_RD_ATOMIC = AttrMask::MAX_DEST_RD_ATOMIC.bits();
    IBV_QP_PATH_MIG_STATE = AttrMask::PATH_MIG_STATE.bits();
    IBV_QP_CAP = AttrMask::CAP.bits();
    IBV_QP_DEST_QPN = AttrMask::DEST_QPN.bits();
    IBV_QP_RATE_LIMIT = AttrMask::RATE_LIMIT.bits();
}

c_constants! { MEMORY: u32;
    IBV_ACCESS_LOCAL_WRITE = Access::LOCAL_WRITE.bits();
    IBV_ACCESS_REMOTE_WRITE = Access::REMOTE_WRITE.bits();
    IBV_ACCESS_REMOTE_READ = Access::REMOTE_READ.bits();
    IBV_ACCESS_REMOTE_ATOMIC = Access::REMOTE_ATOMIC.bits();
    IBV_ACCESS_MW_BIND = Access::MW_BIND.bits();
    IBV_ACCESS_ZERO_BASED = Access::ZERO_BASED.bits();
    IBV_ACCESS_ON_DEMAND = Access::ON_DEMAND.bits();
    IBV_ACCESS_HUGETLB = Access::HUGETLB.bits();
    IBV_ACCESS_RELAXED_ORDERING = Access::RELAXED_ORDERING.bits();
    IBV_ACCESS_OPTIONAL_RANGE = 0x3ff0_0000;
    IBV_REREG_MR_CHANGE_TRANSLATION = 1;
    IBV_REREG_MR_CHANGE_PD = 2;
    IBV_REREG_MR_CHANGE_ACCESS = 4;
    IBV_ADVISE_MR_ADVICE_PREFETCH = 0;
    IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE = 1;
    IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT = 2;
    IBV_ADVISE_MR_FLAG_FLUSH = 1;
    IBV_DM_MASK_HANDLE = 1;
    IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS = 1;
    IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT = 2;
    IBV_ODP_SUPPORT = 1;
    IBV_ODP_SUPPORT_IMPLICIT = 2;
    IBV_ODP_SUPPORT_SEND = 1;
    IBV_ODP_SUPPORT_RECV = 2;
    IBV_ODP_SUPPORT_WRITE = 4;
    IBV_ODP_SUPPORT_READ = 8;
    IBV_ODP_SUPPORT_ATOMIC = 16;
    IBV_ODP_SUPPORT_SRQ_RECV = 32;
    IBV_FORK_DISABLED = 0;
    IBV_FORK_ENABLED = 1;
    IBV_FORK_UNNEEDED = 2;
}

c_constants! { REREG: i32;
    IBV_REREG_MR_ERR_INPUT = -1;
    IBV_REREG_MR_ERR_DONT_FORK_NEW = -2;
    IBV_REREG_MR_ERR_DO_FORK_OLD = -3;
    IBV_REREG_MR_ERR_CMD = -4;
    IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW = -5;
}

c_constants! { DEVICE: u32;
    IBV_NODE_CA = 1;
    IBV_NODE_RNIC = 4;
    IBV_TRANSPORT_IB = 0;
    IBV_TRANSPORT_IWARP = 1;
    IBV_ATOMIC_NONE = 0;
    IBV_ATOMIC_HCA = 1;
    IBV_ATOMIC_GLOB = 2;
    IBV_MTU_256 = Mtu::B256;
    IBV_MTU_512 = Mtu::B512;
    IBV_MTU_1024 = Mtu::B1024;
    IBV_MTU_2048 = Mtu::B2048;
    IBV_MTU_4096 = Mtu::B4096;
    IBV_PORT_DOWN = 1;
    IBV_PORT_ACTIVE = 4;
    IBV_PORT_IP_BASED_GIDS = 1 << 26;
    IBV_PORT_CM_SUP = 1 << 16;
    IBV_GID_TYPE_IB = 0;
    IBV_GID_TYPE_ROCE_V1 = 1;
    IBV_GID_TYPE_ROCE_V2 = 2;
    IBV_XRCD_INIT_ATTR_FD = 1;
    IBV_XRCD_INIT_ATTR_OFLAGS = 1 << 1;
    IBV_QP_OPEN_ATTR_NUM = 1;
    IBV_QP_OPEN_ATTR_XRCD = 1 << 1;
    IBV_QP_OPEN_ATTR_CONTEXT = 1 << 2;
    IBV_QP_OPEN_ATTR_TYPE = 1 << 3;
    IBV_QP_CREATE_BLOCK_SELF_MCAST_LB = 1 << 1;
    IBV_SRQT_BASIC = 0;
    IBV_SRQT_XRC = 1;
    IBV_SRQT_TM = 2;
    IBV_SRQ_MAX_WR = 1;
    IBV_SRQ_LIMIT = 2;
    IBV_SRQ_INIT_ATTR_TYPE = 1;
    IBV_SRQ_INIT_ATTR_PD = 1 << 1;
    IBV_SRQ_INIT_ATTR_XRCD = 1 << 2;
    IBV_SRQ_INIT_ATTR_CQ = 1 << 3;
    IBV_SRQ_INIT_ATTR_TM = 1 << 4;
    IBV_VALUES_MASK_RAW_CLOCK = 1;
}

c_constants! { PORT: u8;
    IBV_LINK_LAYER_ETHERNET = 2;
    IBV_QPF_GRH_REQUIRED = 1;
}

c_constants! { EVENT: u32;
    IBV_EVENT_CQ_ERR = AsyncEvent::CqErr;
    IBV_EVENT_QP_FATAL = AsyncEvent::QpFatal;
    IBV_EVENT_QP_REQ_ERR = AsyncEvent::QpReqErr;
    IBV_EVENT_QP_ACCESS_ERR = AsyncEvent::QpAccessErr;
    IBV_EVENT_COMM_EST = AsyncEvent::CommEst;
    IBV_EVENT_SQ_DRAINED = AsyncEvent::SqDrained;
    IBV_EVENT_PATH_MIG = AsyncEvent::PathMig;
    IBV_EVENT_PATH_MIG_ERR = AsyncEvent::PathMigErr;
    IBV_EVENT_DEVICE_FATAL = AsyncEvent::DeviceFatal;
    IBV_EVENT_PORT_ACTIVE = AsyncEvent::PortActive;
    IBV_EVENT_PORT_ERR = AsyncEvent::PortErr;
    IBV_EVENT_LID_CHANGE = AsyncEvent::LidChange;
    IBV_EVENT_PKEY_CHANGE = AsyncEvent::PkeyChange;
    IBV_EVENT_SM_CHANGE = AsyncEvent::SmChange;
    IBV_EVENT_SRQ_ERR = AsyncEvent::SrqErr;
    IBV_EVENT_SRQ_LIMIT_REACHED = AsyncEvent::SrqLimitReached;
    IBV_EVENT_QP_LAST_WQE_REACHED = AsyncEvent::QpLastWqeReached;
    IBV_EVENT_CLIENT_REREGISTER = AsyncEvent::ClientReregister;
    IBV_EVENT_GID_CHANGE = AsyncEvent::GidChange;
    IBV_EVENT_WQ_FATAL = AsyncEvent::WqFatal;
}

/// All lists.
pub(super) fn tables() -> [&'static [Constant]; 9] {
    [
        STATUS, COMPLETION, WORK, QP, MEMORY, REREG, DEVICE, PORT, EVENT,
    ]
}
