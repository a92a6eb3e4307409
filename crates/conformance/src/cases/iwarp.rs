//! What iWARP does otherwise; see [`differences`](crate::differences).

use ferroce_proto::ids::Key;
use ferroce_proto::mr::Access;
use ferroce_proto::verbs::{QpState, RemoteAddr, SendOp, WcStatus};

use crate::bench::{ALL, Bench};
use crate::case::Case;
use crate::door::EINVAL;
use crate::end::End;

pub(super) const CASES: &[Case] = &[
    Case::iwarp("iwarp.write-refused", &["iwarp.violation"], write_refused),
    Case::iwarp(
        "iwarp.read-refused",
        &["iwarp.violation", "iwarp.read-flushed"],
        read_refused,
    ),
    Case::iwarp("iwarp.too-long", &["iwarp.too-long"], too_long),
    Case::iwarp("iwarp.no-receive", &["iwarp.no-receive"], no_receive),
    Case::iwarp("iwarp.sqd", &["iwarp.sqd"], sqd),
    Case::iwarp("iwarp.no-reset", &["iwarp.no-reset"], no_reset),
];

/// Places of B that a peer with `need` may not reach: unknown key, past the end, foreign protection
/// domain, without the right, deregistered.
fn forbidden(b: &mut End, need: Access) -> [RemoteAddr; 5] {
    let len = b.memory().len();
    let side = b.side_mut();
    let foreign = side.register_elsewhere(0, 64, ALL).expect("a region");
    let gone = side.register(0, 64, ALL).expect("a region");
    side.deregister(gone);
    let without = b.register(0, 64, ALL.difference(need));
    [
        b.remote_with(Key(b.key().0 ^ 0x0f0f), 0),
        b.remote(len),
        b.remote_with(foreign, 0),
        b.remote_with(without, 0),
        b.remote_with(gone, 0),
    ]
}

/// Both ends are told, by what they have outstanding.
fn have_ended(a: &End, b: &End) {
    a.reaches(QpState::Err);
    b.reaches(QpState::Err);
}

fn write_refused(bench: &Bench) {
    for wrong in 0..5 {
        let (a, mut b) = bench.pair();
        let at = forbidden(&mut b, Access::REMOTE_WRITE)[wrong];
        a.memory().fill(0, &[7; 8]);
        a.recv(1, vec![]);
        b.recv(2, vec![]);
        a.send(3, SendOp::Write(at), vec![a.sge(0, 8)]);
        // TCP has it, so that it was sent is all that A knows.
        a.done(3);
        a.completes(1, WcStatus::WrFlushErr);
        b.completes(2, WcStatus::WrFlushErr);
        have_ended(&a, &b);
        assert_eq!(b.memory().word(0), 0, "{wrong}");
    }
}

fn read_refused(bench: &Bench) {
    for wrong in 0..5 {
        for is_read in [true, false] {
            let (a, mut b) = bench.pair();
            let need = if is_read {
                Access::REMOTE_READ
            } else {
                Access::REMOTE_ATOMIC
            };
            let remote = forbidden(&mut b, need)[wrong];
            let op = if is_read {
                SendOp::Read(remote)
            } else {
                SendOp::FetchAdd { remote, add: 1 }
            };
            a.memory().fill(0, &[7; 8]);
            a.send(1, op, vec![a.sge(0, 8)]);
            a.send(2, SendOp::Read(b.remote(8)), vec![a.sge(8, 8)]);
            a.completes(1, WcStatus::WrFlushErr);
            a.completes(2, WcStatus::WrFlushErr);
            have_ended(&a, &b);
            assert_eq!(a.memory().bytes(0, 8), [7; 8], "{wrong}");
            assert_eq!(b.memory().word(0), 0, "{wrong}");
        }
    }
}

fn too_long(bench: &Bench) {
    let (a, b) = bench.pair();
    b.recv(1, vec![b.sge(0, 10)]);
    b.recv(2, vec![b.sge(0, 10)]);
    a.send(3, SendOp::Send, vec![a.sge(0, 11)]);
    a.done(3);
    b.completes(1, WcStatus::LocLenErr);
    b.completes(2, WcStatus::WrFlushErr);
    have_ended(&a, &b);
}

fn no_receive(bench: &Bench) {
    let (a, b) = bench.pair();
    a.recv(1, vec![]);
    a.send(2, SendOp::Send, vec![]);
    a.done(2);
    a.completes(1, WcStatus::WrFlushErr);
    have_ended(&a, &b);
    b.recv(3, vec![]);
    b.completes(3, WcStatus::WrFlushErr);
}

fn sqd(bench: &Bench) {
    let (a, b) = bench.pair();
    let content = crate::end::pattern(5000, 3);
    a.memory().fill(0, &content);
    a.recv(1, vec![]);
    b.recv(2, vec![]);
    b.recv(3, vec![]);
    a.send(4, SendOp::Write(b.remote(0)), vec![a.sge(0, 5000)]);
    a.send(5, SendOp::Send, vec![]);
    a.done(4);
    a.done(5);
    a.to(QpState::Sqd);
    b.done(2);
    assert!(b.memory().bytes(0, 5000) == content);
    a.completes(1, WcStatus::WrFlushErr);
    b.completes(3, WcStatus::WrFlushErr);
    have_ended(&a, &b);
}

fn no_reset(bench: &Bench) {
    let (a, _b) = bench.pair();
    assert_eq!(a.try_to(QpState::Reset), Err(EINVAL));
    a.to(QpState::Err);
    assert_eq!(a.try_to(QpState::Reset), Err(EINVAL));
}
