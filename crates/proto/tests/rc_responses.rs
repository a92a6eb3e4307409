//! Responses that do not fit, and responses to nothing.
#![allow(clippy::cast_possible_truncation, reason = "test data is small")]

mod common;

use common::{expect_send, until_sent};
use ferroce_proto::ids::{Msn, Psn};
use ferroce_proto::testkit::{Pair, Setup, Side, remote, wr};
use ferroce_proto::verbs::{QpState, SendOp, WcStatus};
use ferroce_proto::wire::{
    Aeth, ExtHeaders, NakCode, Opcode, Operation, Packet, Position, Syndrome,
};

const MTU: usize = 1024;

fn pair() -> Pair {
    Pair::new(Setup::default())
}

fn none() -> ExtHeaders {
    ExtHeaders::default()
}

/// READ of 3000 bytes by A; returns the PSN of its first response.
fn reading(pair: &mut Pair) -> Psn {
    let psn = pair.a.qp.query().sq_psn;
    let into = pair.sge(Side::A, 0, 3000);
    let from = remote(pair.key(Side::B), 0);
    pair.send(Side::A, wr(1, SendOp::Read(from), vec![into]));
    pair.send(Side::A, wr(2, SendOp::Send, vec![]));
    pair.transmit(Side::A);
    psn
}

fn ack() -> ExtHeaders {
    let aeth = Aeth {
        syndrome: Syndrome::ACK,
        msn: Msn::default(),
    };
    ExtHeaders {
        aeth: Some(aeth),
        ..none()
    }
}

#[test]
fn responses_that_do_not_fit_the_request() {
    use Position::{First, Last, Middle, Only};
    let full = [0; MTU + 1];
    let cases = [
        (Last, MTU, WcStatus::BadRespErr),
        (Only, MTU, WcStatus::BadRespErr),
        (Middle, MTU, WcStatus::BadRespErr),
        (First, MTU - 1, WcStatus::BadRespErr),
        (First, MTU + 1, WcStatus::LocLenErr),
    ];
    for (position, len, status) in cases {
        let mut p = pair();
        let psn = reading(&mut p);
        let opcode = Opcode::rc(Operation::ReadResponse, position);
        p.inject(Side::A, opcode, psn, (ack(), &full[..len]));
        expect_send(&p, &[(1, status), (2, WcStatus::WrFlushErr)]);
        assert_eq!(p.a.qp.state(), QpState::Err);
    }
    // The last one: 3000 - 2048 bytes are right.
    for (position, len, status) in [
        (Last, 951, WcStatus::BadRespErr),
        (Last, 953, WcStatus::LocLenErr),
        (Middle, 952, WcStatus::BadRespErr),
        (Only, 952, WcStatus::BadRespErr),
        (Last, 952, WcStatus::Success),
    ] {
        let mut p = pair();
        let psn = reading(&mut p);
        let response = |position| Opcode::rc(Operation::ReadResponse, position);
        p.inject(Side::A, response(First), psn, (ack(), &full[..MTU]));
        p.inject(
            Side::A,
            response(Middle),
            psn.plus(1),
            (none(), &full[..MTU]),
        );
        p.inject(
            Side::A,
            response(position),
            psn.plus(2),
            (ack(), &full[..len]),
        );
        assert_eq!(p.a.results.send[0].0.status, status, "{position:?} {len}");
    }
    // Atomic answer to a READ, READ answer to a SEND.
    let mut p = pair();
    let psn = reading(&mut p);
    let ext = ExtHeaders {
        atomic_ack: Some(1),
        ..ack()
    };
    p.inject(Side::A, Opcode::RC_ATOMIC_ACKNOWLEDGE, psn, (ext, &[]));
    assert_eq!(p.a.results.send[0].0.status, WcStatus::BadRespErr);
    let mut p = pair();
    let psn = p.a.qp.query().sq_psn;
    p.send(Side::A, wr(1, SendOp::Send, vec![]));
    p.transmit(Side::A);
    let only = Opcode::rc(Operation::ReadResponse, Only);
    p.inject(Side::A, only, psn, (ack(), &[]));
    expect_send(&p, &[(1, WcStatus::BadRespErr)]);
}

#[test]
fn answers_to_nothing_are_ignored() {
    let mut p = pair();
    let psn = reading(&mut p);
    for far in [5, 1000, 1 << 22, 1 << 23, (1 << 24) - 1] {
        p.inject(Side::A, Opcode::RC_ACKNOWLEDGE, psn.plus(far), (ack(), &[]));
        let only = Opcode::rc(Operation::ReadResponse, Position::Only);
        p.inject(Side::A, only, psn.plus(far), (ack(), &[1; 100]));
        let nak = Aeth {
            syndrome: Syndrome::Nak(NakCode::RemoteAccess),
            msn: Msn::default(),
        };
        let nak = ExtHeaders {
            aeth: Some(nak),
            ..none()
        };
        p.inject(Side::A, Opcode::RC_ACKNOWLEDGE, psn.plus(far), (nak, &[]));
    }
    let reserved = Aeth {
        syndrome: Syndrome::Reserved(0x40),
        msn: Msn::default(),
    };
    let reserved = ExtHeaders {
        aeth: Some(reserved),
        ..none()
    };
    p.inject(Side::A, Opcode::RC_ACKNOWLEDGE, psn, (reserved, &[]));
    assert_eq!(p.a.qp.state(), QpState::Rts);
    assert!(p.a.results.send.is_empty());
    p.recv(Side::B, 1, vec![]);
    until_sent(&mut p, Side::A, 2);
    expect_send(&p, &[(1, WcStatus::Success), (2, WcStatus::Success)]);
}

#[test]
fn an_acknowledgement_that_passes_over_a_read_makes_it_ask_again() {
    let mut p = pair();
    p.trace = Some(Vec::new());
    let psn = reading(&mut p);
    p.lose_into(Side::B);
    let before = p.trace.as_ref().map_or(0, Vec::len);
    p.inject(Side::A, Opcode::RC_ACKNOWLEDGE, psn.plus(3), (ack(), &[]));
    assert!(p.a.results.send.is_empty(), "nothing is complete");
    p.transmit(Side::A);
    let again = p.trace.take().expect("on").split_off(before);
    let opcodes: Vec<_> = again
        .iter()
        .map(|(_, bytes)| Packet::parse(bytes).expect("well-formed").bth.opcode)
        .collect();
    assert_eq!(
        opcodes,
        [
            Opcode::RC_READ_REQUEST,
            Opcode::rc(Operation::Send, Position::Only)
        ]
    );
    p.recv(Side::B, 1, vec![]);
    until_sent(&mut p, Side::A, 2);
}
