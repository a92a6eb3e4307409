//! What the device answers to requests that are right.

use ferroce_proto::ids::Psn;
use ferroce_proto::verbs::{WcImm, WcOpcode};
use ferroce_proto::wire::{Operation, Position, Syndrome};

use crate::bench::{ALL, Bench, MTU};
use crate::case::Case;
use crate::end::pattern;

use Operation::{CompareSwap, FetchAdd, ReadRequest, ReadResponse, Send, SendImm, Write, WriteImm};
use Position::{First, Last, Middle, Only};

pub(super) const CASES: &[Case] = &[
    Case::raw(
        "responder.ack",
        &["wire.ack-psn", "wire.aeth.credits", "wire.aeth.msn"],
        ack,
    ),
    Case::raw(
        "responder.ack.not-asked",
        &["rc.ack-request"],
        ack_only_if_asked,
    ),
    Case::raw("responder.answers-to-4791", &["wire.dest-port"], ack),
    Case::raw(
        "responder.read",
        &["wire.read-responses", "wire.read-psns", "wire.pad"],
        read,
    ),
    Case::raw(
        "responder.read.zero",
        &["rc.zero-length-read"],
        read_of_nothing,
    ),
    Case::raw(
        "responder.read.duplicate",
        &["rc.duplicate-read"],
        duplicate_read,
    ),
    Case::raw(
        "responder.read.duplicate.rest",
        &["rc.duplicate-read"],
        rest_of_a_read,
    ),
    Case::raw(
        "responder.read.duplicate.differs",
        &["rc.duplicate-read-differs"],
        duplicate_read_that_differs,
    ),
    Case::raw(
        "responder.atomic",
        &["wire.atomic-operands", "wire.atomic-ack"],
        atomic,
    ),
    Case::raw(
        "responder.atomic.duplicate",
        &["rc.duplicate-atomic"],
        duplicate_atomic,
    ),
    Case::raw(
        "responder.send.duplicate",
        &["rc.duplicate-send"],
        duplicate_send,
    ),
    Case::raw(
        "responder.write.duplicate",
        &["rc.duplicate-send"],
        duplicate_write,
    ),
    Case::raw("responder.imm", &["wire.imm"], immediate),
    Case::raw("responder.pad-ignored", &["wire.pad"], pad_bytes),
    Case::raw("responder.psn-wrap", &["wire.psn-modulo"], wrap),
    Case::raw(
        "responder.write.in-parts",
        &["wire.reth-first-only"],
        write_in_parts,
    ),
    Case::raw(
        "responder.dereg-mid-write",
        &["mr.dereg"],
        deregistered_in_mid_write,
    ),
];

fn ack(bench: &Bench) {
    let (end, peer) = bench.raw();
    for msn in 1..4 {
        end.recv(0, vec![]);
        let psn = peer.psn();
        peer.packet(Send, Only).go();
        let answer = peer.next();
        assert_eq!(answer.info().operation, Operation::Acknowledge);
        assert_eq!(answer.bth.psn, psn);
        let aeth = answer.ext.aeth.expect("an AETH");
        assert_eq!((aeth.syndrome, aeth.msn.get()), (Syndrome::Ack(0x1f), msn));
        assert!(answer.payload.is_empty());
        assert_eq!(answer.bth.pkey, 0xffff);
        end.done(0);
    }
}

fn ack_only_if_asked(bench: &Bench) {
    let (end, peer) = bench.raw();
    for wr_id in 0..4 {
        end.recv(wr_id, vec![]);
    }
    for _ in 0..3 {
        peer.packet(Send, Only).unasked().go();
    }
    // The acknowledgement of the fourth is the first that is heard.
    peer.is_heard();
    for wr_id in 0..4 {
        end.done(wr_id);
    }
}

/// Expects the responses to a READ of `content` from `psn` on.
#[track_caller]
fn responses(peer: &crate::raw::RawPeer, psn: Psn, content: &[u8]) {
    let packets = content.chunks(MTU).count().max(1);
    let mut chunks = content.chunks(MTU);
    for n in 0..packets {
        let response = peer.next();
        let position = Position::from_ends(n == 0, n + 1 == packets);
        let info = response.info();
        assert_eq!((info.operation, info.position), (ReadResponse, position));
        assert_eq!(response.bth.psn, psn.plus(u32::try_from(n).expect("few")));
        assert_eq!(response.syndrome().is_some(), position != Middle);
        assert!(response.payload == chunks.next().unwrap_or_default());
    }
}

fn read(bench: &Bench) {
    let (end, peer) = bench.raw();
    let content = pattern(4 * MTU, 3);
    end.memory().fill(0, &content);
    for len in [1, 3, MTU - 1, MTU, MTU + 1, 3 * MTU] {
        let psn = peer.psn();
        let length = u32::try_from(len).expect("small");
        peer.packet(ReadRequest, Only)
            .reth(end.remote(0), length)
            .go();
        responses(&peer, psn, &content[..len]);
        let packets = len.div_ceil(MTU);
        peer.set_psn(psn.plus(u32::try_from(packets).expect("few")));
    }
    // The PSN after the last response is the next request's.
    end.recv(1, vec![]);
    peer.is_heard();
}

fn read_of_nothing(bench: &Bench) {
    let (end, peer) = bench.raw();
    let psn = peer.psn();
    let mut nowhere = end.remote(0);
    (nowhere.addr, nowhere.rkey.0) = (0, 0);
    peer.packet(ReadRequest, Only).reth(nowhere, 0).go();
    responses(&peer, psn, &[]);
    end.recv(1, vec![]);
    peer.is_heard();
}

fn duplicate_read(bench: &Bench) {
    let (end, peer) = bench.raw();
    let content = pattern(2 * MTU + 9, 4);
    end.memory().fill(0, &content);
    let psn = peer.psn();
    for _ in 0..3 {
        peer.packet(ReadRequest, Only)
            .at(psn)
            .reth(end.remote(0), 2057)
            .go();
        responses(&peer, psn, &content);
    }
    peer.set_psn(psn.plus(3));
    end.recv(1, vec![]);
    peer.is_heard();
}

fn rest_of_a_read(bench: &Bench) {
    let (end, peer) = bench.raw();
    let content = pattern(3 * MTU, 4);
    end.memory().fill(0, &content);
    let psn = peer.psn();
    peer.packet(ReadRequest, Only)
        .reth(end.remote(0), 3072)
        .go();
    responses(&peer, psn, &content);
    let rest = peer.packet(ReadRequest, Only).at(psn.plus(2));
    rest.reth(end.remote(2 * MTU), 1024).go();
    responses(&peer, psn.plus(2), &content[2 * MTU..]);
}

fn duplicate_read_that_differs(bench: &Bench) {
    let (mut end, peer) = bench.raw();
    let other = end.register(0, 4 * MTU, ALL);
    let psn = peer.psn();
    peer.packet(ReadRequest, Only).reth(end.remote(0), 8).go();
    responses(&peer, psn, &[0; 8]);
    // Another key; more than was asked for; another place.
    let ask = |at, len| peer.packet(ReadRequest, Only).at(psn).reth(at, len).go();
    ask(end.remote_with(other, 0), 8);
    ask(end.remote(0), 9);
    ask(end.remote(8), 8);
    end.recv(1, vec![]);
    peer.is_heard();
}

fn atomic(bench: &Bench) {
    let (end, peer) = bench.raw();
    let initial = 0x0102_0304_0506_0708_u64;
    end.memory().fill(8, &initial.to_ne_bytes());
    let psn = peer.psn();
    peer.packet(FetchAdd, Only)
        .atomic(end.remote(8), 0x10, 0)
        .go();
    let answer = peer.next();
    assert_eq!(answer.info().operation, Operation::AtomicAcknowledge);
    assert_eq!(
        (answer.bth.psn, answer.ext.atomic_ack),
        (psn, Some(initial))
    );
    assert_eq!(answer.syndrome(), Some(Syndrome::ACK));
    assert_eq!(end.memory().word(8), initial + 0x10);
    for (compare, after) in [(initial, initial + 0x10), (initial + 0x10, 42)] {
        peer.packet(CompareSwap, Only)
            .atomic(end.remote(8), 42, compare)
            .go();
        assert_eq!(peer.next().ext.atomic_ack, Some(initial + 0x10));
        assert_eq!(end.memory().word(8), after);
    }
}

fn duplicate_atomic(bench: &Bench) {
    let (end, peer) = bench.raw();
    let psn = peer.psn();
    for _ in 0..4 {
        peer.packet(FetchAdd, Only)
            .at(psn)
            .atomic(end.remote(0), 5, 0)
            .go();
        let answer = peer.next();
        assert_eq!((answer.bth.psn, answer.ext.atomic_ack), (psn, Some(0)));
    }
    assert_eq!(end.memory().word(0), 5, "executed once");
}

fn duplicate_send(bench: &Bench) {
    let (end, peer) = bench.raw();
    end.recv(1, vec![end.sge(0, 8)]);
    end.recv(2, vec![end.sge(8, 8)]);
    let psn = peer.psn();
    for _ in 0..3 {
        peer.packet(Send, Only).at(psn).payload(&[1; 8]).go();
        peer.acks(psn);
    }
    end.done(1);
    end.is_silent();
    assert_eq!(end.memory().word(8), 0, "the second receive is untouched");
}

fn duplicate_write(bench: &Bench) {
    let (end, peer) = bench.raw();
    let psn = peer.psn();
    for byte in [1, 2, 3] {
        let packet = peer.packet(Write, Only).at(psn).reth(end.remote(0), 8);
        packet.payload(&[byte; 8]).go();
        peer.acks(psn);
    }
    assert_eq!(end.memory().bytes(0, 8), [1; 8], "executed once");
}

fn immediate(bench: &Bench) {
    let (end, peer) = bench.raw();
    let imm = [0xca, 0xfe, 0, 1];
    end.recv(1, vec![]);
    end.recv(2, vec![]);
    peer.packet(SendImm, Only).imm(imm).go();
    let wc = end.done(1);
    assert_eq!((wc.opcode, wc.imm), (WcOpcode::Recv, Some(WcImm::Imm(imm))));
    let write = peer.packet(WriteImm, Only).reth(end.remote(0), 3);
    write.imm(imm).payload(&[1, 2, 3]).go();
    let wc = end.done(2);
    let got = (wc.opcode, wc.imm, wc.byte_len);
    assert_eq!(got, (WcOpcode::RecvRdmaWithImm, Some(WcImm::Imm(imm)), 3));
    assert_eq!(end.memory().bytes(0, 4), [1, 2, 3, 0]);
}

fn pad_bytes(bench: &Bench) {
    let (end, peer) = bench.raw();
    end.recv(1, vec![end.sge(0, 64)]);
    let packet = peer.packet(Send, Only).payload(&[7; 5]);
    packet.go_changed(|bytes| {
        let len = bytes.len();
        bytes[len - 3..].fill(0xee);
    });
    assert_eq!(end.done(1).byte_len, 5);
    assert_eq!(end.memory().bytes(0, 8), [7, 7, 7, 7, 7, 0, 0, 0]);
}

fn wrap(bench: &Bench) {
    let (end, peer) = bench.raw();
    // The first PSN is four before the end of the number range.
    for wr_id in 0..12 {
        end.recv(wr_id, vec![]);
        peer.is_heard();
        end.done(wr_id);
    }
    assert_eq!(peer.psn(), Psn::new(8));
}

fn write_in_parts(bench: &Bench) {
    let (end, peer) = bench.raw();
    let content = pattern(2 * MTU + 5, 6);
    let first = peer.packet(Write, First).reth(end.remote(3), 2053);
    first.payload(&content[..MTU]).unasked().go();
    peer.packet(Write, Middle)
        .payload(&content[MTU..2 * MTU])
        .unasked()
        .go();
    let psn = peer.psn();
    peer.packet(Write, Last).payload(&content[2 * MTU..]).go();
    peer.acks(psn);
    assert!(end.memory().bytes(3, content.len()) == content);
    assert_eq!(end.memory().bytes(3 + content.len(), 8), [0; 8]);
}

fn deregistered_in_mid_write(bench: &Bench) {
    let (mut end, peer) = bench.raw();
    let key = end.register(0, 8 * MTU, ALL);
    let first = peer
        .packet(Write, First)
        .reth(end.remote_with(key, 0), 2048);
    let psn = peer.psn();
    first.payload(&[1; MTU]).go();
    peer.acks(psn);
    end.side_mut().deregister(key);
    let psn = peer.psn();
    peer.packet(Write, Last).payload(&[2; MTU]).go();
    peer.naks(ferroce_proto::wire::NakCode::RemoteAccess, psn);
    assert_eq!(end.memory().bytes(MTU, 8), [0; 8]);
}
