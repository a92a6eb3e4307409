//! Queue pairs with the extended posting interface (`ibv_create_qp_ex(3)`), whose builders are in
//! `builders.rs`.

use crate::object::refuse_inherited;
use ferroce_nic::Error;

use super::builders::{Builder, functions};
use super::qp;
use super::qp_open;
use crate::errno::{invalid, result_as_null, unbuilt};
use crate::types::{
    IBV_QP_CREATE_BLOCK_SELF_MCAST_LB, IBV_QP_EX_WITH_ATOMIC_WRITE, IBV_QP_EX_WITH_BIND_MW,
    IBV_QP_EX_WITH_FLUSH, IBV_QP_EX_WITH_LOCAL_INV, IBV_QP_EX_WITH_RDMA_WRITE,
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_SEND, IBV_QP_EX_WITH_SEND_WITH_IMM,
    IBV_QP_INIT_ATTR_CREATE_FLAGS, IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
    IBV_QP_INIT_ATTR_XRCD, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_RECV, ibv_context,
    ibv_qp, ibv_qp_ex, ibv_qp_init_attr_ex,
};

/// Operations of `enum ibv_qp_create_send_ops_flags` that there are builders for.
const BUILT_OPS: u64 = 0x3ff;

/// Those that a type of queue pair has (the table of `ibv_wr_post(3)`). Without acknowledgements
/// there is neither READ nor atomic, and no packet of UC names a key to invalidate.
const fn send_ops(qp_type: u32) -> u64 {
    const SEND: u64 = IBV_QP_EX_WITH_SEND as u64 | IBV_QP_EX_WITH_SEND_WITH_IMM as u64;
    const WRITE: u64 = IBV_QP_EX_WITH_RDMA_WRITE as u64 | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM as u64;
    const LOCAL: u64 = IBV_QP_EX_WITH_LOCAL_INV as u64 | IBV_QP_EX_WITH_BIND_MW as u64;
    match qp_type {
        IBV_QPT_UD => SEND,
        IBV_QPT_UC => SEND | WRITE | LOCAL,
        IBV_QPT_RC => BUILT_OPS | IBV_QP_EX_WITH_ATOMIC_WRITE as u64 | IBV_QP_EX_WITH_FLUSH as u64,
        _ => BUILT_OPS,
    }
}

/// `ibv_qp_to_qp_ex(3)`: NULL unless the queue pair was made with
/// `IBV_QP_INIT_ATTR_SEND_OPS_FLAGS`.
pub unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    refuse_inherited!(qp);
    // SAFETY: a live queue pair.
    if unsafe { qp::private(qp) }.builder.is_some() {
        qp.cast()
    } else {
        std::ptr::null_mut()
    }
}

/// `ibv_create_qp_ex(3)`.
pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    refuse_inherited!(context);
    // SAFETY: attributes whose objects are NULL or live.
    result_as_null("ibv_create_qp_ex", unsafe { create(&mut *attr) })
}

/// Checks the extended attributes and makes the queue pair.
///
/// # Safety
/// The protection domain and the completion queues are NULL or live.
unsafe fn create(ex: &mut ibv_qp_init_attr_ex) -> Result<*mut ibv_qp, Error> {
    const BUILT: u32 = IBV_QP_INIT_ATTR_PD
        | IBV_QP_INIT_ATTR_XRCD
        | IBV_QP_INIT_ATTR_CREATE_FLAGS
        | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    let named = |bit| ex.comp_mask & bit != 0;
    if ex.comp_mask & !BUILT != 0 {
        return Err(unbuilt(&format!(
            "an attribute of comp_mask {:#x} (enum ibv_qp_init_attr_mask)",
            ex.comp_mask & !BUILT
        )));
    }
    if ex.qp_type == IBV_QPT_XRC_RECV {
        if !named(IBV_QP_INIT_ATTR_XRCD) {
            return Err(invalid("an XRC target needs an XRC domain"));
        }
        // SAFETY: the caller's promise.
        return unsafe { qp_open::create_target(ex) };
    }
    if !named(IBV_QP_INIT_ATTR_PD) || ex.pd.is_null() {
        return Err(invalid("a queue pair needs a protection domain"));
    }
    let flags = if named(IBV_QP_INIT_ATTR_CREATE_FLAGS) {
        ex.create_flags
    } else {
        0
    };
    if flags & !IBV_QP_CREATE_BLOCK_SELF_MCAST_LB != 0 {
        return Err(unbuilt(&format!("create_flags {flags:#x}")));
    }
    if flags != 0 && ex.qp_type != IBV_QPT_UD {
        return Err(invalid("only UD queue pairs send to multicast groups"));
    }
    let with_ops = named(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
    let foreign = ex.send_ops_flags & !send_ops(ex.qp_type);
    if with_ops && foreign != 0 {
        return Err(unbuilt(&format!(
            "an operation of send_ops_flags {foreign:#x} on a queue pair of type {}",
            ex.qp_type
        )));
    }
    let mut attr = ex.short_form();
    let (public, builder) = if with_ops {
        (functions(), Some(Builder::new()))
    } else {
        (ibv_qp_ex::zeroed(), None)
    };
    // SAFETY: the caller's promise.
    let qp = unsafe { qp::create(ex.pd, &mut attr, public, builder) }?;
    ex.cap = attr.cap;
    if flags & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB != 0 {
        // SAFETY: the queue pair was made just now.
        unsafe { qp::private(qp) }.nic().block_own_multicast()?;
    }
    Ok(qp)
}
