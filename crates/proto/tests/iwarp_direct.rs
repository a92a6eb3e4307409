//! Work that the owner of a queue pair on iWARP carries out without FPDUs: when, and what it leaves
//! behind.

mod common;

use common::bytes;
use ferroce_proto::ids::Qpn;
use ferroce_proto::iwarp::mpa::Wishes;
use ferroce_proto::iwarp::testkit::{Pair, Setup};
use ferroce_proto::mr::Access;
use ferroce_proto::rc::{Direct, DirectOp};
use ferroce_proto::testkit::{Arena, Rng, Side, remote, wr};
use ferroce_proto::verbs::{RemoteAddr, SendOp, WcStatus};

const B: Qpn = Setup::qpn(Side::B);
const LEN: u32 = 5000;

/// What A may do now.
fn next(pair: &Pair) -> Option<Direct> {
    pair.a.qp.next_direct(B)
}

/// Whether what A may do now meets what B grants.
fn is_granted(pair: &Pair) -> bool {
    let granted = pair.b.qp.grant(Setup::qpn(Side::A)).expect("B runs");
    next(pair).is_some_and(|direct| direct.psn == granted.expected)
}

/// Tells the queue pair how many bytes of the direct operation were moved.
fn moved(pair: &mut Pair, len: u32) {
    let now = pair.now;
    pair.a.with(now, |qp, cx| qp.on_direct(cx, len));
}

fn place(pair: &Pair) -> RemoteAddr {
    remote(pair.key(Side::B), 0x1_0000)
}

fn post(pair: &mut Pair, wr_id: u64, op: SendOp) {
    let sges = vec![pair.sge(Side::A, 0, LEN)];
    pair.send(Side::A, wr(wr_id, op, sges));
}

fn statuses(pair: &Pair) -> Vec<(u64, WcStatus)> {
    pair.a.results.send_statuses()
}

#[test]
fn what_is_done_without_fpdus_completes_in_order_and_counts_none() {
    let mut pair = Pair::new(Setup::default());
    let (write, read) = (SendOp::Write(place(&pair)), SendOp::Read(place(&pair)));
    for (wr_id, op) in [(1, write), (2, read), (3, write)] {
        post(&mut pair, wr_id, op);
    }
    assert!(is_granted(&pair));
    moved(&mut pair, 4000);
    let rest = next(&pair).expect("not done yet");
    assert_eq!((rest.op, rest.len), (DirectOp::Write, 1000));
    assert_eq!(rest.remote.addr, place(&pair).addr + 4000);
    assert_eq!(statuses(&pair), []);
    moved(&mut pair, 1000);
    assert_eq!(next(&pair).map(|direct| direct.op), Some(DirectOp::Read));
    moved(&mut pair, LEN);
    let success = [1, 2].map(|wr_id| (wr_id, WcStatus::Success));
    assert_eq!(statuses(&pair), success);
    assert!(is_granted(&pair));
    assert!(pair.written[0].is_empty());
}

#[test]
fn what_is_refused_goes_by_fpdus_from_its_first_byte() {
    let mut pair = Pair::new(Setup::default());
    let data = bytes(&mut Rng::new(7), LEN as usize);
    pair.a.memory.put(Arena::BASE, &data);
    let write = SendOp::Write(place(&pair));
    post(&mut pair, 1, write);
    moved(&mut pair, 4000);
    pair.a.qp.refuse_direct();
    assert_eq!(next(&pair), None);
    pair.run();
    assert_eq!(statuses(&pair), [(1, WcStatus::Success)]);
    let there = pair.b.memory.get(place(&pair).addr, LEN as usize);
    assert_eq!(there, data);
    // The next one is looked at anew.
    post(&mut pair, 2, write);
    assert!(is_granted(&pair));
}

#[test]
fn nothing_goes_past_fpdus_that_the_peer_has_not_processed() {
    let mut pair = Pair::new(Setup::default());
    pair.recv(Side::B, 9, vec![]);
    pair.send(Side::A, wr(1, SendOp::Send, vec![]));
    let write = SendOp::Write(place(&pair));
    assert_eq!(next(&pair), None, "a SEND is no such work");
    let now = pair.now;
    let mut taken = Vec::new();
    pair.a.with(now, |qp, cx| {
        qp.transmit(cx, &mut |pieces| {
            let before = taken.len();
            for piece in pieces {
                if let ferroce_proto::mr::Piece::Inline(bytes) = piece {
                    taken.extend_from_slice(bytes);
                }
            }
            taken.len() - before
        });
    });
    assert_eq!(statuses(&pair), [(1, WcStatus::Success)]);
    post(&mut pair, 2, write);
    assert!(next(&pair).is_some() && !is_granted(&pair), "on its way");
    let (head, tail) = taken.split_at(taken.len() - 1);
    pair.inject(Side::B, head);
    assert!(!is_granted(&pair), "all but a byte");
    pair.inject(Side::B, tail);
    assert!(is_granted(&pair));
}

#[test]
fn a_read_that_waits_for_its_answer_is_not_overtaken() {
    let mut pair = Pair::new(Setup::default());
    let (write, read) = (SendOp::Write(place(&pair)), SendOp::Read(place(&pair)));
    post(&mut pair, 1, read);
    pair.a.qp.refuse_direct();
    pair.until(|pair| !pair.written[0].is_empty());
    post(&mut pair, 2, write);
    assert_eq!(next(&pair), None);
    pair.run();
    let success = [1, 2].map(|wr_id| (wr_id, WcStatus::Success));
    assert_eq!(statuses(&pair), success);
    post(&mut pair, 3, write);
    assert!(is_granted(&pair));
}

#[test]
fn immediates_and_empty_messages_go_by_fpdus() {
    let mut pair = Pair::new(Setup::default());
    let to = place(&pair);
    for op in [SendOp::WriteImm(to, [1; 4]), SendOp::Send] {
        pair.recv(Side::B, 1, vec![pair.sge(Side::B, 0, LEN)]);
        post(&mut pair, 1, op);
        assert_eq!(next(&pair), None);
        pair.run();
    }
    pair.send(Side::A, wr(1, SendOp::Write(to), vec![]));
    assert_eq!(next(&pair), None);
}

#[test]
fn nothing_is_granted_without_responder_resources_or_behind_the_end() {
    let mut pair = Pair::new(Setup {
        a: Wishes {
            ord: 0,
            ..Setup::WISHES
        },
        b: Wishes {
            ird: 0,
            max_ird: 0,
            ..Setup::WISHES
        },
        ..Setup::default()
    });
    let a = Setup::qpn(Side::A);
    let granted = pair.b.qp.grant(a).map(|grant| grant.access);
    assert_eq!(granted, Some(Access::REMOTE_WRITE));
    let write = SendOp::Write(place(&pair));
    post(&mut pair, 1, write);
    pair.reset();
    assert_eq!(pair.b.qp.grant(a), None);
    assert_eq!(next(&pair), None);
    assert_eq!(statuses(&pair), [(1, WcStatus::WrFlushErr)]);
}
