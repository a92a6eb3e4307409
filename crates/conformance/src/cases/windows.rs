//! Memory windows of type 2, bound by work requests.

use ferroce_proto::ids::Key;
use ferroce_proto::mr::{Access, WindowBind, WindowType};
use ferroce_proto::verbs::{RemoteAddr, SendOp, WcImm, WcOpcode, WcStatus};

use crate::bench::{ALL, Bench};
use crate::case::Case;
use crate::end::End;

pub(super) const CASES: &[Case] = &[
    Case::new("window.bind", &["mw.bind"], bind_and_write),
    Case::new("window.rights", &["mw.bind", "violation.rkey"], rights),
    Case::new(
        "window.invalidate",
        &["mw.invalidate", "op.send-invalidate", "op.local-invalidate"],
        invalidate,
    ),
    Case::new("window.bad-bind", &["mw.bind-error"], bad_bind),
];

/// Binds a window of `end` to 64 bytes at 128, writable by peers. Returns its key and first byte.
fn bind(end: &mut End, region: Access) -> (Key, RemoteAddr, u64) {
    let key = end.register(0, 4096, region);
    let window = end.side_mut().window().expect("a window");
    let rkey = Key(window.0 ^ 0x17);
    let at = end.remote_with(rkey, 128);
    let request = WindowBind {
        window,
        key: rkey,
        kind: WindowType::Two,
        region: Some(key),
        addr: at.addr,
        length: 64,
        access: Access::REMOTE_WRITE,
    };
    end.send(77, SendOp::BindWindow(request), vec![]);
    (rkey, at, 77)
}

fn bound(end: &mut End) -> (Key, RemoteAddr) {
    let (key, at, wr_id) = bind(end, ALL | Access::MW_BIND);
    assert_eq!(end.done(wr_id).opcode, WcOpcode::BindMw);
    (key, at)
}

fn bind_and_write(bench: &Bench) {
    let (a, mut b) = bench.pair();
    let (_, at) = bound(&mut b);
    a.memory().fill(0, &[5; 64]);
    a.send(1, SendOp::Write(at), vec![a.sge(0, 64)]);
    a.done(1);
    a.waits_for_peer();
    assert_eq!(b.memory().bytes(128, 64), [5; 64]);
}

fn rights(bench: &Bench) {
    // Outside of it on both sides, and what it does not allow.
    for (offset, len) in [(-1, 8), (57, 8), (0, 65)] {
        let (a, mut b) = bench.pair();
        let (_, mut at) = bound(&mut b);
        at.addr = at.addr.checked_add_signed(offset).expect("no wrap");
        a.send(1, SendOp::Write(at), vec![a.sge(0, len)]);
        a.completes(1, WcStatus::RemAccessErr);
    }
    let (a, mut b) = bench.pair();
    let (_, at) = bound(&mut b);
    a.send(1, SendOp::Read(at), vec![a.sge(0, 8)]);
    a.completes(1, WcStatus::RemAccessErr);
    // A window of type 2 belongs to the queue pair that bound it.
    let (_, mut b) = bench.pair();
    let (c, d) = bench.pair();
    let (_, at) = bound(&mut b);
    c.send(1, SendOp::Write(at), vec![c.sge(0, 8)]);
    c.completes(1, WcStatus::RemAccessErr);
    drop(d);
}

fn invalidate(bench: &Bench) {
    // By the owner.
    let (a, mut b) = bench.pair();
    let (key, at) = bound(&mut b);
    b.send(1, SendOp::LocalInvalidate(key), vec![]);
    b.done(1);
    a.send(1, SendOp::Write(at), vec![a.sge(0, 8)]);
    a.completes(1, WcStatus::RemAccessErr);
    // By the peer.
    let (a, mut b) = bench.pair();
    let (key, at) = bound(&mut b);
    b.recv(2, vec![]);
    a.send(1, SendOp::Write(at), vec![a.sge(0, 8)]);
    a.send(2, SendOp::SendInvalidate(key), vec![]);
    a.done(1);
    a.done(2);
    assert_eq!(b.done(2).imm, Some(WcImm::Invalidated(key)));
    a.send(3, SendOp::Write(at), vec![a.sge(0, 8)]);
    a.completes(3, WcStatus::RemAccessErr);
}

fn bad_bind(bench: &Bench) {
    // The region does not let windows be bound.
    let (_a, mut b) = bench.pair();
    let (_, _, wr_id) = bind(&mut b, ALL);
    b.completes(wr_id, WcStatus::MwBindErr);
}
