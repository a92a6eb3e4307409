//! Shared receive queues and XRC through the C functions: what is refused and how, events, and data
//! on both.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::os::fd::AsRawFd as _;
use std::ptr;
use std::sync::mpsc;
use std::time::Duration;

use common::{Side, block, errno, init_attr, plain_qp, send_wr};
use ferroce_abi::types::*;
use ferroce_abi::verbs::*;

fn srq_attr(max_wr: u32) -> ibv_srq_init_attr {
    let mut init = ibv_srq_init_attr::zeroed();
    init.attr.max_wr = max_wr;
    init.attr.max_sge = 1;
    init
}

/// Posts receives without a buffer; the errno and the refused one's tag.
fn post(side: &Side, srq: *mut ibv_srq, ids: &[u64]) -> (i32, Option<u64>) {
    let mut wrs: Vec<_> = ids
        .iter()
        .map(|&wr_id| ibv_recv_wr {
            wr_id,
            next: ptr::null_mut(),
            sg_list: ptr::null_mut(),
            num_sge: 0,
        })
        .collect();
    for at in 1..wrs.len() {
        wrs[at - 1].next = &raw mut wrs[at];
    }
    let mut bad: *mut ibv_recv_wr = ptr::null_mut();
    // SAFETY: a live queue and a chain of work requests; `bad` points into it afterwards or is
    // NULL.
    unsafe {
        let post = (*side.context).ops.post_srq_recv.unwrap();
        let result = post(srq, wrs.as_mut_ptr(), &raw mut bad);
        (result, (!bad.is_null()).then(|| (*bad).wr_id))
    }
}

/// A queue pair on a side's shared receive queue takes the place of the side's.
fn take_over(side: &mut Side, srq: *mut ibv_srq) {
    let mut attr = init_attr(side.cq);
    attr.srq = srq;
    // SAFETY: live objects.
    unsafe {
        assert_eq!(ibv_destroy_qp(side.qp), 0);
        side.qp = ibv_create_qp(side.pd, &raw mut attr);
        assert!(!side.qp.is_null());
        assert_eq!((*side.qp).srq, srq);
    }
    assert_eq!((attr.cap.max_recv_wr, attr.cap.max_recv_sge), (0, 0));
}

#[test]
fn a_queue_lives_as_its_manual_page_says() {
    let (a, mut b) = (Side::new(plain_qp), Side::new(plain_qp));
    // SAFETY: live objects, used in the order in which they refer to each other.
    unsafe {
        let mut init = srq_attr(3);
        let srq = ibv_create_srq(b.pd, &raw mut init);
        assert!(!srq.is_null());
        assert!(init.attr.max_wr >= 3 && init.attr.max_sge >= 1);
        take_over(&mut b, srq);
        assert_eq!(ibv_destroy_srq(srq), libc::EBUSY);
        assert_eq!(ibv_dealloc_pd(b.pd), libc::EBUSY);
        assert_eq!(b.post_recv(1, b.sge(0, 8)), libc::EINVAL);
        assert_eq!(post(&b, srq, &[1, 2, 3, 4, 5]), (libc::ENOMEM, Some(4)));
        let mut attr = ibv_srq_attr::zeroed();
        attr.max_wr = 2;
        let (max_wr, limit) = (IBV_SRQ_MAX_WR.cast_signed(), IBV_SRQ_LIMIT.cast_signed());
        assert_eq!(ibv_modify_srq(srq, &raw mut attr, max_wr), libc::EINVAL);
        assert_eq!(ibv_modify_srq(srq, &raw mut attr, 4), libc::EINVAL);
        (attr.max_wr, attr.srq_limit) = (5, 3);
        assert_eq!(ibv_modify_srq(srq, &raw mut attr, max_wr | limit), 0);
        assert_eq!(post(&b, srq, &[4]), (0, None));
        assert_eq!(ibv_query_srq(srq, &raw mut attr), 0);
        assert_eq!((attr.max_wr, attr.srq_limit), (5, 3));

        a.connect(&b);
        b.connect(&a);
        for wr_id in 1..=2 {
            let mut sge = a.sge(0, 0);
            assert_eq!(a.post_send(&mut send_wr(wr_id, IBV_WR_SEND, &mut sge)), 0);
            let wc = b.completion();
            assert_eq!((wc.wr_id, wc.status), (wr_id, IBV_WC_SUCCESS));
            assert_eq!(wc.qp_num, (*b.qp).qp_num);
        }
        // Two of four are left: the limit of three has spoken, after what the connection itself had
        // to say.
        let mut event = ibv_async_event::zeroed();
        while event.event_type != IBV_EVENT_SRQ_LIMIT_REACHED {
            if !event.element.qp.is_null() {
                ibv_ack_async_event(&raw mut event);
            }
            assert_eq!(ibv_get_async_event(b.context, &raw mut event), 0);
        }
        assert_eq!(event.element.srq, srq);
        assert_eq!(ibv_destroy_qp(b.qp), 0);
        // The queue goes once its event is acknowledged, and not before.
        let (tell, told) = mpsc::channel();
        let address = srq.expose_provenance();
        let destroyer = std::thread::spawn(move || {
            let result = ibv_destroy_srq(ptr::with_exposed_provenance_mut(address));
            tell.send(result).unwrap();
        });
        assert!(told.recv_timeout(Duration::from_millis(50)).is_err());
        ibv_ack_async_event(&raw mut event);
        assert_eq!(told.recv_timeout(Duration::from_secs(60)).unwrap(), 0);
        destroyer.join().unwrap();
        b.qp = plain_qp(b.pd, b.cq);
    }
}

#[test]
fn each_type_is_made_or_refused_in_its_way() {
    let side = Side::new(plain_qp);
    // SAFETY: live objects; attributes whose mask names what is set.
    unsafe {
        let verbs = block(side.context);
        let make = |srq_type, comp_mask| {
            let mut init = ibv_srq_init_attr_ex::zeroed();
            (init.attr.max_wr, init.attr.max_sge) = (4, 1);
            (init.comp_mask, init.srq_type) = (comp_mask, srq_type);
            (init.pd, init.cq) = (side.pd, side.cq);
            (*verbs).create_srq_ex.unwrap()(side.context, &raw mut init)
        };
        let (pd, kind) = (IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE);
        let basic = make(IBV_SRQT_BASIC, pd | kind);
        assert!(!basic.is_null());
        let mut number = 0;
        let srq_num = (*verbs).get_srq_num.unwrap();
        assert_eq!(srq_num(basic, &raw mut number), libc::EINVAL);
        let (mut wr, mut bad) = (0_u64, ptr::null_mut());
        let ops = (*verbs).post_srq_ops.unwrap();
        let first = (&raw mut wr).cast();
        assert_eq!(ops(basic, first, &raw mut bad), libc::EOPNOTSUPP);
        assert_eq!(bad, first);
        assert_eq!(ibv_destroy_srq(basic), 0);
        for (srq_type, mask, expected) in [
            (IBV_SRQT_TM, pd | kind, libc::EOPNOTSUPP),
            (IBV_SRQT_XRC, pd | kind, libc::EINVAL),
            (
                IBV_SRQT_XRC,
                pd | kind | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
                libc::EINVAL,
            ),
            (9, pd | kind, libc::EINVAL),
            (IBV_SRQT_BASIC, kind, libc::EINVAL),
        ] {
            assert!(make(srq_type, mask).is_null());
            assert_eq!(errno(), expected, "type {srq_type} mask {mask:#x}");
        }
        assert!(ibv_create_srq(side.pd, &mut srq_attr(0)).is_null());
        assert_eq!(errno(), libc::EINVAL);
    }
}

/// Opens a domain; the errno if that fails.
fn open_xrcd(side: &Side, fd: i32, oflags: i32) -> Result<*mut ibv_xrcd, i32> {
    let mut attr = ibv_xrcd_init_attr {
        comp_mask: IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
        fd,
        oflags,
    };
    // SAFETY: a live context.
    let xrcd = unsafe { (*block(side.context)).open_xrcd.unwrap()(side.context, &raw mut attr) };
    (!xrcd.is_null()).then_some(xrcd).ok_or_else(errno)
}

/// Closes a domain.
fn close_xrcd(side: &Side, xrcd: *mut ibv_xrcd) -> i32 {
    // SAFETY: a live domain, closed once with success.
    unsafe { (*block(side.context)).close_xrcd.unwrap()(xrcd) }
}

#[test]
fn domains_are_those_of_files() {
    let side = Side::new(plain_qp);
    let file = tempfile();
    let fd = file.as_raw_fd();
    assert_eq!(open_xrcd(&side, -1, 0), Err(libc::EINVAL));
    assert_eq!(open_xrcd(&side, -2, libc::O_CREAT), Err(libc::EBADF));
    assert_eq!(open_xrcd(&side, fd, libc::O_APPEND), Err(libc::EINVAL));
    assert_eq!(open_xrcd(&side, fd, 0), Err(libc::EAGAIN));
    let first = open_xrcd(&side, fd, libc::O_CREAT | libc::O_EXCL).unwrap();
    let exclusive = open_xrcd(&side, fd, libc::O_CREAT | libc::O_EXCL);
    assert_eq!(exclusive, Err(libc::EINVAL));
    let copy = file.try_clone().unwrap();
    let second = open_xrcd(&side, copy.as_raw_fd(), 0).unwrap();
    let target = create_target(&side, first);
    assert_eq!(close_xrcd(&side, first), libc::EBUSY);
    // SAFETY: live objects.
    unsafe {
        let open = |qp_num, qp_type, comp_mask| {
            let mut attr = ibv_qp_open_attr::zeroed();
            (attr.qp_num, attr.qp_type, attr.xrcd) = (qp_num, qp_type, second);
            attr.comp_mask = comp_mask;
            (*block(side.context)).open_qp.unwrap()(side.context, &raw mut attr)
        };
        let all = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
        let number = (*target).qp_num;
        for (number, qp_type, mask) in [
            (number + 1, IBV_QPT_XRC_RECV, all),
            (number, IBV_QPT_RC, all),
            (number, IBV_QPT_XRC_RECV, all & !IBV_QP_OPEN_ATTR_TYPE),
        ] {
            assert!(open(number, qp_type, mask).is_null());
            assert_eq!(errno(), libc::EINVAL);
        }
        let shared = open(number, IBV_QPT_XRC_RECV, all);
        assert_eq!((*shared).qp_num, number);
        assert_eq!(close_xrcd(&side, second), libc::EBUSY);
        assert_eq!(ibv_destroy_qp(target), 0);
        assert_eq!(close_xrcd(&side, first), 0);
        // The other handle keeps the queue pair.
        let mut attr = ibv_qp_attr::zeroed();
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = 1;
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        assert_eq!(ibv_modify_qp(shared, &raw mut attr, mask.cast_signed()), 0);
        assert_eq!((*shared).state, IBV_QPS_INIT);
        assert_eq!(ibv_destroy_qp(shared), 0);
    }
    assert_eq!(close_xrcd(&side, second), 0);
}

/// A file without a name.
fn tempfile() -> std::fs::File {
    // SAFETY: a name, and flags.
    let fd = unsafe { libc::memfd_create(c"xrcd".as_ptr(), 0) };
    assert!(fd >= 0);
    // SAFETY: just made, and owned by nobody else.
    unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) }
}

fn create_target(side: &Side, xrcd: *mut ibv_xrcd) -> *mut ibv_qp {
    let mut init = ibv_qp_init_attr_ex::zeroed();
    (init.qp_type, init.comp_mask) = (IBV_QPT_XRC_RECV, IBV_QP_INIT_ATTR_XRCD);
    init.xrcd = xrcd;
    // SAFETY: live objects.
    let qp = unsafe { (*block(side.context)).create_qp_ex.unwrap()(side.context, &raw mut init) };
    assert!(!qp.is_null(), "errno {}", errno());
    qp
}

/// An initiator with builders.
///
/// # Safety
/// Live objects.
unsafe fn initiator(pd: *mut ibv_pd, cq: *mut ibv_cq) -> *mut ibv_qp {
    let short = init_attr(cq);
    let mut init = ibv_qp_init_attr_ex::zeroed();
    (init.qp_type, init.send_cq, init.pd) = (IBV_QPT_XRC_SEND, cq, pd);
    (init.cap, init.sq_sig_all) = (short.cap, 1);
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.send_ops_flags = (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE).into();
    // SAFETY: the caller's promise.
    unsafe { (*block((*pd).context)).create_qp_ex.unwrap()((*pd).context, &raw mut init) }
}

/// An XRC queue on a side's objects, with its number.
fn xrc_srq(side: &Side, xrcd: *mut ibv_xrcd) -> (*mut ibv_srq, u32) {
    let mut init = ibv_srq_init_attr_ex::zeroed();
    (init.attr.max_wr, init.attr.max_sge) = (4, 1);
    init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE
        | IBV_SRQ_INIT_ATTR_PD
        | IBV_SRQ_INIT_ATTR_XRCD
        | IBV_SRQ_INIT_ATTR_CQ;
    init.srq_type = IBV_SRQT_XRC;
    (init.pd, init.xrcd, init.cq) = (side.pd, xrcd, side.cq);
    let mut number = 0;
    // SAFETY: live objects.
    unsafe {
        let verbs = block(side.context);
        let srq = (*verbs).create_srq_ex.unwrap()(side.context, &raw mut init);
        assert!(!srq.is_null(), "errno {}", errno());
        assert_eq!((*verbs).get_srq_num.unwrap()(srq, &raw mut number), 0);
        (srq, number)
    }
}

#[test]
fn xrc_messages_by_work_request_and_by_builder() {
    let (a, mut b) = (Side::new(initiator), Side::new(plain_qp));
    let xrcd = open_xrcd(&b, -1, libc::O_CREAT).unwrap();
    let (srq, number) = xrc_srq(&b, xrcd);
    // SAFETY: live objects, used in the order in which they refer to each other.
    unsafe {
        assert_eq!(ibv_destroy_qp(b.qp), 0);
        b.qp = create_target(&b, xrcd);
        assert!((*b.qp).pd.is_null() && (*b.qp).send_cq.is_null() && (*b.qp).srq.is_null());
        assert!((*a.qp).recv_cq.is_null());
        a.connect(&b);
        b.connect(&a);
        assert_eq!(a.post_recv(1, a.sge(0, 8)), libc::EINVAL);
        assert_eq!(post(&b, srq, &[1, 2]), (0, None));

        let mut sge = a.sge(0, 0);
        let mut wr = send_wr(1, IBV_WR_SEND, &mut sge);
        wr.qp_type = number;
        assert_eq!(a.post_send(&mut wr), 0);
        let received = b.completion();
        assert_eq!((received.wr_id, received.status), (1, IBV_WC_SUCCESS));
        assert_eq!(received.qp_num, (*b.qp).qp_num);
        assert_eq!(a.completion().status, IBV_WC_SUCCESS);

        let qpx = ibv_qp_to_qp_ex(a.qp);
        (*qpx).wr_start.unwrap()(qpx);
        (*qpx).wr_id = 2;
        (*qpx).wr_send.unwrap()(qpx);
        (*qpx).wr_set_xrc_srqn.unwrap()(qpx, number);
        (*qpx).wr_set_sge.unwrap()(qpx, sge.lkey, sge.addr, 0);
        assert_eq!((*qpx).wr_complete.unwrap()(qpx), 0);
        assert_eq!(b.completion().wr_id, 2);
        assert_eq!(a.completion().wr_id, 2);
        // Without its receiver a work request is refused, and the whole batch with it.
        (*qpx).wr_start.unwrap()(qpx);
        (*qpx).wr_send.unwrap()(qpx);
        assert_eq!((*qpx).wr_complete.unwrap()(qpx), libc::EINVAL);

        assert_eq!(close_xrcd(&b, xrcd), libc::EBUSY);
        assert_eq!(ibv_destroy_cq(b.cq), libc::EBUSY);
        assert_eq!(ibv_destroy_srq(srq), 0);
        assert_eq!(ibv_destroy_qp(b.qp), 0);
        assert_eq!(close_xrcd(&b, xrcd), 0);
        b.qp = plain_qp(b.pd, b.cq);
    }
}
