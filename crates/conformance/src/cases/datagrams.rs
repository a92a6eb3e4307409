//! Datagrams.

use std::net::Ipv4Addr;

use ferroce_proto::ids::{Gid, Psn, Qpn};
use ferroce_proto::verbs::{
    Datagram, QpState, QpType, SendFlags, SendOp, SendTo, SendWr, WcFlags, WcStatus,
};
use ferroce_proto::wire::{Opcode, Operation};

use super::lengths::{CutMessage, layout, sges};
use crate::bench::{Bench, Path, QKEY, Spec};
use crate::case::Case;
use crate::end::{End, LOSSES, pattern, send_wr, until_nothing_is_lost};
use crate::raw::{Building, RawPeer};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "ud.send",
        &["ud.only", "ud.source", "wire.grh-area"],
        |bench| until_nothing_is_lost(|| send(bench)),
    ),
    Case::new("ud.lengths", &["op.send", "op.lengths", "op.sges"], lengths),
    Case::new("ud.qkey", &["ud.qkey", "ud.qkey-high-bit"], |bench| {
        until_nothing_is_lost(|| qkey(bench))
    }),
    Case::new(
        "ud.buffer-too-small",
        &["ud.buffer-too-small"],
        buffer_too_small,
    ),
    Case::new("ud.grh-fields", &["wire.grh-fields"], |bench| {
        until_nothing_is_lost(|| grh_fields(bench))
    }),
    Case::new("ud.too-long", &["ud.too-long"], |bench| {
        until_nothing_is_lost(|| too_long(bench))
    }),
    Case::new("ud.reply", &["ud.reply"], |bench| {
        until_nothing_is_lost(|| reply(bench))
    }),
    Case::groups("ud.multicast", &["ud.multicast"], |bench| {
        let mut groups = groups();
        until_nothing_is_lost(|| multicast(bench, groups.next()?));
    }),
    Case::new("ud.no-receive", &["ud.no-receive"], |bench| {
        until_nothing_is_lost(|| no_receive(bench))
    }),
    Case::raw("ud.header", &["ud.only"], header),
    Case::raw(
        "ud.drops",
        &["violation.drop-qkey", "violation.drop-pkey"],
        drops,
    ),
];

/// Bytes in front of the payload.
const GRH: usize = 40;
/// Bytes of the longest datagram: the port's MTU.
const LONGEST: usize = 4096;

/// Two queue pairs, and how the first reaches the second.
fn pair(bench: &Bench) -> (End, End, Datagram) {
    let spec = Spec::of(QpType::Ud);
    let (mut a, b) = bench.pair_of(spec, spec);
    let to = Datagram {
        ah: a.handle_to(b.gid()),
        qpn: b.qpn(),
        qkey: QKEY,
    };
    (a, b, to)
}

fn send(bench: &Bench) -> Option<()> {
    let (a, b, to) = pair(bench);
    for (wr_id, len) in (1..).zip([0, 1, 255, 1024]) {
        let content = pattern(len, wr_id);
        a.memory().fill(0, &content);
        b.recv(wr_id, vec![b.sge(0, 2000)]);
        a.send_to(wr_id, to, vec![a.sge(0, len)]);
        a.done(wr_id);
        let wc = b.arrives(wr_id)?;
        assert_eq!((wc.byte_len as usize, wc.src_qp), (GRH + len, a.qpn()));
        assert!(wc.flags.contains(WcFlags::GRH));
        assert!(b.memory().bytes(GRH, len) == content);
        check_grh(bench, &b.memory().bytes(0, GRH));
    }
    Some(())
}

/// Of every class of length that a datagram may have, out of and into every number of pieces: the
/// 40 bytes are the first of the message.
fn lengths(bench: &Bench) {
    let mut ends = pair(bench);
    let mut lost = 0;
    for (seed, len) in (1..).zip([0, 1, LONGEST - 1, LONGEST]) {
        for pieces in [1, 2, 4] {
            while !in_pieces(&ends, CutMessage { len, pieces, seed }) {
                lost += 1;
                assert!(lost <= LOSSES, "{len} bytes in {pieces} pieces");
                ends = pair(bench);
            }
        }
    }
}

/// Returns false if it was lost.
fn in_pieces((a, b, to): &(End, End, Datagram), message: CutMessage) -> bool {
    let CutMessage { len, pieces, seed } = message;
    let content = pattern(len, seed);
    let (out, into) = (layout(len, pieces), layout(GRH + len, pieces));
    let mut rest = &content[..];
    for &(at, len) in &out {
        a.memory().fill(at, &rest[..len]);
        rest = &rest[len..];
    }
    b.memory().fill(0, &[0x55; 2 * LONGEST]);
    b.recv(seed, sges(b, &into));
    a.send_to(seed, *to, sges(a, &out));
    a.done(seed);
    let Some(wc) = b.arrival(seed) else {
        return false;
    };
    assert_eq!(wc.byte_len as usize, GRH + len);
    let parts = into.iter().map(|&(at, len)| b.memory().bytes(at, len));
    let message = parts.collect::<Vec<_>>().concat();
    assert!(message[GRH..] == content, "{len} bytes in {pieces} pieces");
    let mut expected = vec![0x55; 2 * LONGEST];
    let mut rest = &message[..];
    for &(at, len) in &into {
        expected[at..at + len].copy_from_slice(&rest[..len]);
        rest = &rest[len..];
    }
    assert!(
        b.memory().bytes(0, 2 * LONGEST) == expected,
        "between the pieces"
    );
    true
}

/// An IPv6 header, or 20 bytes and an IPv4 header whose checksum is right.
fn check_grh(bench: &Bench, grh: &[u8]) {
    if bench.path == Path::Wire6 {
        assert_eq!((grh[0] >> 4, grh[6]), (6, 17));
        assert_eq!(grh[8..24], std::net::Ipv6Addr::LOCALHOST.octets());
        return;
    }
    let ip = &grh[20..];
    assert_eq!((ip[0], ip[9]), (0x45, 17));
    assert_eq!(
        (&ip[12..16], &ip[16..20]),
        (&[127, 0, 0, 1][..], &[127, 0, 0, 1][..])
    );
    let words = ip
        .chunks(2)
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let sum: u32 = words.sum();
    assert_eq!(
        (sum & 0xffff) + (sum >> 16),
        0xffff,
        "the header's checksum"
    );
}

/// What the address handle says comes out of the other end.
fn grh_fields(bench: &Bench) -> Option<()> {
    let (mut a, b, to) = pair(bench);
    let mut attr = a.attr(Qpn::default(), b.gid()).ah_attr;
    (attr.grh.hop_limit, attr.grh.traffic_class) = (7, 0x48);
    let ah = a.side_mut().address_handle(&attr).expect("a handle");
    b.recv(1, vec![b.sge(0, 100)]);
    a.send_to(1, Datagram { ah, ..to }, vec![a.sge(0, 8)]);
    a.done(1);
    b.arrives(1)?;
    let grh = b.memory().bytes(0, GRH);
    let (hop_limit, traffic_class) = if bench.path == Path::Wire6 {
        (grh[7], grh[0] << 4 | grh[1] >> 4)
    } else {
        (grh[28], grh[21])
    };
    assert_eq!((hop_limit, traffic_class), (7, 0x48));
    Some(())
}

fn too_long(bench: &Bench) -> Option<()> {
    let (a, b, to) = pair(bench);
    b.recv(1, vec![b.sge(0, 10_000)]);
    let wr = SendWr {
        to: SendTo::Datagram(to),
        ..send_wr(
            1,
            SendOp::Send,
            vec![a.sge(0, LONGEST + 1)],
            SendFlags::SIGNALED,
        )
    };
    if a.post(wr).is_ok() {
        a.completes(1, WcStatus::LocLenErr);
        a.reaches(QpState::Sqe);
        a.to(QpState::Rts);
    }
    // The longest comes through.
    a.send_to(2, to, vec![a.sge(0, 4096)]);
    a.done(2);
    assert_eq!(b.arrives(1)?.byte_len as usize, GRH + 4096);
    Some(())
}

fn reply(bench: &Bench) -> Option<()> {
    let (a, mut b, to) = pair(bench);
    b.recv(1, vec![b.sge(0, 100)]);
    a.recv(2, vec![a.sge(200, 100)]);
    a.send_to(1, to, vec![a.sge(0, 8)]);
    a.done(1);
    let wc = b.arrives(1)?;
    let back = Datagram {
        ah: b.side_mut().handle_to_sender(&wc, 0).expect("a handle"),
        qpn: wc.src_qp,
        qkey: QKEY,
    };
    b.memory().fill(500, b"answer");
    b.send_to(2, back, vec![b.sge(500, 6)]);
    b.done(2);
    assert_eq!(a.arrives(2)?.src_qp, b.qpn());
    assert_eq!(a.memory().bytes(200 + GRH, 6), b"answer");
    Some(())
}

/// Groups of this process alone, so that tests which run at the same time do not meet; nor do the
/// tries of one.
fn groups() -> impl Iterator<Item = Gid> {
    let [_, b, c, d] = std::process::id().to_be_bytes();
    let scopes = (0..=192).rev().step_by(16);
    scopes.map(move |scope| Gid::from_ip(Ipv4Addr::new(239, scope | b & 15, c, d).into()))
}

fn multicast(bench: &Bench, group: Gid) -> Option<()> {
    let (a, stays, _) = pair(bench);
    let spec = Spec::of(QpType::Ud);
    let others = [bench.end(spec), bench.peer(spec)];
    for end in &others {
        end.connect(a.qpn());
    }
    let [leaves, stranger] = &others;
    for end in [&stays, leaves] {
        end.side().attach(group).expect("attached");
    }
    let heard = members_hear(a, (&stays, leaves, stranger), group);
    // What is attached does not go.
    stays.side().detach(group).expect("detached");
    // After a loss it has not left.
    let _ = leaves.side().detach(group);
    heard
}

/// One end stays in the group, one leaves it, and one never was in it.
fn members_hear(
    mut a: End,
    (stays, leaves, stranger): (&End, &End, &End),
    group: Gid,
) -> Option<()> {
    let to = Datagram {
        ah: a.handle_to(group),
        qpn: Qpn::new(0x00ff_ffff),
        qkey: QKEY,
    };
    for end in [stays, leaves, stranger] {
        (0..3).for_each(|wr_id| end.recv(wr_id, vec![end.sge(0, 100)]));
    }
    a.send_to(1, to, vec![a.sge(0, 8)]);
    a.done(1);
    for end in [stays, leaves] {
        assert_eq!(end.arrives(0)?.byte_len as usize, GRH + 8);
    }
    // The end that has left hears no more, and the stranger never did: the first datagram that
    // these two get is for them alone.
    leaves.side().detach(group).expect("detached");
    a.send_to(2, to, vec![a.sge(0, 9)]);
    a.done(2);
    assert_eq!(stays.arrives(1)?.byte_len as usize, GRH + 9);
    let ah = a.handle_to(stranger.gid());
    for (end, wr_id) in [(leaves, 1), (stranger, 0)] {
        let qpn = end.qpn();
        a.send_to(3, Datagram { ah, qpn, ..to }, vec![a.sge(0, 10)]);
        a.done(3);
        assert_eq!(end.arrives(wr_id)?.byte_len as usize, GRH + 10);
    }
    Some(())
}

fn qkey(bench: &Bench) -> Option<()> {
    let (a, b, to) = pair(bench);
    for wr_id in 1..3 {
        b.recv(wr_id, vec![b.sge(0, 100)]);
    }
    a.send_to(
        1,
        Datagram {
            qkey: QKEY ^ 1,
            ..to
        },
        vec![a.sge(0, 8)],
    );
    a.done(1);
    // The highest bit stands for the queue pair's own, which is the right one.
    let own = Datagram {
        qkey: 0x8000_0000,
        ..to
    };
    a.send_to(2, own, vec![a.sge(0, 9)]);
    a.done(2);
    assert_eq!(b.arrives(1)?.byte_len, 49, "the first was dropped");
    b.is_silent();
    Some(())
}

fn buffer_too_small(bench: &Bench) {
    let (a, b, to) = pair(bench);
    b.recv(1, vec![b.sge(0, GRH + 7)]);
    b.recv(2, vec![b.sge(100, 100)]);
    a.memory().fill(0, &[1; 8]);
    a.send_to(1, to, vec![a.sge(0, 8)]);
    a.done(1);
    a.send_to(2, to, vec![a.sge(0, 8)]);
    a.done(2);
    assert_eq!(
        b.memory().bytes(GRH + 7, 8),
        [0; 8],
        "nothing behind the buffer"
    );
    // Dropped with its receive in error, or without a word: the specifications leave it open. It is
    // not a success.
    let first = b.completion();
    assert!(first.wr_id == 1 && (first.status == WcStatus::LocLenErr || first.byte_len == 0));
}

fn no_receive(bench: &Bench) -> Option<()> {
    let (a, b, to) = pair(bench);
    for wr_id in 0..5 {
        a.send_to(wr_id, to, vec![a.sge(0, 8)]);
        a.done(wr_id);
    }
    assert_eq!(a.state(), QpState::Rts);
    // One that arrives is the one for which there is a receive, or one of those before that was
    // late.
    b.recv(1, vec![b.sge(0, 100)]);
    a.send_to(9, to, vec![a.sge(0, 8)]);
    a.done(9);
    b.arrives(1)?;
    b.is_silent();
    assert_eq!(b.state(), QpState::Rts);
    Some(())
}

fn header(bench: &Bench) {
    let spec = Spec::of(QpType::Ud);
    let (mut end, peer) = bench.raw_of(spec);
    let ah = end.handle_to(peer.gid());
    let to = Datagram {
        ah,
        qpn: peer.qpn(),
        qkey: 0x77,
    };
    for psn in 0..3 {
        end.send_to(1, to, vec![end.sge(0, 5)]);
        end.done(1);
        let packet = peer.next();
        assert_eq!(packet.bth.opcode, Opcode::UD_SEND_ONLY);
        let deth = packet.ext.deth.expect("a DETH");
        assert_eq!((deth.qkey, deth.src_qp), (0x77, end.qpn()));
        assert_eq!(packet.bth.psn, crate::bench::FIRST_PSN.plus(psn));
        assert!(!packet.bth.ack_req);
        assert_eq!(packet.payload.len(), 5);
    }
}

fn datagram<'a>(peer: &'a RawPeer, qkey: u32) -> Building<'a> {
    let packet = peer.opcode(Opcode::UD_SEND_ONLY).unasked();
    packet
        .deth(qkey, Qpn::new(0x55))
        .at(Psn::new(9))
        .payload(&[1; 8])
}

fn drops(bench: &Bench) {
    let (end, peer) = bench.raw_of(Spec::of(QpType::Ud));
    end.recv(1, vec![end.sge(0, 100)]);
    datagram(&peer, QKEY ^ 0x100).go();
    datagram(&peer, 0).go();
    datagram(&peer, QKEY).header(|bth| bth.pkey = 0x1234).go();
    let rc = peer.packet(Operation::Send, ferroce_proto::wire::Position::Only);
    rc.at(Psn::new(9)).payload(&[1; 8]).go();
    let long = datagram(&peer, QKEY).payload(&[1; 64]);
    long.go_damaged(|bytes| bytes[30] ^= 1);
    datagram(&peer, QKEY).payload(&[2; 9]).go();
    let wc = end.done(1);
    assert_eq!((wc.byte_len, wc.src_qp), (49, Qpn::new(0x55)));
    end.is_silent();
    end.raises_nothing();
}
