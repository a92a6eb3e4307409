//! Every change of state, allowed and not, and what a queue pair does in each state.

use ferroce_proto::verbs::{AttrMask, QpAttr, QpState, QpType, SendFlags, SendOp, WcStatus};

use crate::bench::{Bench, Spec};
use crate::case::Case;
use crate::door::EINVAL;
use crate::end::{End, send_wr, to_init, to_rtr, to_rts};

pub(super) const CASES: &[Case] = &[
    Case::new("states.rc.every-pair", &["qp.transitions"], |b| {
        every_pair(b, QpType::Rc);
    }),
    Case::new("states.uc.every-pair", &["qp.transitions"], |b| {
        every_pair(b, QpType::Uc);
    }),
    Case::new("states.ud.every-pair", &["qp.transitions"], |b| {
        every_pair(b, QpType::Ud);
    }),
    Case::new(
        "states.xrc-initiator.every-pair",
        &["qp.transitions"],
        |b| every_pair(b, QpType::XrcSend),
    ),
    Case::new("states.xrc-target.every-pair", &["qp.transitions"], |b| {
        every_pair(b, QpType::XrcRecv);
    }),
    Case::new("states.rc.every-attribute", &["qp.attributes"], |b| {
        every_attribute(b, QpType::Rc);
    }),
    Case::new("states.uc.every-attribute", &["qp.attributes"], |b| {
        every_attribute(b, QpType::Uc);
    }),
    Case::new("states.ud.every-attribute", &["qp.attributes"], |b| {
        every_attribute(b, QpType::Ud);
    }),
    Case::new(
        "states.xrc-initiator.every-attribute",
        &["qp.attributes"],
        |b| every_attribute(b, QpType::XrcSend),
    ),
    Case::new(
        "states.xrc-target.every-attribute",
        &["qp.attributes"],
        |b| every_attribute(b, QpType::XrcRecv),
    ),
    Case::new(
        "states.refused-changes-nothing",
        &["qp.refused-unchanged"],
        refused_changes_nothing,
    ),
    Case::new("states.cur-state", &["qp.cur-state"], cur_state),
    Case::new(
        "states.reset.refuses-work",
        &["qp.reset"],
        reset_refuses_work,
    ),
    Case::new(
        "states.init.takes-receives",
        &["qp.init"],
        init_takes_receives,
    ),
    Case::new("states.rtr.receives", &["qp.rtr"], rtr_receives),
    Case::new(
        "states.err.flushes",
        &["qp.err-flush", "qp.err-post"],
        err_flushes,
    ),
    Case::new("states.reset.forgets", &["qp.reset-forgets"], reset_forgets),
    Case::new("states.sqd.holds-new-work", &["qp.sqd"], sqd_holds_new_work),
    Case::new(
        "states.again-after-reset",
        &["qp.reset-again"],
        again_after_reset,
    ),
];

/// All states.
pub const STATES: [QpState; 7] = [
    QpState::Reset,
    QpState::Init,
    QpState::Rtr,
    QpState::Rts,
    QpState::Sqd,
    QpState::Sqe,
    QpState::Err,
];

/// Attributes that a change of state needs, if there is such a change. A program cannot move to
/// SQE.
fn required(kind: QpType, from: QpState, to: QpState) -> Option<AttrMask> {
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd};
    Some(match (from, to) {
        (_, Reset) | (Init, Init) | (Rts | Sqd, Rts) | (Rts | Sqd, Sqd) => AttrMask::STATE,
        (from, Err) if from != Reset => AttrMask::STATE,
        (Reset, Init) => to_init(kind),
        (Init, Rtr) => to_rtr(kind),
        (Rtr, Rts) => to_rts(kind),
        _ => return None,
    })
}

/// A queue pair in a state, if a program can bring it there. It is connected to `peer`.
fn in_state(bench: &Bench, (kind, state): (QpType, QpState), peer: &End) -> Option<End> {
    let end = bench.end(Spec::of(kind));
    match state {
        QpState::Reset => {}
        QpState::Init | QpState::Rtr | QpState::Rts => {
            end.go_to(state, peer.qpn(), peer.gid());
        }
        QpState::Sqd | QpState::Err => {
            end.connect(peer.qpn());
            end.to(state);
        }
        QpState::Sqe => return None,
    }
    assert_eq!(end.state(), state);
    Some(end)
}

/// Everything that any change may need.
fn all_attributes(end: &End, peer: &End, qp_state: QpState) -> QpAttr {
    QpAttr {
        qp_state,
        ..end.attr(peer.qpn(), peer.gid())
    }
}

fn every_pair(bench: &Bench, kind: QpType) {
    let peer = bench.peer(Spec::of(kind));
    let full = to_init(kind) | to_rtr(kind) | to_rts(kind);
    for from in STATES {
        for to in STATES {
            let Some(end) = in_state(bench, (kind, from), &peer) else {
                continue;
            };
            let attr = all_attributes(&end, &peer, to);
            match required(kind, from, to) {
                Some(mask) => {
                    assert_eq!(end.side().modify(&attr, mask), Ok(()), "{from} to {to}");
                    assert_eq!(end.state(), to);
                }
                // With whatever attributes.
                None => {
                    for mask in [
                        AttrMask::STATE,
                        to_init(kind),
                        to_rtr(kind),
                        to_rts(kind),
                        full,
                    ] {
                        assert_eq!(
                            end.side().modify(&attr, mask),
                            Err(EINVAL),
                            "{from} to {to}"
                        );
                        assert_eq!(end.state(), from);
                    }
                }
            }
        }
    }
}

/// Attributes that no change between RESET and RTS takes.
fn superfluous(kind: QpType) -> AttrMask {
    let never = AttrMask::CAP | AttrMask::RATE_LIMIT;
    match kind {
        QpType::Ud => never | AttrMask::AV | AttrMask::DEST_QPN | AttrMask::ACCESS_FLAGS,
        _ => never | AttrMask::QKEY,
    }
}

/// Each required attribute is missed; each of those that no change here takes is refused.
fn every_attribute(bench: &Bench, kind: QpType) {
    use QpState::{Init, Reset, Rtr, Rts};
    let peer = bench.peer(Spec::of(kind));
    for (from, to) in [(Reset, Init), (Init, Rtr), (Rtr, Rts)] {
        let mask = required(kind, from, to).expect("it exists");
        let end = in_state(bench, (kind, from), &peer).expect("reachable");
        let attr = all_attributes(&end, &peer, to);
        for missing in mask.difference(AttrMask::STATE).iter() {
            let got = end.side().modify(&attr, mask.difference(missing));
            assert_eq!(got, Err(EINVAL), "{from} to {to} without {missing}");
            assert_eq!(end.state(), from);
        }
        for superfluous in superfluous(kind).iter() {
            let got = end.side().modify(&attr, mask | superfluous);
            assert_eq!(got, Err(EINVAL), "{from} to {to} with {superfluous}");
            assert_eq!(end.state(), from);
        }
        assert_eq!(end.side().modify(&attr, mask), Ok(()));
    }
    for to in [Reset, QpState::Err] {
        let end = in_state(bench, (kind, Rts), &peer).expect("reachable");
        let attr = all_attributes(&end, &peer, to);
        for superfluous in to_rts(kind).difference(AttrMask::STATE).iter() {
            let got = end.side().modify(&attr, AttrMask::STATE | superfluous);
            assert_eq!(got, Err(EINVAL), "to {to} with {superfluous}");
        }
    }
}

fn refused_changes_nothing(bench: &Bench) {
    let (a, b) = bench.pair();
    let before = a.side().query();
    let mut attr = all_attributes(&a, &b, QpState::Rtr);
    attr.min_rnr_timer = 3;
    attr.qp_access_flags = ferroce_proto::mr::Access::empty();
    let mask = to_rtr(QpType::Rc) | AttrMask::ACCESS_FLAGS;
    assert_eq!(a.side().modify(&attr, mask), Err(EINVAL));
    assert_eq!(a.side().query(), before);
    b.recv(1, vec![]);
    a.send(1, SendOp::Send, vec![]);
    a.done(1);
}

fn cur_state(bench: &Bench) {
    let (a, _b) = bench.pair();
    let ask = |cur_qp_state| {
        let attr = QpAttr {
            qp_state: QpState::Rts,
            cur_qp_state,
            ..QpAttr::default()
        };
        a.side()
            .modify(&attr, AttrMask::STATE | AttrMask::CUR_STATE)
    };
    assert_eq!(ask(QpState::Rts), Ok(()));
    assert_eq!(ask(QpState::Sqd), Err(EINVAL));
    a.to(QpState::Sqd);
    assert_eq!(ask(QpState::Rts), Err(EINVAL));
    assert_eq!(ask(QpState::Sqd), Ok(()));
}

fn refuses_sends(end: &End) {
    let wr = send_wr(9, SendOp::Send, vec![], SendFlags::SIGNALED);
    assert_eq!(end.post(wr), Err(EINVAL), "in {}", end.state());
}

fn reset_refuses_work(bench: &Bench) {
    let end = bench.end(Spec::default());
    refuses_sends(&end);
    let wr = ferroce_proto::verbs::RecvWr {
        wr_id: 1,
        sges: vec![].into(),
    };
    assert_eq!(end.side().post_recv(wr), Err(EINVAL));
    end.is_silent();
}

fn init_takes_receives(bench: &Bench) {
    let (a, b) = (bench.end(Spec::default()), bench.peer(Spec::default()));
    a.connect(b.qpn());
    b.go_to(QpState::Init, a.qpn(), a.gid());
    refuses_sends(&b);
    b.recv(1, vec![b.sge(0, 8)]);
    b.is_silent();
    let attr = b.attr(a.qpn(), a.gid());
    for (qp_state, mask) in [
        (QpState::Rtr, to_rtr(QpType::Rc)),
        (QpState::Rts, to_rts(QpType::Rc)),
    ] {
        let step = QpAttr { qp_state, ..attr };
        b.side().modify(&step, mask).expect("allowed");
    }
    a.send(1, SendOp::Send, vec![a.sge(0, 8)]);
    a.done(1);
    b.done(1);
}

fn rtr_receives(bench: &Bench) {
    let (a, b) = (bench.end(Spec::default()), bench.peer(Spec::default()));
    a.connect(b.qpn());
    b.go_to(QpState::Rtr, a.qpn(), a.gid());
    refuses_sends(&b);
    b.recv(1, vec![b.sge(0, 8)]);
    a.send(1, SendOp::Send, vec![a.sge(0, 8)]);
    a.send(2, SendOp::Read(b.remote(0)), vec![a.sge(0, 8)]);
    a.done(1);
    a.done(2);
    b.done(1);
    assert_eq!(b.state(), QpState::Rtr);
}

fn err_flushes(bench: &Bench) {
    let (a, _b) = bench.pair();
    for wr_id in 0..3 {
        a.recv(wr_id, vec![a.sge(0, 8)]);
    }
    // Held back in SQD, so that nothing completes before the move.
    a.to(QpState::Sqd);
    for wr_id in 10..13 {
        a.send_flagged(wr_id, SendOp::Send, vec![], SendFlags::empty());
    }
    a.to(QpState::Err);
    let mut flushed: Vec<u64> = (0..6)
        .map(|_| {
            let wc = a.completion();
            assert_eq!(wc.status, WcStatus::WrFlushErr);
            wc.wr_id
        })
        .collect();
    // In order per queue; the queues' order to each other is free.
    let recvs: Vec<u64> = flushed.iter().copied().filter(|id| *id < 10).collect();
    assert_eq!(recvs, [0, 1, 2]);
    flushed.retain(|id| *id >= 10);
    assert_eq!(flushed, [10, 11, 12]);
    a.recv(20, vec![]);
    a.completes(20, WcStatus::WrFlushErr);
    a.send(21, SendOp::Send, vec![]);
    a.completes(21, WcStatus::WrFlushErr);
    a.is_silent();
}

fn reset_forgets(bench: &Bench) {
    let (a, _b) = bench.pair();
    a.recv(1, vec![]);
    a.to(QpState::Sqd);
    a.send(2, SendOp::Send, vec![]);
    a.to(QpState::Reset);
    a.is_silent();
    refuses_sends(&a);
}

fn sqd_holds_new_work(bench: &Bench) {
    let (a, b) = bench.pair();
    a.to(QpState::Sqd);
    b.recv(1, vec![]);
    a.recv(5, vec![]);
    a.send(1, SendOp::Send, vec![]);
    // The other direction goes on, and shows that enough time has passed for a message.
    b.send(5, SendOp::Send, vec![]);
    b.done(5);
    a.done(5);
    a.is_silent();
    b.is_silent();
    a.to(QpState::Rts);
    a.done(1);
    b.done(1);
}

fn again_after_reset(bench: &Bench) {
    let (a, b) = bench.pair();
    for round in 0..3 {
        b.recv(round, vec![b.sge(0, 3000)]);
        a.send(round, SendOp::Send, vec![a.sge(0, 3000)]);
        a.done(round);
        b.done(round);
        a.to(QpState::Reset);
        b.to(QpState::Reset);
        a.connect(b.qpn());
        b.connect(a.qpn());
    }
}
