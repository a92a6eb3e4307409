//! FLUSH and ATOMIC WRITE through the C interface.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::ptr;

use common::{Side, block, errno, init_attr, pair};
use ferroce_abi::types::*;
use ferroce_abi::verbs::*;

/// A queue pair with both builders.
unsafe fn with_builders(pd: *mut ibv_pd, cq: *mut ibv_cq) -> *mut ibv_qp {
    let plain = init_attr(cq);
    let mut attr = ibv_qp_init_attr_ex::zeroed();
    (attr.send_cq, attr.recv_cq) = (plain.send_cq, plain.recv_cq);
    (attr.cap, attr.qp_type, attr.pd) = (plain.cap, plain.qp_type, pd);
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = (IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH).into();
    // SAFETY: the caller's live objects.
    unsafe { (*block((*pd).context)).create_qp_ex.unwrap()((*pd).context, &raw mut attr) }
}

/// Lets a queue pair's peer flush.
fn allow_flush(side: &Side) {
    let mut attr = ibv_qp_attr::zeroed();
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_FLUSH_GLOBAL;
    // SAFETY: a live queue pair.
    let result =
        unsafe { ibv_modify_qp(side.qp, &raw mut attr, IBV_QP_ACCESS_FLAGS.cast_signed()) };
    assert_eq!(result, 0);
}

/// Registers a side's buffer with more rights.
fn register(side: &mut Side, access: u32) -> *mut ibv_mr {
    let (addr, len) = (side.buffer.as_mut_ptr(), side.buffer.len());
    // SAFETY: live objects.
    unsafe { ibv_reg_mr(side.pd, addr.cast(), len, access.cast_signed()) }
}

/// Posts one flush with its builder.
fn flush(side: &Side, (rkey, addr, len): (u32, u64, usize), (kind, level): (u8, u8)) -> i32 {
    // SAFETY: a live extended queue pair, used as the manual page says.
    unsafe {
        let qp = ibv_qp_to_qp_ex(side.qp);
        let ops = *qp.cast::<ibv_qp_ex_flush>();
        ops.qp_ex.wr_start.unwrap()(qp);
        ((*qp).wr_id, (*qp).wr_flags) = (7, IBV_SEND_SIGNALED);
        ops.wr_flush.unwrap()(qp, rkey, addr, len, kind, level);
        ops.qp_ex.wr_complete.unwrap()(qp)
    }
}

#[test]
fn a_flush_is_posted_by_its_builder_and_completes() {
    let (a, mut b) = pair(with_builders);
    allow_flush(&b);
    let access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_FLUSH_GLOBAL;
    let mr = register(&mut b, access);
    assert!(!mr.is_null(), "errno {}", errno());
    // SAFETY: a live region.
    let (rkey, addr) = unsafe { ((*mr).rkey, (*mr).addr as u64) };
    for level in [IBV_FLUSH_RANGE, IBV_FLUSH_MR] {
        assert_eq!(flush(&a, (rkey, addr, 64), (IBV_FLUSH_GLOBAL, level)), 0);
        let wc = a.completion();
        assert_eq!(
            (wc.wr_id, wc.status, wc.opcode),
            (7, IBV_WC_SUCCESS, IBV_WC_FLUSH)
        );
    }
    let at = (rkey, addr, 64);
    assert_eq!(flush(&a, at, (0, IBV_FLUSH_RANGE)), libc::EINVAL);
    assert_eq!(flush(&a, at, (4, IBV_FLUSH_RANGE)), libc::EINVAL);
    assert_eq!(flush(&a, at, (IBV_FLUSH_GLOBAL, 2)), libc::EINVAL);
    let long = (rkey, addr, 1 << 40);
    assert_eq!(
        flush(&a, long, (IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE)),
        libc::EINVAL
    );
    // Of all of a region the range does not count.
    assert_eq!(flush(&a, long, (IBV_FLUSH_GLOBAL, IBV_FLUSH_MR)), 0);
    assert_eq!(a.completion().status, IBV_WC_SUCCESS);
    // SAFETY: a live region that nobody uses any more.
    assert_eq!(unsafe { ibv_dereg_mr(mr) }, 0);
}

#[test]
fn ordinary_memory_is_not_persistent() {
    let mut side = Side::new(with_builders);
    let access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_FLUSH_PERSISTENT;
    assert!(register(&mut side, access).is_null());
    assert_eq!(errno(), libc::EOPNOTSUPP);
}

#[test]
fn a_flush_does_not_fit_the_plain_interface() {
    let (a, _b) = pair(common::plain_qp);
    let mut wr = ibv_send_wr::zeroed();
    wr.opcode = IBV_WR_FLUSH;
    let mut bad = ptr::null_mut();
    // SAFETY: live objects.
    unsafe {
        let post = (*a.context).ops.post_send.unwrap();
        assert_eq!(post(a.qp, &raw mut wr, &raw mut bad), libc::EINVAL);
        assert!(ibv_qp_to_qp_ex(a.qp).is_null());
    }
    assert_eq!(bad, &raw mut wr);
}

#[test]
fn the_device_says_what_it_has() {
    let side = Side::new(common::plain_qp);
    let mut attr = ibv_device_attr_ex::zeroed();
    // SAFETY: a live context, room for the answer.
    let result = unsafe {
        let query = (*block(side.context)).query_device_ex.unwrap();
        let size = size_of::<ibv_device_attr_ex>();
        query(side.context, ptr::null(), &raw mut attr, size)
    };
    assert_eq!(result, 0);
    let has = |bit| attr.device_cap_flags_ex & bit != 0;
    assert!(has(IB_UVERBS_DEVICE_ATOMIC_WRITE) && has(IB_UVERBS_DEVICE_FLUSH_GLOBAL));
    assert!(!has(IB_UVERBS_DEVICE_FLUSH_PERSISTENT));
    let low = u64::from(attr.orig_attr.device_cap_flags);
    assert_eq!(attr.device_cap_flags_ex & 0xffff_ffff, low);
}

#[test]
fn an_atomic_write_takes_its_eight_bytes_when_it_is_posted() {
    let (a, b) = pair(with_builders);
    let mut value = 0x0102_0304_0506_0708_u64;
    // SAFETY: a live extended queue pair, used as the manual page says.
    unsafe {
        let qp = ibv_qp_to_qp_ex(a.qp);
        let ops = *qp;
        ops.wr_start.unwrap()(qp);
        (*qp).wr_flags = IBV_SEND_SIGNALED;
        let to = b.buffer.as_ptr() as u64;
        ops.wr_atomic_write.unwrap()(qp, (*b.mr).rkey, to, (&raw const value).cast());
        value = 0;
        assert_eq!(ops.wr_complete.unwrap()(qp), 0);
    }
    let wc = a.completion();
    assert_eq!(
        (wc.status, wc.opcode),
        (IBV_WC_SUCCESS, IBV_WC_ATOMIC_WRITE)
    );
    assert_eq!(value, 0);
    assert_eq!(b.buffer[..8], 0x0102_0304_0506_0708_u64.to_ne_bytes());
}
