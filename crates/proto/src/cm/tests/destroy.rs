//! What the peer hears when the owner of a conversation lets go of it.

use super::world::*;
use crate::cm::{Agent, Phase};
use crate::mad::{Answered, CommId, RejReason};

/// Destroys and lets everything end; nothing may be left, and the owner must hear nothing.
#[track_caller]
fn destroy(w: &mut World, agent: usize, id: CommId) {
    w.collect();
    w.sent.iter_mut().for_each(std::vec::Vec::clear);
    w.events[agent].clear();
    w.agents[agent].destroy(w.now, id);
    w.settle();
    assert_eq!(w.names(agent), [""; 0]);
}

#[test]
fn in_req_sent_a_rejection_for_timeout() {
    let mut w = World::new(1);
    let (a, _) = w.requested();
    destroy(&mut w, A, a);
    w.expect_sent(A, &["REJ"]);
    assert_eq!(rej_of(w.last_sent.as_ref()).reason, RejReason::TIMEOUT);
    w.expect_events(B, &["Rejected 4"]);
    assert!(w.agents.iter().all(Agent::is_empty));
}

#[test]
fn in_req_rcvd_a_rejection() {
    let mut w = World::new(2);
    let (_, b) = w.requested();
    destroy(&mut w, B, b);
    w.expect_events(A, &["Rejected 28"]);
    assert_eq!(rej_of(w.last_sent.as_ref()).local_comm_id, CommId(0));
    let (_, b) = w.requested();
    w.agents[B].delay(b).unwrap();
    destroy(&mut w, B, b);
    w.expect_events(A, &["Rejected 28"]);
    assert_eq!(rej_of(w.last_sent.as_ref()).local_comm_id, b);
    assert!(w.agents.iter().all(Agent::is_empty));
}

#[test]
fn in_rep_rcvd_a_rejection() {
    for delayed in [false, true] {
        let mut w = World::new(3);
        let (a, _) = w.replied();
        if delayed {
            w.agents[A].delay(a).unwrap();
        }
        destroy(&mut w, A, a);
        assert_eq!(rej_of(w.last_sent.as_ref()).answered, Answered::Rep);
        w.expect_events(B, &["Rejected 28"]);
        assert!(w.agents.iter().all(Agent::is_empty));
    }
}

#[test]
fn in_rep_sent_a_rejection_and_timewait() {
    let mut w = World::new(4);
    let (_, b) = w.replied();
    destroy(&mut w, B, b);
    assert_eq!(rej_of(w.last_sent.as_ref()).answered, Answered::Other);
    w.expect_events(A, &["Rejected 28"]);
    w.expect_phase(B, b, Some(Phase::Timewait));
    w.run_to_the_end();
    assert!(w.agents.iter().all(Agent::is_empty));
    w.expect_events(B, &[]);
}

#[test]
fn when_established_a_dreq_until_it_is_answered() {
    let mut w = World::new(5);
    let (a, b) = w.established();
    w.faults.lose = 1000;
    destroy(&mut w, A, a);
    w.expect_sent(A, &["DREQ"]);
    w.faults.lose = 0;
    w.run(REQ_INTERVAL);
    w.expect_events(B, &["Disconnected"]);
    w.agents[B].disconnect(w.now, b).unwrap();
    w.run_to_the_end();
    assert!(w.agents.iter().all(Agent::is_empty));
    w.expect_events(A, &[]);
}

#[test]
fn after_a_dreq_the_answer() {
    let mut w = World::new(6);
    let (a, b) = w.established();
    w.agents[A].disconnect(w.now, a).unwrap();
    w.settle();
    destroy(&mut w, B, b);
    w.expect_sent(B, &["DREP"]);
    w.expect_events(A, &["Disconnected"]);
    destroy(&mut w, A, a);
    w.expect_sent(A, &[]);
    w.run_to_the_end();
    assert!(w.agents.iter().all(Agent::is_empty));
}

#[test]
fn while_disconnecting_nothing_more() {
    let mut w = World::new(7);
    let (a, b) = w.established();
    w.agents[A].disconnect(w.now, a).unwrap();
    destroy(&mut w, A, a);
    w.agents[B].destroy(w.now, b);
    w.run_to_the_end();
    assert!(w.agents.iter().all(Agent::is_empty));
    w.expect_events(A, &[]);
}

#[test]
fn both_at_once_leaves_nothing() {
    let mut w = World::new(8);
    let (a, b) = w.established();
    w.agents[A].destroy(w.now, a);
    w.agents[B].destroy(w.now, b);
    w.run_to_the_end();
    w.expect_sent(A, &["DREQ", "DREP"]);
    w.expect_sent(B, &["DREQ", "DREP"]);
    assert!(w.agents.iter().all(Agent::is_empty));
}

#[test]
fn the_queue_pair_of_a_destroyed_connection_is_free_at_once() {
    let mut w = World::new(9);
    let (_, b) = w.established();
    w.censored = Some("DREQ");
    destroy(&mut w, B, b);
    w.connect(A, B, 0x11);
    w.settle();
    w.expect_events(B, &["Request"]);
}

#[test]
fn twice_or_unknown_is_harmless() {
    let mut w = World::new(10);
    let (a, _) = w.established();
    w.agents[A].destroy(w.now, a);
    w.agents[A].destroy(w.now, a);
    w.agents[A].destroy(w.now, CommId(3));
    w.settle();
    w.expect_sent(A, &["DREQ"]);
}
