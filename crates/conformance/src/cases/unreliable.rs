//! Unreliable connections.

use ferroce_proto::ids::Key;
use ferroce_proto::verbs::{QpState, QpType, SendOp, WcImm, WcStatus};
use ferroce_proto::wire::{Opcode, Operation, Position};

use crate::bench::{Bench, MTU, Spec};
use crate::case::Case;
use crate::door::EINVAL;
use crate::end::{End, until_nothing_is_lost};
use crate::raw::{Building, RawPeer};

use Operation::{Send, SendImm, Write};
use Position::{First, Last, Middle, Only};

pub(super) const CASES: &[Case] = &[
    Case::new("uc.operations", &["uc.operations"], no_reads),
    Case::new("uc.local-error", &["sqe.stops-sends-only"], |bench| {
        until_nothing_is_lost(|| local_error(bench))
    }),
    Case::raw("uc.no-answers", &["uc.no-answers"], no_answers),
    Case::raw("uc.gap", &["uc.gap"], gap),
    Case::raw("uc.violation", &["uc.violation"], violations),
    Case::raw("uc.no-receive", &["uc.no-receive"], no_receive),
    Case::raw(
        "uc.wrong-service",
        &["violation.drop-service"],
        wrong_service,
    ),
];

fn no_reads(bench: &Bench) {
    let spec = Spec::of(QpType::Uc);
    let (a, b) = bench.pair_of(spec, spec);
    let add = SendOp::FetchAdd {
        remote: b.remote(0),
        add: 1,
    };
    for op in [SendOp::Read(b.remote(0)), add] {
        let flags = ferroce_proto::verbs::SendFlags::SIGNALED;
        let wr = crate::end::send_wr(1, op, vec![a.sge(0, 8)], flags);
        assert_eq!(a.post(wr), Err(EINVAL));
    }
}

fn local_error(bench: &Bench) -> Option<()> {
    let spec = Spec::of(QpType::Uc);
    let (a, b) = bench.pair_of(spec, spec);
    a.send(1, SendOp::Send, vec![a.sge_with(Key(3), 0, 8)]);
    a.completes(1, WcStatus::LocProtErr);
    a.reaches(QpState::Sqe);
    // Sends are flushed, receives go on.
    a.send(2, SendOp::Send, vec![]);
    a.completes(2, WcStatus::WrFlushErr);
    a.recv(3, vec![]);
    b.send(3, SendOp::Send, vec![]);
    b.done(3);
    a.arrives(3)?;
    a.to(QpState::Rts);
    b.recv(4, vec![]);
    a.send(4, SendOp::Send, vec![]);
    a.done(4);
    b.arrives(4)?;
    Some(())
}

fn packet<'a>(peer: &'a RawPeer, operation: Operation, position: Position) -> Building<'a> {
    peer.opcode(Opcode::uc(operation, position).expect("UC has it"))
}

/// The queue pair takes a message, into the receive `wr_id`; nothing else has happened.
fn works(end: &End, peer: &RawPeer, wr_id: u64) {
    packet(peer, SendImm, Only)
        .imm([9; 4])
        .payload(&[7; 8])
        .go();
    let wc = end.done(wr_id);
    assert_eq!((wc.byte_len, wc.imm), (8, Some(WcImm::Imm([9; 4]))));
    end.is_silent();
    assert_eq!(end.state(), QpState::Rts);
}

fn no_answers(bench: &Bench) {
    let (end, peer) = bench.raw_of(Spec::of(QpType::Uc));
    for wr_id in 0..3 {
        end.recv(wr_id, vec![end.sge(0, 64)]);
    }
    for wr_id in 0..3 {
        works(&end, &peer, wr_id);
    }
    // What comes next from it is not an acknowledgement.
    end.send(5, SendOp::Send, vec![end.sge(0, 2 * MTU)]);
    end.done(5);
    let first = peer.next();
    assert_eq!(Some(first.bth.opcode), Opcode::uc(Send, First));
    assert!(!first.bth.ack_req);
    let last = peer.next();
    assert_eq!(Some(last.bth.opcode), Opcode::uc(Send, Last));
    assert!(!last.bth.ack_req);
}

fn gap(bench: &Bench) {
    let (end, peer) = bench.raw_of(Spec::of(QpType::Uc));
    end.recv(1, vec![end.sge(0, 4 * MTU)]);
    packet(&peer, Send, First).payload(&[1; MTU]).go();
    // The middle is lost.
    peer.set_psn(peer.psn().plus(1));
    packet(&peer, Send, Last).payload(&[3; 4]).go();
    packet(&peer, Send, Middle).payload(&[3; MTU]).go();
    works(&end, &peer, 1);
}

fn violations(bench: &Bench) {
    let (mut end, peer) = bench.raw_of(Spec::of(QpType::Uc));
    end.recv(1, vec![end.sge(0, 8)]);
    let foreign = end.side_mut().register_elsewhere(0, 64, crate::bench::ALL);
    let foreign = end.remote_with(foreign.expect("a region"), 0);
    let wrong = [
        packet(&peer, Write, Only)
            .reth(end.remote_with(Key(5), 0), 8)
            .payload(&[1; 8]),
        packet(&peer, Write, Only).reth(foreign, 8).payload(&[1; 8]),
        packet(&peer, Write, Only)
            .reth(end.remote(end.memory().len()), 8)
            .payload(&[1; 8]),
        packet(&peer, Write, Only)
            .reth(end.remote(0), 9)
            .payload(&[1; 8]),
        packet(&peer, Write, First)
            .reth(end.remote(0), 2000)
            .payload(&[1; 8]),
        packet(&peer, Write, Last).payload(&[1; 8]),
    ];
    for (n, packet) in (0..).zip(wrong) {
        let psn = crate::bench::FIRST_PSN.plus(n);
        packet.at(psn).go();
        peer.set_psn(psn.plus(1));
    }
    works(&end, &peer, 1);
    assert_eq!(end.memory().bytes(8, 8), [0; 8]);
}

fn no_receive(bench: &Bench) {
    let (end, peer) = bench.raw_of(Spec::of(QpType::Uc));
    for _ in 0..3 {
        packet(&peer, Send, Only).payload(&[1; 8]).go();
    }
    bench.catch_up(&peer);
    end.recv(1, vec![end.sge(0, 8)]);
    works(&end, &peer, 1);
}

fn wrong_service(bench: &Bench) {
    let (end, peer) = bench.raw_of(Spec::of(QpType::Uc));
    end.recv(1, vec![end.sge(0, 8)]);
    let psn = peer.psn();
    peer.packet(Send, Only).at(psn).payload(&[1; 8]).go();
    peer.packet(Operation::ReadRequest, Only)
        .at(psn)
        .reth(end.remote(0), 8)
        .go();
    works(&end, &peer, 1);
}
