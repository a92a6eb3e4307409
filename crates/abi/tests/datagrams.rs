//! UD and UC through the C functions: address handles, both posting interfaces, what a completion
//! says of a datagram, and the answer to its sender.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::ptr;

use common::{Side, block, errno, init_attr, send_wr};
use ferroce_abi::types::*;
use ferroce_abi::verbs::*;

const QKEY: u32 = 0x1234;

/// A queue pair of a type with builders for some operations; NULL if they are refused.
///
/// # Safety
/// Live objects.
unsafe fn with_ops(pd: *mut ibv_pd, cq: *mut ibv_cq, qp_type: u32, ops: u32) -> *mut ibv_qp {
    let mut attr = ibv_qp_init_attr_ex::zeroed();
    (attr.send_cq, attr.recv_cq, attr.pd) = (cq, cq, pd);
    attr.cap = init_attr(cq).cap;
    attr.qp_type = qp_type;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = ops.into();
    // SAFETY: the caller's promise.
    unsafe { (*block((*pd).context)).create_qp_ex.unwrap()((*pd).context, &raw mut attr) }
}

/// A datagram queue pair with builders.
///
/// # Safety
/// Live objects.
unsafe fn ud_qp(pd: *mut ibv_pd, cq: *mut ibv_cq) -> *mut ibv_qp {
    let ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    // SAFETY: the caller's promise.
    unsafe { with_ops(pd, cq, IBV_QPT_UD, ops) }
}

/// A side in RTS.
fn ud() -> Side {
    let side = Side::new(ud_qp);
    let mut attr = ibv_qp_attr::zeroed();
    attr.port_num = 1;
    attr.qkey = QKEY;
    let to_init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
    side.go(&mut attr, IBV_QPS_INIT, to_init);
    side.go(&mut attr, IBV_QPS_RTR, 0);
    side.go(&mut attr, IBV_QPS_RTS, IBV_QP_SQ_PSN);
    side
}

/// The address of the own GID with an index, for a packet from it.
fn own_address(side: &Side, index: u8) -> ibv_ah_attr {
    let mut attr = ibv_ah_attr::zeroed();
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.hop_limit = 9;
    attr.grh.traffic_class = 4;
    attr.grh.sgid_index = index;
    // SAFETY: a live context.
    let result = unsafe { ibv_query_gid(side.context, 1, index.into(), &raw mut attr.grh.dgid) };
    assert_eq!(result, 0);
    attr
}

fn qpn(side: &Side) -> u32 {
    // SAFETY: a live queue pair.
    unsafe { (*side.qp).qp_num }
}

/// Sends `hello` by `ibv_post_send`.
fn post(from: &mut Side, ah: *mut ibv_ah, to: u32) -> i32 {
    from.buffer[..5].copy_from_slice(b"hello");
    let mut sge = from.sge(0, 5);
    let mut wr = send_wr(1, IBV_WR_SEND_WITH_IMM, &mut sge);
    wr.imm_data = 0xabcd_u32.to_be();
    wr.wr.ud = ibv_send_wr_ud {
        ah,
        remote_qpn: to,
        remote_qkey: QKEY,
    };
    from.post_send(&mut wr)
}

/// Sends `answer` by the builders.
fn build(from: &Side, ah: *mut ibv_ah, to: u32) -> i32 {
    // SAFETY: a live extended queue pair, used as the manual page says.
    unsafe {
        let qp = ibv_qp_to_qp_ex(from.qp);
        let ops = *qp;
        ops.wr_start.unwrap()(qp);
        (*qp).wr_id = 2;
        (*qp).wr_flags = IBV_SEND_SIGNALED;
        ops.wr_send.unwrap()(qp);
        ops.wr_set_ud_addr.unwrap()(qp, ah, to, QKEY);
        ops.wr_set_inline_data.unwrap()(qp, c"answer".as_ptr().cast_mut().cast(), 6);
        ops.wr_complete.unwrap()(qp)
    }
}

#[test]
fn a_datagram_and_its_answer() {
    let (mut a, b) = (ud(), ud());
    let mut index = 0;
    // SAFETY: a live context.
    while unsafe { ibv_query_gid(a.context, 1, index.into(), &mut ibv_gid { raw: [0; 16] }) } == 0 {
        let mut address = own_address(&a, index);
        // `lo` has one or two addresses; an index past them is an empty entry.
        if address.grh.dgid.raw == [0; 16] {
            break;
        }
        // SAFETY: a live protection domain.
        let ah = unsafe { ibv_create_ah(a.pd, &raw mut address) };
        assert!(!ah.is_null(), "errno {}", errno());
        assert_eq!(b.post_recv(7, b.sge(0, 100)), 0);
        assert_eq!(a.post_recv(8, a.sge(1000, 100)), 0);
        assert_eq!(post(&mut a, ah, qpn(&b)), 0);
        assert_eq!(a.completion().wr_id, 1);
        let mut wc = b.completion();
        assert_eq!(
            (wc.wr_id, wc.status, wc.opcode),
            (7, IBV_WC_SUCCESS, IBV_WC_RECV)
        );
        assert_eq!((wc.byte_len, wc.src_qp), (45, qpn(&a)));
        assert_eq!(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
        assert_eq!(wc.imm_data, 0xabcd_u32.to_be());
        // The service level says what the packet was, as adapters have it: 10 is IPv4 under UDP, 9
        // IPv6.
        let mapped = address.grh.dgid.raw[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
        let packet = if mapped { 10 } else { 9 };
        assert_eq!((wc.pkey_index, wc.slid, wc.sl), (0, 0, packet));
        assert_eq!(b.buffer[40..45], *b"hello");
        // SAFETY: the completion and the header in front of its datagram.
        let (back, made) = unsafe {
            let grh = b.buffer.as_ptr().cast_mut().cast();
            let mut back = ibv_ah_attr::zeroed();
            let result = ibv_init_ah_from_wc(b.context, 1, &raw mut wc, grh, &raw mut back);
            assert_eq!(result, 0, "errno {}", errno());
            (back, ibv_create_ah_from_wc(b.pd, &raw mut wc, grh, 1))
        };
        assert_eq!((back.is_global, back.grh.sgid_index), (1, index));
        assert_eq!((back.grh.hop_limit, back.grh.traffic_class), (9, 4));
        assert_eq!(back.grh.dgid.raw, address.grh.dgid.raw);
        assert_eq!(build(&b, made, wc.src_qp), 0);
        assert_eq!(b.completion().wr_id, 2);
        let answer = a.completion();
        assert_eq!((answer.wr_id, answer.byte_len), (8, 46));
        assert_eq!(answer.wc_flags, IBV_WC_GRH);
        assert_eq!(a.buffer[1040..1046], *b"answer");
        // SAFETY: nobody uses them any more.
        unsafe { assert_eq!((ibv_destroy_ah(ah), ibv_destroy_ah(made)), (0, 0)) };
        index += 1;
    }
    assert!(index > 0, "lo has an address");
}

#[test]
fn datagrams_without_an_address_handle_are_refused() {
    let mut a = ud();
    let to = qpn(&a);
    assert_eq!(post(&mut a, ptr::null_mut(), to), libc::EINVAL);
    assert_eq!(build(&a, ptr::null_mut(), to), libc::EINVAL);
    let mut sge = a.sge(0, 5);
    let mut address = own_address(&a, 0);
    // SAFETY: a live protection domain.
    let ah = unsafe { ibv_create_ah(a.pd, &raw mut address) };
    let mut wr = send_wr(1, IBV_WR_RDMA_WRITE, &mut sge);
    wr.wr.ud = ibv_send_wr_ud {
        ah,
        remote_qpn: to,
        remote_qkey: QKEY,
    };
    assert_eq!(a.post_send(&mut wr), libc::EINVAL);
    assert!(a.poll().is_none());
    // SAFETY: nobody uses it any more.
    assert_eq!(unsafe { ibv_destroy_ah(ah) }, 0);
}

#[test]
fn builders_exist_for_what_the_type_has() {
    let a = ud();
    let send = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    let write = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    let local = IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
    for (qp_type, ops, allowed) in [
        (IBV_QPT_UD, send, true),
        (IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_WRITE, false),
        (IBV_QPT_UD, IBV_QP_EX_WITH_LOCAL_INV, false),
        (IBV_QPT_UC, send | write | local, true),
        (IBV_QPT_UC, IBV_QP_EX_WITH_RDMA_READ, false),
        (IBV_QPT_UC, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, false),
        (IBV_QPT_UC, IBV_QP_EX_WITH_SEND_WITH_INV, false),
    ] {
        // SAFETY: live objects; what is made is destroyed.
        unsafe {
            let qp = with_ops(a.pd, a.cq, qp_type, ops);
            assert_eq!(
                !qp.is_null(),
                allowed,
                "type {qp_type}, operations {ops:#x}"
            );
            if qp.is_null() {
                assert_eq!(errno(), libc::EOPNOTSUPP);
            } else {
                assert_eq!(ibv_destroy_qp(qp), 0);
            }
        }
    }
}

#[test]
fn attributes_of_a_datagram_queue_pair_can_be_asked_for() {
    let a = ud();
    let (mut attr, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
    // SAFETY: a live queue pair, and room for the attributes.
    let result = unsafe { ibv_query_qp(a.qp, &raw mut attr, 0, &raw mut init) };
    assert_eq!(result, 0);
    assert_eq!((attr.qp_state, attr.qkey), (IBV_QPS_RTS, QKEY));
    assert_eq!((attr.port_num, init.qp_type), (1, IBV_QPT_UD));
}
