//! FLUSH: answered by a READ response without data, once what was written before is where it was
//! asked to be.

mod common;

use common::violation::{ALL, INVALID, both_fail, pair_allowing, refuses, reth};
use common::{SOON, expect_send, until_sent};
use ferroce_proto::ids::Key;
use ferroce_proto::mr::Access;
use ferroce_proto::testkit::{Arena, Faults, Pair, Setup, Side, remote, wr};
use ferroce_proto::verbs::{
    AttrMask, Flush, Placement, QpAttr, Selectivity, SendOp, WcOpcode, WcStatus,
};
use ferroce_proto::wire::{ExtHeaders, Feth, Operation, Packet, Position};

/// Bytes of the region.
const REGION: u32 = 4096;
const GLOBAL: Placement = Placement::GLOBAL;

/// A pair in which B lets its peer flush, with a region for that.
fn pair() -> (Pair, Key) {
    with_faults(Setup::default())
}

fn with_faults(setup: Setup) -> (Pair, Key) {
    let mut pair = Pair::new(setup);
    let access = ALL | Access::FLUSH_GLOBAL;
    let attr = QpAttr {
        qp_access_flags: access,
        ..QpAttr::default()
    };
    pair.modify(Side::B, &attr, AttrMask::ACCESS_FLAGS);
    let key = pair.b.register(0, REGION.into(), access);
    (pair, key)
}

fn flush(key: Key, (offset, length): (u64, u32), selectivity: Selectivity) -> SendOp {
    SendOp::Flush(Flush {
        remote: remote(key, offset),
        length,
        placement: GLOBAL,
        selectivity,
    })
}

#[test]
fn a_flush_is_one_packet_and_its_answer_an_empty_read_response() {
    let (mut pair, key) = pair();
    pair.trace = Some(Vec::new());
    pair.a.memory.put(Arena::BASE, b"8 bytes!");
    let from = pair.sge(Side::A, 0, 8);
    pair.send(Side::A, wr(1, SendOp::Write(remote(key, 8)), vec![from]));
    pair.send(
        Side::A,
        wr(2, flush(key, (8, 8), Selectivity::Range), vec![]),
    );
    until_sent(&mut pair, Side::A, 2);
    let done: Vec<_> = pair.a.results.send.iter().map(|(wc, _)| *wc).collect();
    assert_eq!(
        (done[1].status, done[1].opcode, done[1].byte_len),
        (WcStatus::Success, WcOpcode::Flush, 0)
    );
    assert_eq!(pair.b.memory.get(Arena::BASE + 8, 8), b"8 bytes!");
    let trace = pair.trace.take().unwrap_or_default();
    let packets: Vec<_> = trace
        .iter()
        .map(|(_, bytes)| Packet::parse(bytes).expect("well-formed"))
        .collect();
    let asked = packets.iter().find(|p| p.bth.opcode.0 == 0x1c);
    let asked = asked.expect("a FLUSH request");
    assert_eq!(asked.ext.feth, Some(Feth(1)));
    let there = asked.ext.reth.expect("FLUSH has a RETH");
    assert_eq!((there.rkey, there.length), (key, 8));
    let answer = packets.last().expect("an answer");
    assert_eq!((answer.bth.opcode.0, answer.payload.len()), (0x10, 0));
    assert_eq!(answer.bth.psn, asked.bth.psn);
}

#[test]
fn what_a_range_may_be() {
    for (range, selectivity, status) in [
        ((0, REGION), Selectivity::Range, WcStatus::Success),
        ((REGION.into(), 0), Selectivity::Range, WcStatus::Success),
        ((0, REGION + 1), Selectivity::Range, WcStatus::RemAccessErr),
        (
            (u64::from(REGION) - 1, 2),
            Selectivity::Range,
            WcStatus::RemAccessErr,
        ),
        // All of the region, whatever the range says.
        (
            (1 << 40, REGION + 1),
            Selectivity::Region,
            WcStatus::Success,
        ),
    ] {
        let (mut pair, key) = pair();
        pair.send(Side::A, wr(1, flush(key, range, selectivity), vec![]));
        until_sent(&mut pair, Side::A, 1);
        expect_send(&pair, &[(1, status)]);
    }
}

#[test]
fn flushes_over_a_bad_link_are_done_in_order() {
    for seed in 1..20 {
        let (mut pair, key) = with_faults(Setup {
            seed,
            faults: Faults {
                drop: 100,
                duplicate: 50,
                reorder: 50,
            },
            ..Setup::default()
        });
        for n in 0..20_u64 {
            pair.a.memory.put(Arena::BASE + 8 * n, &n.to_ne_bytes());
            let from = pair.sge(Side::A, 8 * n, 8);
            let to = SendOp::Write(remote(key, 0));
            pair.send(Side::A, wr(2 * n, to, vec![from]));
            let flush = flush(key, (0, 8), Selectivity::Range);
            pair.send(Side::A, wr(2 * n + 1, flush, vec![]));
        }
        until_sent(&mut pair, Side::A, 40);
        let all: Vec<_> = (0..40).map(|n| (n, WcStatus::Success)).collect();
        expect_send(&pair, &all);
        assert_eq!(pair.b.memory.word(Arena::BASE), 19, "seed {seed}");
    }
}

#[test]
fn what_is_not_allowed_is_refused() {
    let all = |key| flush(key, (0, 8), Selectivity::Region);
    // The region does not allow it, or there is none.
    let (mut pair, _) = pair();
    let weak = pair.b.register(0, 64, ALL);
    both_fail(&mut pair, all(weak), vec![], WcStatus::RemAccessErr);
    let (mut pair, key) = self::pair();
    let unknown = flush(Key(key.0 ^ 1), (0, 0), Selectivity::Range);
    both_fail(&mut pair, unknown, vec![], WcStatus::RemAccessErr);
    // The queue pair does not allow it.
    let mut pair = pair_allowing(ALL);
    let key = pair.b.register(0, 64, ALL | Access::FLUSH_GLOBAL);
    both_fail(&mut pair, all(key), vec![], WcStatus::RemInvReqErr);
    // Persistence is a right of its own.
    let (mut pair, key) = self::pair();
    let attr = QpAttr {
        qp_access_flags: Access::all(),
        ..QpAttr::default()
    };
    pair.modify(Side::B, &attr, AttrMask::ACCESS_FLAGS);
    let kept = SendOp::Flush(Flush {
        remote: remote(key, 0),
        length: 8,
        placement: Placement::all(),
        selectivity: Selectivity::Range,
    });
    both_fail(&mut pair, kept, vec![], WcStatus::RemAccessErr);
}

#[test]
fn reserved_values_are_invalid_requests() {
    for word in [0, 4, 0x21, 0x31] {
        let (mut pair, key) = pair();
        let ext = ExtHeaders {
            feth: Some(Feth(word)),
            ..reth(remote(key, 0), 8)
        };
        refuses(
            &mut pair,
            (Operation::Flush, Position::Only),
            (ext, &[]),
            INVALID,
        );
    }
}

#[test]
fn a_flush_within_a_message_is_out_of_sequence() {
    let (mut pair, key) = pair();
    let first = vec![0; common::violation::MTU];
    common::violation::takes(
        &mut pair,
        (Operation::Write, Position::First),
        (reth(remote(key, 0), 2048), &first[..]),
    );
    let ext = ExtHeaders {
        feth: Some(Feth(1)),
        ..reth(remote(key, 0), 8)
    };
    refuses(
        &mut pair,
        (Operation::Flush, Position::Only),
        (ext, &[]),
        INVALID,
    );
}

#[test]
fn what_a_flush_cannot_be_is_refused_when_it_is_posted() {
    let (mut pair, key) = pair();
    let sge = pair.sge(Side::A, 0, 8);
    let with_data = wr(1, flush(key, (0, 8), Selectivity::Range), vec![sge]);
    assert!(pair.try_send(Side::A, with_data).is_err());
    for (placement, length) in [(Placement::empty(), 8), (GLOBAL, (1 << 31) + 1)] {
        let op = SendOp::Flush(Flush {
            remote: remote(key, 0),
            length,
            placement,
            selectivity: Selectivity::Range,
        });
        assert!(pair.try_send(Side::A, wr(1, op, vec![])).is_err());
    }
    pair.settle(SOON);
    expect_send(&pair, &[]);
}
