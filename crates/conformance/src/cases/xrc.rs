//! Extended reliable connections: an initiator, and a target whose receives are those that the
//! initiator names.

use ferroce_proto::ids::Srqn;
use ferroce_proto::verbs::{QpType, SendOp, WcStatus};
use ferroce_proto::wire::{Operation, Position, Service};

use crate::bench::{Bench, MTU, Spec};
use crate::case::Case;
use crate::end::End;

pub(super) const CASES: &[Case] = &[
    Case::new("xrc.operations", &["xrc.delivers", "op.atomic"], operations),
    Case::new("xrc.names-the-queue", &["xrc.delivers"], names_the_queue),
    Case::new("xrc.wrong-srq", &["xrc.wrong-srq"], wrong_srq),
    Case::raw("xrc.header", &["xrc.header"], header),
];

/// An initiator, and a target with a shared receive queue, each with so many bytes of memory.
pub(super) fn pair_with(bench: &Bench, memory: usize) -> (End, End) {
    let target = Spec {
        srq: Some(16),
        memory,
        ..Spec::of(QpType::XrcRecv)
    };
    let initiator = Spec {
        memory,
        ..Spec::of(QpType::XrcSend)
    };
    bench.pair_of(initiator, target)
}

fn pair(bench: &Bench) -> (End, End) {
    pair_with(bench, Spec::default().memory)
}

/// Completions tell the sender; atomics go to the target.
fn operations(bench: &Bench) {
    let (a, b) = pair(bench);
    let to = b.side().srqn();
    b.recv(1, vec![b.sge(0, 8)]);
    a.send_xrc(1, to, SendOp::Send, vec![a.sge(0, 8)]);
    a.done(1);
    assert_eq!(b.done(1).src_qp, a.qpn());
    b.memory().fill(0, &7_u64.to_ne_bytes());
    let remote = b.remote(0);
    let swap = SendOp::CompareSwap {
        remote,
        compare: 12,
        swap: 1,
    };
    let add = SendOp::FetchAdd { remote, add: 5 };
    for (op, before, after) in [(add, 7, 12), (swap, 12, 1)] {
        a.send_xrc(3, to, op, vec![a.sge(0, 8)]);
        a.done(3);
        assert_eq!((a.memory().word(0), b.memory().word(0)), (before, after));
    }
}

fn names_the_queue(bench: &Bench) {
    let (a, mut b) = pair(bench);
    let first = b.side().srqn();
    b.recv(1, vec![b.sge(0, 8)]);
    b.side_mut().another_srq();
    let second = b.side().srqn();
    assert_ne!(first, second);
    b.recv(2, vec![b.sge(0, 8)]);
    for (to, wr_id) in [(second, 2), (first, 1)] {
        a.send_xrc(wr_id, to, SendOp::Send, vec![a.sge(0, 8)]);
        a.done(wr_id);
        b.done(wr_id);
    }
    b.is_silent();
}

fn wrong_srq(bench: &Bench) {
    // No queue at all, and one of another domain.
    let (_c, d) = pair(bench);
    for wrong in [Srqn::new(0x00fe_dcba), d.side().srqn()] {
        let (a, b) = pair(bench);
        b.recv(1, vec![]);
        a.send_xrc(1, wrong, SendOp::Send, vec![]);
        a.completes(1, WcStatus::RemInvReqErr);
        b.is_silent();
    }
    d.is_silent();
}

fn header(bench: &Bench) {
    let (end, peer) = bench.raw_of(Spec::of(QpType::XrcSend));
    let to = Srqn::new(0x0012_3456);
    end.send_xrc(1, to, SendOp::Send, vec![end.sge(0, 2 * MTU)]);
    for position in [Position::First, Position::Last] {
        let packet = peer.takes(Operation::Send, position);
        assert_eq!(packet.bth.opcode.service(), Some(Service::Xrc));
        assert_eq!(packet.ext.xrceth, Some(to));
    }
}
