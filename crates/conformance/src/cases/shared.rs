//! Shared receive queues.

use ferroce_proto::verbs::{AsyncEvent, QpState, SendOp};

use crate::bench::{Bench, Spec};
use crate::case::Case;
use crate::door::About;
use crate::wait::wait_for;

pub(super) const CASES: &[Case] = &[
    Case::new("srq.feeds", &["srq.feeds"], feeds),
    Case::new("srq.limit", &["srq.limit"], limit),
    Case::new(
        "srq.last-wqe",
        &["srq.last-wqe", "srq.not-flushed"],
        last_wqe,
    ),
    Case::new("srq.not-ready", &["rc.rnr-wait"], not_ready),
];

fn shared() -> Spec {
    Spec {
        srq: Some(16),
        ..Spec::default()
    }
}

fn feeds(bench: &Bench) {
    let (a, b) = bench.pair_of(Spec::default(), shared());
    for wr_id in 0..10 {
        b.recv(wr_id, vec![b.sge(0, 4000)]);
    }
    for wr_id in 0..10 {
        a.send(wr_id, SendOp::Send, vec![a.sge(0, 3000)]);
    }
    for wr_id in 0..10 {
        a.done(wr_id);
        assert_eq!(b.done(wr_id).byte_len, 3000);
    }
}

fn limit(bench: &Bench) {
    let (a, b) = bench.pair_of(Spec::default(), shared());
    for wr_id in 0..4 {
        b.recv(wr_id, vec![]);
    }
    b.side().arm_srq(3).expect("armed");
    assert_eq!(b.side().srq_limit(), 3);
    a.send(0, SendOp::Send, vec![]);
    a.done(0);
    a.waits_for_peer();
    b.raises_nothing();
    a.send(1, SendOp::Send, vec![]);
    a.done(1);
    a.waits_for_peer();
    let event = wait_for("event", || b.side().event());
    assert_eq!(event, (AsyncEvent::SrqLimitReached, About::Srq));
    assert_eq!(b.side().srq_limit(), 0, "disarmed");
    a.send(2, SendOp::Send, vec![]);
    a.done(2);
    a.waits_for_peer();
    b.raises_nothing();
}

fn last_wqe(bench: &Bench) {
    let (a, b) = bench.pair_of(Spec::default(), shared());
    b.recv(1, vec![]);
    b.recv(2, vec![]);
    a.send(1, SendOp::Send, vec![]);
    a.done(1);
    b.done(1);
    b.to(QpState::Err);
    b.raises(AsyncEvent::QpLastWqeReached);
    b.is_silent();
    // The second receive is still there for the next connection.
    b.to(QpState::Reset);
    a.to(QpState::Reset);
    a.connect(b.qpn());
    b.connect(a.qpn());
    a.send(2, SendOp::Send, vec![]);
    a.done(2);
    b.done(2);
}

fn not_ready(bench: &Bench) {
    let (a, b) = bench.pair_of(Spec::default(), shared());
    a.send(1, SendOp::Send, vec![a.sge(0, 8)]);
    a.recv(7, vec![]);
    b.send(7, SendOp::Send, vec![]);
    b.done(7);
    a.done(7);
    a.is_silent();
    b.recv(1, vec![b.sge(0, 8)]);
    a.done(1);
    b.done(1);
}
