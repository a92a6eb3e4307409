//! Completion queues and their channels in C.

use std::ptr;

use ferroce_abi::types::*;
use ferroce_abi::verbs::*;
use ferroce_proto::verbs::Wc;

use super::c::errno;
use super::c_xrc::block;
use super::{Errno, c_work, count};
use crate::bench::{Poll, Spec};

/// Makes a channel and a queue on it.
///
/// # Safety
/// A live context.
pub(super) unsafe fn create(
    context: *mut ibv_context,
    spec: &Spec,
) -> (*mut ibv_comp_channel, *mut ibv_cq) {
    // SAFETY: the caller's promise; objects just made, each checked.
    unsafe {
        let channel = ibv_create_comp_channel(context);
        assert!(!channel.is_null(), "{:?}", errno());
        let cqe = i32::try_from(spec.cqe).expect("a size");
        let cq = match spec.poll {
            Poll::Usual => ibv_create_cq(context, cqe, ptr::null_mut(), channel, 0),
            Poll::Other => {
                let mut attr = ibv_cq_init_attr_ex::zeroed();
                (attr.cqe, attr.channel) = (spec.cqe, channel);
                attr.wc_flags = u64::from(IBV_WC_STANDARD_FLAGS);
                let create = (*block(context)).create_cq_ex.expect("an operation");
                create(context, &raw mut attr).cast()
            }
        };
        assert!(!cq.is_null(), "{:?}", errno());
        (channel, cq)
    }
}

/// `ibv_poll_cq(3)` for one completion.
///
/// # Safety
/// A live queue.
pub(super) unsafe fn poll(cq: *mut ibv_cq) -> Result<Option<Wc>, Errno> {
    let mut wc = ibv_wc::zeroed();
    // SAFETY: the caller's promise; room for one completion.
    let n = unsafe {
        let poll = (*(*cq).context).ops.poll_cq.expect("an operation");
        poll(cq, 1, &raw mut wc)
    };
    match n {
        0 => Ok(None),
        1 => Ok(Some(c_work::completion(&wc))),
        _ => Err(Errno(-n)),
    }
}

/// `ibv_start_poll(3)` and `ibv_end_poll(3)` for one completion.
///
/// # Safety
/// A live queue that [`create`] made with [`Poll::Other`].
pub(super) unsafe fn poll_by_readers(cq: *mut ibv_cq) -> Result<Option<Wc>, Errno> {
    let cq: *mut ibv_cq_ex = cq.cast();
    let mut options = ibv_poll_cq_attr { comp_mask: 0 };
    let mut wc = ibv_wc::zeroed();
    // SAFETY: the caller's promise; readers are called between start and end.
    unsafe {
        let ops = *cq;
        match ops.start_poll.expect("a function")(cq, &raw mut options) {
            0 => {}
            libc::ENOENT => return Ok(None),
            error => return Err(Errno(error)),
        }
        (wc.wr_id, wc.status) = ((*cq).wr_id, (*cq).status);
        wc.opcode = ops.read_opcode.expect("a function")(cq);
        wc.vendor_err = ops.read_vendor_err.expect("a function")(cq);
        wc.byte_len = ops.read_byte_len.expect("a function")(cq);
        wc.imm_data = ops.read_imm_data.expect("a function")(cq);
        wc.qp_num = ops.read_qp_num.expect("a function")(cq);
        wc.src_qp = ops.read_src_qp.expect("a function")(cq);
        wc.wc_flags = ops.read_wc_flags.expect("a function")(cq);
        wc.sl = ops.read_sl.expect("a function")(cq);
        ops.end_poll.expect("a function")(cq);
    }
    Ok(Some(c_work::completion(&wc)))
}

/// `ibv_req_notify_cq(3)`.
///
/// # Safety
/// A live queue.
pub(super) unsafe fn arm(cq: *mut ibv_cq, solicited_only: bool) {
    // SAFETY: the caller's promise.
    let armed = unsafe {
        let arm = (*(*cq).context).ops.req_notify_cq.expect("an operation");
        arm(cq, i32::from(solicited_only))
    };
    assert_eq!(armed, 0);
}

/// `ibv_get_cq_event(3)` and `ibv_ack_cq_events(3)`, if an event waits.
///
/// # Safety
/// A live channel, whose only queue is `cq`. Nobody else takes its events.
pub(super) unsafe fn take_event(channel: *mut ibv_comp_channel, cq: *mut ibv_cq) -> bool {
    let (mut told, mut cookie) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the caller's promise. The call does not block, since an event waits.
    unsafe {
        if !count::is_readable((*channel).fd) {
            return false;
        }
        let got = ibv_get_cq_event(channel, &raw mut told, &raw mut cookie);
        assert_eq!((got, told), (0, cq));
        ibv_ack_cq_events(cq, 1);
    }
    true
}

/// `ibv_modify_cq(3)`.
///
/// # Safety
/// A live queue.
pub(super) unsafe fn moderate(cq: *mut ibv_cq, cq_count: u16, cq_period: u16) {
    let mut attr = ibv_modify_cq_attr {
        attr_mask: IBV_CQ_ATTR_MODERATE,
        moderate: ibv_moderate_cq {
            cq_count,
            cq_period,
        },
    };
    // SAFETY: the caller's promise.
    let modified = unsafe {
        let modify = (*block((*cq).context)).modify_cq.expect("an operation");
        modify(cq, &raw mut attr)
    };
    assert_eq!(modified, 0);
}
