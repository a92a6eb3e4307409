//! Responses of a peer that break a rule, and refusals.

use ferroce_proto::ids::Key;
use ferroce_proto::verbs::{QpState, SendOp, WcStatus};
use ferroce_proto::wire::{NakCode, Operation, Position, Syndrome};

use crate::bench::{Bench, FIRST_PSN, MTU, Spec};
use crate::case::Case;
use crate::end::End;
use crate::raw::RawPeer;
use crate::wait::wait_for;

use Operation::{AtomicAcknowledge, FetchAdd, ReadRequest, ReadResponse, Send};
use Position::{First, Last, Middle, Only};

pub(super) const CASES: &[Case] = &[
    Case::raw("response.nak.statuses", &["wire.nak-codes"], nak_codes),
    Case::raw(
        "response.nak.acknowledges-before",
        &["rc.nak-acknowledges"],
        nak_acknowledges_what_was_before,
    ),
    Case::raw(
        "response.rnr.exhausted",
        &["rc.rnr-exceeded"],
        rnr_exhausted,
    ),
    Case::raw("response.wrong-kind", &["rc.bad-response"], wrong_kind),
    Case::raw(
        "response.read-too-long",
        &["rc.read-too-long"],
        read_too_long,
    ),
    Case::raw(
        "response.read-too-short",
        &["rc.bad-response"],
        read_too_short,
    ),
    Case::raw("response.unasked", &["rc.ghost-responses"], unasked),
    Case::raw(
        "response.reserved-syndrome",
        &["wire.aeth.reserved"],
        reserved_syndrome,
    ),
    Case::raw("response.silence", &["rc.retry-exceeded"], silence),
    Case::raw(
        "response.read.duplicate",
        &["rc.read-in-order"],
        duplicate_response,
    ),
];

fn nak_codes(bench: &Bench) {
    for (code, status) in [
        (NakCode::InvalidRequest, WcStatus::RemInvReqErr),
        (NakCode::RemoteAccess, WcStatus::RemAccessErr),
        (NakCode::RemoteOperational, WcStatus::RemOpErr),
    ] {
        let (end, peer) = bench.raw();
        end.send(1, SendOp::Send, vec![]);
        end.send(2, SendOp::Send, vec![]);
        end.recv(3, vec![]);
        peer.takes(Send, Only);
        peer.acknowledge(Syndrome::Nak(code), FIRST_PSN).go();
        end.completes(1, status);
        // One queue each, so in either order.
        let mut rest = [end.completion(), end.completion()];
        rest.sort_by_key(|wc| wc.wr_id);
        assert_eq!(
            rest.map(|wc| (wc.wr_id, wc.status)),
            [(2, WcStatus::WrFlushErr), (3, WcStatus::WrFlushErr)]
        );
        end.reaches(QpState::Err);
    }
}

fn nak_acknowledges_what_was_before(bench: &Bench) {
    let (end, peer) = bench.raw();
    for wr_id in 0..4 {
        end.send(wr_id, SendOp::Send, vec![]);
    }
    for _ in 0..4 {
        peer.takes(Send, Only);
    }
    let nak = Syndrome::Nak(NakCode::RemoteAccess);
    peer.acknowledge(nak, FIRST_PSN.plus(2)).go();
    end.done(0);
    end.done(1);
    end.completes(2, WcStatus::RemAccessErr);
    end.completes(3, WcStatus::WrFlushErr);
}

fn rnr_exhausted(bench: &Bench) {
    for rnr_retry in [0, 2] {
        let mut spec = Spec::default();
        spec.attr.rnr_retry = rnr_retry;
        let (end, peer) = bench.raw_of(spec);
        end.send(1, SendOp::Send, vec![]);
        // Each attempt is answered, also one that crosses the answer to the one before.
        let mut attempts = 0;
        let wc = wait_for("completion", || {
            if peer.next_if_any().is_some() {
                attempts += 1;
                peer.acknowledge(Syndrome::RnrNak(1), FIRST_PSN).go();
            }
            end.side().poll().expect("no overflow")
        });
        assert_eq!((wc.wr_id, wc.status), (1, WcStatus::RnrRetryExcErr));
        assert!(attempts > rnr_retry, "{attempts} attempts");
        assert_eq!(end.state(), QpState::Err);
    }
}

/// An end with a READ of `len` bytes under way.
fn reading(bench: &Bench, len: usize) -> (End, RawPeer) {
    let (end, peer) = bench.raw();
    let from = end.remote_with(Key(9), 0);
    end.send(1, SendOp::Read(from), vec![end.sge(0, len)]);
    peer.takes(ReadRequest, Only);
    (end, peer)
}

fn wrong_kind(bench: &Bench) {
    // An atomic's answer to a READ, and the other way round.
    let (end, peer) = reading(bench, 8);
    let answer = peer.packet(AtomicAcknowledge, Only).at(FIRST_PSN);
    answer.aeth(Syndrome::ACK).original(1).go();
    end.completes(1, WcStatus::BadRespErr);
    end.reaches(QpState::Err);
    let (end, peer) = bench.raw();
    let remote = end.remote(0);
    end.send(1, SendOp::FetchAdd { remote, add: 1 }, vec![end.sge(0, 8)]);
    peer.takes(FetchAdd, Only);
    let answer = peer.packet(ReadResponse, Only).at(FIRST_PSN);
    answer.aeth(Syndrome::ACK).payload(&[1; 8]).go();
    end.completes(1, WcStatus::BadRespErr);
}

fn read_too_long(bench: &Bench) {
    let (end, peer) = reading(bench, 8);
    let answer = peer.packet(ReadResponse, Only).at(FIRST_PSN);
    answer.aeth(Syndrome::ACK).payload(&[1; 12]).go();
    end.completes(1, WcStatus::LocLenErr);
    assert_eq!(end.memory().bytes(8, 4), [0; 4]);
}

fn read_too_short(bench: &Bench) {
    for (position, len) in [(Only, 7), (First, MTU), (Middle, 8), (Last, 8)] {
        let (end, peer) = reading(bench, 8);
        let mut answer = peer.packet(ReadResponse, position).at(FIRST_PSN);
        if position != Middle {
            answer = answer.aeth(Syndrome::ACK);
        }
        answer.payload(&vec![1; len]).go();
        let wc = end.completion();
        assert_ne!(wc.status, WcStatus::Success, "{position:?} of {len} bytes");
        end.reaches(QpState::Err);
        assert_eq!(end.memory().bytes(8, 4), [0; 4]);
    }
}

fn unasked(bench: &Bench) {
    let (end, peer) = bench.raw();
    // Answers to what was never sent, from long ago and from the future.
    for psn in [
        FIRST_PSN,
        FIRST_PSN.plus(1),
        FIRST_PSN.plus(1 << 22),
        FIRST_PSN.plus(0xff_0000),
    ] {
        for syndrome in [
            Syndrome::ACK,
            Syndrome::Nak(NakCode::RemoteAccess),
            Syndrome::Nak(NakCode::Sequence),
            Syndrome::RnrNak(0),
        ] {
            peer.acknowledge(syndrome, psn).go();
        }
        let answer = peer.packet(ReadResponse, Only).at(psn);
        answer.aeth(Syndrome::ACK).payload(&[1; 8]).go();
    }
    end.recv(9, vec![]);
    peer.is_heard();
    end.done(9);
    end.is_silent();
    end.send(1, SendOp::Send, vec![]);
    peer.takes(Send, Only);
    peer.acknowledge(Syndrome::ACK, FIRST_PSN).go();
    end.done(1);
    assert_eq!(end.state(), QpState::Rts);
}

fn reserved_syndrome(bench: &Bench) {
    let (end, peer) = bench.raw();
    end.send(1, SendOp::Send, vec![]);
    peer.takes(Send, Only);
    for byte in [0x40, 0x5f, 0x80, 0xff, 0xe0] {
        peer.acknowledge(Syndrome::Reserved(byte), FIRST_PSN).go();
    }
    end.recv(9, vec![]);
    let psn = peer.psn();
    peer.packet(Send, Only).go();
    // Repetitions of the request may come in between.
    while peer.next().bth.psn != psn {}
    end.done(9);
    end.is_silent();
    peer.acknowledge(Syndrome::ACK, FIRST_PSN).go();
    end.done(1);
}

fn silence(bench: &Bench) {
    let mut spec = Spec::default();
    (spec.attr.timeout, spec.attr.retry_cnt) = (12, 0);
    let (end, _peer) = bench.raw_of(spec);
    end.send(1, SendOp::Send, vec![]);
    end.completes(1, WcStatus::RetryExcErr);
    assert_eq!(end.state(), QpState::Err);
}

fn duplicate_response(bench: &Bench) {
    let (end, peer) = reading(bench, 2 * MTU);
    let answer = |position, n, byte| {
        let packet = peer.packet(ReadResponse, position).at(FIRST_PSN.plus(n));
        packet.aeth(Syndrome::ACK).payload(&[byte; MTU]).go();
    };
    answer(First, 0, 1);
    answer(First, 0, 2);
    answer(Last, 1, 3);
    end.done(1);
    assert_eq!(end.memory().bytes(0, 4), [1; 4], "taken once");
    assert_eq!(end.memory().bytes(MTU, 4), [3; 4]);
}
