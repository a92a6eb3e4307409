//! Ending connections.

use core::time::Duration;

use super::world::*;
use crate::cm::{Agent, Phase};
use crate::ids::Qpn;
use crate::mad::{CmMad, CommId, Drep, Dreq, Message, Rej, RejReason, Rep};

fn dreq(local: CommId, remote: CommId, qpn: u32) -> CmMad {
    let dreq = Dreq {
        local_comm_id: local,
        remote_comm_id: remote,
        remote_qpn: Qpn::new(qpn),
        ..Dreq::default()
    };
    CmMad {
        tid: 0x77,
        message: Message::Dreq(dreq),
    }
}

#[test]
fn disconnect_is_reported_once_on_each_side_and_timewait_follows() {
    let mut w = World::new(1);
    let (a, b) = w.established();
    w.agents[A].disconnect(w.now, a).unwrap();
    w.settle();
    w.expect_events(B, &["Disconnected"]);
    w.expect_events(A, &[]);
    w.expect_phase(B, b, Some(Phase::DreqRcvd));
    w.agents[B].disconnect(w.now, b).unwrap();
    w.settle();
    w.expect_events(A, &["Disconnected"]);
    w.expect_sent(A, &["DREQ"]);
    w.expect_sent(B, &["DREP"]);
    w.run(TIMEWAIT - Duration::from_millis(10));
    w.expect_events(A, &[]);
    w.run(Duration::from_millis(20));
    w.expect_events(A, &["TimewaitExit"]);
    w.expect_events(B, &["TimewaitExit"]);
    assert!(w.agents.iter().all(Agent::is_empty));
}

#[test]
fn both_may_disconnect_at_once() {
    let mut w = World::new(2);
    let (a, b) = w.established();
    w.agents[A].disconnect(w.now, a).unwrap();
    w.agents[B].disconnect(w.now, b).unwrap();
    w.settle();
    w.expect_events(A, &["Disconnected"]);
    w.expect_events(B, &["Disconnected"]);
    w.expect_phase(A, a, Some(Phase::DreqRcvd));
    w.expect_phase(B, b, Some(Phase::DreqRcvd));
    // The second call answers the other's DREQ.
    w.agents[A].disconnect(w.now, a).unwrap();
    w.settle();
    w.expect_phase(B, b, Some(Phase::Timewait));
    w.run_to_the_end();
    w.expect_events(A, &["TimewaitExit"]);
    w.expect_events(B, &["TimewaitExit"]);
    assert!(w.agents.iter().all(Agent::is_empty));
}

#[test]
fn a_dreq_that_nobody_answers_is_given_up() {
    let mut w = World::new(3);
    let (a, _) = w.established();
    w.faults.lose = 1000;
    w.agents[A].disconnect(w.now, a).unwrap();
    w.run(REQ_INTERVAL * 16 - Duration::from_millis(1));
    w.expect_events(A, &[]);
    assert_eq!(w.sent[A].len(), 16);
    w.run(Duration::from_millis(2));
    w.expect_events(A, &["Disconnected, timed out"]);
    assert_eq!(w.sent[A].len(), 16);
    w.run(TIMEWAIT);
    w.expect_events(A, &["TimewaitExit"]);
}

#[test]
fn the_passive_side_repeats_its_dreq_at_the_interval_of_its_rep() {
    let mut w = World::new(4);
    let (_, b) = w.established();
    w.faults.lose = 1000;
    w.agents[B].disconnect(w.now, b).unwrap();
    w.run(REP_INTERVAL);
    assert_eq!(w.sent[B], ["DREQ", "DREQ"]);
}

#[test]
fn a_repeated_dreq_is_answered_again_only_in_timewait() {
    let mut w = World::new(5);
    let (a, b) = w.established();
    w.agents[A].disconnect(w.now, a).unwrap();
    w.settle();
    w.post(gid(A), gid(B), &dreq(a, b, 0x22));
    w.settle();
    w.expect_sent(B, &[]);
    w.agents[B].disconnect(w.now, b).unwrap();
    w.settle();
    w.post(gid(A), gid(B), &dreq(a, b, 0x22));
    w.settle();
    w.expect_sent(B, &["DREP", "DREP"]);
    w.expect_events(B, &["Disconnected"]);
}

#[test]
fn a_dreq_for_an_unknown_connection_is_answered() {
    let mut w = World::new(6);
    w.post(gid(A), gid(B), &dreq(CommId(1), CommId(2), 0x22));
    w.settle();
    let expected = Drep {
        local_comm_id: CommId(2),
        remote_comm_id: CommId(1),
        ..Drep::default()
    };
    assert_eq!(
        w.last_sent,
        Some(CmMad {
            tid: 0x77,
            message: Message::Drep(expected)
        })
    );
    w.expect_sent(B, &["DREP"]);
}

#[test]
fn a_dreq_for_another_queue_pair_is_ignored() {
    let mut w = World::new(7);
    let (a, b) = w.established();
    w.post(gid(A), gid(B), &dreq(a, b, 0x23));
    w.settle();
    w.expect_sent(B, &[]);
    w.expect_phase(B, b, Some(Phase::Established));
}

#[test]
fn a_dreq_establishes_and_ends_a_connection_whose_rtu_was_lost() {
    let mut w = World::new(8);
    let (a, b) = w.replied();
    w.censored = Some("RTU");
    w.agents[A].establish(a).unwrap();
    w.agents[A].disconnect(w.now, a).unwrap();
    w.settle();
    w.expect_events(B, &["Established", "Disconnected"]);
    w.expect_phase(B, b, Some(Phase::DreqRcvd));
    assert_eq!(
        w.agents[B].deadline(),
        None,
        "the REP does not go out again"
    );
}

#[test]
fn a_drep_or_rtu_out_of_place_is_ignored() {
    let mut w = World::new(9);
    let (a, b) = w.established();
    let drep = Drep {
        local_comm_id: b,
        remote_comm_id: a,
        ..Drep::default()
    };
    w.post(
        gid(B),
        gid(A),
        &CmMad {
            tid: 1,
            message: Message::Drep(drep),
        },
    );
    let rtu = crate::mad::Rtu {
        local_comm_id: a,
        remote_comm_id: b,
        ..Default::default()
    };
    w.post(
        gid(A),
        gid(B),
        &CmMad {
            tid: 1,
            message: Message::Rtu(rtu),
        },
    );
    w.settle();
    w.expect_events(A, &[]);
    w.expect_events(B, &[]);
    w.expect_phase(A, a, Some(Phase::Established));
}

#[test]
fn a_rejection_ends_even_what_is_established() {
    let mut w = World::new(10);
    let rej = |local, remote| {
        let rej = Rej {
            local_comm_id: local,
            remote_comm_id: remote,
            ..Rej::new(RejReason::CONSUMER_DEFINED)
        };
        CmMad {
            tid: 1,
            message: Message::Rej(rej),
        }
    };
    let (a, b) = w.established();
    w.post(gid(A), gid(B), &rej(CommId(0x123), b));
    w.settle();
    w.expect_phase(B, b, Some(Phase::Established));
    w.post(gid(A), gid(B), &rej(a, b));
    w.settle();
    w.expect_events(B, &["Rejected 28"]);
    w.expect_phase(B, b, Some(Phase::Timewait));
    w.censored = Some("DREP");
    w.agents[A].disconnect(w.now, a).unwrap();
    w.settle();
    w.post(gid(B), gid(A), &rej(b, a));
    w.settle();
    w.expect_events(A, &["Rejected 28"]);
    w.expect_phase(A, a, Some(Phase::Timewait));
    w.post(gid(B), gid(A), &rej(b, a));
    w.settle();
    w.expect_events(A, &[]);
}

#[test]
fn timewait_lasts_as_long_as_the_peers_acknowledgements_may_take() {
    let mut w = World::new(11);
    let (a, b) = w.requested();
    let slow = Rep {
        target_ack_delay: 19,
        ..rep(B, 0x22)
    };
    w.agents[B].accept(w.now, b, slow).unwrap();
    w.settle();
    w.agents[A].establish(a).unwrap();
    w.agents[A].disconnect(w.now, a).unwrap();
    w.settle();
    w.agents[B].disconnect(w.now, b).unwrap();
    w.settle();
    let (own, peers) = (
        w.agents[A].deadline().unwrap(),
        w.agents[B].deadline().unwrap(),
    );
    // Code 19 for delay 19 on a path of code 16; the passive side takes the 17 of the REQ.
    assert_eq!(own.since(w.now).as_millis().next_multiple_of(2), 2048);
    assert_eq!(peers.since(w.now).as_millis().next_multiple_of(2), 512);
}

#[test]
fn an_owner_that_vanishes_repeats_its_dreqs_to_far_peers_until_they_are_answered() {
    let mut w = World::new(21);
    let (a, b) = w.established();
    w.faults.lose = 1000;
    w.agents[A].destroy(w.now, a);
    w.settle();
    w.faults.lose = 0;
    w.agents[A].repeat_dreqs(|_| false);
    w.collect();
    w.expect_sent(A, &["DREQ"]);
    w.agents[A].repeat_dreqs(|peer| peer == gid(B));
    w.settle();
    w.expect_sent(A, &["DREQ"]);
    w.expect_events(B, &["Disconnected"]);
    w.agents[B].disconnect(w.now, b).unwrap();
    w.settle();
    w.agents[A].repeat_dreqs(|_| true);
    w.collect();
    w.expect_sent(A, &[]);
}
