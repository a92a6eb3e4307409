//! What rdma-core's headers got after version 44, against which the other declarations are tested:
//! FLUSH (IBTA 1.5, annex A19), and registration by attributes.
//!
//! Programs that were compiled with newer headers find it where those have it; for all others it
//! lies behind what they know.

use std::ffi::{c_int, c_void};

use ferroce_proto::mr::Access;
use ferroce_proto::verbs::{Placement, Selectivity, WcOpcode};

use super::{ibv_context, ibv_qp_ex};

/// `ibv_wr_flush`: key, address, length, placement type, selectivity level.
pub type WrFlush = unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, usize, u8, u8);

/// `struct ibv_qp_ex` of the newer headers.
#[allow(
    non_camel_case_types,
    reason = "named after the C structure that it continues"
)]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ibv_qp_ex_flush {
    /// As far as the older headers know it.
    pub qp_ex: ibv_qp_ex,
    /// The builder of FLUSH work requests.
    pub wr_flush: Option<WrFlush>,
}

/// `IBV_WR_FLUSH`.
pub const IBV_WR_FLUSH: u32 = 14;
/// `IBV_WC_FLUSH`.
pub const IBV_WC_FLUSH: u32 = WcOpcode::Flush as u32;
/// `IBV_QP_EX_WITH_FLUSH`.
pub const IBV_QP_EX_WITH_FLUSH: u32 = 1 << 11;
/// `IBV_ACCESS_FLUSH_GLOBAL`.
pub const IBV_ACCESS_FLUSH_GLOBAL: u32 = Access::FLUSH_GLOBAL.bits();
/// `IBV_ACCESS_FLUSH_PERSISTENT`.
pub const IBV_ACCESS_FLUSH_PERSISTENT: u32 = Access::FLUSH_PERSISTENT.bits();
/// `IBV_FLUSH_GLOBAL`.
pub const IBV_FLUSH_GLOBAL: u8 = Placement::GLOBAL.bits();
/// `IBV_FLUSH_PERSISTENT`.
pub const IBV_FLUSH_PERSISTENT: u8 = Placement::PERSISTENT.bits();
/// `IBV_FLUSH_RANGE`.
pub const IBV_FLUSH_RANGE: u8 = Selectivity::Range as u8;
/// `IBV_FLUSH_MR`.
pub const IBV_FLUSH_MR: u8 = Selectivity::Region as u8;
/// `IBV_ODP_SUPPORT_FLUSH`.
pub const IBV_ODP_SUPPORT_FLUSH: u32 = 1 << 6;
/// `IBV_ODP_SUPPORT_ATOMIC_WRITE`.
pub const IBV_ODP_SUPPORT_ATOMIC_WRITE: u32 = 1 << 7;
/// `IB_UVERBS_DEVICE_FLUSH_GLOBAL`.
pub const IB_UVERBS_DEVICE_FLUSH_GLOBAL: u64 = 1 << 38;
/// `IB_UVERBS_DEVICE_FLUSH_PERSISTENT`.
pub const IB_UVERBS_DEVICE_FLUSH_PERSISTENT: u64 = 1 << 39;
/// `IB_UVERBS_DEVICE_ATOMIC_WRITE`.
pub const IB_UVERBS_DEVICE_ATOMIC_WRITE: u64 = 1 << 40;

/// `struct ibv_mr_init_attr`.
#[allow(non_camel_case_types, reason = "named after the C structure")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ibv_mr_init_attr {
    /// Bytes.
    pub length: usize,
    /// Access flags.
    pub access: c_int,
    /// Which of the fields below count.
    pub comp_mask: u64,
    /// The address for work requests.
    pub iova: u64,
    /// The memory's address.
    pub addr: *mut c_void,
    /// A dma-buf.
    pub fd: c_int,
    /// Where in the dma-buf.
    pub fd_offset: u64,
    /// A DMA handle.
    pub dmah: *mut ibv_dmah,
    /// Buffer from `ibv_alloc_buf`.
    pub buf: *mut c_void,
}

/// `IBV_REG_MR_MASK_IOVA`.
pub const IBV_REG_MR_MASK_IOVA: u64 = 1;
/// `IBV_REG_MR_MASK_ADDR`.
pub const IBV_REG_MR_MASK_ADDR: u64 = 1 << 1;
/// `IBV_REG_MR_MASK_FD`.
pub const IBV_REG_MR_MASK_FD: u64 = 1 << 2;
/// `IBV_REG_MR_MASK_FD_OFFSET`.
pub const IBV_REG_MR_MASK_FD_OFFSET: u64 = 1 << 3;
/// `IBV_REG_MR_MASK_DMAH`.
pub const IBV_REG_MR_MASK_DMAH: u64 = 1 << 4;
/// `IBV_REG_MR_MASK_BUF`.
pub const IBV_REG_MR_MASK_BUF: u64 = 1 << 5;

/// `struct ibv_dmah`.
#[allow(non_camel_case_types, reason = "named after the C structure")]
#[derive(Debug)]
#[repr(C)]
pub struct ibv_dmah {
    /// The device context.
    pub context: *mut ibv_context,
}

/// `struct ibv_dmah_init_attr`.
#[allow(non_camel_case_types, reason = "named after the C structure")]
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ibv_dmah_init_attr {
    /// Which of the fields below count.
    pub comp_mask: u32,
    /// The processor that the memory is for.
    pub cpu_id: u32,
    /// Processing hint of PCI transactions.
    pub ph: u8,
    /// Type of the memory.
    pub tph_mem_type: u8,
}

/// `IBV_DMAH_INIT_ATTR_MASK_CPU_ID`.
pub const IBV_DMAH_INIT_ATTR_MASK_CPU_ID: u32 = 1;
/// `IBV_DMAH_INIT_ATTR_MASK_PH`.
pub const IBV_DMAH_INIT_ATTR_MASK_PH: u32 = 1 << 1;
/// `IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE`.
pub const IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE: u32 = 1 << 2;
/// `IBV_TPH_MEM_TYPE_PM`, the last of its kind.
pub const IBV_TPH_MEM_TYPE_PM: u8 = 1;
/// `IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC`.
pub const IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC: u32 = 1 << 2;
