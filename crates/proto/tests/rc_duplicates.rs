//! Requests that come a second time: answered again, never executed again.
#![allow(clippy::cast_possible_truncation, reason = "test data is small")]

mod common;

use core::time::Duration;

use ferroce_proto::ids::{Key, Psn};
use ferroce_proto::mr::Access;
use ferroce_proto::rc::LinkTraits;
use ferroce_proto::testkit::{Arena, Pair, Setup, Side, wr};
use ferroce_proto::verbs::{QpState, RemoteAddr, SendOp, WcStatus};
use ferroce_proto::wire::{
    AtomicEth, ExtHeaders, NakCode, Opcode, Operation, Packet, Position, Reth, Syndrome,
};

/// An answer of B: operation, position, PSN, payload bytes, syndrome, original value.
type Answer = (
    Operation,
    Position,
    u32,
    usize,
    Option<Syndrome>,
    Option<u64>,
);

/// PSN of A's first request.
const FIRST: u32 = 0xff_fffe;
const LIMIT: Duration = Duration::from_secs(10);

fn pair() -> Pair {
    let pair = Pair::new(Setup {
        psn: FIRST,
        rd_atomic: 2,
        ..Setup::default()
    });
    for at in 0..32 {
        let page = [at as u8 + 1; 1024];
        pair.b.memory.put(Arena::BASE + 1024 * at, &page);
    }
    pair
}

fn answers(pair: &mut Pair) -> Vec<Answer> {
    pair.trace = Some(Vec::new());
    pair.transmit(Side::B);
    let sent = pair.trace.take().expect("set above");
    sent.iter()
        .map(|(_, bytes)| {
            let p = Packet::parse(bytes).expect("well-formed");
            let info = p.bth.opcode.info().expect("defined");
            let syndrome = p.ext.aeth.map(|a| a.syndrome);
            let psn = p.bth.psn.get();
            (
                info.operation,
                info.position,
                psn,
                p.payload.len(),
                syndrome,
                p.ext.atomic_ack,
            )
        })
        .collect()
}

fn psn(n: u32) -> Psn {
    Psn::new(FIRST).plus(n)
}

fn read(pair: &mut Pair, at: u32, (offset, length): (u64, u32)) -> Vec<Answer> {
    let reth = Reth {
        va: Arena::BASE + offset,
        rkey: pair.key(Side::B),
        length,
    };
    ask_read(pair, at, reth)
}

fn ask_read(pair: &mut Pair, at: u32, reth: Reth) -> Vec<Answer> {
    let ext = ExtHeaders {
        reth: Some(reth),
        ..ExtHeaders::default()
    };
    assert!(pair.inject(Side::B, Opcode::RC_READ_REQUEST, psn(at), (ext, &[])));
    answers(pair)
}

fn add(pair: &mut Pair, at: u32, operands: AtomicEth) -> Vec<Answer> {
    let ext = ExtHeaders {
        atomic: Some(operands),
        ..ExtHeaders::default()
    };
    let opcode = Opcode::rc(Operation::FetchAdd, Only);
    assert!(pair.inject(Side::B, opcode, psn(at), (ext, &[])));
    answers(pair)
}

fn send(pair: &mut Pair, at: u32) -> Vec<Answer> {
    let opcode = Opcode::rc(Operation::Send, Only);
    assert!(pair.inject(Side::B, opcode, psn(at), (ExtHeaders::default(), &[])));
    answers(pair)
}

fn data(position: Position, at: u32, len: usize) -> Answer {
    let aeth = (position != Middle).then_some(Syndrome::ACK);
    (
        Operation::ReadResponse,
        position,
        psn(at).get(),
        len,
        aeth,
        None,
    )
}

fn ack(at: u32) -> Answer {
    let syndrome = Some(Syndrome::ACK);
    (
        Operation::Acknowledge,
        Only,
        psn(at).get(),
        0,
        syndrome,
        None,
    )
}

use Position::{First, Last, Middle, Only};

#[test]
fn a_read_is_served_again_from_any_packet_on() {
    let mut p = pair();
    let whole = [
        data(First, 0, 1024),
        data(Middle, 1, 1024),
        data(Middle, 2, 1024),
        data(Last, 3, 8),
    ];
    assert_eq!(read(&mut p, 0, (0, 3080)), whole);
    assert_eq!(read(&mut p, 0, (0, 3080)), whole);
    assert_eq!(
        read(&mut p, 1, (1024, 2056)),
        [
            data(First, 1, 1024),
            data(Middle, 2, 1024),
            data(Last, 3, 8)
        ]
    );
    assert_eq!(read(&mut p, 3, (3072, 8)), [data(Only, 3, 8)]);
    assert_eq!(
        read(&mut p, 1, (1024, 1030)),
        [data(First, 1, 1024), data(Last, 2, 6)],
        "less of it"
    );
    assert_eq!(p.b.qp.query().rq_psn, psn(4));
}

#[test]
fn a_read_that_differs_from_what_was_asked_is_not_served() {
    let mut p = pair();
    let key = p.key(Side::B);
    let other = p.b.register(0, 1 << 16, Access::REMOTE_READ);
    read(&mut p, 0, (0, 3080));
    let reth = |va, rkey, length| Reth {
        va: Arena::BASE + va,
        rkey,
        length,
    };
    for wrong in [
        reth(1024, key, 3080),
        reth(1024, key, 2057),
        reth(1023, key, 100),
        reth(1024, other, 2056),
        reth(1024, Key(1), 2056),
        reth(1024, key, 0),
        reth(0, key, u32::MAX),
    ] {
        assert_eq!(ask_read(&mut p, 1, wrong), [], "{wrong:?}");
    }
    assert_eq!(p.b.qp.state(), QpState::Rts);
}

#[test]
fn a_zero_length_read_is_served_again() {
    let mut p = pair();
    let nothing = Reth {
        va: 0,
        rkey: Key(0),
        length: 0,
    };
    assert_eq!(ask_read(&mut p, 0, nothing), [data(Only, 0, 0)]);
    assert_eq!(ask_read(&mut p, 0, nothing), [data(Only, 0, 0)]);
}

#[test]
fn rights_are_checked_again() {
    let mut p = pair();
    let rkey = p.b.register(0, 8192, Access::REMOTE_READ);
    let reth = Reth {
        va: Arena::BASE,
        rkey,
        length: 2048,
    };
    ask_read(&mut p, 0, reth);
    p.b.rights.remove(rkey);
    let nak = Some(Syndrome::Nak(NakCode::RemoteAccess));
    let refusal = [(Operation::Acknowledge, Only, psn(0).get(), 0, nak, None)];
    assert_eq!(ask_read(&mut p, 0, reth), refusal);
    // The network may have held it back until the program had its answer, and ended the region.
    assert_eq!(p.b.qp.state(), QpState::Rts);
    assert!(p.b.results.events.is_empty());
    p.recv(Side::B, 1, vec![]);
    assert_eq!(send(&mut p, 2), [ack(2)]);
    assert_eq!(ask_read(&mut p, 0, reth), refusal);
    assert_eq!(send(&mut p, 2), [ack(2)]);
    assert_eq!(p.b.results.recv.len(), 1);
}

#[test]
fn a_requester_whose_answer_was_lost_hears_that_the_region_is_gone() {
    let mut p = pair();
    let rkey = p.b.register(0, 8192, Access::REMOTE_READ);
    let from = RemoteAddr {
        addr: Arena::BASE,
        rkey,
    };
    let into = p.sge(Side::A, 0, 2048);
    p.cut_into(Side::A, true);
    p.send(Side::A, wr(1, SendOp::Read(from), vec![into]));
    p.until(LIMIT, |p| p.b.qp.query().rq_psn != psn(0));
    p.transmit(Side::B);
    p.b.rights.remove(rkey);
    p.cut_into(Side::A, false);
    p.until(LIMIT, |p| !p.a.results.send.is_empty());
    assert_eq!(p.a.results.send_statuses(), [(1, WcStatus::RemAccessErr)]);
    assert_eq!(p.b.qp.state(), QpState::Rts);
    assert!(p.b.results.events.is_empty());
}

#[test]
fn an_atomic_gives_its_first_result_again() {
    let mut p = pair();
    p.b.memory.put(Arena::BASE, &10_u64.to_ne_bytes());
    let rkey = p.key(Side::B);
    let operands = AtomicEth {
        va: Arena::BASE,
        rkey,
        swap_or_add: 5,
        compare: 0,
    };
    let answer = |at: u32, value| {
        let syndrome = Some(Syndrome::ACK);
        [(
            Operation::AtomicAcknowledge,
            Only,
            psn(at).get(),
            0,
            syndrome,
            Some(value),
        )]
    };
    assert_eq!(add(&mut p, 0, operands), answer(0, 10));
    assert_eq!(add(&mut p, 1, operands), answer(1, 15));
    assert_eq!(add(&mut p, 0, operands), answer(0, 10));
    assert_eq!(add(&mut p, 1, operands), answer(1, 15));
    let other = AtomicEth {
        swap_or_add: 6,
        ..operands
    };
    assert_eq!(add(&mut p, 1, other), []);
    assert_eq!(p.b.memory.word(Arena::BASE), 20);
    // A third one displaces the first.
    assert_eq!(add(&mut p, 2, operands), answer(2, 20));
    assert_eq!(add(&mut p, 0, operands), []);
    assert_eq!(add(&mut p, 1, operands), answer(1, 15));
}

#[test]
fn sends_and_writes_are_acknowledged_up_to_the_newest() {
    let mut p = pair();
    for n in 0..3 {
        p.recv(Side::B, n, vec![]);
    }
    for n in 0..3 {
        assert_eq!(send(&mut p, n), [ack(n)]);
    }
    assert_eq!(send(&mut p, 0), [ack(2)]);
    assert_eq!(p.b.results.recv.len(), 3);
}

#[test]
fn a_queue_pair_that_goes_repeats_its_last_acknowledgement() {
    let mut p = pair();
    p.b.qp.owe_parting_ack();
    assert_eq!(answers(&mut p), [], "nothing has come");
    p.recv(Side::B, 0, vec![]);
    assert_eq!(send(&mut p, 0), [ack(0)]);
    p.b.qp.owe_parting_ack();
    assert_eq!(answers(&mut p), [ack(0)]);
    p.b.qp.set_link(LinkTraits {
        lossless: true,
        max_in_flight: 1 << 20,
    });
    p.b.qp.owe_parting_ack();
    assert_eq!(answers(&mut p), [], "it cannot have been lost");
}

#[test]
fn an_acknowledgement_does_not_overtake_read_responses() {
    let mut p = pair();
    p.recv(Side::B, 0, vec![]);
    let ext = ExtHeaders {
        reth: Some(Reth {
            va: Arena::BASE,
            rkey: p.key(Side::B),
            length: 1500,
        }),
        ..ExtHeaders::default()
    };
    assert!(p.inject(Side::B, Opcode::RC_READ_REQUEST, psn(0), (ext, &[])));
    assert_eq!(
        send(&mut p, 2),
        [data(First, 0, 1024), data(Last, 1, 476), ack(2)]
    );
}

#[test]
fn a_read_answers_for_the_sends_before_it() {
    let mut p = pair();
    p.recv(Side::B, 0, vec![]);
    let opcode = Opcode::rc(Operation::Send, Only);
    assert!(p.inject(Side::B, opcode, psn(0), (ExtHeaders::default(), &[])));
    assert_eq!(
        read(&mut p, 1, (0, 10)),
        [data(Only, 1, 10)],
        "no acknowledgement besides"
    );
}

#[test]
fn a_new_read_ends_the_repetition_of_an_old_one() {
    // Depth 1: a new request shows that the requester has the answer to the one before.
    let mut p = Pair::new(Setup {
        psn: FIRST,
        rd_atomic: 1,
        ..Setup::default()
    });
    read(&mut p, 0, (0, 3000));
    let again = ExtHeaders {
        reth: Some(Reth {
            va: Arena::BASE,
            rkey: p.key(Side::B),
            length: 3000,
        }),
        ..ExtHeaders::default()
    };
    assert!(p.inject(Side::B, Opcode::RC_READ_REQUEST, psn(0), (again, &[])));
    assert_eq!(read(&mut p, 3, (0, 10)), [data(Only, 3, 10)]);
}

#[test]
fn message_numbers_count_messages() {
    let mut p = pair();
    p.recv(Side::B, 0, vec![]);
    let mut numbers = Vec::new();
    p.trace = Some(Vec::new());
    send(&mut p, 0);
    read(&mut p, 1, (0, 2000));
    p.trace = Some(Vec::new());
    let opcode = Opcode::rc(Operation::Send, Only);
    p.inject(Side::B, opcode, psn(0), (ExtHeaders::default(), &[]));
    p.transmit(Side::B);
    for (_, bytes) in p.trace.take().expect("on") {
        numbers.push(
            Packet::parse(&bytes)
                .expect("well-formed")
                .ext
                .aeth
                .expect("acknowledgement")
                .msn
                .get(),
        );
    }
    assert_eq!(numbers, [2]);
}

#[test]
fn a_requester_that_asks_for_less_the_second_time_has_the_rest() {
    let mut p = Pair::new(Setup {
        psn: FIRST,
        rd_atomic: 1,
        ..Setup::default()
    });
    let ask = |p: &mut Pair, length| {
        let reth = Reth {
            va: Arena::BASE,
            rkey: p.key(Side::B),
            length,
        };
        let ext = ExtHeaders {
            reth: Some(reth),
            ..ExtHeaders::default()
        };
        assert!(p.inject(Side::B, Opcode::RC_READ_REQUEST, psn(0), (ext, &[])));
    };
    ask(&mut p, 3000);
    ask(&mut p, 1024);
    assert_eq!(answers(&mut p), [data(Only, 0, 1024)]);
    assert_eq!(read(&mut p, 3, (0, 10)), [data(Only, 3, 10)]);
}
