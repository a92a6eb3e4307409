//! Extended reliable connections: an initiator, and a target whose receives are those that the initiator names.

use ferroce_proto::ids::Srqn;
use ferroce_proto::verbs::{QpType, SendOp, WcStatus};
use ferroce_proto::wire::{Operation, Position, Service};

use crate::bench::{Bench, MTU, Spec};
use crate::case::Case;
use crate::end::{End, pattern};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "xrc.operations",
        &["xrc.delivers", "op.lengths"],
        operations,
    ),
    Case::new("xrc.names-the-queue", &["xrc.delivers"], names_the_queue),
    Case::new("xrc.wrong-srq", &["xrc.wrong-srq"], wrong_srq),
    Case::raw("xrc.header", &["xrc.header"], header),
];

/// An initiator, and a target with a shared receive queue.
fn pair(bench: &Bench) -> (End, End) {
    let target = Spec {
        srq: Some(16),
        ..Spec::of(QpType::XrcRecv)
    };
    bench.pair_of(Spec::of(QpType::XrcSend), target)
}

fn operations(bench: &Bench) {
    let (a, b) = pair(bench);
    let to = b.side().srqn();
    for (wr_id, len) in (1..).zip([0, 1, MTU - 1, MTU, MTU + 1, 3 * MTU, 20_000]) {
        let content = pattern(len, wr_id);
        a.memory().fill(0, &content);
        b.recv(wr_id, vec![b.sge(0, 30_000)]);
        a.send_xrc(wr_id, to, SendOp::Send, vec![a.sge(0, len)]);
        a.done(wr_id);
        let wc = b.done(wr_id);
        assert_eq!((wc.byte_len as usize, wc.src_qp), (len, a.qpn()));
        assert!(b.memory().bytes(0, len) == content);
        a.send_xrc(1, to, SendOp::Write(b.remote(30_000)), vec![a.sge(0, len)]);
        a.done(1);
        assert!(b.memory().bytes(30_000, len) == content);
        a.send_xrc(
            2,
            to,
            SendOp::Read(b.remote(30_000)),
            vec![a.sge(30_000, len)],
        );
        a.done(2);
        assert!(a.memory().bytes(30_000, len) == content);
    }
    let add = SendOp::FetchAdd {
        remote: b.remote(0),
        add: 5,
    };
    b.memory().fill(0, &7_u64.to_ne_bytes());
    a.send_xrc(3, to, add, vec![a.sge(0, 8)]);
    a.done(3);
    assert_eq!((a.memory().word(0), b.memory().word(0)), (7, 12));
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
