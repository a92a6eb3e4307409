//! Peers that are silent, dead, or have forgotten.

use core::time::Duration;

use super::world::*;
use crate::cm::{Agent, ConversationEventKind, Ignored, Phase};
use crate::ids::Gid;
use crate::mad::{Answered, CmMad, CommId, Message, Rej, RejReason, Rep};

const EVER: Duration = Duration::from_secs(3600);

#[test]
fn a_silent_peer_is_unreachable_after_sixteen_requests() {
    let mut w = World::new(1);
    w.faults.lose = 1000;
    let start = w.now;
    let a = w.connect(A, B, 0x11);
    w.run_until(start + (REQ_INTERVAL * 16 - Duration::from_millis(1)));
    w.expect_events(A, &[]);
    w.expect_sent(A, &["REQ"; 16]);
    w.run(Duration::from_millis(1));
    w.expect_events(A, &["Unreachable"]);
    // The peer that has the request need not wait any longer.
    w.expect_sent(A, &["REJ"]);
    w.expect_phase(A, a, None);
}

#[test]
fn giving_up_ends_the_request_at_the_peer() {
    let mut w = World::new(2);
    let (a, b) = w.requested();
    w.censored = Some("REQ");
    w.run(REQ_INTERVAL * 16);
    w.settle();
    w.expect_events(A, &["Unreachable"]);
    w.expect_events(B, &["Rejected 4"]);
    let rej = rej_of(w.last_sent.as_ref());
    assert_eq!(
        (rej.local_comm_id, rej.remote_comm_id, rej.answered),
        (a, CommId(0), Answered::Other)
    );
    assert_eq!(
        (&rej.info[..8], rej.info_length),
        (&guid(A).0.to_be_bytes()[..], 8)
    );
    w.expect_phase(B, b, None);
}

#[test]
fn a_reply_without_an_answer_is_given_up() {
    let mut w = World::new(3);
    let (_, b) = w.requested();
    w.faults.lose = 1000;
    w.agents[B].accept(w.now, b, rep(B, 0x22)).unwrap();
    w.run(REP_INTERVAL * 16);
    w.expect_sent(B, &["REP"; 16]);
    w.expect_events(B, &["Unreachable"]);
    w.expect_phase(B, b, None);
}

#[test]
fn an_mra_delays_but_does_not_prevent_giving_up() {
    let mut w = World::new(4);
    let (a, b) = w.requested();
    w.agents[B].delay(b).unwrap();
    w.run(EVER);
    w.expect_phase(A, a, None);
    assert_eq!(w.names(A), ["Unreachable"]);
    assert_eq!(w.names(B), ["Rejected 4"]);
    assert_eq!(w.sent[A].len(), 17, "sixteen requests and the rejection");
}

#[test]
fn a_forgotten_connection_is_stale_when_its_queue_pair_is_used_anew() {
    let mut w = World::new(5);
    let (_, b) = w.established();
    // The process behind A has died without a word; its successor draws the same queue pair number.
    w.agents[A] = Agent::new(crate::cm::Config {
        id_prefix: 1 << 22,
        random: seeded(99),
        max_half_open: 8,
    });
    let again = w.connect(A, B, 0x11);
    w.settle();
    w.expect_events(A, &["Rejected 10"]);
    w.expect_phase(A, again, Some(Phase::Timewait));
    // The old connection is taken down; the new process answers that it knows nothing of it.
    w.expect_sent(B, &["REJ", "DREQ"]);
    w.expect_events(B, &["Disconnected"]);
    w.expect_phase(B, b, Some(Phase::Timewait));
    // From then on the queue pair is free.
    w.connect(A, B, 0x11);
    w.settle();
    w.expect_events(B, &["Request"]);
}

#[test]
fn a_stale_reply_is_rejected_and_the_old_connection_ends() {
    let mut w = World::new(6);
    let (a_old, b_old) = w.established();
    let (a, b) = {
        let a = w.connect(A, B, 0x12);
        w.settle();
        (a, w.event(B).conversation)
    };
    // B's queue pair of the old connection again: B has forgotten what it was used for.
    w.agents[B].accept(w.now, b, rep(B, 0x22)).unwrap();
    w.settle();
    w.expect_sent(A, &["REQ", "REJ", "DREQ"]);
    assert_eq!(w.names(B), ["Rejected 10", "Disconnected"]);
    w.expect_phase(B, b, Some(Phase::Timewait));
    w.expect_phase(A, a, Some(Phase::ReqSent));
    w.agents[B].disconnect(w.now, b_old).unwrap();
    w.settle();
    w.expect_phase(A, a_old, Some(Phase::Timewait));
    // The request goes out again after B's timewait has ended, and starts anew there.
    w.events[B].clear();
    w.run(REQ_INTERVAL);
    assert!(w.names(B).contains(&"Request".into()));
}

#[test]
fn a_request_repeated_in_timewait_is_stale() {
    let mut w = World::new(7);
    w.censored = Some("REJ");
    let (a, b) = w.requested();
    w.faults.lose = 1000;
    w.agents[B].accept(w.now, b, rep(B, 0x22)).unwrap();
    w.run(REQ_INTERVAL - Duration::from_millis(100));
    w.agents[B]
        .reject(w.now, b, RejReason::CONSUMER_DEFINED, no_data())
        .unwrap();
    w.collect();
    (w.censored, w.faults.lose) = (None, 0);
    w.run(Duration::from_millis(200));
    w.expect_phase(B, b, Some(Phase::Timewait));
    w.expect_events(A, &["Rejected 10"]);
    w.expect_phase(A, a, Some(Phase::Timewait));
}

#[test]
fn a_reply_to_an_unknown_request_is_rejected() {
    let mut w = World::new(8);
    let (a, b) = w.requested();
    w.censored = Some("REJ");
    w.agents[A].destroy(w.now, a);
    w.settle();
    w.censored = None;
    w.agents[B].accept(w.now, b, rep(B, 0x22)).unwrap();
    w.settle();
    w.expect_events(B, &["Rejected 6"]);
    w.expect_phase(B, b, None);
}

#[test]
fn a_reply_under_a_known_id_is_ignored() {
    let mut w = World::new(9);
    let (_, b) = w.established();
    let a = w.connect(A, B, 0x12);
    let other = Rep {
        local_comm_id: b,
        remote_comm_id: a,
        ..rep(B, 0x33)
    };
    w.post(
        gid(B),
        gid(A),
        &CmMad {
            tid: 1,
            message: Message::Rep(other),
        },
    );
    w.settle();
    w.expect_phase(A, a, Some(Phase::ReqSent));
    w.expect_events(A, &[]);
}

#[test]
fn a_request_without_an_id_is_ignored() {
    let mut w = World::new(10);
    w.post(
        gid(A),
        gid(B),
        &CmMad {
            tid: 1,
            message: Message::Req(req(A, B, 0x11)),
        },
    );
    w.settle();
    w.expect_events(B, &[]);
    assert!(w.agents[B].is_empty());
}

/// B's process dies; A's agent is told.
fn lose_b(w: &mut World) {
    let gone = |peer: Gid, id: CommId| peer == gid(B) && (id.0 == 0 || id.0 >> 22 == 2);
    w.sent[A].clear();
    w.agents[A].on_process_gone(w.now, gone);
    w.collect();
}

#[test]
fn a_dead_peer_counts_as_one_that_disconnected() {
    let mut w = World::new(11);
    let (a, _) = w.established();
    lose_b(&mut w);
    w.expect_events(A, &["Disconnected"]);
    lose_b(&mut w);
    w.expect_events(A, &[]);
    w.agents[A].disconnect(w.now, a).unwrap();
    w.run_to_the_end();
    w.expect_events(A, &["TimewaitExit"]);
    assert!(w.agents[A].is_empty());
}

#[test]
fn a_peer_that_dies_before_it_answers_a_dreq_is_disconnected() {
    let mut w = World::new(12);
    let (a, _) = w.established();
    w.agents[A].disconnect(w.now, a).unwrap();
    w.collect();
    lose_b(&mut w);
    w.expect_events(A, &["Disconnected"]);
    w.expect_phase(A, a, Some(Phase::Timewait));
}

#[test]
fn a_peer_that_dies_during_set_up_is_unreachable() {
    let mut w = World::new(13);
    let (a, b) = w.replied();
    lose_b(&mut w);
    w.expect_events(A, &["Unreachable"]);
    w.expect_phase(A, a, None);
    // The other way round, and before an answer.
    w.agents[B].on_process_gone(w.now, |_, id| id.0 >> 22 == 1);
    w.collect();
    w.expect_events(B, &["Unreachable"]);
    w.expect_phase(B, b, None);
    let (_, b) = w.requested();
    w.agents[B].on_process_gone(w.now, |_, id| id.0 >> 22 == 1);
    w.collect();
    w.expect_events(B, &["Unreachable"]);
    w.expect_phase(B, b, None);
}

#[test]
fn a_request_that_no_process_has_answered_goes_out_again_at_once() {
    let mut w = World::new(14);
    let a = w.connect(A, B, 0x11);
    lose_b(&mut w);
    w.expect_sent(A, &["REQ"]);
    w.expect_phase(A, a, Some(Phase::ReqSent));
    w.expect_events(A, &[]);
}

#[test]
fn other_processes_do_not_matter() {
    let mut w = World::new(15);
    let (a, _) = w.established();
    w.agents[A].on_process_gone(w.now, |_, id| id.0 >> 22 == 3);
    w.collect();
    w.expect_events(A, &[]);
    w.expect_phase(A, a, Some(Phase::Established));
}

#[test]
fn a_rejected_request_is_found_by_guid_only_with_reason_timeout() {
    let mut w = World::new(16);
    let (a, b) = w.requested();
    let mut rej = Rej {
        local_comm_id: a,
        info_length: 8,
        ..Rej::new(RejReason::CONSUMER_DEFINED)
    };
    rej.info[..8].copy_from_slice(&guid(A).0.to_be_bytes());
    assert!(!w.agents[B].knows(&Message::Rej(rej)));
    rej.reason = RejReason::TIMEOUT;
    assert!(w.agents[B].knows(&Message::Rej(rej)));
    rej.info[0] ^= 1;
    assert!(!w.agents[B].knows(&Message::Rej(rej)));
    w.expect_phase(B, b, Some(Phase::ReqRcvd));
    assert!(
        !w.events[B]
            .iter()
            .any(|e| matches!(e.kind, ConversationEventKind::Rejected { .. }))
    );
}

#[test]
fn an_answer_repeats_the_transaction_id() {
    let mut w = World::new(6);
    let a = w.connect(A, B, 0x11);
    w.faults.lose = 1000;
    w.settle();
    let tid = w.agents[A].conversations[&a].tid;
    let answers = [
        Message::Rep(Rep {
            local_comm_id: CommId(77),
            remote_comm_id: a,
            ..rep(B, 0x22)
        }),
        Message::Rej(Rej {
            remote_comm_id: a,
            answered: Answered::Req,
            ..Rej::new(RejReason::CONSUMER_DEFINED)
        }),
    ];
    w.faults.lose = 0;
    for message in answers.clone() {
        let tid = tid ^ 1;
        w.post(gid(B), gid(A), &CmMad { tid, message });
        w.run(Duration::from_millis(10));
        w.expect_events(A, &[]);
        w.expect_phase(A, a, Some(Phase::ReqSent));
        assert_eq!(w.ignored.pop(), Some(Ignored::Transaction));
    }
    let [_, message] = answers;
    w.post(
        gid(7),
        gid(A),
        &CmMad {
            tid,
            message: message.clone(),
        },
    );
    w.run(Duration::from_millis(10));
    assert_eq!(w.ignored.pop(), Some(Ignored::Address));
    w.post(gid(B), gid(A), &CmMad { tid, message });
    w.run(Duration::from_millis(10));
    w.expect_events(A, &["Rejected 28"]);
}
