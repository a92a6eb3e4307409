//! Asynchronous events through the C functions: each that a queue pair or a completion queue
//! raises, its acknowledgement, and path migration, which raises one.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use common::{Side, errno, pair, plain_qp, send_wr};
use ferroce_abi::types::*;
use ferroce_abi::verbs::*;

/// Waits for the next event on a side's context and does not acknowledge it.
#[track_caller]
fn unacknowledged(side: &Side) -> ibv_async_event {
    let mut event = ibv_async_event::zeroed();
    // SAFETY: a live context.
    unsafe {
        let mut poll = libc::pollfd {
            fd: (*side.context).async_fd,
            events: libc::POLLIN,
            revents: 0,
        };
        assert_eq!(libc::poll(&raw mut poll, 1, 60_000), 1, "no event");
        assert_eq!(ibv_get_async_event(side.context, &raw mut event), 0);
    }
    event
}

/// Waits for the next event, which must be of this type and about this queue pair.
#[track_caller]
fn expect(side: &Side, event_type: u32, qp: *mut ibv_qp) {
    let mut event = unacknowledged(side);
    // SAFETY: the types asked for here carry a queue pair.
    let about = unsafe { event.element.qp };
    assert_eq!((event.event_type, about), (event_type, qp));
    // SAFETY: just delivered.
    unsafe { ibv_ack_async_event(&raw mut event) };
}

/// Whether the descriptor has nothing to read, as a program in non-blocking mode sees it.
fn quiet(side: &Side) -> bool {
    let mut event = ibv_async_event::zeroed();
    // SAFETY: a live context and its descriptor.
    unsafe {
        let fd = (*side.context).async_fd;
        assert_eq!(libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK), 0);
        let got = ibv_get_async_event(side.context, &raw mut event);
        assert_eq!(libc::fcntl(fd, libc::F_SETFL, 0), 0);
        got == -1 && errno() == libc::EAGAIN
    }
}

fn modify(side: &Side, mask: u32, change: impl FnOnce(&mut ibv_qp_attr)) -> c_int {
    let mut attr = ibv_qp_attr::zeroed();
    change(&mut attr);
    // SAFETY: a live queue pair.
    unsafe { ibv_modify_qp(side.qp, &raw mut attr, mask.cast_signed()) }
}

fn query(side: &Side) -> ibv_qp_attr {
    let (mut attr, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
    // SAFETY: a live queue pair, room for both.
    unsafe {
        let result = ibv_query_qp(
            side.qp,
            &raw mut attr,
            IBV_QP_STATE.cast_signed(),
            &raw mut init,
        );
        assert_eq!(result, 0);
    }
    attr
}

/// A WRITE of 8 bytes to the other side's buffer, with this key.
fn write(from: &Side, to: &Side, rkey: u32) {
    let mut sge = from.sge(0, 8);
    let mut wr = send_wr(1, IBV_WR_RDMA_WRITE, &mut sge);
    wr.wr.rdma.remote_addr = to.buffer.as_ptr() as u64;
    wr.wr.rdma.rkey = rkey;
    assert_eq!(from.post_send(&mut wr), 0);
}

fn rkey(side: &Side) -> u32 {
    // SAFETY: a live region.
    unsafe { (*side.mr).rkey }
}

#[test]
fn a_key_that_opens_nothing_is_an_access_error_of_the_target() {
    let (a, b) = pair(plain_qp);
    assert!(quiet(&b));
    write(&a, &b, rkey(&b) ^ 1);
    assert_eq!(a.completion().status, IBV_WC_REM_ACCESS_ERR);
    expect(&b, IBV_EVENT_QP_ACCESS_ERR, b.qp);
    assert!(quiet(&a) && quiet(&b));
}

#[test]
fn an_operation_that_the_target_does_not_allow_is_a_request_error() {
    let (a, b) = pair(plain_qp);
    let forbid = |attr: &mut ibv_qp_attr| attr.qp_access_flags = 0;
    assert_eq!(modify(&b, IBV_QP_ACCESS_FLAGS, forbid), 0);
    write(&a, &b, rkey(&b));
    assert_eq!(a.completion().status, IBV_WC_REM_INV_REQ_ERR);
    expect(&b, IBV_EVENT_QP_REQ_ERR, b.qp);
}

#[test]
fn a_packet_before_rts_establishes_the_communication() {
    let (a, b) = (Side::new(plain_qp), Side::new(plain_qp));
    a.connect(&b);
    b.ready_to_receive(&a);
    write(&a, &b, rkey(&b));
    assert_eq!(a.completion().status, IBV_WC_SUCCESS);
    expect(&b, IBV_EVENT_COMM_EST, b.qp);
    write(&a, &b, rkey(&b));
    assert_eq!(a.completion().status, IBV_WC_SUCCESS);
    assert!(quiet(&b), "it comes once");
}

#[test]
fn the_end_of_draining_is_told_if_asked_for() {
    let (a, b) = pair(plain_qp);
    let to_sqd = |notify| {
        move |attr: &mut ibv_qp_attr| {
            attr.qp_state = IBV_QPS_SQD;
            attr.en_sqd_async_notify = notify;
        }
    };
    let mask = IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY;
    assert_eq!(modify(&a, mask, to_sqd(1)), 0);
    expect(&a, IBV_EVENT_SQ_DRAINED, a.qp);
    assert_eq!(query(&a).sq_draining, 0);
    // What is posted meanwhile waits for RTS.
    write(&a, &b, rkey(&b));
    assert!(a.poll().is_none());
    let back = |attr: &mut ibv_qp_attr| attr.qp_state = IBV_QPS_RTS;
    assert_eq!(modify(&a, IBV_QP_STATE, back), 0);
    assert_eq!(a.completion().status, IBV_WC_SUCCESS);
    assert_eq!(modify(&a, mask, to_sqd(0)), 0);
    assert!(quiet(&a));
}

#[test]
fn an_overflow_is_an_error_of_the_queue_and_of_the_queue_pair() {
    let (a, b) = pair(plain_qp);
    // SAFETY: a live queue.
    assert_eq!(unsafe { ibv_resize_cq(a.cq, 1) }, 0);
    write(&a, &b, rkey(&b));
    write(&a, &b, rkey(&b));
    let mut event = unacknowledged(&a);
    // SAFETY: this type carries a completion queue.
    let about = unsafe { event.element.cq };
    assert_eq!((event.event_type, about), (IBV_EVENT_CQ_ERR, a.cq));
    // SAFETY: just delivered.
    unsafe { ibv_ack_async_event(&raw mut event) };
    expect(&a, IBV_EVENT_QP_FATAL, a.qp);
    assert_eq!(query(&a).qp_state, IBV_QPS_ERR);
    let mut wc = ibv_wc::zeroed();
    // SAFETY: a live queue.
    unsafe {
        let poll = (*a.context).ops.poll_cq.unwrap();
        assert_eq!(poll(a.cq, 1, &raw mut wc), 1, "what fitted is there");
        assert!(poll(a.cq, 1, &raw mut wc) < 0, "the queue is unusable");
    }
}

#[test]
fn destruction_waits_for_the_acknowledgement_and_takes_other_events_along() {
    let (a, b) = pair(plain_qp);
    write(&a, &b, rkey(&b) ^ 1);
    assert_eq!(a.completion().status, IBV_WC_REM_ACCESS_ERR);
    let mut event = unacknowledged(&b);
    let (b, done) = (ManuallyDrop::new(b), mpsc::channel());
    let qp = b.qp.expose_provenance();
    let destroyer = std::thread::spawn(move || {
        let qp = ptr::with_exposed_provenance_mut::<ibv_qp>(qp);
        // SAFETY: a live queue pair that nobody else uses.
        let result = unsafe { ibv_destroy_qp(qp) };
        done.0.send(result).unwrap();
    });
    let early = done.1.recv_timeout(Duration::from_millis(30));
    assert_eq!(early, Err(mpsc::RecvTimeoutError::Timeout));
    // SAFETY: an event that was delivered; the rest of `b` is taken apart as its `Drop` would.
    unsafe {
        ibv_ack_async_event(&raw mut event);
        destroyer.join().unwrap();
        assert_eq!(done.1.recv(), Ok(0));
        assert_eq!(ibv_destroy_cq(b.cq), 0);
        assert_eq!(ibv_destroy_comp_channel(b.channel), 0);
        assert_eq!(ibv_dereg_mr(b.mr), 0);
        assert_eq!(ibv_dealloc_pd(b.pd), 0);
        assert_eq!(ibv_close_device(b.context), 0);
    }
}

#[test]
fn undelivered_events_go_with_their_queue_pair() {
    let (a, b) = pair(plain_qp);
    write(&a, &b, rkey(&b) ^ 1);
    assert_eq!(a.completion().status, IBV_WC_REM_ACCESS_ERR);
    let deadline = Instant::now() + Duration::from_secs(60);
    while query(&b).qp_state != IBV_QPS_ERR {
        assert!(Instant::now() < deadline);
    }
    // SAFETY: live objects; another queue pair takes the place for `Drop`.
    let b = unsafe {
        assert_eq!(ibv_destroy_qp(b.qp), 0);
        let mut b = b;
        b.qp = plain_qp(b.pd, b.cq);
        b
    };
    assert!(quiet(&b));
}

#[test]
fn a_program_arms_and_migrates_to_the_alternate_path() {
    let (a, b) = pair(plain_qp);
    let migrate = |to| modify(&a, IBV_QP_PATH_MIG_STATE, |attr| attr.path_mig_state = to);
    assert_eq!(query(&a).path_mig_state, IBV_MIG_MIGRATED);
    assert_eq!(migrate(IBV_MIG_REARM), libc::EINVAL, "no alternate path");
    let primary = query(&a).ah_attr;
    let alternate = |attr: &mut ibv_qp_attr| {
        attr.alt_ah_attr = primary;
        attr.alt_ah_attr.grh.hop_limit = 42;
        attr.alt_port_num = 1;
        attr.alt_timeout = 9;
    };
    let nowhere = |attr: &mut ibv_qp_attr| {
        alternate(attr);
        attr.alt_ah_attr.grh.sgid_index = 200;
    };
    assert_eq!(modify(&a, IBV_QP_ALT_PATH, nowhere), libc::EINVAL);
    assert_eq!(modify(&a, IBV_QP_ALT_PATH, alternate), 0);
    let loaded = query(&a);
    assert_eq!(
        (
            loaded.alt_ah_attr.grh.hop_limit,
            loaded.alt_port_num,
            loaded.alt_timeout
        ),
        (42, 1, 9)
    );
    assert_eq!(migrate(IBV_MIG_ARMED), libc::EINVAL, "not rearmed");
    for state in [IBV_MIG_REARM, IBV_MIG_ARMED] {
        assert_eq!(migrate(state), 0);
        assert_eq!(query(&a).path_mig_state, state);
    }
    assert!(quiet(&a));
    assert_eq!(migrate(IBV_MIG_MIGRATED), 0);
    expect(&a, IBV_EVENT_PATH_MIG, a.qp);
    let now = query(&a);
    assert_eq!(now.path_mig_state, IBV_MIG_MIGRATED);
    assert_eq!((now.ah_attr.grh.hop_limit, now.timeout), (42, 9));
    write(&a, &b, rkey(&b));
    assert_eq!(a.completion().status, IBV_WC_SUCCESS);
}
