//! Packets that are thrown away without a word: nothing changes, nobody is told, and what is right
//! still works.

use ferroce_proto::ids::Qpn;
use ferroce_proto::verbs::QpState;
use ferroce_proto::wire::{Bth, Opcode, Operation, Position};

use crate::bench::Bench;
use crate::case::Case;
use crate::end::End;
use crate::raw::{Building, RawPeer};

use Operation::{Send, Write};
use Position::Only;

pub(super) const CASES: &[Case] = &[
    Case::raw("drop.icrc", &["wire.icrc", "violation.drop-icrc"], icrc),
    Case::raw("drop.truncated", &["wire.too-short"], truncated),
    Case::raw("drop.version", &["wire.tver"], version),
    Case::raw("drop.pkey", &["wire.pkey", "violation.drop-pkey"], pkey),
    Case::raw("drop.qpn", &["wire.dest-qp"], qpn),
    Case::raw(
        "drop.address",
        &["wire.addresses", "violation.drop-address"],
        address,
    ),
    Case::raw("drop.service", &["violation.drop-service"], other_service),
    Case::raw("drop.state", &["violation.drop-state"], state),
    Case::raw(
        "accept.flags",
        &[
            "wire.migreq",
            "wire.congestion-bits",
            "wire.pkey-membership",
        ],
        harmless_bits,
    ),
    Case::raw("accept.source-port", &["wire.source-port"], source_port),
    Case::raw("drop.cnp", &["wire.cnp"], congestion_notification),
];

/// A WRITE of ones, in turn, which must not be carried out.
fn forbidden<'a>(end: &End, peer: &'a RawPeer) -> Building<'a> {
    let psn = peer.psn();
    let packet = peer.packet(Write, Only).at(psn);
    packet.reth(end.remote(0), 8).payload(&[1; 8])
}

/// Nothing came of what was sent, and the queue pair works.
fn nothing_came_of_it(end: &End, peer: &RawPeer) {
    end.recv(1, vec![]);
    peer.is_heard();
    end.done(1);
    assert_eq!(end.memory().word(0), 0);
    end.raises_nothing();
    assert_eq!(end.state(), QpState::Rts);
}

fn icrc(bench: &Bench) {
    let (end, peer) = bench.raw();
    for at in [0, 5, 11, 14, 20, 28, 33, 36, 39] {
        for bit in [1, 0x80] {
            // Where it would mean another queue pair, another version … the ICRC comes first.
            forbidden(&end, &peer).go_damaged(|bytes| {
                let at = at.min(bytes.len() - 1);
                bytes[at] ^= bit;
            });
        }
    }
    nothing_came_of_it(&end, &peer);
}

fn truncated(bench: &Bench) {
    let (end, peer) = bench.raw();
    let whole = forbidden(&end, &peer).bytes();
    for len in 0..whole.len() - 8 {
        peer.send_packet(&whole[..len]);
    }
    for len in 0..12 {
        peer.send_datagram(&whole[..len]);
    }
    nothing_came_of_it(&end, &peer);
}

fn version(bench: &Bench) {
    let (end, peer) = bench.raw();
    for version in 1..16 {
        forbidden(&end, &peer).go_changed(|bytes| bytes[1] |= version);
    }
    nothing_came_of_it(&end, &peer);
}

fn pkey(bench: &Bench) {
    let (end, peer) = bench.raw();
    for pkey in [0, 1, 0x7ffe, 0xfffe, 0x8000] {
        forbidden(&end, &peer).header(|bth| bth.pkey = pkey).go();
    }
    nothing_came_of_it(&end, &peer);
}

fn qpn(bench: &Bench) {
    let (end, peer) = bench.raw();
    let real = end.qpn().get();
    for qpn in [0, 0xff_ffff, real ^ 0x2000, real ^ 0x3fff, 2, 0xff_0000] {
        forbidden(&end, &peer).to(Qpn::new(qpn)).go();
    }
    nothing_came_of_it(&end, &peer);
}

fn address(bench: &Bench) {
    let (end, peer) = bench.raw();
    // Another host with everything right but its address.
    let (_other, impostor) = bench.raw();
    for _ in 0..3 {
        let packet = impostor.packet(Write, Only).at(peer.psn());
        let packet = packet.reth(end.remote(0), 8).payload(&[1; 8]);
        packet.to(end.qpn()).go();
    }
    bench.catch_up(&impostor);
    nothing_came_of_it(&end, &peer);
}

fn other_service(bench: &Bench) {
    let (end, peer) = bench.raw();
    for code in [0x24, 0x2a, 0x44, 0x64, 0x65, 0xc0, 0xe4] {
        peer.opcode(Opcode(code))
            .at(peer.psn())
            .go_changed(|bytes| bytes.extend([0; 40]));
    }
    nothing_came_of_it(&end, &peer);
}

fn state(bench: &Bench) {
    let (end, peer) = bench.raw();
    end.to(QpState::Reset);
    forbidden(&end, &peer).go();
    end.go_to(QpState::Init, peer.qpn(), peer.gid());
    forbidden(&end, &peer).go();
    bench.catch_up(&peer);
    end.to(QpState::Reset);
    end.connect_to(peer.qpn(), peer.gid());
    nothing_came_of_it(&end, &peer);
}

fn harmless_bits(bench: &Bench) {
    let (end, peer) = bench.raw();
    let bits: [fn(&mut Bth); 3] = [
        |bth| bth.migreq = true,
        |bth| bth.congestion = 0xff,
        |bth| bth.pkey = 0x7fff,
    ];
    for (wr_id, change) in (0..).zip(bits) {
        end.recv(wr_id, vec![]);
        let psn = peer.psn();
        peer.packet(Send, Only).header(change).go();
        peer.acks(psn);
        end.done(wr_id);
    }
}

fn source_port(bench: &Bench) {
    let (end, peer) = bench.raw();
    end.recv(1, vec![end.sge(0, 8)]);
    let std::net::IpAddr::V4(own) = peer.gid().ip() else {
        panic!("IPv4");
    };
    let from_elsewhere = RawPeer::at(own, 0, end.gid().ip(), end.qpn());
    from_elsewhere.packet(Send, Only).payload(&[3; 8]).go();
    // The answer goes to the port that all use.
    peer.acks(from_elsewhere.psn().plus(u32::MAX));
    end.done(1);
}

fn congestion_notification(bench: &Bench) {
    let (end, peer) = bench.raw();
    peer.opcode(Opcode::CNP)
        .at(peer.psn())
        .payload(&[0; 16])
        .go();
    nothing_came_of_it(&end, &peer);
}
