//! Long SENDs whose bytes the responder's owner fetches: one packet each, and by packets like any
//! other where that cannot be.
#![expect(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "tests, and their data is small"
)]

mod common;

use common::{SOON, bytes, seeds, sent, until_sent};
use ferroce_proto::ids::{Msn, Qpn};
use ferroce_proto::mr::{Access, Rights};
use ferroce_proto::rc::{FastOutcome, LinkTraits, LongBody, MIN_RENDEZVOUS};
use ferroce_proto::testkit::{Arena, Node, Pair, Rng, Setup, Side, remote, wr};
use ferroce_proto::verbs::{QpState, SendOp, SendWr, WcImm, WcOpcode, WcStatus};
use ferroce_proto::wire::{AtomicEth, Brief, BriefSend, Bth, Opcode, Packet};

const TOKEN: u64 = 0x1234_5678_9abc_def1;
const LONG: u32 = MIN_RENDEZVOUS + 100;

/// A pair within a host, of which A sends by rendezvous.
fn pair(setup: Setup) -> Pair {
    let mut pair = Pair::new(Setup {
        link: LinkTraits {
            lossless: true,
            ..setup.link
        },
        ..setup
    });
    pair.a.qp.begin_rendezvous(TOKEN);
    pair.trace = Some(Vec::new());
    pair
}

fn send(pair: &mut Pair, id: u64, (at, len): (u64, u32)) {
    let sges = vec![pair.sge(Side::A, at, len)];
    pair.send(Side::A, wr(id, SendOp::Send, sges));
}

fn recv(pair: &mut Pair, id: u64, (at, len): (u64, u32)) {
    let sges = vec![pair.sge(Side::B, at, len)];
    pair.recv(Side::B, id, sges);
}

#[test]
fn a_long_send_is_one_packet_that_waits_for_a_receive() {
    let mut pair = pair(Setup::default());
    pair.b.results.fetches = 1;
    let sges = vec![pair.sge(Side::A, 64, LONG)];
    pair.send(Side::A, wr(1, SendOp::SendImm([7; 4]), sges));
    for _ in 0..20 {
        let until = pair.now + SOON;
        pair.step(until);
    }
    assert_eq!(pair.b.results.rendezvous, [], "there is no receive");
    recv(&mut pair, 9, (0, LONG + 1));
    until_sent(&mut pair, Side::A, 1);
    assert_eq!(pair.a.results.send_statuses(), [(1, WcStatus::Success)]);
    let wc = pair.b.results.recv[0].0;
    assert_eq!((wc.wr_id, wc.byte_len), (9, LONG));
    assert_eq!(wc.imm, Some(WcImm::Imm([7; 4])));
    let [rendezvous] = pair.b.results.rendezvous[..] else {
        panic!("one rendezvous");
    };
    assert_eq!((rendezvous.token, rendezvous.len), (TOKEN, LONG));
    assert_eq!(rendezvous.addr, Arena::BASE + 64);
    assert_eq!(rendezvous.key, pair.key(Side::A));
    let all = sent(&mut pair, Side::A);
    assert!(
        all.iter().all(|op| *op == Opcode::RENDEZVOUS_IMM),
        "{all:?}"
    );
}

/// A stream of WRITEs with immediate: all are on their way at once, and the bytes of one are in
/// place when its receive was there, not before.
#[test]
fn long_writes_with_immediate_are_a_stream_in_order() {
    let mut pair = pair(Setup::default());
    pair.b.results.fetches = 9;
    let place = remote(pair.key(Side::B), 100);
    for n in 0..4 {
        let sges = vec![pair.sge(Side::A, 64 * n, LONG)];
        let op = SendOp::WriteImm(place, [n as u8; 4]);
        pair.send(Side::A, wr(n, op, sges));
        assert_eq!(pair.a.qp.next_direct(), None);
    }
    assert_eq!(sent(&mut pair, Side::A), [], "all of it is to be sent");
    for _ in 0..20 {
        let until = pair.now + SOON;
        pair.step(until);
    }
    assert_eq!(pair.b.results.rendezvous, [], "there is no receive");
    let all = sent(&mut pair, Side::A);
    assert!(all.len() >= 4, "one did not wait for the other: {all:?}");
    assert!(all.iter().all(|op| *op == Opcode::RENDEZVOUS_WRITE_IMM));
    for n in 0..4 {
        recv(&mut pair, 9, (0, 0));
        until_sent(&mut pair, Side::A, n + 1);
        assert_eq!(pair.b.results.rendezvous.len(), n + 1);
        assert_eq!(
            pair.b.results.rendezvous[n].addr,
            Arena::BASE + 64 * n as u64
        );
        let wc = pair.b.results.recv[n].0;
        assert_eq!((wc.opcode, wc.byte_len), (WcOpcode::RecvRdmaWithImm, LONG));
        assert_eq!(wc.imm, Some(WcImm::Imm([n as u8; 4])));
    }
}

#[test]
fn a_write_with_immediate_that_is_not_allowed_is_refused_as_by_packets() {
    let refused = |wrong_key: u32, access: Access, status| {
        let mut pair = pair(Setup {
            access,
            ..Setup::default()
        });
        pair.b.results.fetches = 1;
        recv(&mut pair, 9, (0, 0));
        let mut place = remote(pair.key(Side::B), 0);
        place.rkey.0 ^= wrong_key;
        let sges = vec![pair.sge(Side::A, 0, LONG)];
        pair.send(Side::A, wr(1, SendOp::WriteImm(place, [0; 4]), sges));
        until_sent(&mut pair, Side::A, 1);
        assert_eq!(pair.a.results.send_statuses(), [(1, status)]);
        assert_eq!(pair.b.results.rendezvous, [], "nothing is touched");
    };
    refused(1, Setup::default().access, WcStatus::RemAccessErr);
    refused(0, Access::REMOTE_READ, WcStatus::RemInvReqErr);
}

#[test]
fn what_cannot_be_fetched_comes_by_packets_and_so_does_what_follows() {
    let mut pair = pair(Setup::default());
    let data = bytes(&mut Rng::new(3), 4 * LONG as usize);
    pair.a.memory.put(Arena::BASE, &data);
    let lens = [LONG, 10, LONG, LONG];
    let at = |n: usize| (u64::from(LONG) * n as u64, lens[n]);
    for n in 0..4 {
        recv(&mut pair, n as u64, at(n));
    }
    for n in 0..4 {
        send(&mut pair, n as u64, at(n));
    }
    let place = remote(pair.key(Side::B), 500_000);
    let eight = vec![pair.sge(Side::A, 400_000, 8)];
    pair.send(Side::A, wr(4, SendOp::Read(place), eight));
    until_sent(&mut pair, Side::A, 5);
    let all: Vec<_> = (0..5).map(|n| (n, WcStatus::Success)).collect();
    assert_eq!(pair.a.results.send_statuses(), all);
    for (n, &len) in lens.iter().enumerate() {
        let (from, len) = (LONG as usize * n, len as usize);
        let got = pair.b.memory.get(Arena::BASE + from as u64, len);
        assert_eq!(got, data[from..from + len], "message {n}");
    }
    assert_eq!(pair.b.results.rendezvous.len(), 1, "the first was refused");
    // After some messages it is tried again.
    pair.b.results.fetches = 1;
    for n in 5.. {
        recv(&mut pair, n, (0, LONG));
        send(&mut pair, n, (0, LONG));
        until_sent(&mut pair, Side::A, n as usize + 1);
        if pair.b.results.rendezvous.len() == 2 {
            break;
        }
        assert!(n < 50);
    }
    assert_eq!(
        pair.b.results.recv_statuses().len(),
        pair.a.results.send.len() - 1
    );
    // Both ends are in step.
    let request = common::write(&pair, 99, 100);
    pair.send(Side::A, request);
    let direct = pair.a.qp.next_direct().unwrap();
    assert_eq!(pair.b.qp.grant().unwrap().expected, direct.psn);
}

#[test]
fn rendezvous_end_before_work_is_flushed() {
    let mut pair = pair(Setup::default());
    send(&mut pair, 1, (0, LONG));
    pair.to_state(Side::A, QpState::Err);
    assert_eq!(pair.a.results.send_statuses(), [(1, WcStatus::WrFlushErr)]);
    assert_eq!(pair.a.results.grant_ended, Some(0), "before the first");
    assert_eq!(pair.a.qp.rendezvous(), None);
}

#[test]
fn what_would_fail_by_packets_fails_by_rendezvous() {
    let mut pair = pair(Setup::default());
    pair.b.results.fetches = 9;
    recv(&mut pair, 9, (0, LONG - 1));
    send(&mut pair, 1, (0, LONG));
    until_sent(&mut pair, Side::A, 1);
    assert_eq!(
        pair.a.results.send_statuses(),
        [(1, WcStatus::RemInvReqErr)]
    );
    assert_eq!(pair.b.results.recv_statuses(), [(9, WcStatus::LocLenErr)]);
    assert_eq!(pair.b.results.rendezvous, []);

    let mut pair = self::pair(Setup::default());
    recv(&mut pair, 9, (0, LONG));
    let sges = vec![pair.sge(Side::A, 0, LONG)];
    pair.a.rights = Rights::default();
    pair.send(Side::A, wr(1, SendOp::Send, sges));
    let until = pair.now + SOON;
    pair.step(until);
    assert_eq!(pair.a.results.send_statuses(), [(1, WcStatus::LocProtErr)]);
}

/// Rendezvous that are fetched or refused at random, among shorter messages and receives that come
/// late: all arrive once, in order.
#[test]
fn whatever_is_refused_everything_arrives_once_and_in_order() {
    for seed in seeds(200) {
        let mut rng = Rng::new(seed);
        let mut pair = pair(Setup {
            seed,
            psn: 0x00ff_fff0,
            ..Setup::default()
        });
        let (mut lens, mut posted) = (Vec::new(), 0);
        for n in 0..30_u64 {
            let len = if rng.per_mille(600) { LONG } else { 5000 };
            lens.push(len);
            pair.b.results.fetches += usize::try_from(rng.below32(3)).unwrap();
            if rng.per_mille(500) {
                send(&mut pair, n, (0, len));
            } else {
                let op = SendOp::WriteImm(remote(pair.key(Side::B), 0), [n as u8; 4]);
                let sges = vec![pair.sge(Side::A, 0, len)];
                pair.send(Side::A, wr(n, op, sges));
            }
            if rng.per_mille(700) || n == 29 {
                (posted..=n).for_each(|id| recv(&mut pair, id, (0, LONG)));
                posted = n + 1;
            }
            for _ in 0..rng.below32(12) {
                let until = pair.now + SOON;
                pair.step(until);
            }
        }
        until_sent(&mut pair, Side::A, 30);
        let all: Vec<_> = (0..30).map(|n| (n, WcStatus::Success)).collect();
        assert_eq!(pair.a.results.send_statuses(), all, "seed {seed}");
        assert_eq!(pair.b.results.recv_statuses(), all, "seed {seed}");
        let got = pair.b.results.recv.iter().map(|(wc, _)| wc.byte_len);
        assert!(got.eq(lens.iter().copied()), "seed {seed}");
        let rendezvous = pair.b.results.rendezvous.len();
        assert!(rendezvous > 0, "seed {seed}");
    }
}

/// Where the byte with the request for an acknowledgement is in a header, and what clears it: what
/// is in a short ring is acknowledged without packets.
const ACK_REQ_AT: usize = 8;
const NO_ACK_REQ: u8 = 0x7f;

/// Sends a long message the general way, as packets of a short ring. Returns the packet.
fn general(pair: &mut Pair, request: SendWr) -> Vec<u8> {
    let (now, mut out) = (pair.now, Vec::new());
    pair.send(Side::A, request);
    assert!(pair.a.with(now, |qp, cx| qp.poll_transmit(cx, &mut out)));
    let mut none = Vec::new();
    assert!(!pair.a.with(now, |qp, cx| qp.poll_transmit(cx, &mut none)));
    let mut quiet = out.clone();
    quiet[ACK_REQ_AT] &= NO_ACK_REQ;
    let packet = Packet::parse(&quiet).unwrap();
    assert!(pair.b.with(now, |qp, cx| qp.on_packet(cx, &packet)));
    let ack = Bth::new(Opcode::RC_ACKNOWLEDGE, packet.bth.dest_qp, packet.bth.psn);
    let ack = Brief::acknowledgement(&ack, Msn::new(0));
    let ack = Packet::parse(&ack).unwrap();
    assert!(pair.a.with(now, |qp, cx| qp.on_packet(cx, &ack)));
    out
}

/// The same, the fast way.
fn fast(pair: &mut Pair, request: &SendWr) -> Vec<u8> {
    let Node { qp, rights, .. } = &mut pair.a;
    assert!(qp.fast_head().is_some());
    let send = request.as_plain().unwrap();
    let mut opens = &*rights;
    let message = qp.prepare_long(&mut opens, &send).unwrap();
    let LongBody::Place(place) = message.body else {
        panic!("it is to be fetched");
    };
    let head = message.head;
    qp.commit_rendezvous(request.clone());
    let psn = qp.last_psn();
    let Node {
        qp,
        rights,
        results,
        ..
    } = &mut pair.b;
    let to = Qpn::new(u32::from_be(head[1]));
    let rendezvous = qp.rendezvous_in(AtomicEth::from_bytes(&place)).unwrap();
    let message = BriefSend::parse_rendezvous(head, rendezvous.len as usize, to).unwrap();
    let message = BriefSend {
        ack_req: false,
        ..message
    };
    assert!(qp.is_ready_to_take());
    let mut fetched = 0;
    let fetch = |span: ferroce_proto::mr::Span<'_>| {
        fetched = span.len();
        Ok(())
    };
    let taken = qp.take_fast((&mut &*rights, fetch), results, &message);
    assert_eq!(
        (taken, fetched),
        (FastOutcome::Done, rendezvous.len as usize)
    );
    results.rendezvous.push(rendezvous);
    let Node { qp, results, .. } = &mut pair.a;
    assert_eq!(qp.acknowledge_fast(results, psn), FastOutcome::Done);
    [head.map(u32::to_ne_bytes).as_flattened(), &place].concat()
}

#[test]
fn the_fast_way_leaves_what_the_general_way_leaves() {
    let [mut one, mut other] = [(), ()].map(|()| pair(Setup::default()));
    // The first one measures the round trip.
    for pair in [&mut one, &mut other] {
        recv(pair, 99, (0, 8));
        send(pair, 99, (0, 8));
        until_sent(pair, Side::A, 1);
    }
    other.b.results.fetches = 9;
    for n in 0..9 {
        let len = LONG + 1000 * n;
        let request = |pair: &Pair| wr(n.into(), SendOp::Send, vec![pair.sge(Side::A, 8, len)]);
        for pair in [&mut one, &mut other] {
            recv(pair, n.into(), (0, len));
        }
        let (a, b) = (request(&one), request(&other));
        assert_eq!(fast(&mut one, &a), general(&mut other, b));
        let all = [&one, &other].map(|pair| {
            let (a, b) = (&pair.a, &pair.b);
            format!(
                "{:?} {:?}\n{:?} {:?}",
                a.qp, a.results.send, b.qp, b.results.recv
            )
        });
        assert!(all[0] == all[1], "message {n}\n{}\n{}", all[0], all[1]);
    }
    assert_eq!(one.b.results.rendezvous, other.b.results.rendezvous);
}
