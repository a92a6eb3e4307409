//! Requests of a peer that break a rule: what it is told, and what the program at the other side is told.

use ferroce_proto::ids::Key;
use ferroce_proto::mr::Access;
use ferroce_proto::verbs::{AsyncEvent, QpState, WcStatus};
use ferroce_proto::wire::{NakCode, Opcode, Operation, Position};

use crate::bench::{ALL, Bench, MTU, Spec};
use crate::case::Case;
use crate::end::End;
use crate::raw::{Building, RawPeer};

use Operation::{CompareSwap, FetchAdd, ReadRequest, Send, Write, WriteImm};
use Position::{First, Last, Middle, Only};

pub(super) const CASES: &[Case] = &[
    Case::raw(
        "violation.send-too-long",
        &["violation.send-too-long"],
        send_too_long,
    ),
    Case::raw(
        "violation.send-too-long.middle",
        &["violation.send-too-long"],
        send_too_long_in_the_middle,
    ),
    Case::raw(
        "violation.write-length",
        &["violation.write-length"],
        write_length,
    ),
    Case::raw(
        "violation.write-length.last",
        &["violation.write-length"],
        write_length_of_last,
    ),
    Case::raw(
        "violation.too-long-for-any",
        &["wire.message-limit"],
        longer_than_any_message,
    ),
    Case::raw("violation.pad", &["violation.bad-pad"], bad_pad),
    Case::raw(
        "violation.packet-length",
        &["violation.packet-length", "wire.full-packets"],
        packet_length,
    ),
    Case::raw(
        "violation.rkey",
        &[
            "violation.rkey",
            "violation.bounds",
            "violation.pd",
            "violation.mr-access",
        ],
        remote_keys,
    ),
    Case::raw(
        "violation.bounds.whole-message",
        &["violation.bounds", "rc.range-checked-first"],
        bounds_before_a_byte,
    ),
    Case::raw(
        "violation.wrapping-range",
        &["violation.bounds"],
        range_that_wraps,
    ),
    Case::raw(
        "violation.access-flags",
        &["violation.access-flags"],
        access_flags,
    ),
    Case::raw(
        "violation.atomic-alignment",
        &["violation.atomic-alignment"],
        atomic_alignment,
    ),
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
    Case::raw("violation.read-depth", &["violation.read-depth"], no_depth),
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
    Case::raw(
        "violation.after-error",
        &["qp.err-deaf"],
        deaf_after_an_error,
    ),
    Case::raw("violation.gap", &["wire.nak-sequence", "rc.gap-once"], gap),
];

const FULL: [u8; MTU] = [7; MTU];

/// The refusal of a packet: NAK with its PSN, the queue pair in ERR, its receives flushed, the event raised.
#[track_caller]
fn refused(
    (end, peer): &(End, RawPeer),
    packet: Building<'_>,
    (code, event): (NakCode, Option<AsyncEvent>),
) {
    let psn = peer.psn();
    packet.go();
    peer.naks(code, psn);
    end.reaches(QpState::Err);
    match event {
        Some(event) => end.raises(event),
        None => end.raises_nothing(),
    }
}

const INVALID: (NakCode, Option<AsyncEvent>) =
    (NakCode::InvalidRequest, Some(AsyncEvent::QpReqErr));
const ACCESS: (NakCode, Option<AsyncEvent>) =
    (NakCode::RemoteAccess, Some(AsyncEvent::QpAccessErr));

fn send_too_long(bench: &Bench) {
    let both = bench.raw();
    let (end, peer) = &both;
    end.recv(1, vec![end.sge(0, 10)]);
    end.recv(2, vec![end.sge(0, 10)]);
    let packet = peer.packet(Send, Only).payload(&FULL[..11]);
    refused(&both, packet, (NakCode::InvalidRequest, None));
    end.completes(1, WcStatus::LocLenErr);
    end.completes(2, WcStatus::WrFlushErr);
    assert_eq!(
        end.memory().bytes(10, 6),
        [0; 6],
        "nothing behind the buffer"
    );
}

fn send_too_long_in_the_middle(bench: &Bench) {
    let both = bench.raw();
    let (end, peer) = &both;
    end.recv(1, vec![end.sge(0, MTU + 10)]);
    peer.packet(Send, First).payload(&FULL).unasked().go();
    refused(
        &both,
        peer.packet(Send, Middle).payload(&FULL),
        (NakCode::InvalidRequest, None),
    );
    end.completes(1, WcStatus::LocLenErr);
    assert_eq!(end.memory().bytes(MTU + 10, 8), [0; 8]);
}

fn write_length(bench: &Bench) {
    for (announced, position, len) in [
        (10, Only, 9),
        (10, Only, 11),
        (0, Only, 1),
        (2000, Only, 1000),
        (1024, First, MTU),
        (5, First, MTU),
    ] {
        let both = bench.raw();
        let packet = both.1.packet(Write, position);
        let packet = packet
            .reth(both.0.remote(0), announced)
            .payload(&FULL[..len]);
        refused(&both, packet, INVALID);
    }
}

fn write_length_of_last(bench: &Bench) {
    for (position, len, total) in [(Last, 99, 1124), (Last, 101, 1124), (Middle, MTU, 2048)] {
        let both = bench.raw();
        let (end, peer) = &both;
        let first = peer.packet(Write, First).reth(end.remote(0), total);
        first.payload(&FULL).unasked().go();
        refused(
            &both,
            peer.packet(Write, position).payload(&FULL[..len]),
            INVALID,
        );
    }
}

fn longer_than_any_message(bench: &Bench) {
    for (operation, position, payload) in [(Write, First, &FULL[..]), (ReadRequest, Only, &[])] {
        let both = bench.raw();
        let packet = both.1.packet(operation, position).payload(payload);
        let packet = packet.reth(both.0.remote(0), (1 << 31) + 1);
        refused(&both, packet, INVALID);
    }
}

fn bad_pad(bench: &Bench) {
    // Pad bytes in a packet that must be full leave it short.
    let (end, peer) = bench.raw();
    end.recv(1, vec![end.sge(0, 4 * MTU)]);
    let psn = peer.psn();
    let packet = peer.packet(Send, First).payload(&FULL);
    packet.go_changed(|bytes| bytes[1] |= 0x30);
    peer.naks(NakCode::InvalidRequest, psn);
    end.reaches(QpState::Err);
}

fn packet_length(bench: &Bench) {
    let long = [1; 2 * MTU];
    for (position, len) in [
        (First, MTU - 1),
        (First, MTU + 1),
        (First, 0),
        (Only, MTU + 1),
    ] {
        let both = bench.raw();
        both.0.recv(1, vec![both.0.sge(0, 8 * MTU)]);
        refused(
            &both,
            both.1.packet(Send, position).payload(&long[..len]),
            INVALID,
        );
        both.0.completes(1, WcStatus::WrFlushErr);
        let both = bench.raw();
        let packet = both.1.packet(Write, position);
        let packet = packet.reth(both.0.remote(0), 8000).payload(&long[..len]);
        refused(&both, packet, INVALID);
    }
    for (position, len) in [(Middle, 4), (Last, 0), (Last, MTU + 1), (Middle, MTU + 1)] {
        let both = bench.raw();
        both.0.recv(1, vec![both.0.sge(0, 8 * MTU)]);
        both.1.packet(Send, First).payload(&FULL).unasked().go();
        refused(
            &both,
            both.1.packet(Send, position).payload(&long[..len]),
            INVALID,
        );
        both.0.completes(1, WcStatus::WrFlushErr);
    }
}

/// The three one-sided operations on 8 bytes.
fn one_sided<'a>(
    peer: &'a RawPeer,
    at: ferroce_proto::verbs::RemoteAddr,
    i: usize,
) -> Building<'a> {
    match i {
        0 => peer.packet(Write, Only).reth(at, 8).payload(&FULL[..8]),
        1 => peer.packet(ReadRequest, Only).reth(at, 8),
        2 => peer.packet(FetchAdd, Only).atomic(at, 1, 0),
        _ => peer.packet(CompareSwap, Only).atomic(at, 1, 0),
    }
}

const NEEDS: [Access; 4] = [
    Access::REMOTE_WRITE,
    Access::REMOTE_READ,
    Access::REMOTE_ATOMIC,
    Access::REMOTE_ATOMIC,
];

fn remote_keys(bench: &Bench) {
    for (i, need) in NEEDS.into_iter().enumerate() {
        for wrong in 0..4 {
            let mut both = bench.raw();
            let end = &mut both.0;
            let at = match wrong {
                0 => end.remote_with(Key(end.key().0 ^ 0x0f0f), 0),
                1 => end.remote(end.memory().len()),
                2 => {
                    let foreign = end.side_mut().register_elsewhere(0, 64, ALL);
                    end.remote_with(foreign.expect("a region"), 0)
                }
                _ => {
                    let key = end.register(0, 64, ALL.difference(need));
                    end.remote_with(key, 0)
                }
            };
            refused(&both, one_sided(&both.1, at, i), ACCESS);
            assert_eq!(both.0.memory().word(0), 0);
        }
    }
}

fn bounds_before_a_byte(bench: &Bench) {
    let both = bench.raw();
    let (end, peer) = &both;
    let len = u32::try_from(end.memory().len()).expect("small");
    let packet = peer
        .packet(Write, First)
        .reth(end.remote(8), len)
        .payload(&FULL);
    refused(&both, packet, ACCESS);
    assert_eq!(end.memory().bytes(8, MTU), vec![0; MTU]);
}

fn range_that_wraps(bench: &Bench) {
    for (operation, addr, len) in [
        (ReadRequest, u64::MAX - 3, 8),
        (ReadRequest, u64::MAX, 1 << 31),
        (WriteImm, u64::MAX - 7, 16),
    ] {
        let both = bench.raw();
        let (end, peer) = &both;
        let mut at = end.remote(0);
        at.addr = addr;
        let mut packet = peer.packet(operation, Only).reth(at, len);
        if operation == WriteImm {
            end.recv(1, vec![]);
            packet = packet.imm([0; 4]).payload(&FULL[..16]);
        }
        refused(&both, packet, ACCESS);
    }
}

fn access_flags(bench: &Bench) {
    for (i, need) in NEEDS.into_iter().enumerate() {
        let mut spec = Spec::default();
        spec.attr.qp_access_flags = ALL.difference(need);
        let both = bench.raw_of(spec);
        let at = both.0.remote(0);
        refused(&both, one_sided(&both.1, at, i), INVALID);
        assert_eq!(both.0.memory().word(0), 0);
    }
}

fn atomic_alignment(bench: &Bench) {
    for i in [2, 3] {
        for offset in [1, 4, 7] {
            let both = bench.raw();
            let at = both.0.remote(offset);
            refused(&both, one_sided(&both.1, at, i), INVALID);
        }
    }
}

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

fn no_depth(bench: &Bench) {
    for i in [1, 2] {
        let mut spec = Spec::default();
        spec.attr.max_dest_rd_atomic = 0;
        let both = bench.raw_of(spec);
        let at = both.0.remote(0);
        refused(&both, one_sided(&both.1, at, i), INVALID);
    }
}

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

fn deaf_after_an_error(bench: &Bench) {
    let both = bench.raw();
    let (end, peer) = &both;
    refused(&both, peer.packet(Send, Last).payload(&FULL), INVALID);
    let psn = peer.psn();
    // Executed nevertheless, it would change memory. What the peer hears again is the refusal at most.
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
