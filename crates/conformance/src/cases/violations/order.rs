//! Packets out of order, or of no kind that there is.

use ferroce_proto::verbs::WcStatus;
use ferroce_proto::wire::{NakCode, Opcode, Operation, Position};

use super::{FULL, INVALID, refused};
use crate::bench::{Bench, MTU};
use crate::case::Case;

use Operation::{FetchAdd, ReadRequest, Send, Write};
use Position::{First, Last, Middle, Only};

pub(in crate::cases) const CASES: &[Case] = &[
    Case::raw("violation.sequence", &["violation.sequence"], sequence),
    Case::raw(
        "violation.interrupted-message",
        &["violation.sequence"],
        interrupted_message,
    ),
    Case::raw(
        "violation.unknown-opcode",
        &["violation.unknown-opcode"],
        unknown_opcodes,
    ),
    Case::raw(
        "violation.after-error",
        &["qp.err-deaf"],
        deaf_after_an_error,
    ),
    Case::raw("violation.gap", &["wire.nak-sequence", "rc.gap-once"], gap),
];

fn sequence(bench: &Bench) {
    // Middle and Last without First.
    for (operation, position) in [(Send, Middle), (Send, Last), (Write, Middle), (Write, Last)] {
        let both = bench.raw();
        both.0.recv(1, vec![both.0.sge(0, 8 * MTU)]);
        refused(
            &both,
            both.1.packet(operation, position).payload(&FULL),
            INVALID,
        );
        both.0.completes(1, WcStatus::WrFlushErr);
    }
}

fn interrupted_message(bench: &Bench) {
    // A message that has begun must go on.
    for (operation, position) in [
        (Send, First),
        (Send, Only),
        (Write, Middle),
        (Write, Only),
        (ReadRequest, Only),
        (FetchAdd, Only),
    ] {
        let both = bench.raw();
        let (end, peer) = &both;
        for wr_id in 1..3 {
            end.recv(wr_id, vec![end.sge(0, 8 * MTU)]);
        }
        peer.packet(Send, First).payload(&FULL).unasked().go();
        let at = end.remote(0);
        let packet = match operation {
            Write if position == Only => peer.packet(Write, Only).reth(at, 1024).payload(&FULL),
            ReadRequest => peer.packet(ReadRequest, Only).reth(at, 8),
            FetchAdd => peer.packet(FetchAdd, Only).atomic(at, 1, 0),
            _ => peer.packet(operation, position).payload(&FULL),
        };
        refused(&both, packet, INVALID);
        end.completes(1, WcStatus::WrFlushErr);
        end.completes(2, WcStatus::WrFlushErr);
    }
}

fn unknown_opcodes(bench: &Bench) {
    for code in [0x15, 0x18, 0x1b, 0x1e, 0x1f] {
        let both = bench.raw();
        refused(&both, both.1.opcode(Opcode(code)), INVALID);
    }
}

fn deaf_after_an_error(bench: &Bench) {
    let both = bench.raw();
    let (end, peer) = &both;
    refused(&both, peer.packet(Send, Last).payload(&FULL), INVALID);
    let psn = peer.psn();
    // Executed nevertheless, it would change memory. What the peer hears again is the refusal at
    // most.
    let write = peer
        .packet(Write, Only)
        .reth(end.remote(0), 8)
        .payload(&FULL[..8]);
    write.go();
    bench.catch_up(peer);
    assert_eq!(end.memory().word(0), 0);
    assert_ne!(end.expected_psn(), psn.plus(1));
}

fn gap(bench: &Bench) {
    let (end, peer) = bench.raw();
    for wr_id in 0..2 {
        end.recv(wr_id, vec![]);
    }
    let psn = peer.psn();
    for ahead in [1, 2, 3] {
        peer.packet(Send, Only).at(psn.plus(ahead)).go();
    }
    peer.naks(NakCode::Sequence, psn);
    // No second NAK comes before this acknowledgement.
    peer.is_heard();
    end.done(0);
    peer.packet(Send, Only).at(psn.plus(5)).go();
    peer.naks(NakCode::Sequence, psn.plus(1));
    peer.is_heard();
    end.done(1);
}
