//! Making connections.

use core::time::Duration;

use super::world::*;
use crate::cm::{ConversationEventKind, Phase};
use crate::mad::{Answered, CmMad, CommId, Message, Mra, PrivateData, RejReason};

#[test]
fn a_connection_takes_three_messages() {
    let mut w = World::new(1);
    let (a, b) = (w.connect(A, B, 0x11), ());
    let () = b;
    w.settle();
    let request = w.event(B);
    let ConversationEventKind::Request { req, path } = &request.kind else {
        panic!("{request:?}")
    };
    assert_eq!(
        (req.local_comm_id, &req.private_data.0[..5]),
        (a, &b"hello"[..])
    );
    assert_eq!(
        (path.local, path.remote, path.hop_limit),
        (gid(B), gid(A), 255)
    );
    let b = request.conversation;
    assert_eq!((a.0 >> 22, b.0 >> 22), (1, 2), "ids tell their process");
    w.agents[B].accept(w.now, b, rep(B, 0x22)).unwrap();
    w.settle();
    let reply = w.event(A);
    let ConversationEventKind::Reply(rep) = &reply.kind else {
        panic!("{reply:?}")
    };
    assert_eq!((rep.local_comm_id, rep.remote_comm_id), (b, a));
    w.agents[A].establish(a).unwrap();
    w.settle();
    w.expect_events(B, &["Established"]);
    w.expect_sent(A, &["REQ", "RTU"]);
    w.expect_sent(B, &["REP"]);
    w.expect_phase(A, a, Some(Phase::Established));
    w.expect_phase(B, b, Some(Phase::Established));
    assert_eq!(
        (w.agents[A].deadline(), w.agents[B].deadline()),
        (None, None),
        "nothing is left to wait for"
    );
}

#[test]
fn messages_of_a_conversation_share_its_transaction_id() {
    let mut w = World::new(2);
    w.connect(A, B, 0x11);
    let tid = w.last_sent.as_ref().unwrap().tid;
    w.settle();
    let b = w.event(B).conversation;
    w.agents[B].accept(w.now, b, rep(B, 0x22)).unwrap();
    w.collect();
    assert_eq!(w.last_sent.as_ref().unwrap().tid, tid);
    w.settle();
    let a = w.event(A).conversation;
    w.agents[A].establish(a).unwrap();
    w.settle();
    assert_eq!(w.last_sent.as_ref().unwrap().tid, tid);
    w.agents[A].disconnect(w.now, a).unwrap();
    w.collect();
    let dreq = w.last_sent.clone().unwrap();
    assert_ne!(dreq.tid, tid, "a DREQ begins a new transaction");
    w.settle();
    w.agents[B].disconnect(w.now, b).unwrap();
    w.collect();
    assert_eq!(w.last_sent.as_ref().unwrap().tid, dreq.tid);
}

#[test]
fn an_application_rejects_with_private_data() {
    let mut w = World::new(3);
    let (a, b) = w.requested();
    let data = PrivateData::new(b"go away").unwrap();
    w.agents[B].delay(b).unwrap();
    w.agents[B]
        .reject(w.now, b, RejReason::CONSUMER_DEFINED, data)
        .unwrap();
    w.collect();
    let rej = rej_of(w.last_sent.as_ref());
    assert_eq!(
        (rej.local_comm_id, rej.remote_comm_id, rej.answered),
        (b, a, Answered::Req)
    );
    w.settle();
    let event = w.event(A);
    let ConversationEventKind::Rejected {
        reason,
        private_data,
    } = event.kind
    else {
        panic!("{event:?}")
    };
    assert_eq!(
        (reason, &private_data[..8]),
        (RejReason::CONSUMER_DEFINED, &b"go away\0"[..])
    );
    w.expect_phase(A, a, None);
    w.expect_phase(B, b, None);
    assert_eq!(w.names(B), [""; 0]);
}

#[test]
fn a_request_that_nobody_looked_at_is_rejected_without_an_id() {
    let mut w = World::new(4);
    let (a, b) = w.requested();
    w.agents[B]
        .reject(w.now, b, RejReason::INVALID_SERVICE_ID, no_data())
        .unwrap();
    w.collect();
    let rej = rej_of(w.last_sent.as_ref());
    assert_eq!((rej.local_comm_id, rej.remote_comm_id), (CommId(0), a));
    w.settle();
    w.expect_events(A, &["Rejected 8"]);
}

#[test]
fn the_active_side_can_reject_a_reply() {
    let mut w = World::new(5);
    let (a, b) = w.replied();
    w.agents[A]
        .reject(w.now, a, RejReason::VENDOR_OPTION_NOT_SUPPORTED, no_data())
        .unwrap();
    w.settle();
    w.expect_events(B, &["Rejected 35"]);
    w.expect_phase(A, a, None);
    w.expect_phase(B, b, None);
}

#[test]
fn the_passive_side_can_take_back_a_reply() {
    let mut w = World::new(6);
    let (a, b) = w.replied();
    w.agents[B]
        .reject(w.now, b, RejReason::CONSUMER_DEFINED, no_data())
        .unwrap();
    w.settle();
    w.expect_events(A, &["Rejected 28"]);
    w.expect_phase(A, a, Some(Phase::Timewait));
    w.expect_phase(B, b, Some(Phase::Timewait));
    w.run_to_the_end();
    assert!(w.agents.iter().all(crate::cm::Agent::is_empty));
}

#[test]
fn a_lost_request_goes_out_again() {
    let mut w = World::new(7);
    w.faults.lose = 1000;
    let a = w.connect(A, B, 0x11);
    assert_eq!(w.agents[A].deadline(), Some(w.now + REQ_INTERVAL));
    w.run(REQ_INTERVAL - Duration::from_millis(1));
    w.expect_sent(A, &["REQ"]);
    w.faults.lose = 0;
    w.run(Duration::from_millis(2));
    w.expect_sent(A, &["REQ"]);
    assert_eq!(w.names(B), ["Request"]);
    w.expect_phase(A, a, Some(Phase::ReqSent));
}

#[test]
fn a_repeated_request_is_ignored_until_an_answer_is_delayed() {
    let mut w = World::new(8);
    let (_, b) = w.requested();
    w.run(REQ_INTERVAL);
    w.expect_sent(A, &["REQ", "REQ"]);
    w.expect_sent(B, &[]);
    w.expect_events(B, &[]);
    w.agents[B].delay(b).unwrap();
    w.run(REQ_INTERVAL);
    w.expect_sent(B, &["MRA"]);
    let Some(Message::Mra(mra)) = w.last_sent.clone().map(|m| m.message) else {
        panic!()
    };
    assert_eq!((mra.answered, mra.service_timeout), (Answered::Req, 24));
    // Now it has the service timeout and the path's time: 65.5 s and 0.5 s.
    w.sent[A].clear();
    w.run(Duration::from_secs(64));
    w.expect_sent(A, &[]);
    w.run(Duration::from_secs(3));
    w.expect_sent(A, &["REQ"]);
    // An answer is still in time.
    w.agents[B].accept(w.now, b, rep(B, 0x22)).unwrap();
    w.settle();
    w.expect_events(A, &["Reply"]);
}

#[test]
fn a_reply_that_takes_long_to_answer_gets_an_mra_too() {
    let mut w = World::new(9);
    let (a, b) = w.replied();
    w.agents[A].delay(a).unwrap();
    w.sent[A].clear();
    w.run(REP_INTERVAL);
    w.settle();
    w.expect_sent(A, &["MRA"]);
    w.expect_phase(B, b, Some(Phase::MraRepRcvd));
    w.run(Duration::from_secs(60));
    assert_eq!(w.sent[B], ["REP", "REP"]);
    w.agents[A].establish(a).unwrap();
    w.settle();
    w.expect_events(B, &["Established"]);
}

#[test]
fn a_lost_rtu_is_made_up_for_by_the_repeated_reply() {
    let mut w = World::new(10);
    let (a, b) = w.replied();
    w.censored = Some("RTU");
    w.agents[A].establish(a).unwrap();
    w.settle();
    w.expect_phase(B, b, Some(Phase::RepSent));
    w.censored = None;
    w.run(REP_INTERVAL);
    w.expect_sent(A, &["REQ", "RTU", "RTU"]);
    w.expect_sent(B, &["REP", "REP"]);
    w.expect_events(B, &["Established"]);
    w.expect_events(A, &[]);
}

#[test]
fn data_can_stand_for_the_rtu() {
    let mut w = World::new(11);
    let (a, b) = w.replied();
    w.agents[B].notify_established(b).unwrap();
    assert!(w.agents[B].notify_established(b).is_err());
    w.collect();
    w.expect_events(B, &["Established"]);
    w.agents[A].establish(a).unwrap();
    w.settle();
    w.expect_events(B, &[]);
    w.run_to_the_end();
    w.expect_sent(B, &["REP"]);
}

#[test]
fn half_open_conversations_are_bounded() {
    let mut w = World::new(12);
    let ids: std::vec::Vec<CommId> = (0..20).map(|i| w.connect(A, B, 0x100 + i)).collect();
    w.settle();
    assert_eq!(w.events[B].len(), HALF_OPEN);
    let first = w.events[B][0].conversation;
    w.agents[B].discard(first);
    assert_eq!(w.agents[B].len(), HALF_OPEN - 1);
    w.run(REQ_INTERVAL);
    assert_eq!(
        w.events[B].len(),
        HALF_OPEN + 1,
        "the place was taken again"
    );
    assert_eq!(ids.len(), w.agents[A].len());
}

#[test]
fn both_ends_can_be_in_one_agent() {
    let mut w = World::new(13);
    let a = w.agents[A]
        .connect(w.now, World::path(A, A), req(A, A, 0x11), 16)
        .unwrap();
    w.settle();
    let b = w.event(A).conversation;
    w.agents[A].accept(w.now, b, rep(A, 0x22)).unwrap();
    w.settle();
    assert_eq!(w.event(A).conversation, a);
    w.agents[A].establish(a).unwrap();
    w.settle();
    assert_eq!(w.event(A).conversation, b);
    w.agents[A].destroy(w.now, a);
    w.settle();
    w.expect_events(A, &["Disconnected"]);
    w.agents[A].destroy(w.now, b);
    w.run_to_the_end();
    assert!(w.agents[A].is_empty());
}

#[test]
fn commands_in_a_wrong_state_say_so_and_change_nothing() {
    let mut w = World::new(14);
    let (a, b) = w.established();
    let now = w.now;
    for (agent, id) in [(A, a), (B, b), (A, CommId(77))] {
        let agent = &mut w.agents[agent];
        assert!(agent.accept(now, id, rep(B, 1)).is_err());
        assert!(agent.establish(id).is_err());
        assert!(agent.notify_established(id).is_err());
        assert!(agent.delay(id).is_err());
        let error = agent
            .reject(now, id, RejReason::TIMEOUT, no_data())
            .unwrap_err();
        assert_eq!(error.state, agent.phase(id));
        agent.discard(id);
    }
    assert!(w.agents[A].disconnect(now, CommId(77)).is_err());
    w.settle();
    w.expect_sent(A, &[]);
    w.expect_sent(B, &[]);
    w.expect_phase(A, a, Some(Phase::Established));
}

#[test]
fn an_mra_counts_only_from_the_conversations_peer() {
    let mut w = World::new(16);
    let (a, b) = w.replied();
    let mra = |local, remote, answered| {
        let mra = Mra {
            local_comm_id: local,
            remote_comm_id: remote,
            answered,
            service_timeout: 24,
            ..Mra::default()
        };
        CmMad {
            tid: 1,
            message: Message::Mra(mra),
        }
    };
    w.post(gid(A), gid(B), &mra(CommId(0x123), b, Answered::Rep));
    w.post(gid(A), gid(B), &mra(a, b, Answered::Req));
    w.post(gid(A), gid(B), &mra(a, b, Answered::Other));
    w.settle();
    w.expect_phase(B, b, Some(Phase::RepSent));
    w.post(gid(A), gid(B), &mra(a, b, Answered::Rep));
    w.settle();
    w.expect_phase(B, b, Some(Phase::MraRepRcvd));
}
