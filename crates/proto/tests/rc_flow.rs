//! How much is in flight, and what is sent for it.
#![allow(clippy::cast_possible_truncation, reason = "test data is small")]

mod common;

use std::time::Duration;

use common::{expect_send, sent, until_sent, write};
use ferroce_proto::rc::LinkTraits;
use ferroce_proto::testkit::{Pair, Setup, Side, remote, wr};
use ferroce_proto::verbs::{SendOp, WcStatus};
use ferroce_proto::wire::Packet;

#[test]
fn nothing_is_sent_twice_over_a_good_link() {
    let mut pair = Pair::new(Setup::default());
    pair.trace = Some(Vec::new());
    let from = remote(pair.key(Side::B), 0);
    for n in 0..40 {
        let local = pair.sge(Side::A, 0, 10_000);
        let op = if n % 2 == 0 {
            SendOp::Write(from)
        } else {
            SendOp::Read(from)
        };
        pair.send(Side::A, wr(n, op, vec![local]));
    }
    until_sent(&mut pair, Side::A, 40);
    let trace = pair.trace.take().expect("on");
    let requests = trace.iter().filter(|(side, _)| *side == Side::A).count();
    assert_eq!(requests, 20 * 10 + 20);
    let responses = trace
        .iter()
        .filter(|(side, bytes)| *side == Side::B && bytes.len() > 16)
        .count();
    assert_eq!(responses, 20 * 10);
}

#[test]
fn in_flight_bytes_stay_within_the_links_limit() {
    for max_in_flight in [3000, 20_000, 100_000] {
        for read in [false, true] {
            let mut pair = Pair::new(Setup {
                link: LinkTraits {
                    lossless: false,
                    max_in_flight,
                },
                ..Setup::default()
            });
            let (bytes, from) = (pair.sge(Side::A, 0, 500_000), remote(pair.key(Side::B), 0));
            let op = if read {
                SendOp::Read(from)
            } else {
                SendOp::Write(from)
            };
            // Everything that the receiver of the data has to hold if it does not look for a while.
            let into = if read { Side::A } else { Side::B };
            pair.pause_into(into, true);
            pair.trace = Some(Vec::new());
            pair.send(Side::A, wr(1, op, vec![bytes]));
            pair.settle(Duration::from_micros(500));
            let total: usize = pair
                .trace
                .take()
                .expect("on")
                .iter()
                .filter(|(side, _)| *side != into)
                .map(|(_, packet)| packet.len())
                .sum();
            assert!(
                total <= max_in_flight as usize && total > max_in_flight as usize / 3,
                "{total}"
            );
            pair.pause_into(into, false);
            until_sent(&mut pair, Side::A, 1);
            expect_send(&pair, &[(1, WcStatus::Success)]);
        }
    }
}

#[test]
fn small_messages_count_for_more_than_their_bytes() {
    let mut pair = Pair::new(Setup {
        link: LinkTraits {
            lossless: false,
            max_in_flight: 10_000,
        },
        ..Setup::default()
    });
    pair.trace = Some(Vec::new());
    for n in 0..60 {
        let request = write(&pair, n, 1);
        pair.send(Side::A, request);
    }
    pair.transmit(Side::A);
    assert_eq!(sent(&mut pair, Side::A).len(), 10_000 / 257);
    until_sent(&mut pair, Side::A, 60);
}

#[test]
fn acknowledgements_are_asked_for_four_times_a_window() {
    let mut pair = Pair::new(Setup::default());
    pair.trace = Some(Vec::new());
    let request = write(&pair, 1, 1 << 19);
    pair.send(Side::A, request);
    until_sent(&mut pair, Side::A, 1);
    let mut since = 0;
    for (side, bytes) in pair.trace.take().expect("on") {
        if side == Side::A {
            let packet = Packet::parse(&bytes).expect("well-formed");
            since += packet.payload.len();
            if packet.bth.ack_req {
                since = 0;
            }
            assert!(since < 16 << 10);
        }
    }
}
