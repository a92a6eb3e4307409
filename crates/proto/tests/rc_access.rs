//! Keys and buffers that do not open what they should, on both sides, and completion queues that
//! overflow.

mod common;

use common::violation::{ALL, MakeOp, both_fail, pair};
use common::{SOON, expect_recv, expect_send, until_sent};
use ferroce_proto::ids::{Key, PdId, Qpn};
use ferroce_proto::mr::{Access, Accessor, Region};
use ferroce_proto::rc::Cause;
use ferroce_proto::testkit::{Arena, Pair, Side, remote, sge, wr};
use ferroce_proto::verbs::{QpEvent, QpState, RemoteAddr, SendOp, WcStatus};

/// Every way in which a key does not open what it should, for one kind of access.
fn bad_keys(pair: &mut Pair, need: Access) -> Vec<(&'static str, RemoteAddr)> {
    let at = Arena::BASE;
    let good = pair.key(Side::B);
    let other_pd = pair.b.register_in(PdId(99), 0, 4096, ALL);
    let weak = pair.b.register(0, 4096, ALL.difference(need));
    let small = pair.b.register(4096, 4096, ALL);
    let gone = pair.b.bound_window(0, 4096, ALL);
    let by = pair.b.accessor();
    pair.b.rights.invalidate(gone, by).expect("valid until now");
    let weak_window = pair.b.bound_window(0, 4096, ALL.difference(need));
    let small_window = pair.b.bound_window(4096, 4096, ALL);
    let other_variant = Key(small_window.0 ^ 1);
    let other_qp = Accessor {
        qpn: Qpn::new(0x7777),
        ..by
    };
    let foreign = pair.b.bound_window_by(other_qp, 0, 4096, ALL);
    let place = |addr, rkey| RemoteAddr { addr, rkey };
    vec![
        ("unknown key", place(at, Key(0xbad))),
        ("other protection domain", place(at, other_pd)),
        ("region lacks the access", place(at, weak)),
        ("invalidated", place(at, gone)),
        ("before the region", place(at + 4088, small)),
        ("over its end", place(at + 8184 + 8, small)),
        ("address wraps", place(u64::MAX - 7, good)),
        ("window lacks the access", place(at, weak_window)),
        ("before the window", place(at + 4088, small_window)),
        ("over the window's end", place(at + 8184 + 8, small_window)),
        ("another key of the window", place(at + 4096, other_variant)),
        ("window of another queue pair", place(at, foreign)),
    ]
}

#[test]
fn remote_keys_that_do_not_open_the_range() {
    let ops: [(Access, MakeOp); 5] = [
        (Access::REMOTE_WRITE, SendOp::Write),
        (Access::REMOTE_WRITE, |to| SendOp::WriteImm(to, [0; 4])),
        (Access::REMOTE_READ, SendOp::Read),
        (Access::REMOTE_ATOMIC, |remote| SendOp::FetchAdd {
            remote,
            add: 1,
        }),
        (Access::REMOTE_ATOMIC, |remote| SendOp::CompareSwap {
            remote,
            compare: 0,
            swap: 1,
        }),
    ];
    for (need, op) in ops {
        let count = bad_keys(&mut pair(), need).len();
        for n in 0..count {
            let mut pair = pair();
            let (what, place) = bad_keys(&mut pair, need)[n];
            pair.recv(Side::B, 9, vec![]);
            let local = pair.sge(Side::A, 0, 16);
            let before = pair.b.memory.get(Arena::BASE, 16384);
            both_fail(&mut pair, op(place), vec![local], WcStatus::RemAccessErr);
            assert_eq!(pair.b.results.events, [QpEvent::AccessError], "{what}");
            expect_recv(&pair, &[(9, WcStatus::WrFlushErr)]);
            assert_eq!(pair.b.memory.get(Arena::BASE, 16384), before, "{what}");
        }
    }
}

#[test]
fn a_long_write_is_refused_before_a_byte_is_placed() {
    let mut pair = pair();
    let rkey = pair.b.register(0, 3000, ALL);
    pair.a.memory.put(Arena::BASE, &[5; 3001]);
    let from = pair.sge(Side::A, 0, 3001);
    let op = SendOp::Write(remote(rkey, 0));
    both_fail(&mut pair, op, vec![from], WcStatus::RemAccessErr);
    assert_eq!(pair.b.memory.get(Arena::BASE, 3000), [0; 3000]);
}

#[test]
fn zero_bytes_need_no_key() {
    let mut pair = pair();
    let nowhere = RemoteAddr {
        addr: 3,
        rkey: Key(0xbad),
    };
    pair.send(Side::A, wr(1, SendOp::Write(nowhere), vec![]));
    pair.send(
        Side::A,
        wr(2, SendOp::Read(nowhere), vec![sge(Key(7), 0, 0)]),
    );
    until_sent(&mut pair, Side::A, 2);
    expect_send(&pair, &[(1, WcStatus::Success), (2, WcStatus::Success)]);
}

#[test]
fn receive_buffer_that_is_not_registered() {
    let mut pair = pair();
    let bad = sge(Key(0xbad), 0, 100);
    pair.recv(Side::B, 7, vec![bad]);
    pair.recv(Side::B, 8, vec![bad]);
    let from = pair.sge(Side::A, 0, 50);
    both_fail(&mut pair, SendOp::Send, vec![from], WcStatus::RemOpErr);
    expect_recv(
        &pair,
        &[(7, WcStatus::LocProtErr), (8, WcStatus::WrFlushErr)],
    );
}

#[test]
fn receive_buffer_that_is_read_only() {
    let mut pair = pair();
    let key = pair.b.register(0, 100, Access::empty());
    pair.recv(Side::B, 7, vec![sge(key, 0, 100)]);
    let from = pair.sge(Side::A, 0, 50);
    both_fail(&mut pair, SendOp::Send, vec![from], WcStatus::RemOpErr);
    expect_recv(&pair, &[(7, WcStatus::LocProtErr)]);
}

#[test]
fn overflow_of_the_responders_cq() {
    let mut pair = pair();
    pair.b.results.cq_room = Some(1);
    for n in 0..3 {
        pair.recv(Side::B, n, vec![]);
        pair.send(Side::A, wr(n, SendOp::Send, vec![]));
    }
    pair.settle(SOON);
    let [first, second, third] = [0, 1, 2].map(|n| pair.a.results.send[n].0.status);
    assert_eq!(
        first,
        WcStatus::Success,
        "it was acknowledged before the overflow"
    );
    assert_eq!(
        (second, third),
        (WcStatus::RetryExcErr, WcStatus::WrFlushErr)
    );
    assert_eq!(pair.b.qp.state(), QpState::Err);
}

#[test]
fn overflow_of_the_requesters_cq() {
    let mut pair = pair();
    pair.a.results.cq_room = Some(1);
    let to = remote(pair.key(Side::B), 0);
    for n in 0..3 {
        pair.send(Side::A, wr(n, SendOp::Write(to), vec![]));
    }
    pair.settle(SOON);
    assert_eq!(pair.a.qp.state(), QpState::Err);
    expect_send(&pair, &[(0, WcStatus::Success)]);
}

#[test]
fn send_buffer_that_is_not_registered_fails_after_what_was_before_it() {
    let mut pair = pair();
    let to = remote(pair.key(Side::B), 0);
    let good = pair.sge(Side::A, 0, 5000);
    pair.send(Side::A, wr(1, SendOp::Write(to), vec![good]));
    pair.send(
        Side::A,
        wr(2, SendOp::Write(to), vec![good, sge(Key(0xbad), 0, 100)]),
    );
    pair.send(Side::A, wr(3, SendOp::Write(to), vec![good]));
    pair.settle(SOON);
    expect_send(
        &pair,
        &[
            (1, WcStatus::Success),
            (2, WcStatus::LocProtErr),
            (3, WcStatus::WrFlushErr),
        ],
    );
    assert_eq!(pair.a.results.send[1].0.vendor_err, Cause::LocalKey as u32);
    assert_eq!(pair.a.qp.state(), QpState::Err);
    assert_eq!(
        pair.b.qp.state(),
        QpState::Rts,
        "the peer sees nothing of it"
    );
}

#[test]
fn read_and_atomic_results_need_a_writable_buffer() {
    for atomic in [false, true] {
        let mut pair = pair();
        let key = pair.a.register(0, 100, Access::empty());
        let from = remote(pair.key(Side::B), 0);
        let op = if atomic {
            SendOp::FetchAdd {
                remote: from,
                add: 1,
            }
        } else {
            SendOp::Read(from)
        };
        pair.send(Side::A, wr(1, op, vec![sge(key, 0, 8)]));
        pair.settle(SOON);
        expect_send(&pair, &[(1, WcStatus::LocProtErr)]);
    }
}

#[test]
fn a_region_that_goes_in_mid_read_is_not_read_on() {
    let mut pair = pair();
    let rkey = pair.b.register(0, 1 << 19, ALL);
    let into = pair.sge(Side::A, 0, 1 << 19);
    pair.send(Side::A, wr(1, SendOp::Read(remote(rkey, 0)), vec![into]));
    for _ in 0..20 {
        pair.step(pair.now + SOON);
    }
    assert!(pair.a.results.send.is_empty());
    pair.b.rights.remove(rkey);
    pair.b.memory.put(Arena::BASE, &[0xee; 1 << 19]);
    pair.settle(SOON);
    expect_send(&pair, &[(1, WcStatus::RemAccessErr)]);
    assert_eq!(pair.b.results.events, [QpEvent::AccessError]);
}

#[test]
fn a_region_that_goes_in_mid_write_is_not_written_on() {
    let mut pair = pair();
    let rkey = pair.b.register(0, 1 << 19, ALL);
    pair.a.memory.put(Arena::BASE, &[0xee; 1 << 19]);
    let from = pair.sge(Side::A, 0, 1 << 19);
    pair.send(Side::A, wr(1, SendOp::Write(remote(rkey, 0)), vec![from]));
    for _ in 0..20 {
        pair.step(pair.now + SOON);
    }
    let before = pair.b.memory.get(Arena::BASE, 1 << 19);
    pair.b.rights.remove(rkey);
    pair.settle(SOON);
    expect_send(&pair, &[(1, WcStatus::RemAccessErr)]);
    assert_eq!(pair.b.memory.get(Arena::BASE, 1 << 19), before);
}

#[test]
fn invalidate_of_a_key_that_is_not_open() {
    for kind in 0..4 {
        let mut pair = pair();
        let by = pair.b.accessor();
        let key = match kind {
            0 => Key(0xbad),
            1 => pair.b.register(0, 8, ALL),
            2 => {
                let other = Accessor {
                    qpn: Qpn::new(0x7777),
                    ..by
                };
                pair.b.bound_window_by(other, 0, 8, ALL)
            }
            _ => {
                let key = pair.b.bound_window(0, 8, ALL);
                pair.b.rights.invalidate(key, by).expect("valid");
                key
            }
        };
        let into = pair.sge(Side::B, 0, 10);
        pair.recv(Side::B, 7, vec![into]);
        both_fail(
            &mut pair,
            SendOp::SendInvalidate(key),
            vec![],
            WcStatus::RemAccessErr,
        );
        expect_recv(&pair, &[(7, WcStatus::RemInvReqErr)]);
    }
}

#[test]
fn a_refusal_that_was_lost_is_repeated() {
    let mut pair = pair();
    pair.cut_into(Side::A, true);
    let from = pair.sge(Side::A, 0, 8);
    pair.send(
        Side::A,
        wr(1, SendOp::Write(remote(Key(0xbad), 0)), vec![from]),
    );
    pair.settle(std::time::Duration::from_micros(200));
    assert_eq!(pair.b.qp.state(), QpState::Err);
    pair.cut_into(Side::A, false);
    pair.settle(SOON);
    expect_send(&pair, &[(1, WcStatus::RemAccessErr)]);
}

#[test]
fn atomic_on_a_word_that_is_aligned_for_the_peer_only() {
    let mut pair = pair();
    let region =
        Region::new(ferroce_proto::testkit::PD, Arena::BASE + 4, 64, ALL).with_iova(0x1000);
    assert!(pair.b.rights.insert(Key(0x77), region));
    let local = pair.sge(Side::A, 0, 8);
    let target = RemoteAddr {
        addr: 0x1008,
        rkey: Key(0x77),
    };
    let op = SendOp::FetchAdd {
        remote: target,
        add: 1,
    };
    both_fail(&mut pair, op, vec![local], WcStatus::RemInvReqErr);
}
