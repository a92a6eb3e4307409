//! States, flush, drain, fence, depth.
#![allow(clippy::cast_possible_truncation, reason = "test data is small")]

mod common;

use std::time::Duration;

use common::{SOON, expect_recv, expect_send, until_sent, write};
use ferroce_proto::ids::Key;
use ferroce_proto::rc::LinkTraits;
use ferroce_proto::testkit::{Pair, Setup, Side, remote, sge, wr};
use ferroce_proto::verbs::{
    AttrMask, Mtu, Payload, QpAttr, QpEvent, QpState, RemoteAddr, SendFlags, SendOp, SendWr,
    WcStatus,
};
use ferroce_proto::wire::{Operation, Packet};

fn read(pair: &Pair, wr_id: u64, len: u32) -> SendWr {
    let from = remote(pair.key(Side::B), 0);
    wr(wr_id, SendOp::Read(from), vec![pair.sge(Side::A, 0, len)])
}

fn operations(pair: &Pair, side: Side) -> Vec<Operation> {
    let trace = pair.trace.as_ref().expect("on");
    trace
        .iter()
        .filter(|(from, _)| *from == side)
        .map(|(_, bytes)| {
            let opcode = Packet::parse(bytes).expect("well-formed").bth.opcode;
            opcode.info().expect("defined").operation
        })
        .collect()
}

#[test]
fn error_flushes_both_queues_and_later_posts() {
    let mut pair = Pair::new(Setup::default());
    pair.pause_into(Side::B, true);
    for n in 0..3 {
        let mut request = write(&pair, n, 10);
        if n == 1 {
            request.flags = SendFlags::empty();
        }
        pair.send(Side::A, request);
        pair.recv(Side::A, 10 + n, vec![]);
    }
    pair.transmit(Side::A);
    pair.to_state(Side::A, QpState::Err);
    pair.recv(Side::A, 20, vec![]);
    let request = write(&pair, 21, 10);
    pair.send(Side::A, request);
    let flushed =
        |ids: &[u64]| -> Vec<_> { ids.iter().map(|&id| (id, WcStatus::WrFlushErr)).collect() };
    expect_send(&pair, &flushed(&[0, 1, 2, 21]));
    assert_eq!(pair.a.results.recv_statuses(), flushed(&[10, 11, 12, 20]));
    assert_eq!(pair.a.qp.deadline(), None);
    assert!(!pair.a.qp.wants_transmit());
    pair.to_state(Side::A, QpState::Err);
    pair.to_state(Side::A, QpState::Reset);
    assert_eq!(pair.a.results.send.len(), 4, "RESET completes nothing");
}

#[test]
fn reset_forgets_everything_and_the_queue_pair_can_start_again() {
    let mut pair = Pair::new(Setup::default());
    let request = write(&pair, 1, 5000);
    pair.send(Side::A, request);
    pair.recv(Side::A, 2, vec![]);
    pair.transmit(Side::A);
    for side in [Side::A, Side::B] {
        pair.lose_into(side);
        for state in [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts] {
            pair.to_state(side, state);
        }
    }
    assert!(pair.a.results.send.is_empty() && pair.a.results.recv.is_empty());
    let request = write(&pair, 3, 5000);
    pair.send(Side::A, request);
    until_sent(&mut pair, Side::A, 1);
    expect_send(&pair, &[(3, WcStatus::Success)]);
}

#[test]
fn receives_posted_in_init_are_used() {
    let mut pair = Pair::unconnected(Setup::default());
    for side in [Side::A, Side::B] {
        pair.to_state(side, QpState::Init);
        pair.recv(side, 1, vec![]);
        pair.to_state(side, QpState::Rtr);
        pair.to_state(side, QpState::Rts);
    }
    pair.send(Side::A, wr(1, SendOp::Send, vec![]));
    until_sent(&mut pair, Side::A, 1);
    expect_recv(&pair, &[(1, WcStatus::Success)]);
}

#[test]
fn an_acknowledgement_that_was_owed_outlives_the_move_to_error() {
    let mut pair = Pair::new(Setup::default());
    pair.recv(Side::B, 1, vec![]);
    pair.send(Side::A, wr(1, SendOp::Send, vec![]));
    pair.until(SOON, |p| !p.b.results.recv.is_empty());
    // The program has its last message and disconnects before the answer went out.
    assert!(pair.b.qp.wants_transmit());
    pair.to_state(Side::B, QpState::Err);
    until_sent(&mut pair, Side::A, 1);
    expect_send(&pair, &[(1, WcStatus::Success)]);
}

#[test]
fn read_responses_stop_at_the_move_to_error() {
    let mut pair = Pair::new(Setup::default());
    let request = read(&pair, 1, 20_000);
    pair.send(Side::A, request);
    pair.until(SOON, |p| p.b.qp.wants_transmit());
    pair.to_state(Side::B, QpState::Err);
    assert!(!pair.b.qp.wants_transmit());
}

fn to_sqd(pair: &mut Pair, notify: bool) {
    let attr = QpAttr {
        qp_state: QpState::Sqd,
        en_sqd_async_notify: notify,
        ..QpAttr::default()
    };
    pair.modify(
        Side::A,
        &attr,
        AttrMask::STATE | AttrMask::EN_SQD_ASYNC_NOTIFY,
    );
}

#[test]
fn drain_finishes_what_was_started_and_starts_nothing() {
    let mut pair = Pair::new(Setup {
        link: LinkTraits {
            lossless: false,
            max_in_flight: 10_000,
        },
        ..Setup::default()
    });
    for n in 0..3 {
        let request = write(&pair, n, 50_000);
        pair.send(Side::A, request);
    }
    pair.settle(Duration::from_micros(100));
    to_sqd(&mut pair, true);
    assert!(pair.a.qp.query().sq_draining);
    let (attr, mask) = pair.step_attr(Side::A, QpState::Rts);
    let now = pair.now;
    let back = mask & AttrMask::STATE;
    let refused = pair.a.with(now, |qp, cx| qp.modify(cx, &attr, back));
    assert!(refused.expect_err("draining").reason.contains("draining"));
    assert!(pair.a.results.events.is_empty());
    pair.settle(SOON);
    expect_send(&pair, &[(0, WcStatus::Success)]);
    assert_eq!(pair.a.results.events, [QpEvent::SqDrained]);
    assert!(!pair.a.qp.query().sq_draining);
    let late = write(&pair, 3, 10);
    pair.send(Side::A, late);
    pair.settle(SOON);
    assert_eq!(
        pair.a.results.send.len(),
        1,
        "work posted while drained waits"
    );
    pair.modify(Side::A, &attr, back);
    until_sent(&mut pair, Side::A, 4);
    assert_eq!(pair.a.results.events, [QpEvent::SqDrained], "once");
}

#[test]
fn drain_of_an_idle_queue_is_reported_at_once_and_only_if_asked_for() {
    let mut pair = Pair::new(Setup::default());
    to_sqd(&mut pair, true);
    assert_eq!(pair.a.results.events, [QpEvent::SqDrained]);
    let mut pair = Pair::new(Setup::default());
    to_sqd(&mut pair, false);
    assert!(pair.a.results.events.is_empty());
}

#[test]
fn drain_survives_losses() {
    let mut pair = Pair::new(Setup::default());
    let request = write(&pair, 1, 50_000);
    pair.send(Side::A, request);
    pair.transmit(Side::A);
    to_sqd(&mut pair, true);
    pair.lose_into(Side::B);
    pair.settle(SOON);
    expect_send(&pair, &[(1, WcStatus::Success)]);
    assert_eq!(pair.a.results.events, [QpEvent::SqDrained]);
}

#[test]
fn a_local_invalidate_waits_for_the_end_of_the_drain() {
    let mut pair = Pair::new(Setup::default());
    let key = pair
        .a
        .bound_window(0, 8, ferroce_proto::mr::Access::REMOTE_READ);
    to_sqd(&mut pair, false);
    pair.send(Side::A, wr(1, SendOp::LocalInvalidate(key), vec![]));
    assert!(pair.a.results.send.is_empty());
    let (attr, _) = pair.step_attr(Side::A, QpState::Rts);
    pair.modify(Side::A, &attr, AttrMask::STATE);
    expect_send(&pair, &[(1, WcStatus::Success)]);
}

#[test]
fn the_responder_works_while_the_send_queue_is_drained() {
    let mut pair = Pair::new(Setup::default());
    let attr = QpAttr {
        qp_state: QpState::Sqd,
        ..QpAttr::default()
    };
    pair.modify(Side::B, &attr, AttrMask::STATE);
    let request = read(&pair, 1, 5000);
    pair.send(Side::A, request);
    until_sent(&mut pair, Side::A, 1);
}

#[test]
fn no_more_reads_than_the_depth_are_outstanding() {
    for depth in [1, 2, 5] {
        let mut pair = Pair::new(Setup {
            rd_atomic: depth,
            ..Setup::default()
        });
        pair.trace = Some(Vec::new());
        for n in 0..8 {
            let request = read(&pair, n, 100);
            pair.send(Side::A, request);
        }
        let request = write(&pair, 8, 10);
        pair.send(Side::A, request);
        pair.transmit(Side::A);
        let expected = vec![Operation::ReadRequest; usize::from(depth)];
        assert_eq!(
            operations(&pair, Side::A),
            expected,
            "and the WRITE waits for its turn"
        );
        until_sent(&mut pair, Side::A, 9);
    }
}

#[test]
fn a_long_read_is_several_requests_that_count_one_by_one() {
    let mut pair = Pair::new(Setup {
        rd_atomic: 2,
        link: LinkTraits {
            lossless: false,
            max_in_flight: 20_480,
        },
        ..Setup::default()
    });
    pair.trace = Some(Vec::new());
    let request = read(&pair, 1, 100_000);
    pair.send(Side::A, request);
    pair.transmit(Side::A);
    assert_eq!(operations(&pair, Side::A), [Operation::ReadRequest; 2]);
    until_sent(&mut pair, Side::A, 1);
    let trace = pair.trace.take().expect("on");
    let mut asked = 0;
    for (side, bytes) in trace {
        if let (Side::A, Some(reth)) = (side, Packet::parse(&bytes).expect("well-formed").ext.reth)
        {
            assert_eq!(reth.va, ferroce_proto::testkit::Arena::BASE + asked);
            asked += u64::from(reth.length);
            assert!(reth.length <= 10_240);
        }
    }
    assert_eq!(asked, 100_000);
}

#[test]
fn a_fence_waits_for_reads_and_holds_back_what_follows() {
    let mut pair = Pair::new(Setup::default());
    pair.trace = Some(Vec::new());
    let request = read(&pair, 1, 3000);
    pair.send(Side::A, request);
    let request = write(&pair, 2, 10);
    pair.send(Side::A, request);
    let mut request = write(&pair, 3, 10);
    request.flags |= SendFlags::FENCE;
    pair.send(Side::A, request);
    let request = write(&pair, 4, 10);
    pair.send(Side::A, request);
    pair.transmit(Side::A);
    assert_eq!(
        operations(&pair, Side::A),
        [Operation::ReadRequest, Operation::Write]
    );
    until_sent(&mut pair, Side::A, 4);
    assert_eq!(operations(&pair, Side::A).len(), 4);
}

#[test]
fn reads_without_depth_are_refused() {
    let mut pair = Pair::new(Setup {
        rd_atomic: 0,
        ..Setup::default()
    });
    let request = read(&pair, 1, 10);
    let refused = pair.try_send(Side::A, request);
    assert!(
        refused
            .expect_err("no depth")
            .to_string()
            .contains("max_rd_atomic")
    );
}

#[test]
fn modify_says_what_is_wrong() {
    let mut pair = Pair::unconnected(Setup::default());
    let now = pair.now;
    let refused = |pair: &mut Pair, attr: &QpAttr, mask| {
        pair.a
            .with(now, |qp, cx| qp.modify(cx, attr, mask))
            .expect_err("refused")
            .reason
    };
    let (attr, mask) = pair.step_attr(Side::A, QpState::Rtr);
    assert!(refused(&mut pair, &attr, mask).contains("RTR"));
    pair.to_state(Side::A, QpState::Init);
    assert!(refused(&mut pair, &attr, mask.difference(AttrMask::RQ_PSN)).contains("RQ_PSN"));
    let mut local = attr;
    local.ah_attr.is_global = false;
    assert!(refused(&mut pair, &local, mask).contains("is_global"));
    let greedy = QpAttr {
        max_dest_rd_atomic: 129,
        ..attr
    };
    assert!(refused(&mut pair, &greedy, mask).contains("max_dest_rd_atomic"));
    assert_eq!(pair.a.qp.state(), QpState::Init, "nothing was changed");
    assert_eq!(pair.a.qp.query().max_dest_rd_atomic, 0);
    pair.to_state(Side::A, QpState::Rtr);
}

#[test]
fn query_tells_what_was_set_and_where_the_queues_are() {
    let mut pair = Pair::new(Setup::default());
    let before = pair.a.qp.query();
    assert_eq!(
        (before.qp_state, before.cur_qp_state),
        (QpState::Rts, QpState::Rts)
    );
    assert_eq!(
        (before.timeout, before.retry_cnt, before.max_rd_atomic),
        (14, 7, 4)
    );
    assert_eq!(before.sq_psn.get(), 100);
    assert_eq!(before.cap, Setup::default().cap);
    let request = write(&pair, 1, 3000);
    pair.send(Side::A, request);
    until_sent(&mut pair, Side::A, 1);
    assert_eq!(pair.a.qp.query().sq_psn.get(), 103);
    assert_eq!(pair.b.qp.query().rq_psn.get(), 103);
    pair.to_state(Side::A, QpState::Reset);
    assert_eq!(pair.a.qp.query().qp_state, QpState::Reset);
}

#[test]
fn comm_established_is_raised_once_and_only_in_rtr() {
    let mut pair = Pair::unconnected(Setup::default());
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        pair.to_state(Side::A, state);
    }
    pair.to_state(Side::B, QpState::Init);
    pair.to_state(Side::B, QpState::Rtr);
    for n in 0..3 {
        let request = write(&pair, n, 5000);
        pair.send(Side::A, request);
    }
    until_sent(&mut pair, Side::A, 3);
    assert_eq!(pair.b.results.events, [QpEvent::CommEstablished]);
    pair.to_state(Side::B, QpState::Rts);
    let request = write(&pair, 4, 10);
    pair.send(Side::A, request);
    until_sent(&mut pair, Side::A, 4);
    assert_eq!(pair.b.results.events.len(), 1);
    assert!(pair.a.results.events.is_empty());
}

#[test]
fn both_directions_share_the_link_fairly() {
    let mut pair = Pair::new(Setup::default());
    let request = read(&pair, 1, 400_000);
    pair.send(Side::A, request);
    pair.until(SOON, |p| p.b.qp.wants_transmit());
    let to = remote(pair.key(Side::A), 0);
    let from = pair.sge(Side::B, 0, 20_000);
    pair.send(Side::B, wr(2, SendOp::Write(to), vec![from]));
    pair.trace = Some(Vec::new());
    pair.transmit(Side::B);
    let first: Vec<_> = operations(&pair, Side::B).into_iter().take(10).collect();
    let requests = first.iter().filter(|o| **o == Operation::Write).count();
    assert_eq!(requests, 5, "{first:?}");
}

#[test]
fn post_checks() {
    let mut p = Pair::unconnected(Setup {
        mtu: Mtu::B256,
        ..Setup::default()
    });
    let refused = |p: &mut Pair, request| {
        p.try_send(Side::A, request)
            .expect_err("refused")
            .to_string()
    };
    for state in [QpState::Init, QpState::Rtr] {
        p.to_state(Side::A, state);
        assert!(refused(&mut p, wr(1, SendOp::Send, vec![])).contains("state"));
    }
    p.to_state(Side::A, QpState::Rts);
    let one = p.sge(Side::A, 0, 1);
    assert!(refused(&mut p, wr(1, SendOp::Send, vec![one; 9])).contains("9 scatter/gather"));
    let huge = sge(Key(1), 0, 1 << 31);
    assert!(refused(&mut p, wr(1, SendOp::Send, vec![huge, one])).contains("2^31"));
    let mut inline = wr(1, SendOp::Send, vec![]);
    inline.payload = Payload::Inline(vec![0; 257].into());
    assert!(refused(&mut p, inline.clone()).contains("257 bytes of inline"));
    inline.op = SendOp::Read(remote(Key(1), 0));
    inline.payload = Payload::Inline(vec![].into());
    inline.flags = SendFlags::INLINE;
    assert!(refused(&mut p, inline).contains("inline"));
    let add = SendOp::FetchAdd {
        remote: remote(Key(1), 0),
        add: 1,
    };
    assert!(refused(&mut p, wr(1, add, vec![one])).contains("8 bytes"));
    let unreached = RemoteAddr {
        addr: 0,
        rkey: Key(1),
    };
    for n in 0..64 {
        p.send(Side::A, wr(n, SendOp::Write(unreached), vec![one]));
    }
    assert!(refused(&mut p, wr(1, SendOp::Send, vec![])).contains("full"));
}

#[test]
fn a_repeated_read_does_not_count_twice() {
    let mut pair = Pair::new(Setup {
        rd_atomic: 2,
        ..Setup::default()
    });
    for n in 0..3 {
        let request = read(&pair, n, 100);
        pair.send(Side::A, request);
    }
    pair.transmit(Side::A);
    pair.lose_into(Side::B);
    pair.trace = Some(Vec::new());
    // The timer repeats both; when one is answered, the third goes out at once.
    pair.until(SOON, |p| p.a.results.send.len() == 1);
    pair.transmit(Side::A);
    let expected = [Operation::ReadRequest; 3];
    assert!(operations(&pair, Side::A).ends_with(&expected[..1]));
    pair.until(SOON, |p| p.a.results.send.len() == 3);
    let requests = operations(&pair, Side::A).len();
    assert!(requests <= 4, "{requests}");
}
