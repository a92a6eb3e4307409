//! XRC in C: domains, their shared receive queues, targets.
//!
//! The functions are inline in the C header, which calls them through the block of operations in
//! front of the context.

use ferroce_abi::types::*;
use ferroce_proto::ids::Srqn;

use super::c::errno;

/// The block of operations in front of a context.
pub(super) fn block(context: *mut ibv_context) -> *mut verbs_context {
    context
        .wrapping_byte_sub(std::mem::offset_of!(verbs_context, context))
        .cast()
}

/// `ibv_open_xrcd(3)` without a file.
///
/// # Safety
/// A live context.
pub(super) unsafe fn open_domain(context: *mut ibv_context) -> *mut ibv_xrcd {
    let mut attr = ibv_xrcd_init_attr {
        comp_mask: IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
        fd: -1,
        oflags: libc::O_CREAT,
    };
    // SAFETY: the caller's promise.
    let xrcd = unsafe {
        let open = (*block(context)).open_xrcd.expect("an operation");
        open(context, &raw mut attr)
    };
    assert!(!xrcd.is_null(), "{:?}", errno());
    xrcd
}

/// `ibv_close_xrcd(3)`.
///
/// # Safety
/// A live domain, not used after this.
pub(super) unsafe fn close_domain(xrcd: *mut ibv_xrcd) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        let close = (*block((*xrcd).context)).close_xrcd;
        close.expect("an operation")(xrcd)
    }
}

/// `ibv_create_srq_ex(3)` in a domain, with so many work requests of so many elements.
///
/// # Safety
/// Live objects of one context.
pub(super) unsafe fn create_srq(
    pd: *mut ibv_pd,
    cq: *mut ibv_cq,
    xrcd: *mut ibv_xrcd,
    max_wr: u32,
    max_sge: u32,
) -> *mut ibv_srq {
    let mut init = ibv_srq_init_attr_ex::zeroed();
    (init.attr.max_wr, init.attr.max_sge) = (max_wr, max_sge);
    init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE
        | IBV_SRQ_INIT_ATTR_PD
        | IBV_SRQ_INIT_ATTR_XRCD
        | IBV_SRQ_INIT_ATTR_CQ;
    init.srq_type = IBV_SRQT_XRC;
    (init.pd, init.cq, init.xrcd) = (pd, cq, xrcd);
    // SAFETY: the caller's promise; the mask names what is set.
    let srq = unsafe {
        let context = (*pd).context;
        let create = (*block(context)).create_srq_ex.expect("an operation");
        create(context, &raw mut init)
    };
    assert!(!srq.is_null(), "{:?}", errno());
    srq
}

/// `ibv_get_srq_num(3)`.
///
/// # Safety
/// A live XRC queue of a live context.
pub(super) unsafe fn number_of(context: *mut ibv_context, srq: *mut ibv_srq) -> Srqn {
    let mut number = 0;
    // SAFETY: the caller's promise, room for the answer.
    let result = unsafe {
        let ask = (*block(context)).get_srq_num.expect("an operation");
        ask(srq, &raw mut number)
    };
    assert_eq!(result, 0);
    Srqn::new(number)
}

/// `ibv_create_qp_ex(3)` of a target.
///
/// # Safety
/// A live context and a domain of it.
pub(super) unsafe fn create_target(context: *mut ibv_context, xrcd: *mut ibv_xrcd) -> *mut ibv_qp {
    let mut init = ibv_qp_init_attr_ex::zeroed();
    (init.qp_type, init.comp_mask) = (IBV_QPT_XRC_RECV, IBV_QP_INIT_ATTR_XRCD);
    init.xrcd = xrcd;
    // SAFETY: the caller's promise.
    unsafe {
        let create = (*block(context)).create_qp_ex.expect("an operation");
        create(context, &raw mut init)
    }
}
