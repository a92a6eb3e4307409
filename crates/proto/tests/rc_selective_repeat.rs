//! A loss between two of our kind costs what was lost; towards others the rule of go-back-N holds.
#![allow(clippy::cast_possible_truncation, reason = "test data is small")]

mod common;

use std::time::Duration;

use common::{expect_send, sent, until_sent, write};
use ferroce_proto::rc::LinkTraits;
use ferroce_proto::testkit::{Faults, Pair, Setup, Side, remote, wr};
use ferroce_proto::verbs::{SendOp, WcStatus};
use ferroce_proto::wire::{Opcode, Operation, Position};

/// Packets of the WRITE behind the loss.
const BEHIND: usize = 20;

fn pair(is_ferroce_peer: bool) -> Pair {
    let mut pair = Pair::new(Setup {
        is_ferroce_peer,
        ..Setup::default()
    });
    pair.trace = Some(Vec::new());
    pair
}

/// Three WRITEs, of which the second is lost, with all of its `lost` packets. Returns the packets
/// that A sent.
#[track_caller]
fn lose_one(pair: &mut Pair, lost: u32) -> Vec<Opcode> {
    let done = pair.a.results.send.len();
    pair.send(Side::A, write(pair, 1, 10_000));
    pair.transmit(Side::A);
    pair.cut_into(Side::B, true);
    pair.send(Side::A, write(pair, 2, lost * 1024));
    pair.transmit(Side::A);
    pair.cut_into(Side::B, false);
    pair.send(Side::A, write(pair, 3, BEHIND as u32 * 1024));
    let start = pair.now;
    until_sent(pair, Side::A, done + 3);
    let took = pair.now.since(start);
    assert!(took < Duration::from_micros(300), "no timer: {took:?}");
    sent(pair, Side::A)
}

fn count(packets: &[Opcode], of: &[Opcode]) -> usize {
    packets.iter().filter(|p| of.contains(p)).count()
}

#[test]
fn one_packet_is_sent_again_for_a_lone_gap() {
    let mut pair = pair(true);
    for _ in 0..5 {
        let packets = lose_one(&mut pair, 1);
        assert_eq!(packets.len(), 10 + 2 + BEHIND);
        assert_eq!(
            count(&packets, &[Opcode::rc(Operation::Write, Position::Only)]),
            2
        );
    }
    expect_send(
        &pair,
        &[1, 2, 3].map(|id| (id, WcStatus::Success)).repeat(5),
    );
}

#[test]
fn strangers_get_everything_again() {
    let mut pair = pair(false);
    let packets = lose_one(&mut pair, 1);
    assert_eq!(packets.len(), 10 + 2 + 2 * BEHIND);
}

/// Each end learns by a packet of its own that the other is a Ferroce; one of these may be lost.
#[test]
fn while_only_one_end_knows_the_other_everything_is_sent_again() {
    for side in [Side::A, Side::B] {
        let mut pair = pair(false);
        pair.node(side).qp.meet_ferroce_peer();
        let packets = lose_one(&mut pair, 1);
        assert_eq!(packets.len(), 10 + 2 + 2 * BEHIND, "{side:?} knows");
        expect_send(&pair, &[1, 2, 3].map(|id| (id, WcStatus::Success)));
    }
}

#[test]
fn a_row_of_losses_does_not_take_a_round_trip_each() {
    let mut pair = pair(true);
    let packets = lose_one(&mut pair, 16);
    assert_eq!(packets.len(), 10 + 16 + 16 + BEHIND);
    expect_send(&pair, &[1, 2, 3].map(|id| (id, WcStatus::Success)));
}

#[test]
fn a_lost_repeat_is_repeated() {
    let mut pair = pair(true);
    pair.send(Side::A, write(&pair, 1, 1024));
    pair.cut_into(Side::B, true);
    pair.transmit(Side::A);
    pair.cut_into(Side::B, false);
    pair.send(Side::A, write(&pair, 2, 1024));
    pair.transmit(Side::A);
    // The NAK comes; its answer is lost.
    pair.settle(Duration::from_micros(30));
    pair.cut_into(Side::B, true);
    pair.settle(Duration::from_micros(30));
    pair.cut_into(Side::B, false);
    until_sent(&mut pair, Side::A, 2);
    assert_eq!(sent(&mut pair, Side::A).len(), 4, "twice the first");
}

#[test]
fn a_read_behind_a_gap_is_answered_once() {
    let mut pair = pair(true);
    let from = remote(pair.key(Side::B), 0);
    pair.send(Side::A, write(&pair, 1, 1024));
    pair.cut_into(Side::B, true);
    pair.transmit(Side::A);
    pair.cut_into(Side::B, false);
    let into = pair.sge(Side::A, 0, 5000);
    pair.send(Side::A, wr(2, SendOp::Read(from), vec![into]));
    pair.send(Side::A, write(&pair, 3, 1024));
    until_sent(&mut pair, Side::A, 3);
    let trace = pair.trace.take().expect("on");
    let of = |side| trace.iter().filter(move |(from, _)| *from == side).count();
    assert_eq!(of(Side::A), 4);
    assert_eq!(of(Side::B), 1 + 5 + 1, "NAK, READ, acknowledgement");
}

/// A gap that opens while an earlier one is being mended is reported at once.
#[test]
fn a_gap_behind_a_gap_does_not_wait_for_it() {
    let mut pair = pair(true);
    let start = pair.now;
    for round in 0..2 {
        for lost in [true, false] {
            pair.cut_into(Side::B, lost);
            pair.send(Side::A, write(&pair, round * 2 + u64::from(!lost), 1024));
            pair.transmit(Side::A);
        }
        pair.settle(Duration::from_micros(10));
    }
    until_sent(&mut pair, Side::A, 4);
    // The second one's first way and its answer's, its second way and the acknowledgement's, of 20
    // us each, begin at 10 us.
    let took = pair.now.since(start);
    assert!(took < Duration::from_micros(10 + 100), "{took:?}");
    assert_eq!(sent(&mut pair, Side::A).len(), 4 + 2);
}

#[test]
fn what_overtakes_a_repeat_tells_that_it_was_lost() {
    let mut pair = pair(true);
    let start = pair.now;
    for lost in [true, false] {
        pair.cut_into(Side::B, lost);
        pair.send(Side::A, write(&pair, 1, 1024));
        pair.transmit(Side::A);
    }
    // The NAK comes; its answer is lost.
    pair.cut_into(Side::B, false);
    pair.settle(Duration::from_micros(30));
    pair.cut_into(Side::B, true);
    pair.settle(Duration::from_micros(30));
    pair.cut_into(Side::B, false);
    pair.send(Side::A, write(&pair, 3, 1024));
    until_sent(&mut pair, Side::A, 3);
    let took = pair.now.since(start);
    assert!(took < Duration::from_micros(300), "no timer: {took:?}");
    assert_eq!(sent(&mut pair, Side::A).len(), 3 + 2, "twice the first");
}

/// A WRITE's acknowledgement tells that the responses before it were lost; it does not have to come
/// again.
#[test]
fn an_acknowledgement_behind_lost_responses_counts() {
    let mut pair = pair(true);
    let from = remote(pair.key(Side::B), 0);
    let into = pair.sge(Side::A, 0, 5000);
    pair.send(Side::A, wr(1, SendOp::Read(from), vec![into]));
    pair.transmit(Side::A);
    pair.cut_into(Side::A, true);
    pair.settle(Duration::from_micros(30));
    pair.cut_into(Side::A, false);
    pair.send(Side::A, write(&pair, 2, 1024));
    let start = pair.now;
    until_sent(&mut pair, Side::A, 2);
    let took = pair.now.since(start);
    assert!(took < Duration::from_micros(300), "no timer: {took:?}");
    let read = Opcode::rc(Operation::ReadRequest, Position::Only);
    let write = Opcode::rc(Operation::Write, Position::Only);
    assert_eq!(sent(&mut pair, Side::A), [read, write, read]);
    expect_send(&pair, &[1, 2].map(|id| (id, WcStatus::Success)));
}

/// Of what goes over the network to work on A's behalf.
struct Streamed {
    requests: usize,
    answers: usize,
    took: Duration,
}

/// Sends 64 WRITEs of 64 KiB (or READs), a few at a time, over a network that loses packets.
fn stream(is_ferroce_peer: bool, read: bool, drop: u32, seed: u64) -> Streamed {
    let mut pair = Pair::new(Setup {
        is_ferroce_peer,
        seed,
        link: LinkTraits {
            lossless: false,
            max_in_flight: 160 << 10,
        },
        faults: Faults {
            drop,
            ..Faults::default()
        },
        ..Setup::default()
    });
    pair.trace = Some(Vec::new());
    let start = pair.now;
    for n in 0..64 {
        let mut request = write(&pair, n, 64 << 10);
        if read {
            request.op = SendOp::Read(remote(pair.key(Side::B), 0));
        }
        pair.send(Side::A, request);
        until_sent(&mut pair, Side::A, (n as usize).saturating_sub(8));
    }
    until_sent(&mut pair, Side::A, 64);
    let took = pair.now.since(start);
    let trace = pair.trace.take().expect("on");
    let of = |side| trace.iter().filter(move |(from, _)| *from == side).count();
    Streamed {
        requests: of(Side::A),
        answers: of(Side::B),
        took,
    }
}

#[test]
fn at_one_percent_loss_little_is_sent_again() {
    let (mut all, mut all_by_rule) = (Duration::ZERO, Duration::ZERO);
    for seed in 0..10 {
        let streamed = stream(true, false, 10, seed);
        let packets = streamed.requests;
        assert!(packets < 4096 * 102 / 100, "seed {seed}: {packets}");
        all += streamed.took;
        all_by_rule += stream(false, false, 10, seed).took;
    }
    assert!(
        all * 2 < all_by_rule,
        "{all:?}, by the rule {all_by_rule:?}"
    );
}

#[test]
fn at_one_percent_loss_little_is_read_again() {
    let (mut all, mut all_by_rule) = (Duration::ZERO, Duration::ZERO);
    for seed in 0..10 {
        let streamed = stream(true, true, 10, seed);
        let packets = streamed.answers;
        assert!(packets < 4096 * 103 / 100, "seed {seed}: {packets}");
        all += streamed.took;
        all_by_rule += stream(false, true, 10, seed).took;
    }
    assert!(
        all * 2 < all_by_rule,
        "{all:?}, by the rule {all_by_rule:?}"
    );
}
