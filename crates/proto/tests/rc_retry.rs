//! Timers, probes, receiver-not-ready waits, lossless links, dead peers.
#![allow(clippy::cast_possible_truncation, reason = "test data is small")]

mod common;

use std::time::Duration;

use common::{SOON, expect_recv, expect_send, seeds, until_sent};
use ferroce_proto::ids::{Key, Msn, Psn};
use ferroce_proto::rc::{Cause, LinkTraits, MIN_ACK_TIMEOUT};
use ferroce_proto::testkit::{Arena, Faults, Pair, Rng, Setup, Side, remote, sge, wr};
use ferroce_proto::verbs::{AttrMask, Payload, QpAttr, QpState, SendOp, WcStatus};
use ferroce_proto::wire::{Aeth, ExtHeaders, NakCode, Opcode, Packet, Syndrome};

const LOSSLESS: LinkTraits = LinkTraits {
    lossless: true,
    max_in_flight: 1 << 20,
};

fn write(pair: &Pair, wr_id: u64, len: u32) -> ferroce_proto::verbs::SendWr {
    let to = remote(pair.key(Side::B), 0);
    wr(wr_id, SendOp::Write(to), vec![pair.sge(Side::A, 0, len)])
}

/// Opcodes of the packets that a side sent since the trace was switched on.
fn sent(pair: &mut Pair, side: Side) -> Vec<Opcode> {
    let trace = pair.trace.replace(Vec::new()).unwrap_or_default();
    trace
        .iter()
        .filter(|(from, _)| *from == side)
        .map(|(_, bytes)| Packet::parse(bytes).expect("well-formed").bth.opcode)
        .collect()
}

#[test]
fn silence_is_an_error_after_retry_count_plus_one_runs_of_the_timer() {
    for (timeout, retry_cnt) in [(13, 0), (14, 0), (14, 1), (14, 7), (17, 3)] {
        let mut pair = Pair::new(Setup {
            timeout,
            retry_cnt,
            ..Setup::default()
        });
        pair.cut_into(Side::B, true);
        let start = pair.now;
        let request = write(&pair, 1, 5000);
        pair.send(Side::A, request);
        let request = write(&pair, 2, 10);
        pair.send(Side::A, request);
        pair.settle(Duration::from_secs(3600));
        expect_send(
            &pair,
            &[(1, WcStatus::RetryExcErr), (2, WcStatus::WrFlushErr)],
        );
        assert_eq!(pair.a.results.send[0].0.vendor_err, Cause::NoAnswer as u32);
        let run = Duration::from_nanos(4096 << timeout);
        assert_eq!(pair.now.since(start), run * (u32::from(retry_cnt) + 1));
        assert_eq!(pair.a.qp.state(), QpState::Err);
        assert_eq!(pair.a.qp.deadline(), None);
    }
}

#[test]
fn very_short_timeouts_are_rounded_up() {
    let mut pair = Pair::new(Setup {
        timeout: 1,
        retry_cnt: 1,
        ..Setup::default()
    });
    pair.cut_into(Side::B, true);
    let start = pair.now;
    let request = write(&pair, 1, 5);
    pair.send(Side::A, request);
    pair.settle(Duration::from_secs(3600));
    expect_send(&pair, &[(1, WcStatus::RetryExcErr)]);
    assert_eq!(pair.now.since(start), MIN_ACK_TIMEOUT * 2);
}

#[test]
fn timeout_zero_never_gives_up_and_still_recovers() {
    let mut pair = Pair::new(Setup {
        timeout: 0,
        retry_cnt: 0,
        ..Setup::default()
    });
    pair.cut_into(Side::B, true);
    let request = write(&pair, 1, 5000);
    pair.send(Side::A, request);
    pair.settle(Duration::from_secs(3600));
    assert!(pair.a.results.send.is_empty());
    pair.cut_into(Side::B, false);
    let back = pair.now;
    until_sent(&mut pair, Side::A, 1);
    expect_send(&pair, &[(1, WcStatus::Success)]);
    assert!(pair.now.since(back) < Duration::from_secs(2));
}

#[test]
fn a_program_with_retry_count_zero_survives_losses() {
    for seed in seeds(200) {
        let mut pair = Pair::new(Setup {
            seed,
            retry_cnt: 0,
            faults: Faults {
                drop: 50,
                ..Faults::default()
            },
            ..Setup::default()
        });
        let mut rng = Rng::new(seed);
        for n in 0..20 {
            let request = write(&pair, n, rng.below32(20_000));
            pair.send(Side::A, request);
        }
        until_sent(&mut pair, Side::A, 20);
        let bad = pair
            .a
            .results
            .send
            .iter()
            .find(|(wc, _)| wc.status != WcStatus::Success);
        assert_eq!(bad, None, "seed {seed}");
    }
}

#[test]
fn a_lost_tail_is_found_by_a_probe_long_before_the_timer() {
    for lost_answer in [false, true] {
        let mut pair = Pair::new(Setup {
            timeout: 20,
            ..Setup::default()
        });
        let request = write(&pair, 1, 10);
        pair.send(Side::A, request);
        until_sent(&mut pair, Side::A, 1);
        let side = if lost_answer { Side::A } else { Side::B };
        let start = pair.now;
        pair.cut_into(side, true);
        for n in 2..5 {
            let request = write(&pair, n, 3000);
            pair.send(Side::A, request);
        }
        pair.settle(Duration::from_micros(100));
        pair.cut_into(side, false);
        until_sent(&mut pair, Side::A, 4);
        let took = pair.now.since(start);
        assert!(
            took >= Duration::from_millis(2) && took < Duration::from_millis(4),
            "{took:?}"
        );
    }
}

#[test]
fn a_sequence_nak_resends_at_once_and_does_not_restart_the_timer() {
    // Only the first packet of the message ever arrives: NAKs come all the time, progress does not.
    let mut pair = Pair::new(Setup {
        retry_cnt: 1,
        ..Setup::default()
    });
    let start = pair.now;
    let request = write(&pair, 1, 1000);
    pair.send(Side::A, request);
    pair.transmit(Side::A);
    pair.lose_into(Side::B);
    let request = write(&pair, 2, 1000);
    pair.send(Side::A, request);
    pair.until(SOON, |p| p.b.qp.wants_transmit());
    assert!(pair.now.since(start) < Duration::from_micros(100));
    pair.transmit(Side::B);
    pair.cut_into(Side::B, true);
    pair.settle(Duration::from_secs(10));
    expect_send(
        &pair,
        &[(1, WcStatus::RetryExcErr), (2, WcStatus::WrFlushErr)],
    );
    assert_eq!(pair.now.since(start), Duration::from_nanos(4096 << 14) * 2);
}

#[test]
fn one_nak_repairs_a_loss_within_round_trips() {
    let mut pair = Pair::new(Setup::default());
    let request = write(&pair, 1, 1000);
    pair.send(Side::A, request);
    pair.transmit(Side::A);
    pair.lose_into(Side::B);
    let request = write(&pair, 2, 10_000);
    pair.send(Side::A, request);
    let start = pair.now;
    until_sent(&mut pair, Side::A, 2);
    assert!(pair.now.since(start) < Duration::from_micros(200));
}

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
fn atomics_whose_answers_are_lost_are_executed_once() {
    for seed in seeds(100) {
        let mut pair = Pair::new(Setup {
            seed,
            ..Setup::default()
        });
        pair.b.memory.put(Arena::BASE, &5_u64.to_ne_bytes());
        let target = remote(pair.key(Side::B), 0);
        let mut rng = Rng::new(seed);
        let mut due = 0;
        while due < 30 {
            // Requests arrive; answers are lost for a while.
            pair.cut_into(Side::A, true);
            for _ in 0..1 + rng.below(4) {
                let result = pair.sge(Side::A, 8 + 8 * due, 8);
                let add = SendOp::FetchAdd {
                    remote: target,
                    add: 1,
                };
                pair.send(Side::A, wr(due, add, vec![result]));
                due += 1;
            }
            pair.settle(Duration::from_micros(rng.below(50_000)));
            pair.cut_into(Side::A, false);
            until_sent(&mut pair, Side::A, due as usize);
        }
        assert_eq!(pair.b.memory.word(Arena::BASE), 5 + due, "seed {seed}");
        for n in 0..due {
            assert_eq!(
                pair.a.memory.word(Arena::BASE + 8 + 8 * n),
                5 + n,
                "seed {seed}"
            );
        }
    }
}

#[test]
fn a_stopped_peer_on_a_lossless_link_costs_nothing() {
    let mut pair = Pair::new(Setup {
        link: LOSSLESS,
        timeout: 8,
        retry_cnt: 0,
        ..Setup::default()
    });
    pair.trace = Some(Vec::new());
    pair.pause_into(Side::B, true);
    for n in 0..10 {
        let request = write(&pair, n, 10_000);
        pair.send(Side::A, request);
    }
    pair.settle(Duration::from_secs(1000));
    pair.now = pair.now + Duration::from_secs(1000);
    assert_eq!(pair.a.qp.deadline(), None);
    let first = sent(&mut pair, Side::A).len();
    assert_eq!(first, 100);
    pair.pause_into(Side::B, false);
    until_sent(&mut pair, Side::A, 10);
    assert_eq!(sent(&mut pair, Side::A).len(), 0);
    assert!(
        pair.a
            .results
            .send
            .iter()
            .all(|(wc, _)| wc.status == WcStatus::Success)
    );
}

#[test]
fn a_dropped_packet_on_a_lossless_link_starts_the_timer_until_there_is_progress() {
    let mut pair = Pair::unconnected(Setup {
        link: LOSSLESS,
        ..Setup::default()
    });
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        pair.to_state(Side::A, state);
    }
    // B is not there yet.
    let request = write(&pair, 1, 5000);
    pair.send(Side::A, request);
    pair.settle(Duration::from_millis(30));
    assert!(pair.a.qp.deadline().is_some());
    pair.to_state(Side::B, QpState::Init);
    pair.to_state(Side::B, QpState::Rtr);
    until_sent(&mut pair, Side::A, 1);
    expect_send(&pair, &[(1, WcStatus::Success)]);
    assert_eq!(pair.a.qp.deadline(), None);
    // And if it goes for good:
    pair.to_state(Side::B, QpState::Err);
    let start = pair.now;
    let request = write(&pair, 2, 5000);
    pair.send(Side::A, request);
    pair.settle(SOON);
    expect_send(&pair, &[(1, WcStatus::Success), (2, WcStatus::RetryExcErr)]);
    let budget = Duration::from_nanos(4096 << 14) * 8;
    let took = pair.now.since(start);
    assert!(
        took >= budget && took < budget + Duration::from_millis(1),
        "{took:?}"
    );
}

#[test]
fn a_dead_peer_fails_what_is_outstanding_and_what_comes_later() {
    let mut pair = Pair::new(Setup {
        link: LOSSLESS,
        ..Setup::default()
    });
    pair.recv(Side::A, 9, vec![]);
    for n in 0..3 {
        let request = write(&pair, n, 10);
        pair.send(Side::A, request);
    }
    let now = pair.now;
    pair.a.with(now, |qp, cx| qp.on_peer_dead(cx));
    expect_send(
        &pair,
        &[
            (0, WcStatus::RetryExcErr),
            (1, WcStatus::WrFlushErr),
            (2, WcStatus::WrFlushErr),
        ],
    );
    assert_eq!(pair.a.results.recv_statuses(), [(9, WcStatus::WrFlushErr)]);
    assert_eq!(pair.a.qp.state(), QpState::Err);

    let mut pair = Pair::new(Setup {
        link: LOSSLESS,
        ..Setup::default()
    });
    pair.a.with(now, |qp, cx| qp.on_peer_dead(cx));
    assert_eq!(pair.a.qp.state(), QpState::Rts, "nothing was asked of it");
    let request = write(&pair, 5, 10);
    pair.send(Side::A, request);
    let request = write(&pair, 6, 10);
    pair.send(Side::A, request);
    expect_send(
        &pair,
        &[(5, WcStatus::RetryExcErr), (6, WcStatus::WrFlushErr)],
    );
    assert_eq!(pair.a.results.send[0].0.vendor_err, Cause::PeerGone as u32);
}

#[test]
fn a_receive_that_is_posted_late_is_used_at_once() {
    // min_rnr_timer 0 would mean a wait of 655 ms.
    for shared_recv in [false, true] {
        let mut pair = Pair::new(Setup {
            min_rnr_timer: 0,
            shared_recv,
            ..Setup::default()
        });
        pair.send(Side::A, wr(1, SendOp::Send, vec![]));
        pair.settle(Duration::from_millis(1));
        assert!(pair.a.results.send.is_empty());
        let start = pair.now;
        if shared_recv {
            pair.shared_recv(Side::B, 4, vec![]);
        } else {
            pair.recv(Side::B, 4, vec![]);
        }
        until_sent(&mut pair, Side::A, 1);
        assert!(pair.now.since(start) < Duration::from_millis(1));
        expect_recv(&pair, &[(4, WcStatus::Success)]);
    }
}

#[test]
fn the_receiver_not_ready_timer_runs_out_if_the_hint_is_lost() {
    let mut pair = Pair::new(Setup {
        min_rnr_timer: 20,
        ..Setup::default()
    });
    pair.send(Side::A, wr(1, SendOp::Send, vec![]));
    pair.settle(Duration::from_millis(1));
    pair.recv(Side::B, 4, vec![]);
    pair.transmit(Side::B);
    pair.lose_into(Side::A);
    let start = pair.now;
    until_sent(&mut pair, Side::A, 1);
    let waited = pair.now.since(start);
    assert!(
        waited > Duration::from_millis(8) && waited < Duration::from_millis(11),
        "{waited:?}"
    );
}

#[test]
fn receiver_not_ready_without_limit() {
    let mut pair = Pair::new(Setup {
        rnr_retry: 7,
        min_rnr_timer: 1,
        ..Setup::default()
    });
    pair.send(Side::A, wr(1, SendOp::Send, vec![]));
    pair.settle(Duration::from_millis(100));
    assert!(pair.a.results.send.is_empty());
    assert_eq!(pair.a.qp.state(), QpState::Rts);
    pair.recv(Side::B, 1, vec![]);
    until_sent(&mut pair, Side::A, 1);
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
fn a_change_of_link_in_mid_work_is_survived() {
    for (before, after) in [(true, false), (false, true)] {
        let link = |lossless| LinkTraits {
            lossless,
            max_in_flight: 50_000,
        };
        let mut pair = Pair::new(Setup {
            link: link(before),
            ..Setup::default()
        });
        let request = write(&pair, 1, 200_000);
        pair.send(Side::A, request);
        pair.settle(Duration::from_micros(30));
        pair.lose_into(Side::A);
        pair.a.qp.set_link(link(after));
        until_sent(&mut pair, Side::A, 1);
        expect_send(&pair, &[(1, WcStatus::Success)]);
    }
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

#[test]
fn timeout_set_in_sqd_counts_for_what_follows() {
    let mut pair = Pair::new(Setup {
        retry_cnt: 0,
        ..Setup::default()
    });
    let mut attr = QpAttr {
        qp_state: QpState::Sqd,
        timeout: 15,
        ..QpAttr::default()
    };
    pair.modify(Side::A, &attr, AttrMask::STATE);
    pair.modify(Side::A, &attr, AttrMask::TIMEOUT);
    attr.qp_state = QpState::Rts;
    pair.modify(Side::A, &attr, AttrMask::STATE);
    pair.cut_into(Side::B, true);
    let start = pair.now;
    let request = write(&pair, 1, 10);
    pair.send(Side::A, request);
    pair.settle(SOON);
    assert_eq!(pair.now.since(start), Duration::from_nanos(4096 << 15));
}

/// A NAK "sequence error" of B about the oldest packet of A.
fn sequence_nak(pair: &mut Pair, psn: Psn) {
    let aeth = Aeth {
        syndrome: Syndrome::Nak(NakCode::Sequence),
        msn: Msn::new(0),
    };
    let ext = ExtHeaders {
        aeth: Some(aeth),
        ..ExtHeaders::default()
    };
    pair.inject(Side::A, Opcode::RC_ACKNOWLEDGE, psn, (ext, &[]));
}

#[test]
fn the_same_nak_twice_resends_once_and_a_later_one_again() {
    let mut pair = Pair::new(Setup::default());
    pair.trace = Some(Vec::new());
    let first = pair.a.qp.query().sq_psn;
    let request = write(&pair, 1, 4000);
    pair.send(Side::A, request);
    pair.transmit(Side::A);
    assert_eq!(sent(&mut pair, Side::A).len(), 4);
    for _ in 0..3 {
        sequence_nak(&mut pair, first);
        pair.transmit(Side::A);
    }
    assert_eq!(sent(&mut pair, Side::A).len(), 4, "once");
    sequence_nak(&mut pair, first.plus(2));
    pair.transmit(Side::A);
    assert_eq!(sent(&mut pair, Side::A).len(), 2, "there was progress");
    sequence_nak(&mut pair, first);
    pair.transmit(Side::A);
    assert_eq!(sent(&mut pair, Side::A).len(), 0, "it is out of date");
}

#[test]
fn work_behind_a_bad_buffer_does_not_keep_losses_from_being_repaired() {
    let mut pair = Pair::new(Setup::default());
    let good = write(&pair, 1, 3000);
    pair.send(Side::A, good);
    let mut bad = write(&pair, 2, 3000);
    bad.payload = Payload::Sges(vec![sge(Key(0xbad), 0, 3000)]);
    pair.send(Side::A, bad);
    pair.transmit(Side::A);
    pair.lose_into(Side::B);
    let psn = pair.a.qp.query().sq_psn.plus(0xff_fffd);
    sequence_nak(&mut pair, psn);
    let start = pair.now;
    until_sent(&mut pair, Side::A, 2);
    expect_send(&pair, &[(1, WcStatus::Success), (2, WcStatus::LocProtErr)]);
    assert!(pair.now.since(start) < Duration::from_millis(1));
}

#[test]
fn a_peer_that_is_not_ready_is_not_silent() {
    // Answers are lost now and then for longer than the budget would be in all, but never for all of it.
    let mut pair = Pair::new(Setup {
        retry_cnt: 0,
        min_rnr_timer: 1,
        ..Setup::default()
    });
    pair.send(Side::A, wr(1, SendOp::Send, vec![]));
    let run = Duration::from_nanos(4096 << 14);
    for _ in 0..5 {
        pair.cut_into(Side::A, true);
        pair.settle(run * 8 / 10);
        pair.cut_into(Side::A, false);
        pair.settle(run * 3 / 10);
    }
    assert_eq!(pair.a.qp.state(), QpState::Rts);
    pair.recv(Side::B, 1, vec![]);
    until_sent(&mut pair, Side::A, 1);
    expect_send(&pair, &[(1, WcStatus::Success)]);
}

#[test]
fn progress_on_a_lossless_link_stops_the_timer_although_more_is_outstanding() {
    let mut pair = Pair::new(Setup {
        link: LOSSLESS,
        ..Setup::default()
    });
    let request = write(&pair, 1, 100);
    pair.send(Side::A, request);
    pair.transmit(Side::A);
    let now = pair.now;
    pair.a.with(now, |qp, cx| qp.on_dropped(cx));
    assert!(pair.a.qp.deadline().is_some());
    pair.until(SOON, |p| p.b.qp.wants_transmit());
    pair.transmit(Side::B);
    pair.pause_into(Side::B, true);
    let request = write(&pair, 2, 100);
    pair.send(Side::A, request);
    pair.transmit(Side::A);
    pair.until(SOON, |p| p.a.results.send.len() == 1);
    assert_eq!(pair.a.qp.deadline(), None);
}
