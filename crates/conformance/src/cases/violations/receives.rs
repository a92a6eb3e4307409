//! Messages whose receive is missing, or cannot take them.

use ferroce_proto::ids::Key;
use ferroce_proto::verbs::{AsyncEvent, QpState, WcStatus};
use ferroce_proto::wire::{NakCode, Operation, Position};

use super::{FULL, refused};
use crate::bench::{Bench, Spec};
use crate::case::Case;
use crate::raw::RawPeer;

use Operation::{Send, WriteImm};
use Position::Only;

pub(in crate::cases) const CASES: &[Case] = &[
    Case::raw("violation.recv-lkey", &["violation.recv-lkey"], recv_key),
    Case::raw(
        "violation.no-receive",
        &["violation.no-receive", "wire.rnr-nak", "wire.rnr-timer"],
        no_receive,
    ),
    Case::raw(
        "violation.invalidate",
        &["violation.invalidate"],
        invalidate,
    ),
    Case::raw(
        "violation.cq-overflow",
        &["violation.cq-overflow"],
        cq_overflow,
    ),
];

fn recv_key(bench: &Bench) {
    let both = bench.raw();
    let (end, peer) = &both;
    end.recv(1, vec![end.sge_with(Key(1), 0, 64)]);
    let packet = peer.packet(Send, Only).payload(&FULL[..64]);
    refused(&both, packet, (NakCode::RemoteOperational, None));
    end.completes(1, WcStatus::LocProtErr);
}

fn no_receive(bench: &Bench) {
    use ferroce_proto::wire::Syndrome;
    let mut spec = Spec::default();
    spec.attr.min_rnr_timer = 21;
    let (end, peer) = bench.raw_of(spec);
    let psn = peer.psn();
    let again = |peer: &RawPeer| peer.packet(Send, Only).at(psn).payload(&FULL[..8]).go();
    again(&peer);
    peer.answers(Syndrome::RnrNak(21), psn);
    // The same for the packet of a WRITE that needs a receive.
    let write = peer.packet(WriteImm, Only).at(psn).reth(end.remote(0), 8);
    write.imm([1; 4]).payload(&FULL[..8]).go();
    peer.answers(Syndrome::RnrNak(21), psn);
    assert_eq!(end.state(), QpState::Rts);
    assert_eq!(end.expected_psn(), psn, "nothing was taken");
    end.recv(1, vec![end.sge(0, 8)]);
    // A hint that there is a receive now: the last acknowledgement again.
    peer.acks(psn.plus(u32::MAX));
    again(&peer);
    peer.acks(psn);
    end.done(1);
}

fn invalidate(bench: &Bench) {
    let both = bench.raw();
    let (end, peer) = &both;
    end.recv(1, vec![]);
    let packet = peer
        .packet(Operation::SendInvalidate, Only)
        .invalidate(Key(77));
    let psn = peer.psn();
    packet.go();
    peer.naks(NakCode::RemoteAccess, psn);
    end.completes(1, WcStatus::RemInvReqErr);
    end.reaches(QpState::Err);
}

fn cq_overflow(bench: &Bench) {
    let (end, peer) = bench.raw_of(Spec {
        cqe: 1,
        ..Spec::default()
    });
    for wr_id in 0..30 {
        end.recv(wr_id, vec![]);
    }
    for _ in 0..30 {
        peer.packet(Send, Only).unasked().go();
    }
    end.reaches(QpState::Err);
    let (event, _) = crate::wait::wait_for("event", || end.side().event());
    assert_eq!(event, AsyncEvent::CqErr);
}
