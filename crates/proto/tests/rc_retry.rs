//! Timers, probes, NAKs and receiver-not-ready waits.
#![allow(clippy::cast_possible_truncation, reason = "test data is small")]

mod common;

use std::time::Duration;

use common::{SOON, expect_recv, expect_send, seeds, sent, until_sent, write};
use ferroce_proto::ids::{Key, Msn, Psn};
use ferroce_proto::rc::{Cause, MIN_ACK_TIMEOUT, Noted};
use ferroce_proto::testkit::{Arena, Faults, Pair, Rng, Setup, Side, remote, sge, wr};
use ferroce_proto::verbs::{AttrMask, Payload, QpAttr, QpState, SendOp, WcStatus};
use ferroce_proto::wire::{Aeth, ExtHeaders, NakCode, Opcode, Syndrome};

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
        let runs = u32::from(retry_cnt) + 1;
        assert_eq!(pair.now.since(start), expiry(timeout) * runs);
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
    assert_eq!(pair.now.since(start), MIN_ACK_TIMEOUT * 4 * 2);
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
            took >= Duration::from_micros(500) && took < Duration::from_millis(2),
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
    assert_eq!(pair.now.since(start), expiry(14) * 2);
}

#[test]
fn one_nak_has_a_loss_sent_again_within_round_trips() {
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
    let heard = pair.a.results.noted[Noted::NotReadyHeard as usize];
    assert!(heard > 1, "{heard} NAKs");
    assert_eq!(pair.b.results.noted[Noted::NotReadySent as usize], heard);
    pair.recv(Side::B, 1, vec![]);
    until_sent(&mut pair, Side::A, 1);
    assert_eq!(pair.a.results.long_waits, 0);
}

/// A program that waits for ever for a peer without a receive learns why, once for each wait.
#[test]
fn a_long_wait_for_a_receiver_is_told_once() {
    let mut pair = Pair::new(Setup {
        rnr_retry: 7,
        ..Setup::default()
    });
    for wait in 1..3 {
        pair.send(Side::A, wr(wait, SendOp::Send, vec![]));
        pair.settle(Duration::from_millis(900));
        assert_eq!(u64::from(pair.a.results.long_waits), wait - 1);
        pair.settle(Duration::from_secs(5));
        assert_eq!(u64::from(pair.a.results.long_waits), wait);
        pair.recv(Side::B, wait, vec![]);
        until_sent(&mut pair, Side::A, wait as usize);
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
    assert_eq!(pair.now.since(start), expiry(15));
}

/// When the local ACK timer expires: four times the timeout, as late as the specification allows,
/// but not later than half a second unless the timeout itself is longer.
fn expiry(timeout: u8) -> Duration {
    let timeout = Duration::from_nanos(4096 << timeout);
    timeout.max((timeout * 4).min(Duration::from_millis(500)))
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
fn work_behind_a_bad_buffer_does_not_keep_losses_from_being_sent_again() {
    let mut pair = Pair::new(Setup::default());
    let good = write(&pair, 1, 3000);
    pair.send(Side::A, good);
    let mut bad = write(&pair, 2, 3000);
    bad.payload = Payload::Sges(vec![sge(Key(0xbad), 0, 3000)].into());
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
    // Time and again answers are lost for longer than one run of the timer, but never for two.
    let mut pair = Pair::new(Setup {
        retry_cnt: 1,
        min_rnr_timer: 1,
        ..Setup::default()
    });
    pair.send(Side::A, wr(1, SendOp::Send, vec![]));
    let run = expiry(14);
    for _ in 0..5 {
        pair.cut_into(Side::A, true);
        pair.settle(run * 15 / 10);
        pair.cut_into(Side::A, false);
        pair.settle(run * 3 / 10);
    }
    assert_eq!(pair.a.qp.state(), QpState::Rts);
    pair.recv(Side::B, 1, vec![]);
    until_sent(&mut pair, Side::A, 1);
    expect_send(&pair, &[(1, WcStatus::Success)]);
}
