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

fn pair(kin: bool) -> Pair {
    let mut pair = Pair::new(Setup {
        kin,
        ..Setup::default()
    });
    pair.trace = Some(Vec::new());
    pair
}

/// Three WRITEs, of which the second is lost, with all of its `lost` packets. Returns the packets that A sent.
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
fn a_lone_loss_is_repaired_by_one_packet() {
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

#[test]
fn only_who_keeps_packets_has_to_know_of_its_kin() {
    let mut pair = pair(false);
    pair.b.qp.meet_kin();
    assert_eq!(lose_one(&mut pair, 1).len(), 10 + 2 + BEHIND);
}

#[test]
fn a_row_of_losses_does_not_take_a_round_trip_each() {
    let mut pair = pair(true);
    let packets = lose_one(&mut pair, 16);
    assert_eq!(packets.len(), 10 + 16 + 16 + BEHIND);
    expect_send(&pair, &[1, 2, 3].map(|id| (id, WcStatus::Success)));
}

#[test]
fn a_lost_repair_is_repeated() {
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

/// Sends 64 WRITEs of 64 KiB, a few at a time, over a network that loses packets. Returns how many packets A sent, and the time.
fn stream(kin: bool, drop: u32, seed: u64) -> (usize, Duration) {
    let mut pair = Pair::new(Setup {
        kin,
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
        pair.send(Side::A, write(&pair, n, 64 << 10));
        until_sent(&mut pair, Side::A, (n as usize).saturating_sub(8));
    }
    until_sent(&mut pair, Side::A, 64);
    let took = pair.now.since(start);
    (sent(&mut pair, Side::A).len(), took)
}

#[test]
fn at_one_percent_loss_little_is_sent_again() {
    let (mut all, mut all_by_rule) = (Duration::ZERO, Duration::ZERO);
    for seed in 0..10 {
        let (packets, took) = stream(true, 10, seed);
        assert!(packets < 4096 * 102 / 100, "seed {seed}: {packets}");
        all += took;
        all_by_rule += stream(false, 10, seed).1;
    }
    assert!(
        all * 2 < all_by_rule,
        "{all:?}, by the rule {all_by_rule:?}"
    );
}
