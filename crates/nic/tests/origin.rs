//! Packets that fit a queue pair in every number, but come from somewhere else than its peer.

mod common;

use std::cell::Cell;
use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};

use common::stranger::{Stranger, datagram, send_only};
use common::{Buffer, End, INIT, cap, loopback, pair, wait_for};
use ferroce_nic::DropReason;
use ferroce_proto::ids::{Gid, Psn, Qpn};
use ferroce_proto::verbs::{AttrMask, Mtu, QpAttr, QpState, QpType, SendOp};
use ferroce_proto::wire::icrc::{self, Addresses, Encapsulation, Ident};
use ferroce_proto::wire::{Opcode, Operation, Position, ROCE_UDP_PORT};

/// The first packet that a queue pair of these tests expects.
const FIRST: Psn = Psn::new(0xff_fff0);
const QKEY: u32 = 0x0123_4567;
/// Bytes of the room before a datagram.
const GRH: usize = 40;

/// An address of no host (RFC 5737), of the family of `like`.
fn elsewhere(like: Gid) -> Gid {
    let text = match like.ip() {
        IpAddr::V4(_) => "192.0.2.1",
        IpAddr::V6(_) => "2001:db8::1",
    };
    Gid::from_ip(text.parse().expect("an address"))
}

fn rc_send(to: Qpn, payload: &[u8]) -> Vec<u8> {
    let opcode = Opcode::rc(Operation::Send, Position::Only);
    send_only(opcode, (to, FIRST), payload)
}

fn dropped() -> u64 {
    loopback().counters().dropped(DropReason::Origin)
}

/// Receives eight bytes; returns them.
fn received(end: &End, into: &Buffer) -> Vec<u8> {
    end.done(7);
    into.snapshot()[..8].to_vec()
}

fn receive(end: &End) -> Buffer {
    let buffer = Buffer::new(&end.pd, vec![0; 64]);
    end.recv(7, vec![buffer.sge(0, 64)]);
    buffer
}

/// What the peer sends is the first thing that a queue pair gets.
fn expect_genuine((a, b): (&End, &End), into: &Buffer) {
    let here = Buffer::new(&a.pd, b"genuine!".to_vec());
    a.send(1, SendOp::Send, vec![here.sge(0, 8)]);
    assert_eq!(received(b, into), b"genuine!");
    a.done(1);
}

#[test]
fn a_local_record_of_another_process_is_not_the_peers() {
    let (a, b) = pair(Mtu::B1024);
    let control = End::new(cap());
    let stranger = Stranger::with_link_to(b.qp.qpn());
    control.connect(stranger.qpn(1), control.gid(), Mtu::B1024);
    let (into, at_control) = (receive(&b), receive(&control));
    let (before, route) = (dropped(), (a.gid(), b.gid()));
    stranger.packet(stranger.qpn(2), route, &rc_send(b.qp.qpn(), b"injected"));
    // Nor is one of another queue pair of the peer's process.
    stranger.packet(
        stranger.qpn(2),
        route,
        &rc_send(control.qp.qpn(), b"injected"),
    );
    stranger.packet(
        stranger.qpn(1),
        route,
        &rc_send(control.qp.qpn(), b"right ok"),
    );
    assert_eq!(received(&control, &at_control), b"right ok");
    assert!(dropped() >= before + 2);
    expect_genuine((&a, &b), &into);
}

#[test]
fn a_local_path_takes_nothing_from_the_wire() {
    let (a, b) = pair(Mtu::B1024);
    let into = receive(&b);
    let route = (a.gid(), b.gid());
    let stranger = Stranger::with_link_to(b.qp.qpn());
    let before = dropped();
    stranger.pass_on(route, &rc_send(b.qp.qpn(), b"injected"));
    wait_for("a refusal", || dropped() > before);
    let before = dropped();
    send_udp(route, &rc_send(b.qp.qpn(), b"injected"));
    wait_for("a refusal", || dropped() > before);
    expect_genuine((&a, &b), &into);
}

#[test]
fn a_wire_path_takes_only_local_records_that_were_passed_on() {
    let end = End::of(QpType::Uc, cap());
    let route = (elsewhere(end.gid()), end.gid());
    connect_elsewhere(&end);
    let into = receive(&end);
    let stranger = Stranger::with_link_to(end.qp.qpn());
    let send = |payload: &[u8]| {
        let opcode = Opcode::uc(Operation::Send, Position::Only).expect("there is one");
        send_only(opcode, (end.qp.qpn(), FIRST), payload)
    };
    stranger.packet(stranger.qpn(1), route, &send(b"injected"));
    stranger.pass_on(route, &send(b"right ok"));
    assert_eq!(received(&end, &into), b"right ok");
}

/// The process that passes on a flood learns that nobody wants it, and can read less of it.
#[test]
fn packets_of_the_wire_that_nobody_wants_are_given_back() {
    let end = End::of(QpType::Uc, cap());
    let route = (elsewhere(end.gid()), end.gid());
    let stranger = Stranger::with_link_to(end.qp.qpn());
    let own = end.qp.qpn().get() & !0x3fff;
    let pass_on = || stranger.pass_on(route, &rc_send(Qpn::new(own | 0x3ffe), b"injected"));
    for _ in 0..64 {
        pass_on();
    }
    let last = Cell::new(Instant::now());
    let now_and_then = || {
        if last.get().elapsed() > Duration::from_millis(1) {
            last.set(Instant::now());
            pass_on();
        }
    };
    let [a, b, c, _] = own.to_le_bytes();
    // No notice is sent to a slot that was free a moment ago, as when another test had it. Then the
    // next 64 packets bring it.
    stranger.hears("the notice", &[5, 0, 0, 0, 0, a, b, c], now_and_then);
}

#[test]
fn a_datagram_names_a_sender_of_where_it_came_from() {
    let end = ud();
    let (here, there) = (end.gid(), elsewhere(end.gid()));
    let into: Vec<_> = (0..2).map(|_| receive(&end)).collect();
    let stranger = Stranger::with_link_to(end.qp.qpn());
    let (one, two) = (stranger.qpn(1), stranger.qpn(2));
    let before = dropped();
    let to = (end.qp.qpn(), QKEY);
    // From another host, as it says; of another queue pair; to QP1, which believes the addresses of
    // the wire; of this host.
    stranger.packet(one, (there, here), &datagram(one, to, b"injected"));
    stranger.packet(one, (here, here), &datagram(two, to, b"injected"));
    let gsi = (Qpn::GSI, ferroce_proto::ids::GSI_QKEY);
    stranger.packet(one, (there, here), &datagram(Qpn::GSI, gsi, &[0; 256]));
    stranger.pass_on((here, here), &datagram(one, to, b"injected"));
    stranger.packet(one, (here, here), &datagram(one, to, b"by local"));
    stranger.pass_on((there, here), &datagram(one, to, b"the wire"));
    for (buffer, sent) in into.iter().zip([b"by local", b"the wire"]) {
        end.done(7);
        assert_eq!(&buffer.snapshot()[GRH..GRH + 8], sent);
    }
    assert!(dropped() >= before + 4);
    let before = dropped();
    send_udp((here, here), &datagram(one, to, b"injected"));
    wait_for("a refusal", || dropped() > before);
}

/// Sends a packet from this host's address by a plain UDP socket.
fn send_udp((src, dst): (Gid, Gid), packet: &[u8]) {
    let socket = UdpSocket::bind((src.ip(), 0)).expect("a socket");
    let encap = Encapsulation {
        addresses: Addresses::from_gids(src, dst).expect("of one family"),
        src_port: socket.local_addr().expect("bound").port(),
    };
    let crc = icrc::compute(&encap, Ident::ZERO, packet);
    let datagram = [packet, &crc].concat();
    socket
        .send_to(&datagram, (dst.ip(), ROCE_UDP_PORT))
        .expect("sent");
}

/// Leads a UC queue pair to another host, to which nothing is sent.
fn connect_elsewhere(end: &End) {
    let attr = common::attributes(Qpn::new(0x1234), elsewhere(end.gid()), Mtu::B256);
    let rtr = AttrMask::AV | AttrMask::PATH_MTU | AttrMask::DEST_QPN | AttrMask::RQ_PSN;
    for (state, mask) in [(QpState::Init, INIT), (QpState::Rtr, AttrMask::STATE | rtr)] {
        let attr = QpAttr {
            qp_state: state,
            ..attr
        };
        end.qp.modify(&attr, mask).expect("a wire");
    }
}

/// A UD queue pair in RTR.
fn ud() -> End {
    let end = End::of(QpType::Ud, cap());
    let init = AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::QKEY;
    for (state, mask) in [(QpState::Init, init), (QpState::Rtr, AttrMask::empty())] {
        let attr = QpAttr {
            qp_state: state,
            qkey: QKEY,
            port_num: 1,
            ..QpAttr::default()
        };
        let mask = mask | AttrMask::STATE;
        end.qp.modify(&attr, mask).expect("modified");
    }
    end
}
