//! Memory windows between two queue pairs: binds in the order of the send queue, access through
//! them, invalidates.

mod common;

use common::violation::{ALL, both_fail, pair};
use common::{SOON, expect_recv, expect_send, until_sent};
use ferroce_proto::ids::Key;
use ferroce_proto::mr::{Access, WindowBind, WindowType};
use ferroce_proto::rc::Cause;
use ferroce_proto::testkit::{Arena, Pair, Side, remote, wr};
use ferroce_proto::verbs::{
    QpEvent, QpState, RemoteAddr, SendFlags, SendOp, WcImm, WcOpcode, WcStatus,
};

/// A bind of 4096 bytes at the start of a node's memory.
fn bind(pair: &mut Pair, side: Side, kind: WindowType, low: u32) -> WindowBind {
    let node = pair.node(side);
    let region = node.register(0, 4096, Access::LOCAL_WRITE | Access::MW_BIND);
    let window = node.window(kind);
    WindowBind {
        window,
        key: Key(low),
        kind,
        region: Some(region),
        addr: Arena::BASE,
        length: 4096,
        access: ALL,
    }
}

fn key_of(bind: &WindowBind) -> Key {
    Key(bind.window.0 & !0xff | bind.key.0 & 0xff)
}

#[test]
fn a_window_opens_to_the_peer_from_its_bind_to_its_invalidate() {
    for kind in [WindowType::One, WindowType::Two] {
        let mut pair = pair();
        let request = bind(&mut pair, Side::B, kind, 0x99);
        let to = remote(key_of(&request), 8);
        pair.send(Side::B, wr(1, SendOp::BindWindow(request), vec![]));
        expect_send_of(&pair, Side::B, &[(1, WcStatus::Success, WcOpcode::BindMw)]);
        pair.a.memory.put(Arena::BASE, &[7; 16]);
        let local = pair.sge(Side::A, 0, 16);
        let back = pair.sge(Side::A, 512, 16);
        let word = pair.sge(Side::A, 1024, 8);
        let add = SendOp::FetchAdd { remote: to, add: 1 };
        pair.send(Side::A, wr(2, SendOp::Write(to), vec![local]));
        pair.send(Side::A, wr(3, SendOp::Read(to), vec![back]));
        until_sent(&mut pair, Side::A, 2);
        pair.send(Side::A, wr(4, add, vec![word]));
        until_sent(&mut pair, Side::A, 3);
        assert_eq!(pair.a.memory.get(Arena::BASE + 512, 16), [7; 16]);
        assert_eq!(pair.b.memory.get(Arena::BASE + 8, 8)[0], 8);
        let close = match kind {
            WindowType::One => SendOp::BindWindow(WindowBind {
                length: 0,
                ..request
            }),
            WindowType::Two => SendOp::LocalInvalidate(key_of(&request)),
        };
        pair.send(Side::B, wr(5, close, vec![]));
        pair.a.results.send.clear();
        both_fail(
            &mut pair,
            SendOp::Write(to),
            vec![local],
            WcStatus::RemAccessErr,
        );
        assert_eq!(pair.b.results.events, [QpEvent::AccessError]);
    }
}

#[track_caller]
fn expect_send_of(pair: &Pair, side: Side, expected: &[(u64, WcStatus, WcOpcode)]) {
    let node = if side == Side::A { &pair.a } else { &pair.b };
    let seen: Vec<_> = node
        .results
        .send
        .iter()
        .map(|(wc, _)| (wc.wr_id, wc.status, wc.opcode))
        .collect();
    assert_eq!(seen, expected);
}

#[test]
fn a_bind_keeps_its_place_in_the_queue() {
    let mut pair = pair();
    let request = bind(&mut pair, Side::A, WindowType::Two, 3);
    let key = key_of(&request);
    let there = remote(pair.key(Side::B), 0);
    let into = pair.sge(Side::A, 8192, 50_000);
    pair.recv(Side::B, 9, vec![pair.sge(Side::B, 0, 64)]);
    pair.send(Side::A, wr(1, SendOp::Read(there), vec![into]));
    pair.send(Side::A, wr(2, SendOp::BindWindow(request), vec![]));
    pair.send(Side::A, wr(3, SendOp::Send, vec![]));
    assert!(pair.a.results.send.is_empty(), "the READ is under way");
    let by = pair.a.accessor();
    let opens = |pair: &Pair| {
        let opened = pair
            .a
            .rights
            .open_remote(key, by, Arena::BASE, 1, Access::REMOTE_READ);
        opened.is_ok()
    };
    assert!(!opens(&pair));
    until_sent(&mut pair, Side::A, 3);
    assert!(opens(&pair));
    expect_send_of(
        &pair,
        Side::A,
        &[
            (1, WcStatus::Success, WcOpcode::RdmaRead),
            (2, WcStatus::Success, WcOpcode::BindMw),
            (3, WcStatus::Success, WcOpcode::Send),
        ],
    );
}

#[test]
fn binds_without_a_signal_complete_silently() {
    let mut pair = pair();
    let request = bind(&mut pair, Side::A, WindowType::One, 3);
    let mut quiet = wr(1, SendOp::BindWindow(request), vec![]);
    quiet.flags = SendFlags::empty();
    pair.send(Side::A, quiet);
    assert!(pair.a.results.send.is_empty());
    pair.send(Side::A, wr(2, SendOp::BindWindow(request), vec![]));
    expect_send(&pair, &[(2, WcStatus::Success)]);
}

#[test]
fn a_bind_that_fails_ends_the_queue_pair() {
    let mut pair = pair();
    let good = bind(&mut pair, Side::A, WindowType::Two, 3);
    let spoiled = WindowBind {
        length: 4097,
        ..good
    };
    pair.send(Side::A, wr(1, SendOp::BindWindow(good), vec![]));
    pair.send(
        Side::A,
        wr(2, SendOp::LocalInvalidate(key_of(&good)), vec![]),
    );
    pair.send(Side::A, wr(3, SendOp::BindWindow(spoiled), vec![]));
    pair.send(Side::A, wr(4, SendOp::BindWindow(good), vec![]));
    expect_send(
        &pair,
        &[
            (1, WcStatus::Success),
            (2, WcStatus::Success),
            (3, WcStatus::MwBindErr),
            (4, WcStatus::WrFlushErr),
        ],
    );
    let failed = pair.a.results.send[2].0;
    assert_eq!(failed.vendor_err, Cause::BindFailed as u32);
    assert_eq!(pair.a.qp.state(), QpState::Err);
}

#[test]
fn what_is_not_a_bound_type_2_window_cannot_be_invalidated() {
    for kind in 0..3 {
        let mut pair = pair();
        let one = bind(&mut pair, Side::A, WindowType::One, 3);
        let two = bind(&mut pair, Side::A, WindowType::Two, 3);
        pair.send(Side::A, wr(1, SendOp::BindWindow(one), vec![]));
        let key = match kind {
            0 => key_of(&one),
            1 => key_of(&two),
            _ => pair.key(Side::A),
        };
        pair.send(Side::A, wr(2, SendOp::LocalInvalidate(key), vec![]));
        expect_send(&pair, &[(1, WcStatus::Success), (2, WcStatus::MwBindErr)]);
        let failed = pair.a.results.send[1].0;
        assert_eq!(failed.vendor_err, Cause::InvalidateFailed as u32);
        if kind == 2 {
            let by = pair.a.accessor();
            let open = pair.a.rights.open_remote(key, by, Arena::BASE, 8, ALL);
            assert!(open.is_ok(), "the region stays open");
        }
    }
}

#[test]
fn the_peer_takes_a_window_back_and_it_can_be_bound_again() {
    let mut pair = pair();
    let request = bind(&mut pair, Side::B, WindowType::Two, 1);
    for round in 0..3_u32 {
        let request = WindowBind {
            key: Key(round),
            ..request
        };
        let key = key_of(&request);
        pair.send(Side::B, wr(1, SendOp::BindWindow(request), vec![]));
        pair.recv(Side::B, 7, vec![]);
        let local = pair.sge(Side::A, 0, 16);
        pair.send(Side::A, wr(2, SendOp::Write(remote(key, 0)), vec![local]));
        pair.send(Side::A, wr(3, SendOp::SendInvalidate(key), vec![]));
        until_sent(&mut pair, Side::A, 2 * (round as usize + 1));
        let received = pair.b.results.recv[round as usize].0;
        assert_eq!(received.imm, Some(WcImm::Invalidated(key)));
    }
    pair.settle(SOON);
    expect_recv(&pair, &[(7, WcStatus::Success); 3]);
}

#[test]
fn a_window_that_goes_in_mid_write_is_not_written_on() {
    let mut pair = pair();
    let region = pair
        .b
        .register(0, 1 << 19, Access::LOCAL_WRITE | Access::MW_BIND);
    let request = WindowBind {
        region: Some(region),
        length: 1 << 19,
        ..bind(&mut pair, Side::B, WindowType::Two, 1)
    };
    let to = RemoteAddr {
        addr: Arena::BASE,
        rkey: key_of(&request),
    };
    pair.send(Side::B, wr(1, SendOp::BindWindow(request), vec![]));
    pair.a.memory.put(Arena::BASE, &[0xee; 1 << 19]);
    let from = pair.sge(Side::A, 0, 1 << 19);
    pair.send(Side::A, wr(1, SendOp::Write(to), vec![from]));
    for _ in 0..20 {
        pair.step(pair.now + SOON);
    }
    let before = pair.b.memory.get(Arena::BASE, 1 << 19);
    assert_eq!(before[0], 0xee);
    pair.send(Side::B, wr(2, SendOp::LocalInvalidate(to.rkey), vec![]));
    pair.settle(SOON);
    expect_send(&pair, &[(1, WcStatus::RemAccessErr)]);
    assert_eq!(pair.b.memory.get(Arena::BASE, 1 << 19), before);
}
