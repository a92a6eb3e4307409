//! Long messages over TCP that are read straight to the program's memory, which goes meanwhile.
//! The settings are read when the device starts, so the test runs in a process of its own: this
//! program again.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use common::stream::{IWARP, pair_by};
use common::{ALL, Buffer, pattern, run_alone, wait_for};
use ferroce_nic::Mr;
use ferroce_nic::cm::EventKind;
use ferroce_os::memory::Mapping;
use ferroce_proto::verbs::{QpState, SendOp, Sge, WcStatus};

/// Bytes of the message: one FPDU.
const LEN: usize = 60_000;
/// Bytes of it that go to memory that stays.
const KEPT: usize = 40_000;
/// Bytes of the stream that arrive before memory goes.
const EARLY: usize = 30_000;

/// A proxy for one connection. It holds back what goes to `to` behind the first bytes, until it is
/// told to go on.
fn holding_proxy(to: SocketAddr, go_on: Receiver<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut near, _) = listener.accept().unwrap();
        let mut far = TcpStream::connect(to).unwrap();
        let (mut from_far, mut to_near) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        thread::spawn(move || io::copy(&mut from_far, &mut to_near));
        let mut early = near.try_clone().unwrap().take(EARLY as u64);
        io::copy(&mut early, &mut far).unwrap();
        go_on.recv().unwrap();
        let _ = io::copy(&mut near, &mut far);
        let _ = far.flush();
    });
    at
}

#[test]
fn memory_that_is_unmapped_while_a_message_lands_in_it_ends_the_connection() {
    for crc in ["off", "on"] {
        let settings = [IWARP, ("FERROCE_PATH", "wire"), ("FERROCE_IWARP_CRC", crc)];
        let text = run_alone("child_unmapped", &settings);
        assert!(text.contains("1 passed"), "{crc}: {text}");
    }
}

#[test]
#[ignore = "run by the test above"]
fn child_unmapped() {
    let (go_on, gone) = mpsc::channel();
    let (a, b) = pair_by(|to| holding_proxy(to, gone));
    let from = Buffer::new(&a.end.pd, pattern(LEN, 3));
    let kept = Buffer::new(&b.end.pd, vec![0; KEPT]);
    let lost = Mapping::aside(LEN - KEPT).unwrap();
    let (addr, len) = (lost.addr(), (LEN - KEPT) as u64);
    let mr = Mr::register(&b.end.pd, addr, len, addr, ALL).unwrap();
    let into_lost = Sge {
        addr,
        length: u32::try_from(len).unwrap(),
        lkey: mr.key(),
    };
    b.end.recv(1, vec![kept.sge(0, KEPT), into_lost]);
    a.end.send(2, SendOp::Send, vec![from.sge(0, LEN)]);
    a.end.done(2);
    wait_for("the beginning of the message", || {
        b.end.context.device().counters().rx_bytes() > EARLY as u64 / 2
    });
    drop(lost);
    go_on.send(()).unwrap();
    let failed = b.end.completion();
    assert_eq!((failed.wr_id, failed.status), (1, WcStatus::LocProtErr));
    for side in [&a, &b] {
        side.hears(EventKind::Disconnected, 0);
        assert_eq!(side.end.qp.state(), QpState::Err);
    }
}

#[test]
fn what_tcp_has_taken_arrives_though_its_queue_pair_is_destroyed_and_the_peer_speaks() {
    let text = run_alone("child_destroyed", &[IWARP, ("FERROCE_PATH", "wire")]);
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "run by the test above"]
fn child_destroyed() {
    const MESSAGES: u64 = 16;
    let (go_on, gone) = mpsc::channel();
    let (a, b) = pair_by(|to| holding_proxy(to, gone));
    let from = Buffer::new(&a.end.pd, pattern(LEN, 3));
    let to = Buffer::new(&b.end.pd, vec![0; LEN]);
    for number in 0..MESSAGES {
        b.end.recv(number, vec![to.sge(0, LEN)]);
        a.end.send(number, SendOp::Send, vec![from.sge(0, LEN)]);
    }
    for number in 0..MESSAGES {
        a.end.done(number);
    }
    thread::scope(|scope| {
        scope.spawn(|| a.end.qp.destroy());
        wait_for("the end of the queue pair", || {
            a.end.qp.state() != QpState::Rts
        });
        b.end.send(MESSAGES, SendOp::Send, vec![to.sge(0, 8)]);
        b.end.done(MESSAGES);
        go_on.send(()).unwrap();
        for number in 0..MESSAGES {
            let came = b.end.completion();
            assert_eq!((came.wr_id, came.status), (number, WcStatus::Success));
        }
    });
}
