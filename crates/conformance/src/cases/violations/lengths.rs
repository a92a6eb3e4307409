//! Messages and packets that are longer or shorter than they may be.

use ferroce_proto::verbs::{QpState, WcStatus};
use ferroce_proto::wire::{NakCode, Operation, Position};

use super::{FULL, INVALID, refused};
use crate::bench::{Bench, MTU};
use crate::case::Case;

use Operation::{ReadRequest, Send, Write};
use Position::{First, Last, Middle, Only};

pub(in crate::cases) const CASES: &[Case] = &[
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
];

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
