//! Every asynchronous event of a queue pair and its completion queue.

use ferroce_proto::verbs::{AsyncEvent, AttrMask, PathMigState, QpAttr, QpState, SendOp, WcStatus};

use crate::bench::{Bench, PATIENT, Spec};
use crate::case::Case;
use crate::door::About;
use crate::wait::wait_for;

pub(super) const CASES: &[Case] = &[
    Case::new("event.comm-est", &["event.comm-est"], comm_est),
    Case::new("event.sq-drained", &["event.sq-drained"], sq_drained),
    Case::new(
        "event.sq-drained.not-asked",
        &["event.sq-drained"],
        sq_drained_not_asked,
    ),
    Case::new(
        "event.cq-err.responder",
        &["event.cq-err", "event.qp-fatal", "violation.cq-overflow"],
        cq_overflow_of_responder,
    ),
    Case::new(
        "event.cq-err.requester",
        &["event.cq-err", "event.qp-fatal"],
        cq_overflow_of_requester,
    ),
    Case::new("event.path-mig", &["event.path-mig"], path_mig),
];

/// A program loads an alternate path, arms it, and takes it.
fn path_mig(bench: &Bench) {
    let (a, b) = bench.pair();
    let primary = a.side().query();
    let mut attr = QpAttr {
        alt_ah_attr: primary.ah_attr,
        alt_port_num: 1,
        alt_timeout: 21,
        ..QpAttr::default()
    };
    attr.alt_ah_attr.grh.hop_limit = 42;
    a.side().modify(&attr, AttrMask::ALT_PATH).expect("loaded");
    use PathMigState::{Armed, Migrated, Rearm};
    for path_mig_state in [Rearm, Armed, Migrated] {
        a.raises_nothing();
        let attr = QpAttr {
            path_mig_state,
            ..QpAttr::default()
        };
        let changed = a.side().modify(&attr, AttrMask::PATH_MIG_STATE);
        changed.expect("changed");
    }
    a.raises(AsyncEvent::PathMig);
    let now = a.side().query();
    assert_eq!((now.ah_attr.grh.hop_limit, now.timeout), (42, 21));
    a.send(1, SendOp::Write(b.remote(0)), vec![a.sge(0, 5000)]);
    a.done(1);
}

fn comm_est(bench: &Bench) {
    let (a, b) = (bench.end(Spec::default()), bench.peer(Spec::default()));
    a.connect(b.qpn());
    b.go_to(QpState::Rtr, a.qpn(), a.gid());
    b.raises_nothing();
    for wr_id in 0..3 {
        b.recv(wr_id, vec![]);
        a.send(wr_id, SendOp::Send, vec![]);
        a.done(wr_id);
    }
    b.raises(AsyncEvent::CommEst);
    b.raises_nothing();
}

fn drain(bench: &Bench, en_sqd_async_notify: bool) {
    let (a, b) = bench.pair();
    for wr_id in 0..5 {
        a.send(wr_id, SendOp::Write(b.remote(0)), vec![a.sge(0, 5000)]);
    }
    let attr = QpAttr {
        qp_state: QpState::Sqd,
        en_sqd_async_notify,
        ..QpAttr::default()
    };
    let mask = AttrMask::STATE | AttrMask::EN_SQD_ASYNC_NOTIFY;
    a.side().modify(&attr, mask).expect("SQD");
    // What was started is finished; the rest waits.
    wait_for("end of the drain", || {
        (!a.side().query().sq_draining).then_some(())
    });
    if en_sqd_async_notify {
        a.raises(AsyncEvent::SqDrained);
    }
    a.raises_nothing();
    a.to(QpState::Rts);
    for wr_id in 0..5 {
        a.done(wr_id);
    }
    a.raises_nothing();
}

fn sq_drained(bench: &Bench) {
    drain(bench, true);
}

fn sq_drained_not_asked(bench: &Bench) {
    drain(bench, false);
}

/// A completion queue that is certain to be full, whatever the size was rounded to.
const MANY: u64 = 30;

fn cq_overflow_of_responder(bench: &Bench) {
    // A requester with little patience shows soon that it hears nothing. On a busy machine it may
    // give up before there is an overflow.
    let overflowed = [12, 15, 18, PATIENT]
        .into_iter()
        .any(|timeout| overflow_of_responder(bench, timeout));
    assert!(overflowed);
}

/// Returns false if the requester has given up before.
fn overflow_of_responder(bench: &Bench, timeout: u8) -> bool {
    let small = Spec {
        cqe: 1,
        ..Spec::default()
    };
    let mut requester = Spec::default();
    (requester.attr.timeout, requester.attr.retry_cnt) = (timeout, 1);
    let (a, b) = bench.pair_of(requester, small);
    for wr_id in 0..MANY {
        b.recv(wr_id, vec![]);
        a.send(wr_id, SendOp::Send, vec![]);
    }
    let event = wait_for("event", || match b.side().event() {
        None if a.state() == QpState::Err && b.state() != QpState::Err => Some(None),
        event => event.map(Some),
    });
    let Some(event) = event else {
        return false;
    };
    assert_eq!(event, (AsyncEvent::CqErr, About::Cq));
    b.raises(AsyncEvent::QpFatal);
    b.reaches(QpState::Err);
    // The requester hears nothing.
    let failed = (0..MANY)
        .map(|_| a.completion().status)
        .find(|s| *s != WcStatus::Success);
    assert_eq!(failed, Some(WcStatus::RetryExcErr));
    assert!(wait_for("error", || b.side().poll().err()).0 > 0);
    true
}

fn cq_overflow_of_requester(bench: &Bench) {
    let small = Spec {
        cqe: 1,
        ..Spec::default()
    };
    let (a, b) = bench.pair_of(small, Spec::default());
    for wr_id in 0..MANY {
        // Refused once the queue pair is in ERR: its completions have no room either.
        let wr = crate::end::send_wr(
            wr_id,
            SendOp::Write(b.remote(0)),
            vec![a.sge(0, 8)],
            ferroce_proto::verbs::SendFlags::SIGNALED,
        );
        a.post(wr).expect("posted");
    }
    let event = wait_for("event", || a.side().event());
    assert_eq!(event, (AsyncEvent::CqErr, About::Cq));
    a.raises(AsyncEvent::QpFatal);
    a.reaches(QpState::Err);
    assert_eq!(b.state(), QpState::Rts);
}
