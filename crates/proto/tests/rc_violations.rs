//! Requests that break the rules, and what both sides make of it: the outcome that the
//! specification gives.
#![allow(clippy::cast_possible_truncation, reason = "test data is small")]

mod common;

use common::violation::{
    ALL, INVALID, MTU, MakeOp, answers, both_fail, expected, none, pair, pair_allowing, refuses,
    reth, takes,
};
use common::{SOON, expect_recv, expect_send};
use ferroce_proto::ids::{Msn, Psn};
use ferroce_proto::mr::Access;
use ferroce_proto::rc::Cause;
use ferroce_proto::testkit::{Arena, Pair, Setup, Side, remote, wr};
use ferroce_proto::verbs::{AttrMask, QpAttr, QpEvent, QpState, SendOp, WcStatus};
use ferroce_proto::wire::{
    Aeth, AtomicEth, ExtHeaders, NakCode, Opcode, Operation, Position, Syndrome,
};

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
        msn: Msn::default(),
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
