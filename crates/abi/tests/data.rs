//! Moving data through the C functions: chains, refusals, and the extended interfaces.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{ptr, thread};

use common::{Side, block, errno, init_attr, pair, plain_qp, send_wr};
use ferroce_abi::types::*;
use ferroce_abi::verbs::*;

#[test]
fn send_write_read_and_atomics_arrive() {
    let (mut a, b) = pair(plain_qp);
    let remote = |offset: u64| b.buffer.as_ptr() as u64 + offset;
    // SAFETY: a live region.
    let rkey = unsafe { (*b.mr).rkey };
    a.buffer[..8].copy_from_slice(b"ferroce!");
    assert_eq!(b.post_recv(9, b.sge(0, 64)), 0);

    let mut sge = a.sge(0, 8);
    let mut wr = send_wr(1, IBV_WR_SEND_WITH_IMM, &mut sge);
    wr.imm_data = 0xdead_beef_u32.to_be();
    assert_eq!(a.post_send(&mut wr), 0);
    let sent = a.completion();
    assert_eq!(
        (sent.wr_id, sent.status, sent.opcode),
        (1, IBV_WC_SUCCESS, IBV_WC_SEND)
    );
    let received = b.completion();
    assert_eq!(
        (received.wr_id, received.opcode, received.byte_len),
        (9, IBV_WC_RECV, 8)
    );
    assert_eq!(
        (received.wc_flags, u32::from_be(received.imm_data)),
        (IBV_WC_WITH_IMM, 0xdead_beef)
    );

    let mut wr = send_wr(2, IBV_WR_RDMA_WRITE, &mut sge);
    wr.wr.rdma = ibv_send_wr_rdma {
        remote_addr: remote(8),
        rkey,
    };
    assert_eq!(a.post_send(&mut wr), 0);
    assert_eq!(a.completion().opcode, IBV_WC_RDMA_WRITE);
    assert_eq!(&b.buffer[..16], b"ferroce!ferroce!");

    let mut back = a.sge(100, 16);
    let mut wr = send_wr(3, IBV_WR_RDMA_READ, &mut back);
    wr.wr.rdma = ibv_send_wr_rdma {
        remote_addr: remote(0),
        rkey,
    };
    assert_eq!(a.post_send(&mut wr), 0);
    assert_eq!(a.completion().opcode, IBV_WC_RDMA_READ);
    assert_eq!(&a.buffer[100..116], b"ferroce!ferroce!");

    let mut old = a.sge(200, 8);
    let mut wr = send_wr(4, IBV_WR_ATOMIC_FETCH_AND_ADD, &mut old);
    wr.wr.atomic = ibv_send_wr_atomic {
        remote_addr: remote(512),
        compare_add: 5,
        swap: 0,
        rkey,
    };
    assert_eq!(a.post_send(&mut wr), 0);
    assert_eq!(a.completion().opcode, IBV_WC_FETCH_ADD);
    let mut wr = send_wr(5, IBV_WR_ATOMIC_CMP_AND_SWP, &mut old);
    wr.wr.atomic = ibv_send_wr_atomic {
        remote_addr: remote(512),
        compare_add: 5,
        swap: 7,
        rkey,
    };
    assert_eq!(a.post_send(&mut wr), 0);
    assert_eq!(a.completion().opcode, IBV_WC_COMP_SWAP);
    assert_eq!(a.buffer[200..208], 5_u64.to_ne_bytes());
    assert_eq!(b.buffer[512..520], 7_u64.to_ne_bytes());
}

#[test]
fn chain_stops_at_the_refused_request_and_names_it() {
    let (a, b) = pair(plain_qp);
    for i in 0..4 {
        assert_eq!(b.post_recv(i, b.sge(0, 64)), 0);
    }
    let refuse = |spoil: &dyn Fn(&mut ibv_send_wr)| {
        let mut sge = a.sge(0, 8);
        let mut last = send_wr(3, IBV_WR_SEND, &mut sge);
        let mut middle = send_wr(2, IBV_WR_SEND, &mut sge);
        spoil(&mut middle);
        middle.next = &raw mut last;
        let mut first = send_wr(1, IBV_WR_SEND, &mut sge);
        first.next = &raw mut middle;
        let mut bad = ptr::null_mut();
        // SAFETY: a live queue pair, a chain of three.
        let result =
            unsafe { (*a.context).ops.post_send.unwrap()(a.qp, &raw mut first, &raw mut bad) };
        assert_eq!(bad, &raw mut middle);
        assert_eq!(a.completion().wr_id, 1);
        assert!(a.poll().is_none());
        result
    };
    assert_eq!(refuse(&|wr| wr.opcode = 99), libc::EINVAL);
    assert_eq!(refuse(&|wr| wr.opcode = IBV_WR_TSO), libc::EOPNOTSUPP);
    assert_eq!(refuse(&|wr| wr.opcode = IBV_WR_BIND_MW), libc::EINVAL);
    assert_eq!(refuse(&|wr| wr.num_sge = 1000), libc::EINVAL);
}

#[test]
fn other_bad_requests_are_refused() {
    let (a, _b) = pair(plain_qp);
    let refused = |spoil: &dyn Fn(&mut ibv_send_wr)| {
        let mut sge = a.sge(0, 8);
        let mut wr = send_wr(1, IBV_WR_SEND, &mut sge);
        spoil(&mut wr);
        a.post_send(&mut wr)
    };
    assert_eq!(refused(&|wr| wr.num_sge = -1), libc::EINVAL);
    assert_eq!(refused(&|wr| wr.sg_list = ptr::null_mut()), libc::EINVAL);
    assert_eq!(refused(&|wr| wr.send_flags = 1 << 17), libc::EINVAL);
    assert_eq!(
        refused(&|wr| wr.send_flags = IBV_SEND_IP_CSUM),
        libc::EINVAL
    );
    let fresh = Side::new(plain_qp);
    let mut sge = fresh.sge(0, 8);
    assert_eq!(
        fresh.post_send(&mut send_wr(1, IBV_WR_SEND, &mut sge)),
        libc::EINVAL
    );
    let mut long = a.sge(0, 4096);
    let mut wr = send_wr(1, IBV_WR_SEND, &mut long);
    wr.send_flags |= IBV_SEND_INLINE;
    assert_eq!(a.post_send(&mut wr), libc::EINVAL);
}

#[test]
fn inline_data_needs_no_key_and_is_free_at_once() {
    let (a, b) = pair(plain_qp);
    assert_eq!(b.post_recv(1, b.sge(0, 64)), 0);
    let mut words = [*b"in", *b"li", *b"ne"].concat();
    let mut pieces = [
        ibv_sge {
            addr: words.as_ptr() as u64,
            length: 2,
            lkey: 0,
        },
        ibv_sge {
            addr: words[2..].as_ptr() as u64,
            length: 4,
            lkey: 0,
        },
    ];
    let mut wr = send_wr(1, IBV_WR_SEND, &mut pieces[0]);
    wr.sg_list = pieces.as_mut_ptr();
    wr.num_sge = 2;
    wr.send_flags |= IBV_SEND_INLINE;
    assert_eq!(a.post_send(&mut wr), 0);
    words.fill(0);
    assert_eq!(b.completion().byte_len, 6);
    assert_eq!(&b.buffer[..6], b"inline");
    assert_eq!(a.completion().status, IBV_WC_SUCCESS);
}

/// Extended attributes of a queue pair.
fn init_attr_ex(pd: *mut ibv_pd, cq: *mut ibv_cq, comp_mask: u32, ops: u32) -> ibv_qp_init_attr_ex {
    let ibv_qp_init_attr {
        send_cq,
        recv_cq,
        cap,
        qp_type,
        ..
    } = init_attr(cq);
    let mut attr = ibv_qp_init_attr_ex::zeroed();
    (attr.send_cq, attr.recv_cq, attr.cap, attr.qp_type) = (send_cq, recv_cq, cap, qp_type);
    (attr.pd, attr.comp_mask, attr.send_ops_flags) = (pd, comp_mask, ops.into());
    attr
}

const WITH_OPS: u32 = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;

unsafe fn extended_qp(pd: *mut ibv_pd, cq: *mut ibv_cq) -> *mut ibv_qp {
    let ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ;
    let mut attr = init_attr_ex(pd, cq, WITH_OPS, ops);
    // SAFETY: the caller's live objects.
    unsafe { (*block((*pd).context)).create_qp_ex.unwrap()((*pd).context, &raw mut attr) }
}

#[test]
fn builders_post_a_batch() {
    let (mut a, b) = pair(extended_qp);
    a.buffer[..5].copy_from_slice(b"batch");
    assert_eq!(b.post_recv(9, b.sge(64, 64)), 0);
    // SAFETY: a live extended queue pair, used as the manual page says.
    unsafe {
        let qp = ibv_qp_to_qp_ex(a.qp);
        assert_eq!(qp.cast(), a.qp);
        let ops = *qp;
        ops.wr_start.unwrap()(qp);
        (*qp).wr_id = 1;
        (*qp).wr_flags = IBV_SEND_SIGNALED;
        ops.wr_rdma_write.unwrap()(qp, (*b.mr).rkey, b.buffer.as_ptr() as u64);
        ops.wr_set_sge.unwrap()(qp, (*a.mr).lkey, a.buffer.as_ptr() as u64, 5);
        (*qp).wr_id = 2;
        ops.wr_send.unwrap()(qp);
        ops.wr_set_inline_data.unwrap()(qp, c"inline".as_ptr().cast_mut().cast(), 6);
        assert_eq!(ops.wr_complete.unwrap()(qp), 0);
    }
    assert_eq!((a.completion().wr_id, a.completion().wr_id), (1, 2));
    assert_eq!(b.completion().byte_len, 6);
    assert_eq!(
        (&b.buffer[..5], &b.buffer[64..70]),
        (&b"batch"[..], &b"inline"[..])
    );
}

/// Sends inline data by `ibv_post_send(3)`.
fn send_inline(a: &Side, data: &mut [u8]) {
    let mut sge = ibv_sge {
        addr: data.as_ptr() as u64,
        length: data.len().try_into().unwrap(),
        lkey: 0,
    };
    let mut wr = send_wr(1, IBV_WR_SEND, &mut sge);
    wr.send_flags |= IBV_SEND_INLINE;
    assert_eq!(a.post_send(&mut wr), 0);
}

/// The same by `ibv_wr_post(3)`.
fn build_inline(a: &Side, data: &mut [u8]) {
    // SAFETY: a live extended queue pair, used as the manual page says.
    unsafe {
        let qp = ibv_qp_to_qp_ex(a.qp);
        let ops = *qp;
        ops.wr_start.unwrap()(qp);
        ((*qp).wr_id, (*qp).wr_flags) = (1, IBV_SEND_SIGNALED);
        ops.wr_send.unwrap()(qp);
        ops.wr_set_inline_data.unwrap()(qp, data.as_mut_ptr().cast(), data.len());
        assert_eq!(ops.wr_complete.unwrap()(qp), 0);
    }
}

#[test]
fn inline_data_of_each_length_arrive_as_they_were_when_they_were_posted() {
    let (a, b) = pair(extended_qp);
    for round in 0..6_u8 {
        for length in 0..=64_u8 {
            let send = [send_inline, build_inline][usize::from(length ^ round) % 2];
            let data: Vec<u8> = (0..length).map(|at| at ^ round.wrapping_mul(37)).collect();
            assert_eq!(b.post_recv(9, b.sge(0, 64)), 0);
            let mut given = data.clone();
            send(&a, &mut given);
            given.fill(0xee);
            let received = b.completion();
            assert_eq!(received.status, IBV_WC_SUCCESS);
            assert_eq!(received.byte_len, u32::from(length));
            assert_eq!(b.buffer[..data.len()], data);
            assert_eq!(a.completion().status, IBV_WC_SUCCESS);
        }
    }
}

/// Writes the tag of the work request to a place of the peer.
///
/// # Safety
/// A live extended queue pair, and memory that its peer has.
unsafe fn write_as(qp: *mut ibv_qp_ex, (wr_id, rkey, to): (u64, u32, u64)) {
    let mut data = wr_id.to_ne_bytes();
    // SAFETY: used as the manual page says; others wait from start to complete.
    unsafe {
        let ops = *qp;
        ops.wr_start.unwrap()(qp);
        (*qp).wr_id = wr_id;
        (*qp).wr_flags = IBV_SEND_SIGNALED;
        ops.wr_rdma_write.unwrap()(qp, rkey, to);
        thread::yield_now();
        ops.wr_set_inline_data.unwrap()(qp, data.as_mut_ptr().cast(), data.len());
        assert_eq!(ops.wr_complete.unwrap()(qp), 0);
    }
}

#[test]
fn from_start_to_complete_other_threads_wait() {
    const EACH: u64 = 2000;
    let (a, b) = pair(extended_qp);
    // SAFETY: live objects.
    let (qp, rkey) = unsafe { (ibv_qp_to_qp_ex(a.qp).expose_provenance(), (*b.mr).rkey) };
    let place = b.buffer.as_ptr() as u64;
    // So often that the lock leans to this thread.
    for _ in 0..1000 {
        // SAFETY: live objects.
        unsafe { write_as(ptr::with_exposed_provenance_mut(qp), (7, rkey, place)) };
        assert_eq!(a.completion().wr_id, 7);
    }
    let mut seen = Vec::new();
    let taken = [0, 0].map(AtomicU64::new);
    thread::scope(|scope| {
        for thread in 0..2 {
            let taken = &taken[usize::try_from(thread).unwrap()];
            scope.spawn(move || {
                let qp = ptr::with_exposed_provenance_mut(qp);
                for round in 0..EACH {
                    // Both together have no more under way than the queue holds.
                    while taken.load(Ordering::Acquire) + 2 <= round {
                        thread::yield_now();
                    }
                    let wr_id = thread * EACH + round;
                    // SAFETY: the queue pair lives until the threads have ended.
                    unsafe { write_as(qp, (wr_id, rkey, place + 8 * thread)) };
                }
            });
        }
        for _ in 0..2 * EACH {
            let wr_id = a.completion().wr_id;
            taken[usize::try_from(wr_id / EACH).unwrap()].fetch_add(1, Ordering::Release);
            seen.push(wr_id);
        }
    });
    for thread in 0..2 {
        let own = seen.iter().filter(|wr_id| **wr_id / EACH == thread);
        assert!(own.copied().eq(thread * EACH..(thread + 1) * EACH));
        let last = &b.buffer[8 * usize::try_from(thread).unwrap()..][..8];
        assert_eq!(last, ((thread + 1) * EACH - 1).to_ne_bytes());
    }
}

#[test]
fn builders_post_nothing_of_a_batch_with_a_mistake() {
    let (a, _b) = pair(extended_qp);
    // SAFETY: a live extended queue pair, used as the manual page says.
    unsafe {
        let qp = ibv_qp_to_qp_ex(a.qp);
        let ops = *qp;
        (*qp).wr_flags = IBV_SEND_SIGNALED;
        let one = || {
            ops.wr_rdma_write.unwrap()(qp, 0, 0);
            ops.wr_set_sge.unwrap()(qp, (*a.mr).lkey, a.buffer.as_ptr() as u64, 5);
        };
        // More than the queue holds.
        ops.wr_start.unwrap()(qp);
        (0..5).for_each(|_| one());
        assert_eq!(ops.wr_complete.unwrap()(qp), libc::ENOMEM);
        // Too long for inline.
        ops.wr_start.unwrap()(qp);
        one();
        ops.wr_send.unwrap()(qp);
        ops.wr_set_inline_data.unwrap()(qp, a.buffer.as_ptr().cast_mut().cast(), 1000);
        assert_eq!(ops.wr_complete.unwrap()(qp), libc::EINVAL);
        // A setter without a builder.
        ops.wr_start.unwrap()(qp);
        ops.wr_set_sge.unwrap()(qp, 0, 0, 0);
        assert_eq!(ops.wr_complete.unwrap()(qp), libc::EINVAL);
        // Given up.
        ops.wr_start.unwrap()(qp);
        one();
        ops.wr_abort.unwrap()(qp);
        ops.wr_start.unwrap()(qp);
        assert_eq!(ops.wr_complete.unwrap()(qp), 0);
    }
    assert!(a.poll().is_none());
}

#[test]
fn extended_queue_pairs_refuse_what_is_not_built() {
    let side = Side::new(plain_qp);
    let create = |comp_mask, ops| {
        let mut attr = init_attr_ex(side.pd, side.cq, comp_mask, ops);
        attr.create_flags = 1 << 10;
        // SAFETY: live objects.
        let qp =
            unsafe { (*block(side.context)).create_qp_ex.unwrap()(side.context, &raw mut attr) };
        assert!(qp.is_null());
        errno()
    };
    assert_eq!(create(WITH_OPS, IBV_QP_EX_WITH_TSO), libc::EOPNOTSUPP);
    assert_eq!(
        create(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS, 0),
        libc::EOPNOTSUPP
    );
    assert_eq!(
        create(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_RX_HASH, 0),
        libc::EOPNOTSUPP
    );
    assert_eq!(create(0, 0), libc::EINVAL);
}

#[test]
fn extended_polling_shows_one_completion_at_a_time() {
    let (a, b) = pair(plain_qp);
    // SAFETY: live objects; the extended queue is destroyed with the queue pair that uses it.
    unsafe {
        let mut attr = ibv_cq_init_attr_ex::zeroed();
        attr.cqe = 4;
        attr.wc_flags = IBV_WC_EX_WITH_CVLAN.into();
        let create = (*block(b.context)).create_cq_ex.unwrap();
        assert_eq!(
            (create(b.context, &raw mut attr).is_null(), errno()),
            (true, libc::EOPNOTSUPP)
        );
        attr.wc_flags = IBV_WC_STANDARD_FLAGS.into();
        let cq = create(b.context, &raw mut attr);
        let mut receiver = ManuallyDrop::new(side_of(&b));
        receiver.cq = cq.cast();
        receiver.qp = plain_qp(b.pd, cq.cast());
        receiver.connect(&a);
        // `a` is connected to `b`'s first queue pair: lead it to the new one.
        let mut reset = ibv_qp_attr::zeroed();
        assert_eq!(
            ibv_modify_qp(a.qp, &raw mut reset, IBV_QP_STATE.cast_signed()),
            0
        );
        a.connect(&receiver);

        let ops = *cq;
        let mut options = ibv_poll_cq_attr { comp_mask: 0 };
        assert_eq!(ops.start_poll.unwrap()(cq, &raw mut options), libc::ENOENT);
        for wr_id in [7, 8] {
            assert_eq!(receiver.post_recv(wr_id, b.sge(0, 8)), 0);
            let mut sge = a.sge(0, 8);
            assert_eq!(a.post_send(&mut send_wr(wr_id, IBV_WR_SEND, &mut sge)), 0);
            assert_eq!(a.completion().status, IBV_WC_SUCCESS);
        }
        assert_eq!(ops.start_poll.unwrap()(cq, &raw mut options), 0);
        assert_eq!(((*cq).wr_id, (*cq).status), (7, IBV_WC_SUCCESS));
        assert_eq!(
            (ops.read_opcode.unwrap()(cq), ops.read_byte_len.unwrap()(cq)),
            (IBV_WC_RECV, 8)
        );
        assert_eq!(ops.read_qp_num.unwrap()(cq), (*receiver.qp).qp_num);
        assert_eq!((ops.next_poll.unwrap()(cq), (*cq).wr_id), (0, 8));
        assert_eq!(ops.next_poll.unwrap()(cq), libc::ENOENT);
        ops.end_poll.unwrap()(cq);
        assert_eq!(ibv_destroy_qp(receiver.qp), 0);
        assert_eq!(ibv_destroy_cq(receiver.cq), 0);
    }
}

/// The objects of a side in a second structure, which must be forgotten.
fn side_of(side: &Side) -> Side {
    let &Side {
        context,
        pd,
        channel,
        cq,
        qp,
        mr,
        ..
    } = side;
    Side {
        context,
        pd,
        channel,
        cq,
        qp,
        mr,
        buffer: Box::new([0; common::BUFFER]),
    }
}

/// libiscsi has its elements in packed structures.
#[test]
fn elements_may_lie_at_any_address() {
    #[repr(C, packed)]
    struct Packed {
        _odd: u8,
        sges: [ibv_sge; 2],
    }

    #[repr(C, align(8))]
    struct Odd(Packed);
    let (a, b) = pair(plain_qp);
    let sges = [b.sge(0, 4), b.sge(8, 4)];
    let mut receive = Odd(Packed { _odd: 0, sges });
    let mut wr = ibv_recv_wr {
        wr_id: 1,
        next: ptr::null_mut(),
        sg_list: (&raw mut receive.0.sges).cast(),
        num_sge: 2,
    };
    let mut bad = ptr::null_mut();
    // SAFETY: a live queue pair, a work request with its list.
    let posted = unsafe {
        let post = (*b.context).ops.post_recv.unwrap();
        post(b.qp, &raw mut wr, &raw mut bad)
    };
    assert_eq!(posted, 0);
    let sges = [a.sge(0, 4), a.sge(4, 4)];
    let mut message = Odd(Packed { _odd: 0, sges });
    for num_sge in [2, 1] {
        let mut wr = send_wr(num_sge, IBV_WR_SEND, &mut a.sge(0, 0));
        wr.sg_list = (&raw mut message.0.sges).cast();
        wr.num_sge = i32::try_from(num_sge).unwrap();
        assert_eq!(a.post_send(&mut wr), 0);
        if num_sge == 2 {
            assert_eq!(a.completion().status, IBV_WC_SUCCESS);
            assert_eq!(b.completion().byte_len, 8);
            assert_eq!(b.post_recv(2, b.sge(0, 64)), 0);
        }
    }
    assert_eq!(a.completion().status, IBV_WC_SUCCESS);
    assert_eq!(b.completion().byte_len, 4);
}
