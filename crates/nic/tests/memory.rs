//! Kinds of memory, and windows on it, on the same-host path and over the wire.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::process::Command;
use std::sync::Arc;

use common::{ALL, Buffer, End, pair, pattern};
use ferroce_nic::mr::WindowRange;
use ferroce_nic::{Mr, Window};
use ferroce_proto::ids::Key;
use ferroce_proto::mr::{Access, WindowType};
use ferroce_proto::verbs::{Mtu, RemoteAddr, SendOp, WcImm, WcOpcode, WcStatus};

/// Runs a test of this program once more, in a process that sends even to itself over UDP.
#[track_caller]
fn over_the_wire(test: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("FERROCE_PATH", "wire")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

#[test]
fn everything_works_over_the_wire_too() {
    for test in [
        "a_window_opens_to_the_peer_until_it_is_taken_back",
        "the_peer_takes_a_window_back",
    ] {
        over_the_wire(test);
    }
}

/// Memory that windows can be bound to.
fn bindable(end: &End, bytes: &[u8]) -> Arc<Mr> {
    let access = Access::LOCAL_WRITE | Access::MW_BIND;
    let addr = bytes.as_ptr() as u64;
    Mr::register(&end.pd, addr, bytes.len() as u64, addr, access).unwrap()
}

fn range(mr: &Mr, bytes: &[u8]) -> WindowRange {
    WindowRange {
        region: Some(mr.key()),
        addr: bytes.as_ptr() as u64,
        length: bytes.len() as u64,
        access: ALL,
    }
}

/// Binds a window and waits for the completion.
fn bind(end: &End, window: &Window, key: u32, to: WindowRange) -> Key {
    let request = window.bind_request(Key(key), to);
    end.send(77, SendOp::BindWindow(request), vec![]);
    assert_eq!(end.done(77).opcode, WcOpcode::BindMw);
    request.key
}

#[test]
fn a_window_opens_to_the_peer_until_it_is_taken_back() {
    for kind in [WindowType::One, WindowType::Two] {
        let (a, b) = pair(Mtu::B1024);
        let bytes = vec![0_u8; 4096];
        let mr = bindable(&b, &bytes);
        let window = Window::alloc(&b.pd, kind).unwrap();
        let to = range(&mr, &bytes);
        let key = bind(&b, &window, 5, to);
        let here = Buffer::new(&a.pd, pattern(4096, 3));
        let there = RemoteAddr {
            addr: to.addr,
            rkey: key,
        };
        a.send(1, SendOp::Write(there), vec![here.sge(0, 4096)]);
        a.done(1);
        assert_eq!(std::hint::black_box(&bytes), &pattern(4096, 3));
        assert_eq!(mr.deregister().unwrap_err().errno, libc::EBUSY);
        let moved = mr.reregister(None, None, Some(Access::LOCAL_WRITE));
        assert_eq!(moved.unwrap_err().errno, libc::EBUSY);
        match kind {
            WindowType::One => {
                bind(&b, &window, 6, WindowRange { length: 0, ..to });
            }
            WindowType::Two => {
                b.send(2, SendOp::LocalInvalidate(key), vec![]);
                assert_eq!(b.done(2).opcode, WcOpcode::LocalInv);
            }
        }
        a.send(3, SendOp::Write(there), vec![here.sge(0, 8)]);
        assert_eq!(a.completion().status, WcStatus::RemAccessErr);
        mr.deregister().unwrap();
    }
}

#[test]
fn the_peer_takes_a_window_back() {
    let (a, b) = pair(Mtu::B1024);
    let bytes = vec![0_u8; 64];
    let mr = bindable(&b, &bytes);
    let window = Window::alloc(&b.pd, WindowType::Two).unwrap();
    let to = range(&mr, &bytes);
    let here = Buffer::new(&a.pd, vec![1; 64]);
    for low in 0..300 {
        let rkey = bind(&b, &window, low, to);
        assert_eq!(rkey.0 & 0xff, low & 0xff, "the program chooses");
        b.recv(1, vec![]);
        a.send(2, SendOp::SendInvalidate(rkey), vec![]);
        assert_eq!(b.done(1).imm, Some(WcImm::Invalidated(rkey)));
        a.done(2);
    }
    let rkey = bind(&b, &window, 1, to);
    drop(window);
    mr.deregister().unwrap();
    let gone = RemoteAddr {
        addr: to.addr,
        rkey,
    };
    a.send(3, SendOp::Write(gone), vec![here.sge(0, 8)]);
    assert_eq!(a.completion().status, WcStatus::RemAccessErr);
}

#[test]
fn an_ordinary_region_cannot_be_invalidated() {
    let (a, b) = pair(Mtu::B1024);
    let there = Buffer::new(&b.pd, vec![0; 64]);
    b.recv(1, vec![]);
    a.send(2, SendOp::SendInvalidate(there.key()), vec![]);
    assert_eq!(a.completion().status, WcStatus::RemAccessErr);
    assert_eq!(b.completion().status, WcStatus::RemInvReqErr);
    let (a, c) = pair(Mtu::B1024);
    let here = Buffer::new(&a.pd, vec![1; 64]);
    let open = Buffer::new(&c.pd, vec![0; 64]);
    a.send(3, SendOp::Write(open.remote(0)), vec![here.sge(0, 64)]);
    a.done(3);
    c.send(4, SendOp::LocalInvalidate(open.key()), vec![]);
    assert_eq!(c.completion().status, WcStatus::MwBindErr);
}

#[test]
fn a_window_goes_with_the_queue_pair_that_bound_it() {
    let (a, b) = pair(Mtu::B1024);
    let bytes = vec![0_u8; 64];
    let mr = bindable(&b, &bytes);
    let one = Window::alloc(&b.pd, WindowType::One).unwrap();
    let two = Window::alloc(&b.pd, WindowType::Two).unwrap();
    let to = range(&mr, &bytes);
    bind(&b, &two, 1, to);
    b.qp.destroy();
    mr.deregister().unwrap();
    drop((one, two, mr));
    assert_eq!(b.pd.users(), 0);
    drop(a);
}
