//! What the device sends, and what it makes of right answers.

use ferroce_proto::ids::Psn;
use ferroce_proto::verbs::{SendFlags, SendOp};
use ferroce_proto::wire::{NakCode, Operation, Position, Syndrome};

use crate::bench::{Bench, FIRST_PSN, MTU, Spec};
use crate::case::Case;
use crate::end::pattern;
use crate::raw::RawPeer;

use Operation::{
    CompareSwap, FetchAdd, ReadRequest, ReadResponse, Send, SendImm, SendInvalidate, Write,
    WriteImm,
};
use Position::{First, Last, Middle, Only};

pub(super) const CASES: &[Case] = &[
    Case::raw(
        "requester.send",
        &[
            "wire.full-packets",
            "wire.psn-per-packet",
            "wire.ack-request-last",
        ],
        send,
    ),
    Case::raw(
        "requester.write",
        &["wire.reth-first-only", "wire.full-packets"],
        write,
    ),
    Case::raw("requester.read", &["wire.reth", "wire.read-psns"], read),
    Case::raw("requester.atomic", &["wire.atomic-operands"], atomic),
    Case::raw(
        "requester.imm-and-invalidate",
        &["wire.imm", "wire.ieth"],
        imm_and_invalidate,
    ),
    Case::raw("requester.solicited", &["wire.solicited"], solicited),
    Case::raw("requester.header", &["wire.pkey", "wire.tver"], header),
    Case::raw(
        "requester.coalesced-ack",
        &["rc.coalesced-ack"],
        coalesced_ack,
    ),
    Case::raw(
        "requester.nak-sequence",
        &["rc.go-back-n", "rc.no-reth-on-resend"],
        go_back,
    ),
    Case::raw(
        "requester.rnr-nak",
        &["wire.rnr-timer", "rc.rnr-wait"],
        rnr_nak,
    ),
    Case::raw(
        "requester.timeout",
        &["rc.local-ack-timeout"],
        resends_after_silence,
    ),
    Case::raw(
        "requester.read.lost-response",
        &["rc.read-resume"],
        lost_response,
    ),
    Case::raw("requester.implied-nak", &["rc.implied-nak"], implied_nak),
    Case::raw(
        "requester.atomic.resend",
        &["rc.duplicate-atomic"],
        atomic_is_resent_with_its_psn,
    ),
];

fn send(bench: &Bench) {
    let (end, peer) = bench.raw();
    let content = pattern(2 * MTU + 5, 1);
    end.memory().fill(0, &content);
    end.send(1, SendOp::Send, vec![end.sge(0, content.len())]);
    let first = peer.takes(Send, First);
    let middle = peer.takes(Send, Middle);
    let last = peer.takes(Send, Last);
    assert_eq!(
        (
            first.payload.len(),
            middle.payload.len(),
            last.payload.len()
        ),
        (MTU, MTU, 5)
    );
    assert!([&first.payload[..], &middle.payload, &last.payload].concat() == content);
    assert!(last.bth.ack_req);
    end.is_silent();
    peer.acknowledge(Syndrome::ACK, last.bth.psn).go();
    end.done(1);
}

fn write(bench: &Bench) {
    let (end, peer) = bench.raw();
    let to = end.remote_with(ferroce_proto::ids::Key(0x1234_5678), 77);
    end.send(1, SendOp::Write(to), vec![end.sge(0, MTU + 1)]);
    let first = peer.takes(Write, First);
    let reth = first.ext.reth.expect("a RETH");
    assert_eq!((reth.va, reth.rkey, reth.length), (to.addr, to.rkey, 1025));
    let last = peer.takes(Write, Last);
    assert_eq!(last.payload.len(), 1);
    peer.acknowledge(Syndrome::ACK, last.bth.psn).go();
    end.done(1);
    end.send(2, SendOp::Write(to), vec![end.sge(0, MTU)]);
    let only = peer.takes(Write, Only);
    assert_eq!(only.payload.len(), MTU);
    peer.acknowledge(Syndrome::ACK, only.bth.psn).go();
    end.done(2);
}

/// Answers a READ whose responses begin at `psn`.
fn respond(peer: &RawPeer, psn: Psn, content: &[u8]) {
    let packets = content.chunks(MTU).count();
    for (n, chunk) in (0..).zip(content.chunks(MTU)) {
        let position = Position::from_ends(n == 0, n as usize + 1 == packets);
        response(peer, (position, psn.plus(n)), chunk);
    }
}

fn response(peer: &RawPeer, (position, psn): (Position, Psn), chunk: &[u8]) {
    let mut packet = peer.packet(ReadResponse, position).at(psn).payload(chunk);
    if position != Middle {
        packet = packet.aeth(Syndrome::ACK);
    }
    packet.go();
}

fn read(bench: &Bench) {
    let (end, peer) = bench.raw();
    let content = pattern(2 * MTU + 5, 2);
    let from = end.remote_with(ferroce_proto::ids::Key(9), 0);
    end.send(1, SendOp::Read(from), vec![end.sge(0, content.len())]);
    end.send(2, SendOp::Send, vec![]);
    let request = peer.takes(ReadRequest, Only);
    let reth = request.ext.reth.expect("a RETH");
    assert_eq!(
        (reth.va, reth.rkey, reth.length),
        (from.addr, from.rkey, 2053)
    );
    assert!(request.payload.is_empty());
    // Three responses, three PSNs.
    peer.expect_from(FIRST_PSN.plus(3));
    respond(&peer, FIRST_PSN, &content);
    end.done(1);
    assert!(end.memory().bytes(0, content.len()) == content);
    let next = peer.takes(Send, Only);
    peer.acknowledge(Syndrome::ACK, next.bth.psn).go();
    end.done(2);
}

fn atomic(bench: &Bench) {
    let (end, peer) = bench.raw();
    let remote = end.remote_with(ferroce_proto::ids::Key(9), 64);
    let op = SendOp::CompareSwap {
        remote,
        compare: 0x0102_0304_0506_0708,
        swap: 0x1112_1314_1516_1718,
    };
    end.send(1, op, vec![end.sge(0, 8)]);
    let request = peer.takes(CompareSwap, Only);
    let operands = request.ext.atomic.expect("an AtomicETH");
    assert_eq!((operands.va, operands.rkey), (remote.addr, remote.rkey));
    assert_eq!(operands.compare, 0x0102_0304_0506_0708);
    assert_eq!(operands.swap_or_add, 0x1112_1314_1516_1718);
    answer_atomic(&peer, request.bth.psn, 0xaabb_ccdd_0011_2233);
    end.done(1);
    assert_eq!(end.memory().word(0), 0xaabb_ccdd_0011_2233);
    end.send(2, SendOp::FetchAdd { remote, add: 3 }, vec![end.sge(0, 8)]);
    let operands = peer.takes(FetchAdd, Only).ext.atomic.expect("an AtomicETH");
    assert_eq!((operands.swap_or_add, operands.compare), (3, 0));
}

fn answer_atomic(peer: &RawPeer, psn: Psn, original: u64) {
    let answer = peer.packet(Operation::AtomicAcknowledge, Only).at(psn);
    answer.aeth(Syndrome::ACK).original(original).go();
}

fn imm_and_invalidate(bench: &Bench) {
    let (end, peer) = bench.raw();
    let key = ferroce_proto::ids::Key(0xfeed_0001);
    end.send(1, SendOp::SendImm([1, 2, 3, 4]), vec![]);
    end.send(2, SendOp::WriteImm(end.remote(0), [5, 6, 7, 8]), vec![]);
    end.send(3, SendOp::SendInvalidate(key), vec![end.sge(0, MTU + 1)]);
    assert_eq!(peer.takes(SendImm, Only).ext.imm, Some([1, 2, 3, 4]));
    assert_eq!(peer.takes(WriteImm, Only).ext.imm, Some([5, 6, 7, 8]));
    assert_eq!(peer.takes(Send, First).ext.ieth, None);
    let last = peer.takes(SendInvalidate, Last);
    assert_eq!(last.ext.ieth, Some(key));
    peer.acknowledge(Syndrome::ACK, last.bth.psn).go();
    for wr_id in 1..4 {
        end.done(wr_id);
    }
}

fn solicited(bench: &Bench) {
    let (end, peer) = bench.raw();
    let flags = SendFlags::SIGNALED | SendFlags::SOLICITED;
    end.send_flagged(1, SendOp::Send, vec![end.sge(0, 2 * MTU)], flags);
    end.send_flagged(2, SendOp::Write(end.remote(0)), vec![end.sge(0, 8)], flags);
    end.send_flagged(3, SendOp::WriteImm(end.remote(0), [0; 4]), vec![], flags);
    end.send(4, SendOp::Send, vec![]);
    assert!(!peer.takes(Send, First).bth.solicited);
    assert!(peer.takes(Send, Last).bth.solicited);
    assert!(
        !peer.takes(Write, Only).bth.solicited,
        "a WRITE tells nobody"
    );
    assert!(peer.takes(WriteImm, Only).bth.solicited);
    assert!(!peer.takes(Send, Only).bth.solicited);
}

fn header(bench: &Bench) {
    let (end, peer) = bench.raw();
    end.send(1, SendOp::Send, vec![end.sge(0, 5)]);
    let packet = peer.takes(Send, Only);
    assert_eq!((packet.bth.pkey, packet.bth.congestion), (0xffff, 0));
    assert_eq!(packet.bth.psn, FIRST_PSN);
}

fn coalesced_ack(bench: &Bench) {
    let (end, peer) = bench.raw();
    for wr_id in 0..5 {
        end.send(wr_id, SendOp::Send, vec![end.sge(0, 2000)]);
    }
    for _ in 0..5 {
        peer.takes(Send, First);
        peer.takes(Send, Last);
    }
    end.is_silent();
    peer.acknowledge(Syndrome::ACK, FIRST_PSN.plus(5)).go();
    for wr_id in 0..3 {
        end.done(wr_id);
    }
    end.is_silent();
    peer.acknowledge(Syndrome::ACK, FIRST_PSN.plus(9)).go();
    end.done(3);
    end.done(4);
}

fn go_back(bench: &Bench) {
    let (end, peer) = bench.raw();
    let content = pattern(3 * MTU, 9);
    end.memory().fill(0, &content);
    end.send(
        1,
        SendOp::Write(end.remote(9000)),
        vec![end.sge(0, 3 * MTU)],
    );
    peer.takes(Write, First);
    peer.takes(Write, Middle);
    peer.takes(Write, Last);
    // The second packet was lost: everything from it on comes again, as it was.
    peer.expect_from(FIRST_PSN.plus(1));
    peer.acknowledge(Syndrome::Nak(NakCode::Sequence), FIRST_PSN.plus(1))
        .go();
    let middle = peer.takes(Write, Middle);
    assert!(middle.payload == content[MTU..2 * MTU]);
    assert_eq!(middle.ext.reth, None);
    let last = peer.takes(Write, Last);
    peer.acknowledge(Syndrome::ACK, last.bth.psn).go();
    end.done(1);
}

fn rnr_nak(bench: &Bench) {
    let (end, peer) = bench.raw();
    end.send(1, SendOp::Send, vec![end.sge(0, 8)]);
    peer.takes(Send, Only);
    // One that does not wait asks again at once, and a few times more within these.
    for code in [28, 30] {
        assert!((0..10).any(|_| waits(&peer, code)), "came again too early");
    }
    peer.acknowledge(Syndrome::ACK, FIRST_PSN).go();
    end.done(1);
}

/// Whether a request comes again when the time that it is told to wait is over, and not before. One
/// that crosses the answer may.
fn waits(peer: &RawPeer, code: u8) -> bool {
    const CROSSING: usize = 1;
    // What has come while this thread had no processor was not told to wait.
    while peer.next_if_any().is_some() {}
    let asked = std::time::Instant::now();
    peer.acknowledge(Syndrome::RnrNak(code), FIRST_PSN).go();
    (0..=CROSSING).any(|_| {
        peer.next();
        asked.elapsed() >= ferroce_proto::wire::rnr_timer(code)
    })
}

/// A probe repeats the oldest packet only; the timer all of them.
fn resends_after_silence(bench: &Bench) {
    let mut spec = Spec::default();
    spec.attr.timeout = 19;
    let (end, peer) = bench.raw_of(spec);
    end.send(1, SendOp::Send, vec![end.sge(0, MTU + 8)]);
    peer.takes(Send, First);
    let last = peer.takes(Send, Last);
    peer.expect_from(last.bth.psn);
    assert_eq!(peer.takes(Send, Last), last);
    peer.acknowledge(Syndrome::ACK, last.bth.psn).go();
    end.done(1);
}

fn lost_response(bench: &Bench) {
    let (end, peer) = bench.raw();
    let content = pattern(3 * MTU, 3);
    let from = end.remote_with(ferroce_proto::ids::Key(9), 0);
    end.send(1, SendOp::Read(from), vec![end.sge(0, 3 * MTU)]);
    peer.takes(ReadRequest, Only);
    response(&peer, (First, FIRST_PSN), &content[..MTU]);
    // The middle is lost, the last comes.
    response(&peer, (Last, FIRST_PSN.plus(2)), &content[2 * MTU..]);
    peer.expect_from(FIRST_PSN.plus(1));
    let again = peer.takes(ReadRequest, Only);
    let reth = again.ext.reth.expect("a RETH");
    assert_eq!(
        (reth.va, reth.length),
        (from.addr + 1024, 2048),
        "the rest is asked for"
    );
    respond(&peer, FIRST_PSN.plus(1), &content[MTU..]);
    end.done(1);
    assert!(end.memory().bytes(0, 3 * MTU) == content);
}

fn implied_nak(bench: &Bench) {
    let (end, peer) = bench.raw();
    let from = end.remote_with(ferroce_proto::ids::Key(9), 0);
    end.send(1, SendOp::Read(from), vec![end.sge(0, 8)]);
    end.send(2, SendOp::Send, vec![]);
    peer.takes(ReadRequest, Only);
    let send = peer.takes(Send, Only);
    // The acknowledgement passes over the READ: its response was lost.
    peer.expect_from(FIRST_PSN);
    peer.acknowledge(Syndrome::ACK, send.bth.psn).go();
    peer.takes(ReadRequest, Only);
    end.is_silent();
    respond(&peer, FIRST_PSN, &[8; 8]);
    end.done(1);
    peer.acknowledge(Syndrome::ACK, send.bth.psn).go();
    end.done(2);
}

fn atomic_is_resent_with_its_psn(bench: &Bench) {
    let (end, peer) = bench.raw();
    let op = SendOp::FetchAdd {
        remote: end.remote(0),
        add: 1,
    };
    end.send(1, op, vec![end.sge(8, 8)]);
    let first = peer.takes(FetchAdd, Only);
    peer.expect_from(first.bth.psn);
    let again = peer.takes(FetchAdd, Only);
    assert_eq!(first, again);
    answer_atomic(&peer, first.bth.psn, 5);
    end.done(1);
    assert_eq!(end.memory().word(8), 5);
}
