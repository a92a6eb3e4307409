//! ATOMIC WRITE: 8 bytes, answered by a READ response without data; once each, also when answers
//! are lost.

mod common;

use common::violation::{ALL, both_fail, pair, pair_allowing};
use common::{SOON, expect_send, until_sent};
use ferroce_proto::mr::Access;
use ferroce_proto::testkit::{Arena, Faults, Pair, Setup, Side, remote, wr};
use ferroce_proto::verbs::{SendOp, WcOpcode, WcStatus};
use ferroce_proto::wire::{Operation, Packet};

#[test]
fn eight_bytes_arrive_and_the_answer_is_an_empty_read_response() {
    let mut pair = pair();
    pair.trace = Some(Vec::new());
    pair.a.memory.put(Arena::BASE, b"8 bytes!");
    let to = remote(pair.key(Side::B), 64);
    let from = pair.sge(Side::A, 0, 8);
    pair.send(Side::A, wr(1, SendOp::AtomicWrite(to), vec![from]));
    until_sent(&mut pair, Side::A, 1);
    let (wc, _) = pair.a.results.send[0];
    assert_eq!(
        (wc.status, wc.opcode),
        (WcStatus::Success, WcOpcode::AtomicWrite)
    );
    assert_eq!(pair.b.memory.get(Arena::BASE + 64, 9), b"8 bytes!\0");
    let seen: Vec<_> = pair
        .trace
        .take()
        .unwrap_or_default()
        .iter()
        .map(|(_, bytes)| {
            let packet = Packet::parse(bytes).expect("well-formed");
            let operation = packet.bth.opcode.info().expect("known").operation;
            (operation, packet.bth.opcode.0, packet.payload.len())
        })
        .collect();
    assert_eq!(
        seen,
        [
            (Operation::AtomicWrite, 0x1d, 8),
            (Operation::ReadResponse, 0x10, 0)
        ]
    );
}

#[test]
fn many_over_a_bad_link_are_done_in_order() {
    for seed in 1..20 {
        let mut pair = Pair::new(Setup {
            seed,
            faults: Faults {
                drop: 100,
                duplicate: 50,
                reorder: 50,
            },
            ..Setup::default()
        });
        let to = remote(pair.key(Side::B), 0);
        for n in 0..30_u64 {
            pair.a.memory.put(Arena::BASE + 8 * n, &n.to_ne_bytes());
            let from = pair.sge(Side::A, 8 * n, 8);
            pair.send(Side::A, wr(n, SendOp::AtomicWrite(to), vec![from]));
        }
        until_sent(&mut pair, Side::A, 30);
        assert_eq!(pair.b.memory.word(Arena::BASE), 29, "seed {seed}");
    }
}

#[test]
fn what_is_not_allowed_is_refused() {
    let mut pair = pair();
    let weak = pair.b.register(0, 64, Access::REMOTE_READ);
    let from = pair.sge(Side::A, 0, 8);
    let op = SendOp::AtomicWrite(remote(weak, 0));
    both_fail(&mut pair, op, vec![from], WcStatus::RemAccessErr);

    let mut pair = common::violation::pair();
    let op = SendOp::AtomicWrite(remote(pair.key(Side::B), 4));
    both_fail(&mut pair, op, vec![from], WcStatus::RemInvReqErr);

    let mut pair = pair_allowing(ALL - Access::REMOTE_WRITE);
    let op = SendOp::AtomicWrite(remote(pair.key(Side::B), 0));
    both_fail(&mut pair, op, vec![from], WcStatus::RemInvReqErr);

    let mut pair = common::violation::pair();
    let long = pair.sge(Side::A, 0, 16);
    let op = SendOp::AtomicWrite(remote(pair.key(Side::B), 0));
    assert!(pair.try_send(Side::A, wr(1, op, vec![long])).is_err());
    pair.settle(SOON);
    expect_send(&pair, &[]);
}
