//! The direct way to memory that its process shares: this program starts itself again as the other
//! process, which has device memory.

mod common;
mod other_process;
#[path = "direct_shared/taken_back.rs"]
mod taken_back;

use std::process::Command;

use common::process::Signal;
use common::{Buffer, End, pattern};
use ferroce_nic::{DirectWay, Refusal};
use ferroce_proto::ids::Key;
use ferroce_proto::verbs::{RemoteAddr, SendOp};
use other_process::peer::{Peer, on_device};
use other_process::refusals::{printed, refused};
use other_process::{LEN, SEED, child};

#[test]
#[ignore = "run by the tests below"]
fn child_process() {
    child::run();
}

/// A peer whose memory is mapped here.
fn start() -> Peer {
    let peer = Peer::start_on_device().directly();
    assert!(peer.end.qp.path_report().mapped, "not mapped");
    peer
}

/// What was done in mapped memory.
fn mapped(end: &End) -> u64 {
    end.context.device().counters().direct_mapped()
}

/// How much memory of other processes, or shared by itself, a process has mapped.
fn mappings_of(process: &str) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).expect("mappings");
    let is_shared = |line: &&str| line.contains("memfd:ferroce-shared");
    maps.lines().filter(is_shared).count()
}

/// The same of this one.
fn mappings() -> usize {
    mappings_of("self")
}

fn at(place: RemoteAddr, offset: u64) -> RemoteAddr {
    RemoteAddr {
        addr: place.addr + offset,
        ..place
    }
}

/// Carries out an atomic whose result goes to the first bytes of our buffer; returns what was
/// found.
fn atomic(peer: &Peer, op: SendOp) -> u64 {
    peer.end.send(3, op, vec![peer.buffer.sge(0, 8)]);
    assert_eq!(peer.end.done(3).byte_len, 8);
    word(&peer.buffer.snapshot(), 0)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Neither WRITE nor READ nor an atomic needs the target to run.
#[test]
fn a_stopped_process_is_worked_on() {
    let mut peer = start();
    peer.stop();
    let (before, atomics) = (mapped(&peer.end), counted_atomics(&peer.end));
    let own = Buffer::new(&peer.end.pd, pattern(LEN, 6));
    let bytes = vec![own.sge(0, 100), own.sge(200, 0), own.sge(100, 4900)];
    peer.end.send(1, SendOp::Write(peer.remote), bytes);
    peer.end.done(1);
    let (remote, was) = (at(peer.remote, 8), word(&pattern(LEN, 6), 8));
    let (compare, swap, add) = (was, 77, 5);
    let swaps = SendOp::CompareSwap {
        remote,
        compare,
        swap,
    };
    assert_eq!(atomic(&peer, swaps), was);
    assert_eq!(atomic(&peer, swaps), 77, "not equal: not swapped");
    assert_eq!(atomic(&peer, SendOp::FetchAdd { remote, add }), 77);
    let all = vec![peer.buffer.sge(0, LEN)];
    peer.end.send(2, SendOp::Read(peer.remote), all);
    peer.end.done(2);
    let mut expected = pattern(LEN, SEED);
    expected[..5000].copy_from_slice(&pattern(LEN, 6)[..5000]);
    expected[8..16].copy_from_slice(&82_u64.to_ne_bytes());
    assert_eq!(peer.buffer.snapshot(), expected);
    assert!(mapped(&peer.end) >= before + 5);
    assert!(counted_atomics(&peer.end) >= atomics + 3);
    peer.signal(Signal::SIGCONT);
    let byte = peer.ask("byte 4999");
    assert_eq!(byte, [u64::from(expected[4999])]);
    let told = peer.end.qp.path_report().to_string();
    let path = "WRITE and READ direct (shared memory is mapped), atomics direct";
    assert!(told.starts_with(path), "{told}");
}

fn counted_atomics(end: &End) -> u64 {
    end.context.device().counters().direct(DirectWay::Atomic)
}

/// An atomic after a SEND that waits for a receive waits with it.
#[test]
fn an_atomic_overtakes_nothing() {
    let mut peer = start();
    let (remote, add) = (peer.remote, 1);
    let first = word(&pattern(LEN, SEED), 0).to_ne_bytes()[0];
    peer.end.send(1, SendOp::Send, vec![]);
    let own = vec![peer.buffer.sge(8, 8)];
    peer.end.send(2, SendOp::FetchAdd { remote, add }, own);
    for _ in 0..20 {
        assert_eq!(peer.ask("byte 0"), [u64::from(first)]);
    }
    peer.ask("receive");
    peer.end.done(1);
    peer.end.done(2);
    assert_eq!(peer.ask("byte 0"), [u64::from(first.wrapping_add(1))]);
}

/// What other memory is asked for goes by packets, and says why.
#[test]
fn atomics_on_memory_that_is_not_shared_go_by_packets() {
    let peer = Peer::start_direct();
    let counters = peer.end.context.device().counters();
    let refused = || counters.direct_refused_for(Refusal::NotShared);
    let before = refused();
    let (remote, add) = (peer.remote, 3);
    let found = atomic(&peer, SendOp::FetchAdd { remote, add });
    assert_eq!(found, word(&pattern(LEN, SEED), 0));
    assert_eq!(atomic(&peer, SendOp::FetchAdd { remote, add }), found + 3);
    assert!(refused() >= before + 2);
    let report = peer.end.qp.path_report();
    assert_eq!(report.atomics, Some(Err(Refusal::NotShared)));
    assert_eq!(report.direct, Some(Ok(())));
}

/// A counter that one process counts up in its mapping, a second one by packets, and its owner's
/// responder with them: nothing is lost, and no value is found twice.
#[test]
fn atomics_are_atomic_on_all_paths() {
    const EACH: u64 = 4000;
    let mut owner = start();
    let place = owner.remote;
    let exe = std::env::current_exe().expect("this program");
    let run = |direct: &str| {
        let mut other = Command::new(&exe);
        other.env("FERROCE_DIRECT", direct);
        Peer::start_by(other)
    };
    // Three children: the owner's has a queue pair for each of the others.
    let mut adders = [run("1"), run("0")];
    for adder in &mut adders {
        let theirs = adder.ask("number")[0];
        let ours = owner.ask(&format!("another {theirs}"));
        let [qpn, addr, key] = ours[..] else {
            panic!("three numbers")
        };
        adder.ask(&format!("join {qpn} {addr} {key}"));
        adder.tell(&format!("add {EACH}"));
    }
    let before = counted_atomics(&owner.end);
    let add = SendOp::FetchAdd {
        remote: place,
        add: 1,
    };
    let mut found: Vec<u64> = (0..EACH).map(|_| atomic(&owner, add)).collect();
    for adder in &mut adders {
        found.extend(adder.hear());
    }
    assert!(counted_atomics(&owner.end) >= before + EACH);
    let first = word(&pattern(LEN, SEED), 0);
    found.sort_unstable();
    let all: Vec<_> = (0..3 * EACH).map(|n| first + n).collect();
    assert!(found == all, "lost, or found twice");
}

/// What the two ends see of atomics that the target refuses, as text.
fn refusals() -> String {
    let mut seen = String::new();
    let mut peer = Peer::start_by(on_device());
    let end = LEN as u64;
    for (wrong_key, offset) in [(1, 0), (0, 4), (0, end), (0, end - 4), (0, u64::MAX - 7)] {
        let remote = RemoteAddr {
            addr: peer.remote.addr.wrapping_add(offset),
            rkey: Key(peer.remote.rkey.0 ^ wrong_key),
        };
        let swap = SendOp::CompareSwap {
            remote,
            compare: 0,
            swap: 1,
        };
        for op in [SendOp::FetchAdd { remote, add: 1 }, swap] {
            seen += &refused(&mut peer, op);
        }
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
    assert_eq!(packets.len(), 10);
    let failed =
        |line: &String| line.starts_with("RemAccessErr") || line.starts_with("RemInvReqErr");
    assert!(packets.iter().all(failed), "{packets:?}");
}

/// Random work on the other side's memory: what was found, and what is there in the end.
fn random_work() -> String {
    let peer = Peer::start_by(on_device());
    let mut peer = if std::env::var("FERROCE_DIRECT").is_ok_and(|v| v == "1") {
        peer.directly()
    } else {
        peer
    };
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut below = |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % n
    };
    let mut sum = 0_u64;
    for _ in 0..2000 {
        let (len, from) = (1 + below(9000), below(LEN as u64 - 9000));
        let to = below(LEN as u64 - 9000);
        let remote = at(peer.remote, to / 8 * 8);
        let own = |len| vec![peer.buffer.sge(usize::try_from(from).expect("small"), len)];
        let bytes = usize::try_from(len).expect("small");
        let (op, own) = match below(4) {
            0 => (SendOp::Write(at(peer.remote, to)), own(bytes)),
            1 => (SendOp::Read(at(peer.remote, to)), own(bytes)),
            2 => (SendOp::FetchAdd { remote, add: len }, own(8)),
            _ => {
                let compare = sum;
                let swap = SendOp::CompareSwap {
                    remote,
                    compare,
                    swap: to,
                };
                (swap, own(8))
            }
        };
        peer.end.send(5, op, own);
        peer.end.done(5);
        let bytes = peer.buffer.snapshot();
        sum = bytes
            .iter()
            .fold(sum, |sum, byte| sum.rotate_left(7) ^ u64::from(*byte));
    }
    let all = vec![peer.buffer.sge(0, LEN)];
    peer.end.send(6, SendOp::Read(peer.remote), all);
    peer.end.done(6);
    let bytes = peer.buffer.snapshot();
    let last = peer.ask("byte 4711");
    format!(
        "{sum} {last:?} {:?} {}",
        &bytes[..64],
        mapped(&peer.end) > 0
    )
}

#[test]
#[ignore = "run by the test below"]
fn print_random_work() {
    println!("seen\n{}\n", random_work());
}

/// The same work does the same on both ways.
#[test]
fn what_is_done_is_what_packets_do() {
    let (direct, packets) = (
        printed("print_random_work", "1"),
        printed("print_random_work", "0"),
    );
    let (direct, was_mapped) = direct[0].rsplit_once(' ').expect("words");
    let (packets, was_not) = packets[0].rsplit_once(' ').expect("words");
    assert_eq!(direct, packets);
    assert_eq!((was_mapped, was_not), ("true", "false"));
}
