//! Mapped memory that is taken back while peers are at it, and processes that end.

use std::time::{Duration, Instant};

use ferroce_proto::verbs::{SendOp, WcStatus};

use super::{counted_atomics, mapped, mappings, mappings_of, start};
use crate::common::{self, Buffer, Bytes, pattern, run_alone, wait_for};
use crate::other_process::peer::Peer;
use crate::other_process::race::{counted, race_all};
use crate::other_process::{CANARY, LEN, SEED};

/// Promise 1 in mapped memory: deregistration, and the queue pair's end, against operations that
/// are under way.
#[test]
fn memory_that_was_taken_back_is_not_touched() {
    let mut peer = start();
    let before = (mapped(&peer.end), counted_atomics(&peer.end));
    let ways = [
        ("register", 0, 500),
        ("register", 1, 12),
        ("register", 2, 12),
    ];
    race_all(&mut peer, &ways);
    let after = (mapped(&peer.end), counted_atomics(&peer.end));
    println!("{before:?} to {after:?} in mapped memory, and atomics");
    assert!(after.0 > before.0, "not in mapped memory");
    assert!(counted(&peer.end) >= after.0);
}

/// The same for windows on it, of both types.
#[test]
fn nor_through_a_window_that_was() {
    let mut peer = start();
    let before = mapped(&peer.end);
    let ways = [
        ("window 2", 3, 100),
        ("window 1", 4, 100),
        ("window 1", 5, 100),
        ("window 2", 6, 100),
    ];
    race_all(&mut peer, &ways);
    assert!(mapped(&peer.end) > before, "not in mapped memory");
}

/// An initiator that is killed in the middle of a copy does not hold up those whose memory it has
/// mapped.
#[test]
fn an_initiator_that_is_killed_lets_go() {
    for round in 0..12 {
        let mut peer = Peer::start_direct();
        let ours = Bytes::on_device(&peer.end.context, &vec![0; LEN]);
        let ours = Buffer::of(&peer.end.pd, ours);
        let own = (ours.addr(), ours.key());
        peer.connect(own);
        peer.ask("flood");
        let child = peer.child.id().to_string();
        wait_for("a mapping there", || mappings_of(&child) > 0);
        wait_for("a WRITE", || ours.snapshot()[0] == pattern(1, SEED)[0]);
        let until = Instant::now() + Duration::from_micros(round * 97);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        peer.child.kill().expect("killed");
        let mut bytes = ours.deregister();
        bytes.fill(CANARY);
        peer.child.wait().expect("ended");
        assert!(bytes.snapshot().iter().all(|byte| *byte == CANARY));
    }
}

/// A target that is killed: work on its memory, which is still mapped here, ends as work on a
/// process that is gone, and the mapping goes.
#[test]
fn a_target_that_is_killed_is_noticed() {
    for round in 0..6_u64 {
        let mut peer = start();
        let (remote, add) = (peer.remote, 1);
        let killed_at = 100 * round;
        for n in 0.. {
            if n == killed_at {
                peer.child.kill().expect("killed");
            }
            let own = vec![peer.buffer.sge(0, 8)];
            peer.end.send(3, SendOp::FetchAdd { remote, add }, own);
            let wc = common::next_completion(&peer.end.cq);
            if wc.status != WcStatus::Success {
                assert!(n >= killed_at);
                assert_eq!(wc.status, WcStatus::RetryExcErr);
                break;
            }
        }
    }
}

/// Device memory that is freed is unmapped by a process that has worked on it, though it does
/// nothing.
#[test]
fn memory_that_is_freed_is_unmapped() {
    let text = run_alone("taken_back::unmap_what_is_freed", &[]);
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "run by the test above: nobody else's mappings are counted"]
fn unmap_what_is_freed() {
    let mut peer = start();
    assert_eq!(mappings(), 1, "the buffer");
    let place = peer.opened("register");
    let bytes = vec![peer.buffer.sge(0, 8)];
    peer.end.send(1, SendOp::Write(place), bytes);
    peer.end.done(1);
    assert_eq!(mappings(), 2);
    peer.ask("free");
    wait_for("it is unmapped", || mappings() == 1);
    drop(peer);
    wait_for("all is unmapped", || mappings() == 0);
}
