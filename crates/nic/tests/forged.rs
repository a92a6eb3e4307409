//! Forged packets on the wire: what makes a peer a Ferroce, and what packets ahead of their turn
//! can do.
//!
//! Each test runs in a process of its own, as in `wire.rs`.

mod common;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket as Plain};

use common::stranger::claim_slot;
use common::{Buffer, End, attributes, cap, pair, pattern, run_on_wire, wait_for, way_to};
use ferroce_nic::DropReason;
use ferroce_os::udp::{RecvRing, UdpSocket};
use ferroce_os::unix::SeqListener;
use ferroce_proto::ids::{Gid, Key, Psn, Qpn};
use ferroce_proto::rc::Noted;
use ferroce_proto::verbs::{AttrMask, Mtu, PathMigState, QpAttr, SendOp};
use ferroce_proto::wire::icrc::{self, Addresses, Encapsulation, Ident};
use ferroce_proto::wire::{
    Bth, Drain, ExtHeaders, NakCode, Opcode, Operation, Packet, Position, ROCE_UDP_PORT, Reth,
    Syndrome,
};

const DEVICE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const PEER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
/// Ports that nobody sends from but the forgers of the process with a slot: `FORGERS` and the slot.
const FORGERS: u16 = 20_000;
/// PSN of the first request.
const FIRST: u32 = 0xff_fff0;

/// A socket that sends packets with a right ICRC to the device.
struct Forger {
    socket: Plain,
    src: Ipv4Addr,
}

impl Forger {
    fn new(src: Ipv4Addr, port: u16) -> Self {
        let socket = Plain::bind((src, port)).expect("a socket");
        Self { socket, src }
    }

    fn send(&self, packet: &[u8]) {
        let (src, dst) = (self.src, DEVICE);
        let encap = Encapsulation {
            addresses: Addresses::V4 { src, dst },
            src_port: self.socket.local_addr().expect("an address").port(),
        };
        let datagram = [packet, &icrc::compute(&encap, Ident::ZERO, packet)].concat();
        self.socket
            .send_to(&datagram, (DEVICE, ROCE_UDP_PORT))
            .expect("sent");
    }

    fn send_packet(&self, to: Qpn, opcode: (Operation, u32), ext: ExtHeaders, payload: &[u8]) {
        let (operation, psn) = opcode;
        let opcode = Opcode::rc(operation, Position::Only);
        let bth = Bth {
            ack_req: true,
            ..Bth::new(opcode, to, Psn::new(psn))
        };
        self.send_whole(bth, ext, payload);
    }

    /// A SEND of a peer that has migrated.
    fn send_migrated(&self, to: Qpn, psn: u32) {
        let opcode = Opcode::rc(Operation::Send, Position::Only);
        let bth = Bth {
            ack_req: true,
            migreq: true,
            ..Bth::new(opcode, to, Psn::new(psn & 0x00ff_ffff))
        };
        self.send_whole(bth, ExtHeaders::default(), b"migrated");
    }

    fn send_whole(&self, bth: Bth, ext: ExtHeaders, payload: &[u8]) {
        let mut bytes = Vec::new();
        Packet { bth, ext, payload }.emit(&mut bytes);
        self.send(&bytes);
    }
}

/// A queue pair of the process that has a slot.
fn qpn_of(slot: u16, index: u32) -> Qpn {
    Qpn::new(u32::from(slot) << 14 | index)
}

/// The slot of a queue pair's process.
fn slot_of(qpn: Qpn) -> u16 {
    u16::try_from(qpn.get() >> 14).expect("10 bits")
}

/// A peer of which nobody knows what it is.
struct Peer {
    /// Its ports are those of this slot, which no process has meanwhile.
    slot: u16,
    _claim: SeqListener,
    forger: Forger,
    from_device: UdpSocket,
    ring: RecvRing,
    end: End,
    next: u32,
    buffer: Buffer,
}

impl Peer {
    fn connect() -> Self {
        let end = End::new(cap());
        let (slot, claim) = claim_slot();
        let there = slot_of(end.qp.qpn());
        let port = |from: u16, to: u16| 0xC000 | from << 4 | (to % 16);
        let from = SocketAddr::from((DEVICE, port(there, slot)));
        let from_device = UdpSocket::receiver(PEER.into(), ROCE_UDP_PORT, from, 0).expect("open");
        let dgid = Gid::from(PEER);
        end.connect_with(&attributes(qpn_of(slot, 7), dgid, Mtu::B1024))
            .expect("connected");
        let buffer = Buffer::new(&end.pd, vec![0; 64]);
        Self {
            slot,
            _claim: claim,
            // The port of a Ferroce's private port.
            forger: Forger::new(PEER, port(slot, there)),
            from_device,
            ring: RecvRing::new(8, 2048),
            end,
            next: FIRST,
            buffer,
        }
    }

    fn qpn(&self) -> Qpn {
        qpn_of(self.slot, 7)
    }

    /// A forger of another address.
    fn other(&self, src: Ipv4Addr) -> Forger {
        Forger::new(src, FORGERS + self.slot)
    }

    /// Waits for a packet for which `find` has something.
    fn until<R>(&mut self, what: &str, find: impl Fn(&[u8]) -> Option<R>) -> R {
        let mut found = None;
        wait_for(what, || {
            if self.from_device.recv_many(&mut self.ring).is_ok() {
                let packets = self.ring.iter().flat_map(|received| {
                    let packets: Vec<_> = received.segments().collect();
                    packets
                });
                let mut packets = packets.filter_map(|p| find(p.split_last_chunk::<4>()?.0));
                found = packets.next();
            }
            found.is_some()
        });
        found.expect("found")
    }

    /// Whether a gap is reported with all that is known of it, as only a Ferroce understands.
    fn reports_gaps(&mut self) -> bool {
        let (to, next) = (self.end.qp.qpn(), self.next);
        let message = |psn| (Operation::Send, psn & 0x00ff_ffff);
        let none = ExtHeaders::default();
        self.forger
            .send_packet(to, message(next + 2), none, b"early");
        let reports = self.until("a NAK", |bytes| {
            let packet = Packet::parse(bytes).ok()?;
            let gap = Syndrome::Nak(NakCode::Sequence);
            let is_nak = packet.ext.aeth.is_some_and(|aeth| aeth.syndrome == gap);
            (is_nak && packet.bth.psn == Psn::new(next)).then_some(!packet.payload.is_empty())
        });
        // What comes in its turn ends the gap, if nothing is kept.
        self.send_in_turn();
        reports
    }

    fn send_in_turn(&mut self) {
        let (to, next) = (self.end.qp.qpn(), self.next);
        self.end.recv(next.into(), vec![self.buffer.sge(0, 64)]);
        let message = (Operation::Send, next & 0x00ff_ffff);
        self.forger
            .send_packet(to, message, ExtHeaders::default(), b"in turn");
        self.end.done(next.into());
        self.next += 1;
    }
}

#[test]
fn a_peer_is_a_ferroce_only_once_it_has_echoed() {
    run_on_wire("child_echo", "");
}

#[test]
#[ignore = "run by the test above"]
fn child_echo() {
    let mut peer = Peer::connect();
    // The first packet: it is asked what it is.
    peer.send_in_turn();
    let question = peer.until("a question", Drain::parse);
    let qpn = peer.qpn();
    assert_eq!((question.room, question.to), (None, qpn));
    assert!(
        !peer.reports_gaps(),
        "it only sends from the port of a private port"
    );
    let answer = Drain {
        room: Some(1 << 20),
        to: question.from,
        from: question.to,
        mark: question.mark,
    };
    let tries = [
        ("another number", PEER, answer.mark ^ 1, qpn),
        ("another address", OTHER, answer.mark, qpn),
        (
            "another queue pair",
            PEER,
            answer.mark,
            qpn_of(peer.slot, 8),
        ),
        ("the right answer", PEER, answer.mark, qpn),
    ];
    for (what, src, mark, from) in tries {
        let mut bytes = Vec::new();
        Drain {
            mark,
            from,
            ..answer
        }
        .emit(&mut bytes);
        if src == PEER {
            peer.forger.send(&bytes);
        } else {
            peer.other(src).send(&bytes);
        }
        assert_eq!(peer.reports_gaps(), what == "the right answer", "{what}");
    }
}

#[test]
fn one_datagram_takes_no_connection_off_its_path() {
    run_on_wire("child_migrated", "");
}

#[test]
#[ignore = "run by the test above"]
fn child_migrated() {
    let mut peer = Peer::connect();
    let qp = &peer.end.qp;
    let alternate = QpAttr {
        alt_ah_attr: way_to(Gid::from(OTHER), 0),
        alt_port_num: 1,
        alt_timeout: 18,
        ..attributes(peer.qpn(), Gid::from(PEER), Mtu::B1024)
    };
    for path_mig_state in [PathMigState::Rearm, PathMigState::Armed] {
        let attr = QpAttr {
            path_mig_state,
            ..alternate
        };
        let mask = AttrMask::ALT_PATH | AttrMask::PATH_MIG_STATE;
        qp.modify(&attr, mask).expect("an alternate path");
    }
    let (to, next) = (qp.qpn(), peer.next);
    let other = peer.other(OTHER);
    let refused = || {
        let counters = peer.end.context.device().counters();
        counters.dropped(DropReason::Address)
    };
    for psn in [next + 1, next + 1000, next + (1 << 22), next - 5000] {
        let before = refused();
        other.send_migrated(to, psn);
        wait_for("the forged packet", || refused() > before);
        assert_eq!(qp.query().path_mig_state, PathMigState::Armed, "{psn:#x}");
    }
    assert!(!peer.reports_gaps(), "its path is the first one");
    // What the peer may send now takes the queue pair along.
    let qp = &peer.end.qp;
    other.send_migrated(to, peer.next);
    wait_for("the migration", || {
        qp.query().path_mig_state == PathMigState::Migrated
    });
}

#[test]
fn packets_ahead_of_their_turn_do_no_harm() {
    run_on_wire("child_ahead", "");
}

#[test]
#[ignore = "run by the test above"]
fn child_ahead() {
    const LEN: usize = 3000;
    const MESSAGES: usize = 8;
    let (a, b) = pair(Mtu::B1024);
    let forger = Forger::new(DEVICE, FORGERS + slot_of(a.qp.qpn()));
    let sent = pattern(LEN * MESSAGES, 3);
    let here = Buffer::new(&a.pd, [&sent[..], &vec![0; sent.len()]].concat());
    let mut next = FIRST;
    let transfer = |next: &mut u32| {
        let there = Buffer::new(&b.pd, vec![0; sent.len()]);
        for (wr_id, at) in (0..).zip((0..sent.len()).step_by(LEN)) {
            b.recv(wr_id, vec![there.sge(at, LEN)]);
            a.send(2 * wr_id, SendOp::Send, vec![here.sge(at, LEN)]);
            let read = SendOp::Read(there.remote(at));
            a.send(2 * wr_id + 1, read, vec![here.sge(sent.len() + at, LEN)]);
            *next += 6;
        }
        for wr_id in 0..MESSAGES as u64 {
            b.done(wr_id);
            a.done(2 * wr_id);
            a.done(2 * wr_id + 1);
        }
        assert_eq!(there.snapshot(), sent);
        assert_eq!(here.snapshot()[sent.len()..], sent);
    };
    for _ in 0..4 {
        transfer(&mut next);
    }
    let early = || {
        let counters = b.context.device().counters();
        counters.noted(Noted::OutOfSequenceRequest)
    };
    let reth = |length| ExtHeaders {
        reth: Some(Reth {
            va: 0x1000,
            rkey: Key(0xbad),
            length,
        }),
        ..ExtHeaders::default()
    };
    let forged = [
        (Operation::Send, ExtHeaders::default(), &[0xee; 64][..]),
        (Operation::ReadRequest, reth(1), &[]),
        (Operation::ReadRequest, reth(1 << 22), &[]),
    ];
    for ahead in [1, 20, 1000, 20_000, 3_000_000] {
        for (operation, ext, payload) in forged {
            let before = early();
            let psn = (next + ahead) & 0x00ff_ffff;
            forger.send_packet(b.qp.qpn(), (operation, psn), ext, payload);
            wait_for("the forged packet", || early() > before);
            transfer(&mut next);
        }
    }
}
