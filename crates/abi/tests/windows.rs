//! Memory windows through the C functions.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{BUFFER, Side, errno, pair, plain_qp, send_wr};
use ferroce_abi::types::*;
use ferroce_abi::verbs::*;

/// A region that windows can be bound to.
fn bindable(side: &mut Side) -> *mut ibv_mr {
    let access = (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND).cast_signed();
    // SAFETY: live objects; the buffer outlives the region.
    let mr = unsafe { ibv_reg_mr(side.pd, side.buffer.as_mut_ptr().cast(), BUFFER, access) };
    assert!(!mr.is_null(), "errno {}", errno());
    mr
}

fn alloc(side: &Side, mw_type: u32) -> *mut ibv_mw {
    // SAFETY: live objects.
    unsafe { (*side.context).ops.alloc_mw.unwrap()(side.pd, mw_type) }
}

fn dealloc(side: &Side, mw: *mut ibv_mw) {
    // SAFETY: live objects.
    assert_eq!(unsafe { (*side.context).ops.dealloc_mw.unwrap()(mw) }, 0);
}

fn info(side: &Side, mr: *mut ibv_mr, length: u64) -> ibv_mw_bind_info {
    ibv_mw_bind_info {
        mr,
        addr: side.buffer.as_ptr() as u64,
        length,
        mw_access_flags: IBV_ACCESS_REMOTE_WRITE,
    }
}

/// `ibv_bind_mw`.
fn bind(side: &Side, mw: *mut ibv_mw, bind_info: ibv_mw_bind_info) -> i32 {
    let mut request = ibv_mw_bind {
        wr_id: 5,
        send_flags: IBV_SEND_SIGNALED,
        bind_info,
    };
    // SAFETY: live objects.
    unsafe { (*side.context).ops.bind_mw.unwrap()(side.qp, mw, &raw mut request) }
}

fn write(from: &Side, to: &Side, rkey: u32) -> u32 {
    let mut sge = from.sge(0, 8);
    let mut wr = send_wr(9, IBV_WR_RDMA_WRITE, &mut sge);
    wr.wr.rdma = ibv_send_wr_rdma {
        remote_addr: to.buffer.as_ptr() as u64,
        rkey,
    };
    assert_eq!(from.post_send(&mut wr), 0);
    from.completion().status
}

#[test]
fn type_1_is_bound_by_its_function_under_a_new_key_each_time() {
    let (a, mut b) = pair(plain_qp);
    let mr = bindable(&mut b);
    let mw = alloc(&b, 1);
    // SAFETY: live objects.
    unsafe {
        let first = (*mw).rkey;
        assert_eq!(bind(&b, mw, info(&b, mr, 64)), 0);
        let second = (*mw).rkey;
        assert_ne!(first, second);
        let done = b.completion();
        assert_eq!(
            (done.wr_id, done.status, done.opcode),
            (5, IBV_WC_SUCCESS, IBV_WC_BIND_MW)
        );
        assert_eq!(write(&a, &b, second), IBV_WC_SUCCESS);
        assert_eq!(ibv_dereg_mr(mr), libc::EBUSY);
        assert_eq!(ibv_dealloc_pd(b.pd), libc::EBUSY);
        assert_eq!(bind(&b, mw, info(&b, mr, 0)), 0);
        assert_eq!(b.completion().status, IBV_WC_SUCCESS);
        assert_eq!(write(&a, &b, second), IBV_WC_REM_ACCESS_ERR);
        assert_eq!(ibv_dereg_mr(mr), 0);
    }
    dealloc(&b, mw);
}

#[test]
fn type_2_is_bound_by_a_work_request_under_the_programs_key() {
    let (a, mut b) = pair(plain_qp);
    let mr = bindable(&mut b);
    let mw = alloc(&b, 2);
    // SAFETY: live objects.
    let rkey = unsafe { (*mw).rkey };
    let chosen = rkey & !0xff | rkey.wrapping_add(1) & 0xff;
    let mut wr = ibv_send_wr::zeroed();
    wr.wr_id = 7;
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.bind_mw = ibv_send_wr_bind_mw {
        mw,
        rkey: chosen,
        bind_info: info(&b, mr, 64),
    };
    assert_eq!(b.post_send(&mut wr), 0);
    assert_eq!(b.completion().opcode, IBV_WC_BIND_MW);
    // SAFETY: live objects.
    assert_eq!(unsafe { (*mw).rkey }, chosen);
    assert_eq!(bind(&b, mw, info(&b, mr, 64)), libc::EINVAL, "type 2");
    assert_eq!(write(&a, &b, chosen), IBV_WC_SUCCESS);
    dealloc(&b, mw);
    assert_eq!(write(&a, &b, chosen), IBV_WC_REM_ACCESS_ERR);
    // SAFETY: live objects.
    assert_eq!(unsafe { ibv_dereg_mr(mr) }, 0);
}

#[test]
fn a_bind_that_the_region_does_not_allow_fails_in_its_completion() {
    let (_a, b) = pair(plain_qp);
    let mw = alloc(&b, 1);
    assert_eq!(
        bind(&b, mw, info(&b, b.mr, 64)),
        0,
        "lacks IBV_ACCESS_MW_BIND"
    );
    assert_eq!(b.completion().status, IBV_WC_MW_BIND_ERR);
    dealloc(&b, mw);
    assert!(alloc(&b, 3).is_null());
    assert_eq!(errno(), libc::EINVAL);
}
