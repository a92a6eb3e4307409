//! Receives from shared receive queues.

mod common;

use common::workload::{MEMORY, Workload};
use common::{SOON, expect_recv, expect_send, seeds};
use ferroce_proto::ids::PdId;
use ferroce_proto::rc::{Noted, SharedRecv};
use ferroce_proto::testkit::{Faults, PD, Pair, Rng, Setup, Side, remote, sge, wr};
use ferroce_proto::verbs::{
    AttrMask, PostError, QpAttr, QpEvent, QpState, RecvWr, SendOp, WcStatus,
};

fn setup() -> Setup {
    Setup {
        shared_recv: true,
        ..Setup::default()
    }
}

#[test]
fn random_work_over_bad_links_with_scarce_receives() {
    for seed in seeds(200) {
        let mut rng = Rng::new(seed);
        let mut pair = Pair::new(Setup {
            seed,
            memory: MEMORY,
            faults: Faults {
                drop: rng.below32(100),
                duplicate: rng.below32(100),
                reorder: rng.below32(100),
            },
            ..setup()
        });
        let mut work = Workload::new(&mut pair, seed, [30, 30]);
        work.scarce = rng.below32(4);
        work.run(&mut pair);
    }
}

#[test]
fn keys_of_receives_belong_to_the_domain_of_the_queue() {
    let other = PdId(9);
    for (pd, status) in [(other, WcStatus::Success), (PD, WcStatus::RemOpErr)] {
        let mut pair = Pair::new(setup());
        let key = pair
            .b
            .register_in(other, 0, 64, ferroce_proto::mr::Access::LOCAL_WRITE);
        let wr_b = RecvWr {
            wr_id: 4,
            sges: vec![sge(key, 0, 64)].into(),
        };
        let recv = SharedRecv { wr: wr_b, pd };
        pair.b.results.shared_recv.push_back(recv);
        let from = pair.sge(Side::A, 0, 32);
        pair.send(Side::A, wr(1, SendOp::Send, vec![from]));
        pair.settle(SOON);
        expect_send(&pair, &[(1, status)]);
    }
}

#[test]
fn a_requester_that_came_again_by_itself_does_not_wait() {
    let mut pair = Pair::new(setup());
    pair.send(Side::A, wr(1, SendOp::Send, vec![]));
    let is_refused = |p: &Pair| p.b.results.noted[Noted::NotReadySent as usize] == 1;
    pair.until(SOON, is_refused);
    // Another queue pair of the queue is told of this receive.
    let recv = RecvWr {
        wr_id: 4,
        sges: vec![].into(),
    };
    let shared = SharedRecv { wr: recv, pd: PD };
    pair.b.results.shared_recv.push_back(shared);
    pair.settle(SOON);
    expect_send(&pair, &[(1, WcStatus::Success)]);
    assert!(
        !pair.b.qp.on_recv_available(),
        "the turn is another one's whose requester waits"
    );
}

#[test]
fn an_error_flushes_what_is_held_and_leaves_the_rest() {
    let mut pair = Pair::new(setup());
    let whole = pair.whole(Side::B);
    pair.shared_recv(Side::B, 7, whole);
    pair.shared_recv(Side::B, 8, vec![]);
    // A message of which only the first part comes.
    let from = pair.sge(Side::A, 0, 100_000);
    pair.send(Side::A, wr(1, SendOp::Send, vec![from]));
    pair.until(SOON, |p| p.b.results.shared_recv.len() == 1);
    let attr = QpAttr {
        qp_state: QpState::Err,
        ..QpAttr::default()
    };
    pair.modify(Side::B, &attr, AttrMask::STATE);
    expect_recv(&pair, &[(7, WcStatus::WrFlushErr)]);
    assert_eq!(pair.b.results.events, [QpEvent::LastWqeReached]);
    assert_eq!(pair.b.results.shared_recv.len(), 1);
    // It is told once.
    pair.modify(Side::B, &attr, AttrMask::STATE);
    assert_eq!(pair.b.results.events, [QpEvent::LastWqeReached]);
}

#[test]
fn a_request_that_ends_the_queue_pair_tells_of_the_last_receive_too() {
    let mut pair = Pair::new(setup());
    let from = pair.sge(Side::A, 0, 10);
    let nowhere = remote(ferroce_proto::ids::Key(0xbad), 0);
    pair.send(Side::A, wr(1, SendOp::Write(nowhere), vec![from]));
    pair.settle(SOON);
    expect_send(&pair, &[(1, WcStatus::RemAccessErr)]);
    assert_eq!(
        pair.b.results.events,
        [QpEvent::AccessError, QpEvent::LastWqeReached]
    );
}

#[test]
fn receives_are_not_posted_to_the_queue_pair() {
    let mut pair = Pair::new(setup());
    let now = pair.now;
    let refused = pair.b.with(now, |qp, cx| {
        let wr = RecvWr {
            wr_id: 1,
            sges: vec![].into(),
        };
        qp.post_recv(cx, wr)
    });
    assert!(matches!(refused, Err(PostError::Invalid(_))), "{refused:?}");
}
