//! What breaks the rules, and what both sides make of it: the outcome that the specification gives.
#![allow(clippy::cast_possible_truncation, reason = "test data is small")]

mod common;

use common::{SOON, expect_recv, expect_send, until_sent};
use ferroce_proto::ids::{Key, PdId, Psn};
use ferroce_proto::mr::{Access, Region};
use ferroce_proto::rc::Cause;
use ferroce_proto::testkit::{Arena, Pair, Setup, Side, remote, sge, wr};
use ferroce_proto::verbs::{AttrMask, QpAttr, QpEvent, QpState, RemoteAddr, SendOp, Sge, WcStatus};
use ferroce_proto::wire::{
    Aeth, AtomicEth, ExtHeaders, NakCode, Opcode, Operation, Packet, Position, Reth, Syndrome,
};

/// Makes a work request's operation for a place.
type MakeOp = fn(RemoteAddr) -> SendOp;

const MTU: usize = 1024;
const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);

fn pair() -> Pair {
    Pair::new(Setup::default())
}

fn pair_allowing(access: Access) -> Pair {
    let mut pair = Pair::new(Setup::default());
    let attr = QpAttr {
        qp_access_flags: access,
        ..QpAttr::default()
    };
    pair.modify(Side::B, &attr, AttrMask::ACCESS_FLAGS);
    pair
}

/// PSN that B expects next from A.
fn expected(pair: &Pair) -> Psn {
    pair.b.qp.query().rq_psn
}

/// Everything that a node wants to send now: syndrome (if it is an acknowledgement) and PSN.
fn answers(pair: &mut Pair, side: Side) -> Vec<(Option<Syndrome>, u32)> {
    pair.trace = Some(Vec::new());
    pair.transmit(side);
    let sent = pair.trace.take().expect("set above");
    sent.iter()
        .map(|(_, bytes)| {
            let p = Packet::parse(bytes).expect("well-formed");
            (p.ext.aeth.map(|a| a.syndrome), p.bth.psn.get())
        })
        .collect()
}

/// A injects a request into B by hand; B must end with this NAK and event.
#[track_caller]
fn refuses(
    pair: &mut Pair,
    (operation, position): (Operation, Position),
    (ext, payload): (ExtHeaders, &[u8]),
    (code, event): (NakCode, QpEvent),
) {
    let psn = expected(pair);
    let opcode = Opcode::rc(operation, position);
    assert!(pair.inject(Side::B, opcode, psn, (ext, payload)));
    assert_eq!(pair.b.qp.state(), QpState::Err);
    assert_eq!(pair.b.results.events, [event]);
    assert_eq!(
        answers(pair, Side::B),
        [(Some(Syndrome::Nak(code)), psn.get())]
    );
    assert!(!pair.b.qp.wants_transmit());
}

const INVALID: (NakCode, QpEvent) = (NakCode::InvalidRequest, QpEvent::RequestError);

fn reth(to: RemoteAddr, length: u32) -> ExtHeaders {
    ExtHeaders {
        reth: Some(Reth {
            va: to.addr,
            rkey: to.rkey,
            length,
        }),
        ..ExtHeaders::default()
    }
}

fn none() -> ExtHeaders {
    ExtHeaders::default()
}

/// Injects a request that B takes.
#[track_caller]
fn takes(pair: &mut Pair, what: (Operation, Position), packet: (ExtHeaders, &[u8])) {
    let (psn, opcode) = (expected(pair), Opcode::rc(what.0, what.1));
    assert!(pair.inject(Side::B, opcode, psn, packet));
    assert_ne!(pair.b.qp.state(), QpState::Err);
}

/// A's only work request fails with `status` because of B's refusal, and both queue pairs are in ERR.
#[track_caller]
fn both_fail(pair: &mut Pair, op: SendOp, sges: Vec<Sge>, status: WcStatus) {
    pair.recv(Side::A, 50, vec![]);
    pair.send(Side::A, wr(1, op, sges));
    pair.send(Side::A, wr(2, SendOp::Send, vec![]));
    pair.settle(SOON);
    expect_send(pair, &[(1, status), (2, WcStatus::WrFlushErr)]);
    assert!(pair.a.results.send.iter().all(|(_, solicited)| *solicited));
    assert_eq!(
        pair.a.results.recv_statuses(),
        [(50, WcStatus::WrFlushErr)],
        "the other queue is flushed too"
    );
    assert_eq!(pair.a.qp.state(), QpState::Err);
    assert_eq!(pair.b.qp.state(), QpState::Err);
}

#[test]
fn send_longer_than_the_receive() {
    for len in [11, 5000] {
        let mut pair = pair();
        let (into, from) = (pair.sge(Side::B, 0, 10), pair.sge(Side::A, 0, len));
        pair.recv(Side::B, 7, vec![into]);
        pair.recv(Side::B, 8, vec![into]);
        both_fail(&mut pair, SendOp::Send, vec![from], WcStatus::RemInvReqErr);
        expect_recv(
            &pair,
            &[(7, WcStatus::LocLenErr), (8, WcStatus::WrFlushErr)],
        );
        assert_eq!(
            pair.b.results.recv[0].0.vendor_err,
            Cause::MessageTooLong as u32
        );
        assert!(pair.b.results.events.is_empty(), "the completion tells it");
    }
}

#[test]
fn write_whose_packets_do_not_add_up() {
    let full = [7; MTU];
    let write = Operation::Write;
    let to = |p: &Pair| remote(p.key(Side::B), 0);
    // Only: shorter and longer than announced.
    for (announced, len) in [(10, 9), (10, 11), (0, 1), (2000, 1000)] {
        let mut p = pair();
        let ext = reth(to(&p), announced);
        refuses(
            &mut p,
            (write, Position::Only),
            (ext, &full[..len]),
            INVALID,
        );
    }
    // First that would be the last.
    let mut p = pair();
    let ext = reth(to(&p), 1024);
    refuses(&mut p, (write, Position::First), (ext, &full), INVALID);
    // Last too short, too long; Middle that reaches the end.
    for (position, len) in [
        (Position::Last, 99),
        (Position::Last, 101),
        (Position::Middle, MTU),
    ] {
        let mut p = pair();
        let ext = reth(
            to(&p),
            1024 + if position == Position::Last {
                100
            } else {
                1024
            },
        );
        takes(&mut p, (write, Position::First), (ext, &full));
        refuses(&mut p, (write, position), (none(), &full[..len]), INVALID);
    }
    // Longer than 2^31.
    let mut p = pair();
    let ext = reth(to(&p), (1 << 31) + 1);
    refuses(&mut p, (write, Position::First), (ext, &full), INVALID);
    refuses(
        &mut pair(),
        (Operation::ReadRequest, Position::Only),
        (ext, &[]),
        INVALID,
    );
}

#[test]
fn packet_length_that_does_not_fit_its_position_or_the_mtu() {
    let long = [1; 2 * MTU];
    for (position, len) in [
        (Position::First, MTU - 1),
        (Position::First, MTU + 1),
        (Position::First, 0),
        (Position::Only, MTU + 1),
    ] {
        let mut p = pair();
        let into = p.sge(Side::B, 0, 5000);
        p.recv(Side::B, 1, vec![into]);
        refuses(
            &mut p,
            (Operation::Send, position),
            (none(), &long[..len]),
            INVALID,
        );
        expect_recv(&p, &[(1, WcStatus::WrFlushErr)]);
        let mut p = pair();
        let ext = reth(remote(p.key(Side::B), 0), 8000);
        refuses(
            &mut p,
            (Operation::Write, position),
            (ext, &long[..len]),
            INVALID,
        );
    }
    for (position, len) in [
        (Position::Middle, 4),
        (Position::Last, 0),
        (Position::Last, MTU + 1),
    ] {
        let mut p = pair();
        let into = p.sge(Side::B, 0, 5000);
        p.recv(Side::B, 1, vec![into]);
        takes(
            &mut p,
            (Operation::Send, Position::First),
            (none(), &long[..MTU]),
        );
        refuses(
            &mut p,
            (Operation::Send, position),
            (none(), &long[..len]),
            INVALID,
        );
        expect_recv(&p, &[(1, WcStatus::WrFlushErr)]);
    }
}

/// Every way in which a key does not open what it should, for one kind of access.
fn bad_keys(pair: &mut Pair, need: Access) -> Vec<(&'static str, RemoteAddr)> {
    let at = Arena::BASE;
    let good = pair.key(Side::B);
    let other_pd = pair.b.register_in(PdId(99), 0, 4096, ALL);
    let weak = pair.b.register(0, 4096, ALL.difference(need));
    let small = pair.b.register(4096, 4096, ALL);
    let gone = pair.b.register(0, 4096, ALL);
    pair.b
        .rights
        .invalidate(gone, ferroce_proto::testkit::PD)
        .expect("valid until now");
    let place = |addr, rkey| RemoteAddr { addr, rkey };
    vec![
        ("unknown key", place(at, Key(0xbad))),
        ("other protection domain", place(at, other_pd)),
        ("region lacks the access", place(at, weak)),
        ("invalidated", place(at, gone)),
        ("before the region", place(at + 4088, small)),
        ("over its end", place(at + 8184 + 8, small)),
        ("address wraps", place(u64::MAX - 7, good)),
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
fn operation_that_the_queue_pair_does_not_allow() {
    let ops: [(Access, MakeOp); 3] = [
        (Access::REMOTE_WRITE, SendOp::Write),
        (Access::REMOTE_READ, SendOp::Read),
        (Access::REMOTE_ATOMIC, |remote| SendOp::FetchAdd {
            remote,
            add: 1,
        }),
    ];
    for (need, op) in ops {
        let mut pair = pair_allowing(ALL.difference(need));
        let local = pair.sge(Side::A, 0, 8);
        let place = remote(pair.key(Side::B), 0);
        both_fail(&mut pair, op(place), vec![local], WcStatus::RemInvReqErr);
        assert_eq!(pair.b.results.events, [QpEvent::RequestError]);
        assert_eq!(
            pair.a.results.send[0].0.vendor_err,
            Cause::NakInvalidRequest as u32
        );
    }
}

#[test]
fn atomic_that_is_not_aligned() {
    for at in [1, 4, 7] {
        let mut pair = pair();
        let local = pair.sge(Side::A, 0, 8);
        let op = SendOp::FetchAdd {
            remote: remote(pair.key(Side::B), at),
            add: 1,
        };
        both_fail(&mut pair, op, vec![local], WcStatus::RemInvReqErr);
    }
}

#[test]
fn packets_out_of_their_order_in_the_message() {
    use Operation::{ReadRequest, Send, SendImm, SendInvalidate, Write, WriteImm};
    use Position::{First, Last, Middle, Only};
    let full = [1; MTU];
    // Continuing what was not begun.
    for what in [
        (Send, Middle),
        (Send, Last),
        (SendImm, Last),
        (SendInvalidate, Last),
        (Write, Middle),
        (Write, Last),
        (WriteImm, Last),
    ] {
        let mut p = pair();
        refuses(&mut p, what, (none(), &full), INVALID);
    }
    // Beginning something else, or continuing with the other kind.
    for (begun, others) in [
        (
            Send,
            [
                (Send, First),
                (Send, Only),
                (Write, Middle),
                (Write, Only),
                (ReadRequest, Only),
            ],
        ),
        (
            Write,
            [
                (Write, First),
                (Write, Only),
                (Send, Middle),
                (SendImm, Last),
                (ReadRequest, Only),
            ],
        ),
    ] {
        for what in others {
            let mut p = pair();
            let into = p.sge(Side::B, 0, 9000);
            p.recv(Side::B, 1, vec![into]);
            let ext = reth(remote(p.key(Side::B), 0), 9000);
            takes(&mut p, (begun, First), (ext, &full));
            refuses(&mut p, what, (ext, &full), INVALID);
            expect_recv(&p, &[(1, WcStatus::WrFlushErr)]);
        }
    }
}

#[test]
fn an_atomic_in_the_middle_of_a_message() {
    let mut p = pair();
    let ext = reth(remote(p.key(Side::B), 0), 9000);
    takes(
        &mut p,
        (Operation::Write, Position::First),
        (ext, &[1; MTU]),
    );
    let ext = ExtHeaders {
        atomic: Some(AtomicEth {
            va: Arena::BASE,
            rkey: p.key(Side::B),
            swap_or_add: 1,
            compare: 0,
        }),
        ..none()
    };
    refuses(
        &mut p,
        (Operation::FetchAdd, Position::Only),
        (ext, &[]),
        INVALID,
    );
}

#[test]
fn unknown_operations() {
    for raw in [0x15, 0x18, 0x1c, 0x1d, 0x1f] {
        let mut p = pair();
        let psn = expected(&p);
        let ext = Opcode(raw)
            .info()
            .map_or_else(none, |_| reth(remote(p.key(Side::B), 0), 8));
        assert!(p.inject(Side::B, Opcode(raw), psn, (ext, &[])));
        assert_eq!(p.b.qp.state(), QpState::Err);
        let nak = Some(Syndrome::Nak(NakCode::InvalidRequest));
        assert_eq!(answers(&mut p, Side::B), [(nak, psn.get())]);
    }
}

#[test]
fn packets_of_other_services_are_ignored() {
    let mut p = pair();
    let psn = expected(&p);
    for opcode in [Opcode::UD_SEND_ONLY, Opcode(0x24), Opcode(0xa4)] {
        assert!(p.inject(Side::B, opcode, psn, (none(), b"data")));
    }
    assert_eq!(p.b.qp.state(), QpState::Rts);
    assert!(!p.b.qp.wants_transmit());
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
        let key = match kind {
            0 => Key(0xbad),
            1 => pair.b.register(0, 8, Access::LOCAL_WRITE),
            2 => pair.b.register_in(PdId(9), 0, 8, ALL),
            _ => {
                let key = pair.b.register(0, 8, ALL);
                pair.b
                    .rights
                    .invalidate(key, ferroce_proto::testkit::PD)
                    .expect("valid");
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
fn more_reads_than_the_responder_serves() {
    let mut pair = Pair::new(Setup {
        rd_atomic: 2,
        ..Setup::default()
    });
    let ext = reth(remote(pair.key(Side::B), 0), 100);
    let read = (Operation::ReadRequest, Position::Only);
    takes(&mut pair, read, (ext, &[]));
    takes(&mut pair, read, (ext, &[]));
    let psn = expected(&pair);
    assert!(pair.inject(Side::B, Opcode::RC_READ_REQUEST, psn, (ext, &[])));
    assert_eq!(pair.b.qp.state(), QpState::Err);
    let sent = answers(&mut pair, Side::B);
    assert_eq!(sent.len(), 3, "the first two are still answered: {sent:?}");
    let nak = Some(Syndrome::Nak(NakCode::InvalidRequest));
    assert_eq!(sent[2], (nak, psn.get()));
}

#[test]
fn reads_when_the_responder_serves_none() {
    let mut pair = pair();
    let attr = QpAttr {
        qp_state: QpState::Sqd,
        ..QpAttr::default()
    };
    pair.modify(Side::B, &attr, AttrMask::STATE);
    pair.modify(Side::B, &attr, AttrMask::MAX_DEST_RD_ATOMIC);
    let ext = reth(remote(pair.key(Side::B), 0), 100);
    refuses(
        &mut pair,
        (Operation::ReadRequest, Position::Only),
        (ext, &[]),
        INVALID,
    );
}

#[test]
fn packets_in_states_that_do_not_take_them() {
    let mut pair = Pair::unconnected(Setup::default());
    let (psn, send) = (Psn::new(100), Opcode::rc(Operation::Send, Position::Only));
    assert!(!pair.inject(Side::B, send, psn, (none(), &[])), "RESET");
    pair.to_state(Side::B, QpState::Init);
    pair.recv(Side::B, 1, vec![]);
    assert!(!pair.inject(Side::B, send, psn, (none(), &[])), "INIT");
    pair.to_state(Side::B, QpState::Rtr);
    let aeth = Aeth {
        syndrome: Syndrome::ACK,
        msn: Default::default(),
    };
    let ack = ExtHeaders {
        aeth: Some(aeth),
        ..none()
    };
    assert!(
        !pair.inject(Side::B, Opcode::RC_ACKNOWLEDGE, psn, (ack, &[])),
        "no answers in RTR"
    );
    assert!(pair.b.results.events.is_empty());
    assert!(pair.inject(Side::B, send, psn, (none(), &[])));
    assert_eq!(pair.b.results.events, [QpEvent::CommEstablished]);
    expect_recv(&pair, &[(1, WcStatus::Success)]);
    assert_eq!(answers(&mut pair, Side::B), [(Some(Syndrome::ACK), 100)]);
    pair.to_state(Side::B, QpState::Err);
    assert!(!pair.inject(Side::B, send, psn, (none(), &[])), "ERR");
}

#[test]
fn a_gap_is_reported_once() {
    let mut pair = pair();
    pair.recv(Side::B, 1, vec![]);
    let send = Opcode::rc(Operation::Send, Position::Only);
    let psn = expected(&pair);
    for ahead in [1, 2, 3] {
        assert!(pair.inject(Side::B, send, psn.plus(ahead), (none(), &[])));
    }
    let nak = Some(Syndrome::Nak(NakCode::Sequence));
    assert_eq!(answers(&mut pair, Side::B), [(nak, psn.get())]);
    pair.inject(Side::B, send, psn.plus(4), (none(), &[]));
    assert_eq!(answers(&mut pair, Side::B), []);
    pair.inject(Side::B, send, psn, (none(), &[]));
    assert_eq!(
        answers(&mut pair, Side::B),
        [(Some(Syndrome::ACK), psn.get())]
    );
    pair.inject(Side::B, send, psn.plus(2), (none(), &[]));
    assert_eq!(answers(&mut pair, Side::B), [(nak, psn.plus(1).get())]);
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
fn no_receive_is_waited_for_and_then_an_error() {
    for (rnr_retry, attempts) in [(0, 1), (1, 2), (6, 7)] {
        let mut pair = Pair::new(Setup {
            rnr_retry,
            ..Setup::default()
        });
        pair.trace = Some(Vec::new());
        let start = pair.now;
        pair.send(Side::A, wr(1, SendOp::Send, vec![]));
        pair.settle(SOON);
        expect_send(&pair, &[(1, WcStatus::RnrRetryExcErr)]);
        assert_eq!(
            pair.b.qp.state(),
            QpState::Rts,
            "the responder is not concerned"
        );
        let trace = pair.trace.take().expect("on");
        let tries = trace.iter().filter(|(side, _)| *side == Side::A).count();
        assert_eq!(tries, attempts);
        let waited = pair.now.since(start);
        let rnr = std::time::Duration::from_micros(640) * (attempts as u32 - 1);
        assert!(
            waited >= rnr && waited < rnr + std::time::Duration::from_millis(2),
            "{waited:?}"
        );
    }
}

#[test]
fn a_gap_that_closes_before_it_was_reported_is_not_reported() {
    let mut pair = pair();
    pair.recv(Side::B, 1, vec![]);
    let send = Opcode::rc(Operation::Send, Position::Only);
    let psn = expected(&pair);
    pair.inject(Side::B, send, psn.plus(1), (none(), &[]));
    pair.inject(Side::B, send, psn, (none(), &[]));
    assert_eq!(
        answers(&mut pair, Side::B),
        [(Some(Syndrome::ACK), psn.get())]
    );
}

#[test]
fn what_follows_a_message_without_receive_is_dropped_without_a_word() {
    let mut pair = pair();
    let send = Opcode::rc(Operation::Send, Position::Only);
    let psn = expected(&pair);
    for ahead in 0..3 {
        pair.inject(Side::B, send, psn.plus(ahead), (none(), &[]));
    }
    let not_ready = Some(Syndrome::RnrNak(12));
    assert_eq!(answers(&mut pair, Side::B), [(not_ready, psn.get())]);
    pair.inject(Side::B, send, psn, (none(), &[]));
    assert_eq!(answers(&mut pair, Side::B), [(not_ready, psn.get())]);
}

#[test]
fn atomic_on_a_word_that_is_aligned_for_the_peer_only() {
    let mut pair = pair();
    let region = Region {
        pd: ferroce_proto::testkit::PD,
        iova: 0x1000,
        length: 64,
        addr: Arena::BASE + 4,
        access: ALL,
        remote_valid: true.into(),
    };
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
