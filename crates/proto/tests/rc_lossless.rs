//! Links that lose nothing or say so, peers that are stopped or gone, and paths that change.

mod common;

use std::time::Duration;

use common::{SOON, expect_send, sent, until_sent, write};
use ferroce_proto::rc::{Cause, LinkTraits};
use ferroce_proto::testkit::{Pair, Setup, Side};
use ferroce_proto::verbs::{QpState, WcStatus};

const LOSSLESS: LinkTraits = LinkTraits {
    lossless: true,
    max_in_flight: 1 << 20,
};

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
    let budget = Duration::from_nanos(4096 << 14) * 4 * 8;
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

/// What was dropped had been sent after it.
#[test]
fn an_old_acknowledgement_does_not_stop_the_timer() {
    let mut pair = Pair::new(Setup {
        link: LOSSLESS,
        ..Setup::default()
    });
    let request = write(&pair, 1, 100);
    pair.send(Side::A, request);
    pair.transmit(Side::A);
    pair.until(SOON, |p| p.b.qp.wants_transmit());
    // B takes no more, and says so before its acknowledgement of the first is out.
    let request = write(&pair, 2, 100);
    pair.send(Side::A, request);
    pair.to_state(Side::B, QpState::Err);
    pair.transmit(Side::A);
    pair.lose_into(Side::B);
    let now = pair.now;
    pair.a.with(now, |qp, cx| qp.on_dropped(cx));
    pair.settle(SOON);
    expect_send(&pair, &[(1, WcStatus::Success), (2, WcStatus::RetryExcErr)]);
}

/// Nobody answers a request whose completion finds no room, so the link has to tell.
#[test]
fn a_request_that_overflows_the_queue_counts_as_dropped() {
    let mut pair = Pair::new(Setup {
        link: LOSSLESS,
        ..Setup::default()
    });
    pair.b.results.cq_room = Some(0);
    pair.recv(Side::B, 1, vec![]);
    let op = ferroce_proto::verbs::SendOp::Send;
    pair.send(Side::A, ferroce_proto::testkit::wr(1, op, vec![]));
    pair.settle(SOON);
    assert_eq!(pair.b.qp.state(), QpState::Err);
    expect_send(&pair, &[(1, WcStatus::RetryExcErr)]);
}
