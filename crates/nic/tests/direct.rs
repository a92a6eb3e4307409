//! The direct way between two processes: this program starts itself again as the other one.

mod common;
mod other_process;
#[path = "direct/taken_back.rs"]
mod taken_back;

use std::process::Command;

use common::process::Signal;
use common::{Buffer, pair, pattern, run_alone, send_wr, wait_for};
use ferroce_nic::{Carrier, Refusal};
use ferroce_proto::ids::Key;
use ferroce_proto::verbs::{Mtu, Payload, RemoteAddr, SendOp, SendWr, WcOpcode, WcStatus};
use other_process::peer::Peer;
use other_process::race::counted;
use other_process::refusals::{printed, refused};
use other_process::{LEN, SEED, child, exec};

#[test]
#[ignore = "run by the tests below"]
fn child_process() {
    child::run();
}

#[test]
#[ignore = "run by the tests below"]
fn next_program() {
    exec::watch();
}

#[test]
#[ignore = "run by the test below"]
fn work_on_a_peer_that_executes() {
    exec::nothing_is_reached(common::rounds(3));
}

/// What a process registered ends with its memory: a program that it executes has the same process
/// number, and is not reached. An initiator without a device thread does not hear that the peer's
/// links have ended, so nothing but the copy itself can refuse.
#[test]
fn a_program_that_is_executed_is_not_reached() {
    for thread in ["on", "off"] {
        let text = run_alone(
            "work_on_a_peer_that_executes",
            &[("FERROCE_THREAD", thread)],
        );
        assert!(text.contains("1 passed"), "{text}");
    }
}

/// One-sided operations do not need the target to run at all.
#[test]
fn a_stopped_process_is_read_and_written() {
    let mut peer = Peer::start_direct();
    peer.stop();
    let before = counted(&peer.end);
    let all = || vec![peer.buffer.sge(0, LEN)];
    peer.end.send(1, SendOp::Read(peer.remote), all());
    assert_eq!(peer.end.done(1).byte_len as usize, LEN);
    assert_eq!(peer.buffer.snapshot(), pattern(LEN, SEED));
    let other = Buffer::new(&peer.end.pd, pattern(LEN, 6));
    let bytes = vec![other.sge(0, 100), other.sge(200, 0), other.sge(100, 4900)];
    peer.end.send(2, SendOp::Write(peer.remote), bytes);
    peer.end.done(2);
    peer.end.send(3, SendOp::Read(peer.remote), all());
    peer.end.done(3);
    assert_eq!(peer.buffer.snapshot()[..5000], pattern(LEN, 6)[..5000]);
    assert_eq!(peer.buffer.snapshot()[5000..], pattern(LEN, SEED)[5000..]);
    assert!(counted(&peer.end) >= before + 3);
    peer.signal(Signal::SIGCONT);
    let byte = peer.ask("byte 4999");
    assert_eq!(byte, [u64::from(pattern(LEN, 6)[4999])]);
}

/// Parts of a buffer: where each begins, and its length. Behind every other one is a gap.
fn parts() -> Vec<(usize, usize)> {
    let mut at = 0;
    let lengths = [1, 2, 3, 5, 8, 64, 100, 4096, 255, 9, 7, 4, 1, 1000, 31, 2];
    let place = |(n, len)| {
        let begin = at;
        at += len + n % 2 * 7;
        (begin, len)
    };
    lengths.into_iter().enumerate().map(place).collect()
}

/// A request for each part, between the same places of a buffer and of the peer's.
fn list(peer: &Peer, buffer: &Buffer, op: fn(RemoteAddr) -> SendOp) -> Vec<SendWr> {
    let request = |(wr_id, (at, len))| {
        let place = RemoteAddr {
            addr: peer.remote.addr + at as u64,
            ..peer.remote
        };
        send_wr(wr_id, op(place), vec![buffer.sge(at, len)])
    };
    (0..).zip(parts()).map(request).collect()
}

/// `to` with the parts of `from`.
fn with_parts(mut to: Vec<u8>, from: &[u8]) -> Vec<u8> {
    for (at, len) in parts() {
        to[at..at + len].copy_from_slice(&from[at..at + len]);
    }
    to
}

/// Lists of short work are copied by one call, and are what they would be one by one.
#[test]
fn a_list_is_done_in_order() {
    let peer = Peer::start_direct();
    peer.stop();
    let (theirs, ours) = (pattern(LEN, SEED), pattern(LEN, 6));
    let before = counted(&peer.end);
    let other = Buffer::new(&peer.end.pd, ours.clone());
    let reads = list(&peer, &other, SendOp::Read);
    peer.end
        .qp
        .post_send(&mut reads.into_iter())
        .expect("posted");
    for (wr_id, (_, len)) in (0..).zip(parts()) {
        assert_eq!(peer.end.done(wr_id).byte_len as usize, len);
    }
    assert_eq!(other.snapshot(), with_parts(ours, &theirs));
    let other = Buffer::new(&peer.end.pd, pattern(LEN, 7));
    let writes = list(&peer, &other, SendOp::Write);
    peer.end
        .qp
        .post_send(&mut writes.into_iter())
        .expect("posted");
    let all = vec![peer.buffer.sge(0, LEN)];
    peer.end.send(99, SendOp::Read(peer.remote), all);
    for wr_id in (0..16).chain([99]) {
        peer.end.done(wr_id);
    }
    assert_eq!(
        peer.buffer.snapshot(),
        with_parts(theirs, &other.snapshot())
    );
    assert!(counted(&peer.end) >= before + 33);
    peer.signal(Signal::SIGCONT);
}

/// What is wrong in the middle of a list completes as it does by packets: what is before it is
/// done, what comes after it is flushed.
#[test]
fn a_fault_in_the_middle_of_a_list_completes_what_is_before_it() {
    for remote_fault in [true, false] {
        let peer = Peer::start_direct();
        let mut wrs = list(&peer, &peer.buffer, SendOp::Read);
        let status = if remote_fault {
            wrs[9].op = SendOp::Read(RemoteAddr {
                addr: peer.remote.addr + LEN as u64 - 1,
                ..peer.remote
            });
            WcStatus::RemAccessErr
        } else {
            let Payload::Sges(sges) = &mut wrs[9].payload else {
                panic!("sges")
            };
            sges[0].lkey.0 ^= 1;
            WcStatus::LocProtErr
        };
        peer.end.qp.post_send(&mut wrs.into_iter()).expect("posted");
        for wr_id in 0..9 {
            peer.end.done(wr_id);
        }
        let wc = peer.end.completion();
        assert_eq!((wc.wr_id, wc.status), (9, status));
        for wr_id in 10..16 {
            let wc = peer.end.completion();
            assert_eq!((wc.wr_id, wc.status), (wr_id, WcStatus::WrFlushErr));
        }
    }
}

/// A WRITE after a SEND that waits for a receive waits with it.
#[test]
fn nothing_overtakes_a_message_that_waits() {
    let mut peer = Peer::start_direct();
    let observer = pattern(LEN, SEED)[100];
    let byte = vec![peer.buffer.sge(0, 1)];
    let place = RemoteAddr {
        addr: peer.remote.addr + 100,
        ..peer.remote
    };
    assert_ne!(observer, 0, "our buffer is empty");
    peer.end.send(1, SendOp::Send, vec![]);
    peer.end.send(2, SendOp::Write(place), byte);
    for _ in 0..20 {
        assert_eq!(peer.ask("byte 100"), [u64::from(observer)]);
    }
    peer.ask("receive");
    peer.end.done(1);
    peer.end.done(2);
    assert_eq!(peer.ask("byte 100"), [u64::from(peer.buffer.snapshot()[0])]);
}

/// Long WRITEs that were posted behind a message's packets: they do not stay with packets because
/// something was in flight.
#[test]
fn a_queue_that_began_with_packets_goes_over() {
    let mut peer = Peer::start_direct();
    let before = counted(&peer.end);
    peer.end.send(1, SendOp::Send, vec![]);
    for id in 2..6 {
        let part = vec![peer.buffer.sge(0, 16 << 10)];
        peer.end.send(id, SendOp::Write(peer.remote), part);
    }
    peer.ask("receive");
    for id in 1..6 {
        peer.end.done(id);
    }
    // Of other tests, too.
    assert!(counted(&peer.end) >= before + 4);
}

/// What the two ends see of requests that the target refuses, as text.
fn refusals() -> String {
    let mut seen = String::new();
    let mut peer = Peer::start();
    let beyond = LEN as u64 - 7;
    for (wrong_key, offset, write) in [
        (1, 0, true),
        (1, 0, false),
        (0, beyond, true),
        (0, beyond, false),
    ] {
        let place = RemoteAddr {
            addr: peer.remote.addr + offset,
            rkey: Key(peer.remote.rkey.0 ^ wrong_key),
        };
        let op = if write {
            SendOp::Write(place)
        } else {
            SendOp::Read(place)
        };
        seen += &refused(&mut peer, op);
    }
    seen
}

#[test]
#[ignore = "run by the test below"]
fn print_refusals() {
    println!("seen\n{}", refusals());
}

/// Whatever the target refuses ends as it does by packets.
#[test]
fn refusals_are_those_of_packets() {
    let packets = printed("print_refusals", "0");
    assert_eq!(printed("print_refusals", "1"), packets);
    assert_eq!(packets.len(), 4);
    assert!(
        packets.iter().all(|line| line.starts_with("RemAccessErr")),
        "{packets:?}"
    );
}

/// Messages that are longer than a turn are done in several, in order with what comes after them.
#[test]
fn long_messages_take_turns() {
    let (a, b) = pair(Mtu::B4096);
    let len = 9 << 20;
    let (from, to) = (
        Buffer::new(&a.pd, pattern(len, 1)),
        Buffer::new(&b.pd, vec![0; len]),
    );
    wait_for("the direct way", || {
        a.send(0, SendOp::Write(to.remote(0)), vec![from.sge(0, 8)]);
        a.done(0);
        counted(&a) > 0
    });
    b.recv(7, vec![]);
    let before = counted(&a);
    a.send(1, SendOp::Write(to.remote(0)), vec![from.sge(0, len)]);
    a.send(2, SendOp::Send, vec![]);
    a.done(1);
    b.done(7);
    a.done(2);
    assert_eq!(to.snapshot(), pattern(len, 1));
    assert!(counted(&a) >= before + 9);
}

/// Nothing of it happens when it is switched off, and everything works.
#[test]
fn it_can_be_switched_off() {
    let text = run_alone("print_counter", &[("FERROCE_DIRECT", "0")]);
    assert!(text.contains("direct 0 refused 0"), "{text}");
}

#[test]
#[ignore = "run by the test above"]
fn print_counter() {
    let peer = Peer::start();
    for wr_id in 0..100 {
        let bytes = vec![peer.buffer.sge(0, LEN)];
        peer.end.send(wr_id, SendOp::Read(peer.remote), bytes);
        peer.end.done(wr_id);
    }
    let counters = peer.end.context.device().counters();
    println!(
        "direct {} refused {}",
        counted(&peer.end),
        counters.direct_refused()
    );
}

/// An immediate is told of when the bytes are there, and waits for a receive as it does on the
/// wire.
#[test]
fn an_immediate_comes_after_its_bytes() {
    let mut peer = Peer::start_direct();
    // In two pieces, so that it does not go by rendezvous.
    let bytes = |n| vec![peer.buffer.sge(0, 1), peer.buffer.sge(1, n - 1)];
    let (op, len) = (SendOp::WriteImm(peer.remote, [1, 2, 3, 4]), 9000);
    let before = counted(&peer.end);
    peer.end.send(1, op, bytes(len));
    peer.end.send(2, SendOp::Read(peer.remote), bytes(1));
    assert_eq!(
        peer.end.cq.poll(1, &mut |_, _| ()).ok(),
        Some(0),
        "no receive yet"
    );
    peer.ask("receive");
    peer.end.done(1);
    peer.end.done(2);
    let [opcode, byte_len, imm, status] = peer.ask("completion")[..] else {
        panic!("what a completion is made of");
    };
    assert_eq!(usize::try_from(byte_len), Ok(len));
    assert_eq!(opcode, WcOpcode::RecvRdmaWithImm as u64);
    assert_eq!(imm, u64::from(u32::from_be_bytes([1, 2, 3, 4])));
    assert_eq!(status, WcStatus::Success as u64);
    let first = peer.buffer.snapshot();
    for at in [0, len - 1] {
        assert_eq!(peer.ask(&format!("byte {at}")), [u64::from(first[at])]);
    }
    assert!(counted(&peer.end) > before, "not by the direct way");
}

/// A READ of many turns.
#[test]
fn long_reads_take_turns() {
    let (a, b) = pair(Mtu::B1024);
    let len = (9 << 20) + 1;
    let (to, from) = (
        Buffer::new(&a.pd, vec![0; len]),
        Buffer::new(&b.pd, pattern(len, 3)),
    );
    wait_for("the direct way", || {
        a.send(0, SendOp::Read(from.remote(0)), vec![to.sge(0, 8)]);
        a.done(0);
        counted(&a) > 0
    });
    let before = counted(&a);
    a.send(1, SendOp::Read(from.remote(0)), vec![to.sge(0, len)]);
    assert_eq!(a.done(1).byte_len as usize, len);
    assert_eq!(to.snapshot(), pattern(len, 3));
    assert!(counted(&a) >= before + 10);
}

/// Works with a peer until packets go by ring, and returns how often the direct way was refused for
/// `why`. No work fails.
fn work_by_packets(peer: &Peer, why: Refusal) -> u64 {
    let counters = peer.end.context.device().counters();
    let before = counters.direct_refused_for(why);
    wait_for("a ring", || {
        let bytes = || vec![peer.buffer.sge(0, 100)];
        peer.end.send(1, SendOp::Write(peer.remote), bytes());
        peer.end.done(1);
        peer.end.send(2, SendOp::Read(peer.remote), bytes());
        peer.end.done(2);
        peer.end.qp.path_report().packets == Some(Carrier::Ring)
    });
    assert_eq!(peer.end.qp.path_report().direct, Some(Err(why)));
    counters.direct_refused_for(why) - before
}

/// A queue pair says which way its work goes, and why not directly.
#[test]
fn the_path_and_its_reason_are_told() {
    let peer = Peer::start_direct();
    assert_eq!(peer.end.qp.path_report().direct, Some(Ok(())));
    let mut without = Command::new(std::env::current_exe().expect("this program"));
    without.env("FERROCE_DIRECT", "0");
    let peer = Peer::start_by(without);
    assert!(work_by_packets(&peer, Refusal::Unacquainted) >= 2);
    let told = peer.end.qp.path_report().to_string();
    assert_eq!(
        told,
        "WRITE and READ by packets (the other process offers no direct way, or not yet), packets by shared ring"
    );
}

/// Processes of different PID and mount namespaces do not know each other by number: packets do it.
/// As a user that may not make namespaces it is not to be had.
#[test]
#[ignore = "makes namespaces: run by cargo xtask unit"]
fn other_namespaces_go_by_packets() {
    let mut apart = Command::new("unshare");
    apart.args([
        "--user",
        "--map-root-user",
        "--pid",
        "--mount",
        "--fork",
        "--kill-child",
    ]);
    apart.arg(std::env::current_exe().expect("this program"));
    let peer = Peer::start_by(apart);
    work_by_packets(&peer, Refusal::Unacquainted);
}
