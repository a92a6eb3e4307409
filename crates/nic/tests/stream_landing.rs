//! Long messages over TCP that are read straight to the program's memory, which goes meanwhile.
//! The settings are read when the device starts, so the test runs in a process of its own: this
//! program again.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

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

/// Bytes of a startup frame before its data, and where its flags begin (RFC 5044, 7.1.1).
const FRAME: usize = 20;
const FLAGS: usize = 16;

/// A proxy for one connection. It holds back what goes to `to` behind the first bytes, until it is
/// told to go on.
fn holding_proxy(to: SocketAddr, go_on: Receiver<()>) -> SocketAddr {
    proxy(to, go_on, startup_as_it_is)
}

fn startup_as_it_is(_frame: &mut [u8; FRAME]) {}

/// Takes the bits from a startup frame by which two Ferroces know each other.
fn startup_of_another_make(frame: &mut [u8; FRAME]) {
    frame[FLAGS] &= !0x06;
}

/// As [`holding_proxy`], and changes the beginning of each startup frame.
fn proxy(to: SocketAddr, go_on: Receiver<()>, change: fn(&mut [u8; FRAME])) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut near, _) = listener.accept().unwrap();
        let mut far = TcpStream::connect(to).unwrap();
        let (mut from_far, mut to_near) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        pass_frame(&mut near, &mut far, change);
        thread::spawn(move || {
            pass_frame(&mut from_far, &mut to_near, change);
            io::copy(&mut from_far, &mut to_near)
        });
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
    for child in ["child_destroyed", "child_destroyed_towards_another_make"] {
        let text = run_alone(child, &[IWARP, ("FERROCE_PATH", "wire")]);
        assert!(text.contains("1 passed"), "{child}: {text}");
    }
}

#[test]
#[ignore = "run by the test above"]
fn child_destroyed() {
    destroys_before_its_peer_has_all(startup_as_it_is);
}

#[test]
#[ignore = "run by the test above"]
fn child_destroyed_towards_another_make() {
    destroys_before_its_peer_has_all(startup_of_another_make);
}

/// The peer reads nothing before the queue pair is gone, so destroying it must not wait.
fn destroys_before_its_peer_has_all(change: fn(&mut [u8; FRAME])) {
    const MESSAGES: u64 = 16;
    let (go_on, gone) = mpsc::channel();
    let (a, b) = pair_by(|to| proxy(to, gone, change));
    let from = Buffer::new(&a.end.pd, pattern(LEN, 3));
    let to = Buffer::new(&b.end.pd, vec![0; LEN]);
    // From another make's FPDU on the connection stays open for a while.
    a.end.recv(0, vec![]);
    b.end.send(0, SendOp::Send, vec![]);
    b.end.done(0);
    a.end.done(0);
    for number in 0..MESSAGES {
        b.end.recv(number, vec![to.sge(0, LEN)]);
        a.end.send(number, SendOp::Send, vec![from.sge(0, LEN)]);
    }
    for number in 0..MESSAGES {
        a.end.done(number);
    }
    a.end.qp.destroy();
    b.end.send(MESSAGES, SendOp::Send, vec![to.sge(0, 8)]);
    b.end.done(MESSAGES);
    go_on.send(()).unwrap();
    for number in 0..MESSAGES {
        let came = b.end.completion();
        assert_eq!((came.wr_id, came.status), (number, WcStatus::Success));
    }
}

#[test]
fn a_stream_ends_behind_whole_fpdus_though_its_queue_pair_is_destroyed_within_one() {
    let settings = [
        IWARP,
        ("FERROCE_PATH", "wire"),
        ("FERROCE_IWARP_CRC", "on"),
        // TCP takes parts of FPDUs.
        ("FERROCE_FAULT", "short=100%,seed=2"),
    ];
    let text = run_alone("child_full", &settings);
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "run by the test above"]
fn child_full() {
    const MESSAGES: u64 = 200;
    /// TCP is full if it takes nothing for so long.
    const FULL_SINCE: Duration = Duration::from_millis(50);
    let (go_on, gone) = mpsc::channel();
    let (took, taken) = mpsc::channel();
    let (a, _b) = pair_by(|to| keeping_proxy(to, gone, took));
    let from = Buffer::new(&a.end.pd, pattern(LEN, 3));
    // More than TCP takes while nobody reads.
    for number in 0..MESSAGES {
        a.end.send(number, SendOp::Send, vec![from.sge(0, LEN)]);
    }
    let sent = || a.end.context.device().counters().tx_bytes();
    let mut last = (sent(), Instant::now());
    wait_for("TCP to be full", || {
        if sent() != last.0 {
            last = (sent(), Instant::now());
        }
        last.1.elapsed() > FULL_SINCE
    });
    a.end.qp.destroy();
    go_on.send(()).unwrap();
    let bytes: Vec<u8> = taken.recv().unwrap();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let ulpdu = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
        // The length, the pad and the CRC (RFC 5044, 4.1).
        let fpdu = (2 + ulpdu).next_multiple_of(4) + 4;
        assert!(fpdu <= rest.len(), "{} of {fpdu} bytes", rest.len());
        rest = &rest[fpdu..];
    }
}

/// A proxy for the set-up of one connection. What follows it reads when it is told to go on, up to
/// the end, and hands it over.
fn keeping_proxy(to: SocketAddr, go_on: Receiver<()>, took: Sender<Vec<u8>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut near, _) = listener.accept().unwrap();
        let mut far = TcpStream::connect(to).unwrap();
        let (mut from_far, mut to_near) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        thread::spawn(move || io::copy(&mut from_far, &mut to_near));
        pass_frame(&mut near, &mut far, startup_as_it_is);
        go_on.recv().unwrap();
        let mut bytes = Vec::new();
        near.read_to_end(&mut bytes).unwrap();
        took.send(bytes).unwrap();
    });
    at
}

/// Passes a startup frame on.
fn pass_frame(from: &mut TcpStream, to: &mut TcpStream, change: fn(&mut [u8; FRAME])) {
    let mut frame = [0; FRAME];
    from.read_exact(&mut frame).unwrap();
    change(&mut frame);
    to.write_all(&frame).unwrap();
    let len = u16::from_be_bytes([frame[FRAME - 2], frame[FRAME - 1]]);
    let mut data = vec![0; usize::from(len)];
    from.read_exact(&mut data).unwrap();
    to.write_all(&data).unwrap();
}
