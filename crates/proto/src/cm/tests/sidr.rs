//! Service id resolution: requests, answers, and what gets lost between them.

use core::time::Duration;

use super::world::*;
use crate::cm::{Agent, ConversationEventKind, Phase, answer_unoffered};
use crate::ids::Qpn;
use crate::mad::{CmMad, CommId, Message, PrivateData, ServiceId, SidrRep, SidrReq, SidrStatus};

/// The interval at which a `SIDR_REQ` goes out again.
const INTERVAL: Duration = REP_INTERVAL;

fn request() -> SidrReq {
    SidrReq {
        pkey: 0xffff,
        service_id: ServiceId::new(0x0111, 7174),
        private_data: PrivateData::new(b"who has it?").unwrap(),
        ..SidrReq::default()
    }
}

fn valid() -> SidrRep {
    SidrRep {
        qpn: Qpn::new(0x77),
        qkey: 0x0123_4567,
        private_data: PrivateData::new(b"I have").unwrap(),
        ..SidrRep::refusal(&SidrReq::default(), SidrStatus::VALID)
    }
}

impl World {
    fn resolve(&mut self, from: usize, to: usize) -> CommId {
        let path = Self::path(from, to);
        let id = self.agents[from]
            .resolve(self.now, path, request())
            .unwrap();
        self.collect();
        id
    }

    #[track_caller]
    fn asked(&mut self) -> (CommId, CommId) {
        let a = self.resolve(A, B);
        self.settle();
        let event = self.event(B);
        let ConversationEventKind::Resolution { req, path } = event.kind else {
            panic!("{event:?}");
        };
        assert_eq!(req.private_data, request().private_data);
        assert_eq!((path.local, path.remote), (gid(B), gid(A)));
        (a, event.conversation)
    }

    #[track_caller]
    fn expect_answer(&mut self, agent: usize, id: CommId) -> SidrRep {
        let event = self.event(agent);
        assert_eq!(event.conversation, id);
        match event.kind {
            ConversationEventKind::Resolved(rep) => *rep,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_answer_carries_queue_pair_key_and_private_data() {
    let mut w = World::new(1);
    let (a, b) = w.asked();
    w.expect_phase(A, a, Some(Phase::SidrReqSent));
    w.expect_phase(B, b, Some(Phase::SidrReqRcvd));
    w.agents[B].answer(w.now, b, valid()).unwrap();
    w.settle();
    let rep = w.expect_answer(A, a);
    let expected = SidrRep {
        request_id: a.0,
        service_id: request().service_id,
        ..valid()
    };
    assert_eq!(rep, expected);
    w.expect_phase(A, a, None);
    w.run_to_the_end();
    w.expect_events(A, &[]);
    w.expect_events(B, &[]);
    assert!(w.agents.iter().all(Agent::is_empty));
    w.expect_sent(A, &["SIDR_REQ"]);
    w.expect_sent(B, &["SIDR_REP"]);
}

#[test]
fn a_request_is_sent_sixteen_times_before_its_service_is_unreachable() {
    let mut w = World::new(2);
    w.censored = Some("SIDR_REQ");
    w.resolve(A, B);
    w.run(15 * INTERVAL);
    assert_eq!(w.sent[A], ["SIDR_REQ"; 16]);
    w.expect_events(A, &[]);
    w.run(INTERVAL);
    w.expect_events(A, &["Unreachable"]);
    assert_eq!(w.sent[A].len(), 16);
    assert!(w.agents[A].is_empty());
}

#[test]
fn a_lost_answer_is_repeated_without_asking_the_owner_again() {
    let mut w = World::new(3);
    let (a, b) = w.asked();
    w.censored = Some("SIDR_REP");
    w.agents[B].answer(w.now, b, valid()).unwrap();
    w.run(3 * INTERVAL);
    w.censored = None;
    w.run(INTERVAL);
    assert_eq!(w.expect_answer(A, a).qpn, Qpn::new(0x77));
    w.expect_events(B, &[]);
    w.run_to_the_end();
    assert!(w.agents.iter().all(Agent::is_empty));
}

#[test]
fn a_request_that_waits_for_its_owner_is_told_of_once() {
    let mut w = World::new(4);
    let (_, b) = w.asked();
    w.run(5 * INTERVAL);
    w.expect_events(B, &[]);
    w.expect_sent(B, &[]);
    w.expect_phase(B, b, Some(Phase::SidrReqRcvd));
}

#[test]
fn an_owner_that_lets_go_refuses() {
    let mut w = World::new(5);
    let (a, b) = w.asked();
    w.agents[B].destroy(w.now, b);
    w.settle();
    assert_eq!(w.expect_answer(A, a).status, SidrStatus::REJECT);
}

#[test]
fn a_discarded_request_comes_again() {
    let mut w = World::new(6);
    let (_, b) = w.asked();
    w.agents[B].discard(b);
    w.run(INTERVAL);
    w.expect_events(B, &["Resolution"]);
}

#[test]
fn an_asker_that_lets_go_hears_nothing() {
    let mut w = World::new(7);
    let (a, b) = w.asked();
    w.agents[A].destroy(w.now, a);
    w.agents[B].answer(w.now, b, valid()).unwrap();
    w.run_to_the_end();
    w.expect_events(A, &[]);
    assert!(w.agents.iter().all(Agent::is_empty));
}

#[test]
fn answers_are_for_requests_that_wait() {
    let mut w = World::new(8);
    let (a, b) = w.established();
    assert!(w.agents[B].answer(w.now, b, valid()).is_err());
    assert!(w.agents[A].answer(w.now, a, valid()).is_err());
    let (_, asked) = w.asked();
    assert!(w.agents[B].accept(w.now, asked, rep(B, 1)).is_err());
    assert!(w.agents[B].disconnect(w.now, asked).is_err());
    w.agents[B].answer(w.now, asked, valid()).unwrap();
    assert!(w.agents[B].answer(w.now, asked, valid()).is_err());
}

/// Whose process has just started in the place of a dead one may draw its request ids again.
#[test]
fn a_request_id_used_anew_gets_an_answer_of_its_own() {
    let mut w = World::new(9);
    let ask = |w: &mut World, tid| {
        let mad = CmMad {
            tid,
            message: Message::SidrReq(SidrReq {
                request_id: 5,
                ..request()
            }),
        };
        w.post(gid(A), gid(B), &mad);
        w.settle();
        w.names(B).len()
    };
    assert_eq!(ask(&mut w, 1), 1);
    let first = w.event(B).conversation;
    assert_eq!(ask(&mut w, 2), 0, "the first still waits");
    w.agents[B].answer(w.now, first, valid()).unwrap();
    assert_eq!(ask(&mut w, 1), 0, "a repetition");
    assert_eq!(ask(&mut w, 3), 1);
    assert_ne!(w.event(B).conversation, first);
}

#[test]
fn nobody_offers_says_so() {
    let mad = CmMad {
        tid: 9,
        message: Message::SidrReq(SidrReq {
            request_id: 5,
            ..request()
        }),
    };
    let answer = answer_unoffered(&mad).unwrap();
    let Message::SidrRep(rep) = answer.message else {
        panic!("{answer:?}");
    };
    assert_eq!(
        (answer.tid, rep.request_id, rep.status),
        (9, 5, SidrStatus::UNSUPPORTED)
    );
}

#[test]
fn no_more_requests_wait_than_the_limit() {
    let mut w = World::new(10);
    for _ in 0..2 * HALF_OPEN {
        w.resolve(A, B);
    }
    w.settle();
    assert_eq!(w.names(B).len(), HALF_OPEN);
    assert_eq!(w.agents[B].len(), HALF_OPEN);
}

#[test]
fn a_request_goes_out_at_once_when_the_process_that_had_it_is_gone() {
    let mut w = World::new(11);
    w.censored = Some("SIDR_REQ");
    w.resolve(A, B);
    w.censored = None;
    let now = w.now;
    w.agents[A].on_process_gone(now, |_, _| true);
    w.settle();
    w.expect_events(B, &["Resolution"]);
}

/// With an eighth of all messages lost, every resolution ends with the answer, and its owner is
/// asked once.
#[test]
fn a_lossy_network_does_not_prevent_resolution() {
    for seed in 0..2000 {
        let mut w = World::new(seed);
        w.faults = Faults {
            lose: 125,
            repeat: 200,
            jitter: 3000,
        };
        let a = w.resolve(A, B);
        let mut asked = 0;
        while w.names(A).is_empty() {
            w.run(Duration::from_millis(100));
            while let Some(event) = w.events[B].pop_front() {
                asked += 1;
                let id = event.conversation;
                w.agents[B].answer(w.now, id, valid()).unwrap();
            }
        }
        assert_eq!(asked, 1, "seed {seed}");
        assert_eq!(
            w.expect_answer(A, a).status,
            SidrStatus::VALID,
            "seed {seed}"
        );
        w.run_to_the_end();
        w.expect_events(A, &[]);
        w.expect_events(B, &[]);
        assert!(w.agents.iter().all(Agent::is_empty), "seed {seed}");
    }
}
