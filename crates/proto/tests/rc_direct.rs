//! Work that the owner of a queue pair carries out without packets: when, in which order, and what
//! it leaves behind.

mod common;

use common::{SOON, sent, until_sent, write};
use ferroce_proto::ids::Key;
use ferroce_proto::mr::{Access, Piece};
use ferroce_proto::rc::{Direct, DirectOp, LinkTraits, MIN_RENDEZVOUS};
use ferroce_proto::testkit::{Pair, Setup, Side, remote, wr};
use ferroce_proto::verbs::{AttrMask, QpAttr, QpState, RemoteAddr, SendOp, WcImm, WcStatus};

use ferroce_proto::wire::{Opcode, Operation, Position};

/// What may be done now.
fn next(pair: &Pair) -> Option<Direct> {
    pair.a.qp.next_direct()
}

/// Tells the queue pair how many bytes of the direct operation were moved.
fn moved(pair: &mut Pair, len: u32) {
    let now = pair.now;
    pair.a.with(now, |qp, cx| qp.on_direct(cx, len));
}

#[test]
fn what_is_done_without_packets_completes_in_order_and_uses_no_numbers() {
    let mut pair = Pair::new(Setup {
        psn: 0x00ff_fffe,
        ..Setup::default()
    });
    pair.trace = Some(Vec::new());
    for n in 0..3 {
        let request = write(&pair, n, 5000);
        pair.send(Side::A, request);
    }
    let first = next(&pair).expect("nothing is in flight");
    assert!(first.op == DirectOp::Write && first.len == 5000);
    let granted = pair.b.qp.grant().expect("B is in RTS");
    assert_eq!(granted.expected, first.psn);
    let all = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    assert_eq!(granted.access, all);
    moved(&mut pair, 4000);
    let rest = next(&pair).expect("not done yet");
    assert_eq!(
        (rest.len, rest.remote.addr),
        (1000, first.remote.addr + 4000)
    );
    assert_eq!(pair.a.results.send_statuses(), []);
    moved(&mut pair, 1000);
    moved(&mut pair, 5000);
    assert_eq!(pair.a.results.send.len(), 2);
    assert_eq!(next(&pair).map(|direct| direct.psn), Some(first.psn));
    // The third goes by packets.
    pair.a.qp.refuse_direct();
    assert_eq!(next(&pair), None);
    until_sent(&mut pair, Side::A, 3);
    let ids: Vec<_> = pair.a.results.send_statuses();
    assert_eq!(ids, [0, 1, 2].map(|n| (n, WcStatus::Success)));
    assert_eq!(
        sent(&mut pair, Side::A).len(),
        5,
        "5000 bytes in packets of 1024"
    );
    let request = write(&pair, 9, 100);
    pair.send(Side::A, request);
    let direct = next(&pair).expect("all is acknowledged");
    assert_eq!(
        pair.b.qp.grant().map(|grant| grant.expected),
        Some(direct.psn)
    );
}

/// Lengths of what one copy may carry out now.
fn run(pair: &Pair) -> Vec<u32> {
    let run = pair.a.qp.direct_run();
    run.iter().map(|range| range.len).collect()
}

#[test]
fn short_work_of_one_kind_on_one_region_is_a_run() {
    let mut pair = Pair::new(Setup::default());
    let place = remote(pair.key(Side::B), 0);
    let none: [u32; 0] = [];
    let post = |pair: &mut Pair, n, len| {
        let request = write(pair, n, len);
        pair.send(Side::A, request);
    };
    post(&mut pair, 1, 100);
    assert_eq!(run(&pair), none, "one is none");
    for (n, len) in [(2, 4096), (3, 50), (4, 4097), (5, 1), (6, 2)] {
        post(&mut pair, n, len);
    }
    let read = |n| wr(n, SendOp::Read(place), vec![pair.sge(Side::A, 0, 8)]);
    let mut elsewhere = read(9);
    elsewhere.op = SendOp::Read(RemoteAddr {
        rkey: Key(place.rkey.0 ^ 1),
        ..place
    });
    for request in [read(7), read(8), elsewhere] {
        pair.send(Side::A, request);
    }
    assert_eq!(run(&pair), [100, 4096, 50], "the next is too long");
    moved(&mut pair, 60);
    assert_eq!(run(&pair), none, "a part of the oldest is done");
    moved(&mut pair, 40);
    assert_eq!(run(&pair), [4096, 50]);
    moved(&mut pair, 4096);
    assert_eq!(run(&pair), none);
    moved(&mut pair, 50);
    assert_eq!(run(&pair), none, "too long itself");
    moved(&mut pair, 4097);
    assert_eq!(run(&pair), [1, 2], "READs are of another kind");
    moved(&mut pair, 1);
    moved(&mut pair, 2);
    assert_eq!(run(&pair), [8, 8], "the last is on another region");
    let all = [1, 2, 3, 4, 5, 6].map(|n| (n, WcStatus::Success));
    assert_eq!(pair.a.results.send_statuses(), all);
}

#[test]
fn a_run_has_the_bytes_of_all_its_requests() {
    let mut pair = Pair::new(Setup::default());
    let place = remote(pair.key(Side::B), 0);
    for n in 0..40_u32 {
        let bytes = vec![pair.sge(Side::A, 0, n + 1), pair.sge(Side::A, 64, 3)];
        pair.send(Side::A, wr(n.into(), SendOp::Write(place), bytes));
    }
    let lengths = run(&pair);
    assert_eq!(lengths, (4..35).collect::<Vec<_>>(), "31 at most");
    let pieces = pair.a.qp.run_pieces(&pair.a.rights).expect("open");
    let total: usize = pieces.iter().map(Piece::len).sum();
    assert_eq!(pieces.len(), 2 * lengths.len());
    assert_eq!(total, lengths.iter().sum::<u32>() as usize);
    let mut locked = pair.sge(Side::A, 0, 8);
    locked.lkey.0 ^= 1;
    let mut other = Pair::new(Setup::default());
    for sge in [pair.sge(Side::A, 0, 8), locked] {
        other.send(Side::A, wr(1, SendOp::Write(place), vec![sge]));
    }
    assert!(other.a.qp.run_pieces(&other.a.rights).is_err());
}

/// Of a run of three, two are carried out: they complete, and the third is the oldest.
#[test]
fn a_run_completes_as_far_as_it_is_carried_out() {
    let mut pair = Pair::new(Setup::default());
    for n in 1..=3 {
        let request = write(&pair, n, 100);
        pair.send(Side::A, request);
    }
    let first = next(&pair).expect("nothing is in flight");
    assert_eq!(run(&pair), [100, 100, 100]);
    let now = pair.now;
    pair.a.with(now, |qp, cx| qp.on_direct_run(cx, 2));
    let done = [1, 2].map(|n| (n, WcStatus::Success));
    assert_eq!(pair.a.results.send_statuses(), done);
    let rest = next(&pair).expect("one is left");
    assert_eq!((rest.psn, rest.len), (first.psn, 100));
    moved(&mut pair, 100);
    assert_eq!(pair.a.results.send.len(), 3);
    assert_eq!(next(&pair), None);
}

#[test]
fn nothing_goes_past_packets_that_are_under_way() {
    let mut pair = Pair::new(Setup::default());
    pair.send(Side::A, wr(1, SendOp::Send, vec![]));
    let request = write(&pair, 2, 100);
    pair.send(Side::A, request);
    assert_eq!(next(&pair), None, "the SEND is first");
    // Not even while the SEND waits for a receive.
    for _ in 0..40 {
        let until = pair.now + SOON;
        pair.step(until);
        assert_eq!(next(&pair), None);
    }
    pair.recv(Side::B, 1, vec![]);
    until_sent(&mut pair, Side::A, 2);
    let request = write(&pair, 3, 100);
    pair.send(Side::A, request);
    assert!(next(&pair).is_some());
}

/// A pair within a host.
fn within_a_host() -> Pair {
    let setup = Setup::default();
    Pair::new(Setup {
        link: LinkTraits {
            lossless: true,
            ..setup.link
        },
        ..setup
    })
}

/// Within a host: a queue that began with packets and never runs empty must not stay with them.
fn deep_queue(len: u32) -> Pair {
    let mut pair = within_a_host();
    pair.a.qp.begin_rendezvous(1);
    pair.trace = Some(Vec::new());
    pair.send(Side::A, wr(0, SendOp::Send, vec![]));
    for n in 1..5 {
        let request = write(&pair, n, len);
        pair.send(Side::A, request);
    }
    pair
}

#[test]
fn long_work_behind_packets_waits_for_them_and_goes_without() {
    let mut pair = deep_queue(MIN_RENDEZVOUS);
    pair.recv(Side::B, 9, vec![]);
    until_sent(&mut pair, Side::A, 1);
    for n in 1..5 {
        assert!(next(&pair).is_some(), "{n} has nothing in its way");
        moved(&mut pair, MIN_RENDEZVOUS);
    }
    assert_eq!(
        sent(&mut pair, Side::A),
        [Opcode::rc(Operation::Send, Position::Only)]
    );
    let all = [0, 1, 2, 3, 4].map(|n| (n, WcStatus::Success));
    assert_eq!(pair.a.results.send_statuses(), all);
}

#[test]
fn short_work_does_not_wait_for_what_is_in_flight() {
    let mut pair = deep_queue(MIN_RENDEZVOUS - 1);
    pair.recv(Side::B, 9, vec![]);
    until_sent(&mut pair, Side::A, 5);
    let packets = (MIN_RENDEZVOUS - 1).div_ceil(1024) as usize;
    assert_eq!(sent(&mut pair, Side::A).len(), 1 + 4 * packets);
}

/// A target that refuses is asked more and more rarely: what follows goes by packets, without
/// waiting.
#[test]
fn what_was_refused_waits_no_more_for_a_while() {
    let mut pair = deep_queue(MIN_RENDEZVOUS);
    pair.recv(Side::B, 9, vec![]);
    until_sent(&mut pair, Side::A, 1);
    assert!(next(&pair).is_some());
    pair.a.qp.refuse_direct();
    pair.step(pair.now + SOON);
    assert_eq!(next(&pair), None, "the next one did not wait");
    until_sent(&mut pair, Side::A, 3);
    assert!(next(&pair).is_some(), "the third waits again");
    pair.a.qp.refuse_direct();
    until_sent(&mut pair, Side::A, 5);
}

/// What the window cut in two, all of it so far acknowledged, has nothing in flight and is no new
/// work for all that.
#[test]
fn what_began_by_packets_ends_by_packets() {
    let mut pair = deep_queue(100 << 10);
    pair.recv(Side::B, 9, vec![]);
    until_sent(&mut pair, Side::A, 1);
    pair.a.qp.refuse_direct();
    pair.until(SOON, |p| {
        let granted = p.b.qp.grant();
        assert!(p.a.qp.next_direct().is_none() || granted.is_some());
        p.a.results.send.len() == 3
    });
}

#[test]
fn what_needs_the_responder_goes_to_it() {
    let mut pair = Pair::new(Setup::default());
    let place = remote(pair.key(Side::B), 0);
    let eight = vec![pair.sge(Side::A, 0, 8)];
    for op in [SendOp::AtomicWrite(place), SendOp::WriteImm(place, [7; 4])] {
        pair.send(Side::A, wr(1, op, eight.clone()));
        assert_eq!(next(&pair), None, "{op:?}");
        pair.recv(Side::B, 1, vec![]);
        let done = pair.a.results.send.len() + 1;
        until_sent(&mut pair, Side::A, done);
    }
    pair.send(Side::A, wr(2, SendOp::Write(place), vec![]));
    assert_eq!(next(&pair), None, "no bytes");
}

/// An atomic completes once, with what was found, whichever way it went, and in its order.
#[test]
fn an_atomic_is_carried_out_once() {
    let mut pair = Pair::new(Setup::default());
    pair.trace = Some(Vec::new());
    let place = remote(pair.key(Side::B), 8);
    let (compare, swap, add) = (0, 7, 5);
    let remote = place;
    let swap_op = SendOp::CompareSwap {
        remote,
        compare,
        swap,
    };
    let add_op = SendOp::FetchAdd { remote, add };
    let post = |pair: &mut Pair, id: u32, op| {
        let result = vec![pair.sge(Side::A, u64::from(id) * 8, 8)];
        pair.send(Side::A, wr(id.into(), op, result));
    };
    post(&mut pair, 1, swap_op);
    post(&mut pair, 2, add_op);
    let direct = next(&pair).expect("nothing is in flight");
    assert_eq!(direct.op, DirectOp::CompareSwap { compare, swap });
    assert_eq!((direct.remote, direct.len), (place, 8));
    let found = |pair: &mut Pair, original| {
        let now = pair.now;
        pair.a.with(now, |qp, cx| qp.on_direct_atomic(cx, original));
    };
    found(&mut pair, 0x0102);
    assert_eq!(next(&pair).map(|d| d.op), Some(DirectOp::FetchAdd { add }));
    // The second goes by packets, the third again without.
    pair.a.qp.refuse_direct();
    assert_eq!(next(&pair), None);
    until_sent(&mut pair, Side::A, 2);
    post(&mut pair, 3, add_op);
    let direct = next(&pair).expect("all is acknowledged");
    assert_eq!(pair.b.qp.grant().map(|g| g.expected), Some(direct.psn));
    found(&mut pair, 0x0304);
    let all = [1, 2, 3].map(|n| (n, WcStatus::Success));
    assert_eq!(pair.a.results.send_statuses(), all);
    assert!(pair.a.results.send.iter().all(|(wc, _)| wc.byte_len == 8));
    let word = |at| pair.a.memory.word(pair.sge(Side::A, at, 8).addr);
    assert_eq!((word(8), word(16), word(24)), (0x0102, 0, 0x0304));
    let sent = sent(&mut pair, Side::A);
    let only_add = Opcode::rc(Operation::FetchAdd, Position::Only);
    assert_eq!(sent, [only_add]);
}

/// The place for the result was opened when the atomic began; should it be gone then, the queue
/// pair ends as by a response.
#[test]
fn a_result_without_a_place_ends_the_queue_pair() {
    let mut pair = Pair::new(Setup::default());
    let remote = remote(pair.key(Side::B), 0);
    let mut result = pair.sge(Side::A, 0, 8);
    result.lkey.0 ^= 1;
    let op = SendOp::FetchAdd { remote, add: 1 };
    pair.send(Side::A, wr(1, op, vec![result]));
    assert!(next(&pair).is_some());
    let now = pair.now;
    pair.a.with(now, |qp, cx| qp.on_direct_atomic(cx, 0));
    let all = [(1, WcStatus::LocProtErr)];
    assert_eq!(pair.a.results.send_statuses(), all);
}

/// A long message waits for packets although an atomic before it was refused.
#[test]
fn a_refused_atomic_says_nothing_of_long_messages() {
    let mut pair = within_a_host();
    pair.a.qp.begin_rendezvous(1);
    let (remote, add) = (remote(pair.key(Side::B), 0), 1);
    let result = vec![pair.sge(Side::A, 0, 8)];
    pair.send(Side::A, wr(0, SendOp::FetchAdd { remote, add }, result));
    pair.a.qp.refuse_direct();
    let request = write(&pair, 1, MIN_RENDEZVOUS);
    pair.send(Side::A, request);
    until_sent(&mut pair, Side::A, 1);
    assert!(next(&pair).is_some(), "it has waited");
}

/// One packet without bytes tells of an immediate; it uses one number, is checked as its bytes
/// would be, and waits for a receive.
#[test]
fn an_immediate_is_told_of_by_one_packet() {
    let mut pair = within_a_host();
    pair.trace = Some(Vec::new());
    let place = remote(pair.key(Side::B), 0);
    let bytes = vec![pair.sge(Side::A, 0, 9000)];
    let request = wr(1, SendOp::WriteImm(place, [7; 4]), bytes.clone());
    pair.send(Side::A, request);
    let direct = next(&pair).expect("nothing is in flight");
    assert!(direct.op == DirectOp::Write && direct.len == 9000);
    let psn = direct.psn;
    moved(&mut pair, 9000);
    assert_eq!(next(&pair), None, "the packet is in flight, or to be sent");
    assert_eq!(pair.a.results.send_statuses(), []);
    for _ in 0..20 {
        let until = pair.now + SOON;
        pair.step(until);
    }
    assert_eq!(pair.b.results.recv.len(), 0, "there is no receive");
    pair.recv(Side::B, 9, vec![]);
    until_sent(&mut pair, Side::A, 1);
    assert_eq!(pair.a.results.send_statuses(), [(1, WcStatus::Success)]);
    let wc = pair.b.results.recv[0].0;
    assert_eq!((wc.wr_id, wc.byte_len), (9, 9000));
    assert_eq!(wc.imm, Some(WcImm::Imm([7; 4])));
    let all = sent(&mut pair, Side::A);
    assert!(
        !all.is_empty() && all.iter().all(|op| *op == Opcode::PLACED_IMM),
        "{all:?}"
    );
    // Both ends are in step.
    let request = write(&pair, 2, 9000);
    pair.send(Side::A, request);
    let direct = next(&pair).expect("all is acknowledged");
    let granted = pair.b.qp.grant().map(|grant| grant.expected);
    assert_eq!(granted, Some(direct.psn));
    assert_eq!(direct.psn, psn.plus(1), "one number for the immediate");
}

/// A key that has gone in the meantime is refused as it would be with the bytes.
#[test]
fn an_immediate_whose_key_is_gone_is_refused() {
    let mut pair = within_a_host();
    let mut place = remote(pair.key(Side::B), 0);
    place.rkey.0 ^= 1;
    let bytes = vec![pair.sge(Side::A, 0, 9000)];
    pair.recv(Side::B, 9, vec![]);
    pair.send(Side::A, wr(1, SendOp::WriteImm(place, [7; 4]), bytes));
    moved(&mut pair, 9000);
    until_sent(&mut pair, Side::A, 1);
    assert_eq!(
        pair.a.results.send_statuses(),
        [(1, WcStatus::RemAccessErr)]
    );
    assert_eq!(pair.b.qp.state(), QpState::Err);
}

#[test]
fn a_queue_pair_that_does_not_send_does_nothing_without_packets_either() {
    let mut pair = Pair::new(Setup::default());
    let request = write(&pair, 1, 5000);
    pair.send(Side::A, request);
    moved(&mut pair, 1000);
    let sqd = QpAttr {
        qp_state: QpState::Sqd,
        ..QpAttr::default()
    };
    pair.modify(Side::A, &sqd, AttrMask::STATE);
    assert_eq!(next(&pair), None);
    pair.to_state(Side::A, QpState::Err);
    assert_eq!(next(&pair), None);
    assert_eq!(pair.a.results.send_statuses(), [(1, WcStatus::WrFlushErr)]);
    assert_eq!(pair.a.qp.grant(), None);
}

#[test]
fn a_grant_says_what_the_responder_would() {
    let mut pair = Pair::unconnected(Setup {
        rd_atomic: 0,
        access: Access::LOCAL_WRITE | Access::REMOTE_READ,
        ..Setup::default()
    });
    assert_eq!(pair.b.qp.grant(), None);
    for state in [QpState::Init, QpState::Rtr] {
        pair.to_state(Side::B, state);
        assert_eq!(
            pair.b.qp.grant(),
            None,
            "its program waits for the first packet"
        );
    }
    pair.to_state(Side::B, QpState::Rts);
    // READs are refused without resources for them.
    assert_eq!(
        pair.b.qp.grant().map(|grant| grant.access),
        Some(Access::empty())
    );
}
